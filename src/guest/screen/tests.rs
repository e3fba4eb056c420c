//! The handle and its thread; what is painted is tested in the modules here.

mod painting;
mod random;

use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;

const SIZE: wire::Size = wire::Size { cols: 20, rows: 4 };

/// Panics when it is given `panic`, and waits where it is given `wait` until the test goes on.
struct Moody(Vterm);

static GATE: Mutex<()> = Mutex::new(());

impl ScreenModel for Moody {
    fn process(&mut self, bytes: &[u8]) -> Vec<wire::Notice> {
        if bytes.starts_with(b"wait") {
            drop(GATE.lock());
        }
        assert!(!bytes.ends_with(b"panic"), "as the test wants it");
        self.0.process(bytes)
    }

    fn resize(&mut self, size: wire::Size) {
        self.0.resize(size);
    }

    fn redraw(&self, scrollback: u32) -> Vec<u8> {
        assert!(scrollback != 99, "as the test wants it");
        self.0.redraw(scrollback)
    }

    fn peek(&self, scrollback: u32) -> wire::Screen {
        self.0.peek(scrollback)
    }
}

fn moody(size: wire::Size, scrollback: u32) -> Box<dyn ScreenModel> {
    Box::new(Moody(Vterm::new(size, scrollback)))
}

fn started() -> (Screen, File) {
    let (reader, writer) = io::pipe().unwrap();
    (Screen::start(SIZE, 100, writer.into()).unwrap(), File::from(OwnedFd::from(reader)))
}

fn started_moody() -> (Screen, File) {
    let (reader, writer) = io::pipe().unwrap();
    (Screen::start_with(moody, SIZE, 100, writer.into()).unwrap(), File::from(OwnedFd::from(reader)))
}

/// Waits until it is woken, and takes the answers.
fn woken(screen: &Screen, mut wake: &File) -> Vec<Answer> {
    let mut fds = [PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(60_000_u16)), Ok(1), "it is woken");
    wake.read_exact(&mut [0; 8]).unwrap();
    screen.answers()
}

fn peeked(screen: &Screen, wake: &File) -> wire::Screen {
    screen.peek(7, 0);
    match woken(screen, wake).pop() {
        Some(Answer::Peeked { token: 7, screen }) => screen,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_painting_has_what_was_fed_before_it_was_asked_for_and_nothing_else() {
    let (screen, wake) = started();
    assert!(screen.feed(b"one "));
    screen.redraw(1, 0);
    screen.feed(b"two");
    screen.resize(wire::Size { cols: 30, rows: 5 });
    screen.redraw(2, 0);
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(woken(&screen, &wake));
    }
    let shown = |answer: &Answer, want: u64| match answer {
        Answer::Painted { token, bytes } if *token == want => {
            emulator::Emulator::show(SIZE, bytes).text(0)[0].clone()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((shown(&answers[0], 1).as_str(), shown(&answers[1], 2).as_str()), ("one", "one two"));
    assert_eq!(peeked(&screen, &wake).size, wire::Size { cols: 30, rows: 5 });
}

#[test]
fn a_full_queue_takes_what_it_is_given_says_so_and_tells_when_there_is_room() {
    let gate = GATE.lock();
    let (screen, wake) = started_moody();
    let mut fed = 0;
    screen.feed(b"wait\r\n");
    while screen.feed(&[b'.'; 4096]) {
        fed += 4096;
        assert!(fed <= MAX_WAITING_BYTES);
    }
    assert!(fed > MAX_WAITING_BYTES - 8192);
    assert!(!screen.feed(b"\r\nlast"));
    assert!(screen.answers().is_empty());
    drop(gate);
    assert_eq!(woken(&screen, &wake), [Answer::Room]);
    assert!(screen.feed(b"!"));
    assert_eq!(peeked(&screen, &wake).lines[3], "last!");
}

#[test]
fn a_model_that_panics_is_replaced_by_an_empty_one_of_the_same_size() {
    let (screen, wake) = started_moody();
    screen.feed(b"before\x1b[?1000h");
    assert_eq!(peeked(&screen, &wake).lines[0], "before");
    screen.resize(wire::Size { cols: 10, rows: 3 });
    screen.feed(b"panic");
    let shown = peeked(&screen, &wake);
    assert_eq!((shown.lines[0].as_str(), shown.size), ("", wire::Size { cols: 10, rows: 3 }));
    screen.feed(b"after");
    assert_eq!(peeked(&screen, &wake).lines[0], "after");
    screen.redraw(3, 99);
    assert_eq!(
        woken(&screen, &wake),
        [Answer::Painted { token: 3, bytes: Vec::new() }],
        "nothing, but an answer"
    );
}

#[test]
fn the_thread_ends_with_the_handle() {
    let (screen, wake) = started();
    screen.feed(&vec![b'x'; 1 << 20]);
    let shared = Arc::downgrade(&screen.shared);
    drop(screen);
    let deadline = Instant::now() + Duration::from_secs(60);
    while shared.strong_count() > 0 {
        assert!(Instant::now() < deadline, "the thread goes on");
        thread::yield_now();
    }
    let mut rest = Vec::new();
    (&wake).read_to_end(&mut rest).expect("the other end is closed");
}
