//! A terminal: its two sides, its size, and the screen that is painted for those who come to it.
//!
//! The screen's model lives on its own thread. What it answers comes back here, to whom asked.

use std::io;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::screen::{Answer, Screen};
use super::wire::{self, Size};

/// What its ring holds, in bytes: more than the screen's queue, so that what came while a screen was being painted is
/// still there when it is.
pub(super) const RING_BYTES: usize = 2 * 1024 * 1024;

/// A follower that takes nothing, with more than this waiting, in bytes, gets a fresh screen in its place.
pub(super) const BEHIND_BYTES: u64 = 256 * 1024;

/// A follower that reads, with more than this waiting, is waited for.
pub(super) const CROWDED_BYTES: u64 = 128 * 1024;

/// How long the screen may not know what was written. The processors are better used for the way of a key to its echo
/// than for waking another thread at each.
const LOOKS_AFTER: Duration = Duration::from_millis(2);

/// How often it is told that a terminal writes.
const ACTIVE_EVERY: Duration = Duration::from_secs(1);

/// Whose answer it is that shows the screen as the program left it.
const LAST: u64 = u64::MAX;

/// Smallest and greatest number of columns or rows.
const SIDES: (u16, u16) = (1, 1000);

/// Opens a terminal of this size: our side, and the program's.
///
/// # Errors
/// When the sandbox has no more of them.
pub(super) fn open(size: Size) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&ours)?;
    set_size(&ours, bounded(size))?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    // By descriptor: the sandbox may show no name for it.
    let its = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    Ok((ours, its))
}

fn set_size(terminal: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_col: size.cols, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// A size that a program and a screen can work with.
pub(super) fn bounded(size: Size) -> Size {
    Size { cols: size.cols.clamp(SIDES.0, SIDES.1), rows: size.rows.clamp(SIDES.0, SIDES.1) }
}

/// Whom an answer of a screen is for: a stream, of one connection, which asked to see it or to be painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    /// Counts connections: their streams' numbers begin anew.
    pub(super) generation: u32,
    /// The stream.
    pub(super) stream: u32,
}

impl Asker {
    fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.stream)
    }

    fn of(token: u64) -> Self {
        let low = |token: u64| u32::try_from(token & u64::from(u32::MAX)).unwrap_or(0);
        Self { generation: low(token >> 32), stream: low(token) }
    }
}

/// An answer, and whom it is for.
#[derive(Debug)]
pub(super) enum Shown {
    /// Bytes that paint it.
    Painted(Asker, Vec<u8>),
    /// Its text; none when there is no model.
    Peeked(Asker, Option<wire::Screen>),
    /// What its program says, for whoever is there.
    Heard(wire::Notice),
}

/// A terminal.
pub(super) struct Terminal {
    size: Size,
    model: Model,
    /// When it was last told that it writes, and whether it wrote since.
    active: Option<Instant>,
    untold: bool,
    /// Whether the screen is going to be roused.
    looks: bool,
}

/// When it is to be told that a terminal writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Now.
    Now,
    /// Then, once.
    At(Instant),
    /// It is going to be told.
    Known,
}

enum Model {
    /// It runs; whether its queue has room.
    Live { screen: Screen, room: bool },
    /// The program has ended: how it left the screen, as far as it is known yet, and who asked for that meanwhile.
    Ending { screen: Screen, painted: Option<Vec<u8>>, peeked: Option<wire::Screen>, asked: Vec<Asked> },
    /// What it left.
    Ended { painted: Vec<u8>, peeked: wire::Screen },
    /// The sandbox had no room for one.
    None,
}

/// What is wanted of a screen, and by whom. A text has so many lines of scrollback.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Painting(Asker),
    Text(Asker, u32),
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Terminal {
    /// A blank one; `wake` is written to whenever an answer is ready. Without room for a model it works all the same, but
    /// cannot be painted.
    pub(super) fn new(size: Size, scrollback: u32, wake: io::Result<OwnedFd>) -> Self {
        let size = bounded(size);
        let screen = wake.and_then(|wake| Screen::start(size, scrollback, wake));
        let model = screen.map_or(Model::None, |screen| Model::Live { screen, room: true });
        Self { size, model, active: None, untold: false, looks: false }
    }

    /// Its size.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Whether what is read can be fed now.
    pub(super) fn has_room(&self) -> bool {
        !matches!(self.model, Model::Live { room: false, .. })
    }

    /// Feeds what the program wrote.
    pub(super) fn feed(&mut self, pieces: [IoSlice<'_>; 2]) {
        if let Model::Live { screen, room } = &mut self.model {
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                *room = screen.feed(piece);
            }
        }
    }

    /// It was fed at `now`: when its screen is to [look](Self::look), if that is not planned yet.
    pub(super) fn looks_at(&mut self, now: Instant) -> Option<Instant> {
        let planned = std::mem::replace(&mut self.looks, true);
        (!planned).then_some(now + LOOKS_AFTER)
    }

    /// Lets its screen work on what it was fed.
    pub(super) fn look(&mut self) {
        self.looks = false;
        if let Model::Live { screen, .. } = &self.model {
            screen.rouse();
        }
    }

    /// It wrote something: when that is to be told.
    pub(super) fn wrote(&mut self, now: Instant) -> News {
        match self.active.map(|last| last + ACTIVE_EVERY).filter(|next| *next > now) {
            None => {
                (self.active, self.untold) = (Some(now), false);
                News::Now
            }
            Some(_) if self.untold => News::Known,
            Some(next) => {
                self.untold = true;
                News::At(next)
            }
        }
    }

    /// Whether it wrote something that is to be told now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = std::mem::take(&mut self.untold);
        if due {
            self.active = Some(now);
        }
        due
    }

    /// Changes its size; `ours` is our side, if it is still open.
    pub(super) fn resize(&mut self, ours: Option<impl AsFd>, size: Size) {
        let size = bounded(size);
        if size == self.size {
            return;
        }
        self.size = size;
        if let Model::Live { screen, .. } = &self.model {
            screen.resize(size);
        }
        if let Some(ours) = ours {
            // Only a terminal that is gone has no size.
            let _ = set_size(ours, size);
        }
    }

    /// Bytes that paint it as it is after all that was fed, where the model need not be asked: else they are among the
    /// [answers](Self::answers).
    pub(super) fn redraw(&mut self, asker: Asker, scrollback: u32) -> Option<Vec<u8>> {
        match &mut self.model {
            Model::Live { screen, .. } => screen.redraw(asker.token(), scrollback),
            Model::Ending { asked, .. } => asked.push(Asked::Painting(asker)),
            Model::Ended { painted, .. } => return Some(painted.clone()),
            Model::None => return Some(b"\x1bc".to_vec()),
        }
        None
    }

    /// Its text, where the model need not be asked: else it is among the [answers](Self::answers).
    pub(super) fn peek(&mut self, asker: Asker, scrollback: u32) -> Option<Shown> {
        match &mut self.model {
            Model::Live { screen, .. } => screen.peek(asker.token(), scrollback),
            Model::Ending { asked, .. } => asked.push(Asked::Text(asker, scrollback)),
            Model::Ended { peeked, .. } => {
                return Some(Shown::Peeked(asker, Some(with_scrollback(peeked.clone(), scrollback))));
            }
            Model::None => return Some(Shown::Peeked(asker, None)),
        }
        None
    }

    /// The program has ended: keeps what it left, and lets the model go.
    pub(super) fn end(&mut self) {
        self.model = match std::mem::replace(&mut self.model, Model::None) {
            Model::Live { screen, .. } => {
                screen.redraw(LAST, 0);
                screen.peek(LAST, u32::MAX);
                Model::Ending { screen, painted: None, peeked: None, asked: Vec::new() }
            }
            other => other,
        };
    }

    /// What is ready.
    pub(super) fn answers(&mut self) -> Vec<Shown> {
        let mut shown = Vec::new();
        let answers = match &self.model {
            Model::Live { screen, .. } | Model::Ending { screen, .. } => screen.answers(),
            Model::Ended { .. } | Model::None => Vec::new(),
        };
        for answer in answers {
            match (answer, &mut self.model) {
                (Answer::Room, Model::Live { room, .. }) => *room = true,
                (Answer::Painted { token: LAST, bytes }, Model::Ending { painted, .. }) => {
                    *painted = Some(bytes);
                }
                (Answer::Peeked { token: LAST, screen }, Model::Ending { peeked, .. }) => {
                    *peeked = Some(screen)
                }
                (Answer::Painted { token, bytes }, _) => shown.push(Shown::Painted(Asker::of(token), bytes)),
                (Answer::Peeked { token, screen }, _) => {
                    shown.push(Shown::Peeked(Asker::of(token), Some(screen)));
                }
                (Answer::Heard(notice), _) => shown.push(Shown::Heard(notice)),
                (Answer::Room, _) => {}
            }
        }
        shown.append(&mut self.settle_end());
        shown
    }

    /// Lets the model go once it is known what it left, and gives that to those who asked meanwhile: the model's thread
    /// will not answer them.
    fn settle_end(&mut self) -> Vec<Shown> {
        let Model::Ending { painted: painted @ Some(_), peeked: peeked @ Some(_), asked, .. } =
            &mut self.model
        else {
            return Vec::new();
        };
        let (painted, peeked) = (painted.take().unwrap_or_default(), peeked.take().unwrap_or_default());
        let asked = std::mem::take(asked);
        self.model = Model::Ended { painted, peeked: with_scrollback(peeked, u32::MAX) };
        let answer = |asked| match asked {
            Asked::Painting(asker) => Some(Shown::Painted(asker, self.redraw(asker, 0)?)),
            Asked::Text(asker, scrollback) => self.peek(asker, scrollback),
        };
        asked.into_iter().filter_map(answer).collect()
    }
}

/// Leaves only so many lines of scrollback, and no more than a frame holds.
pub(super) fn with_scrollback(mut screen: wire::Screen, lines: u32) -> wire::Screen {
    let bytes = |line: &String| line.len() + 4;
    let mut total: usize = screen.lines.iter().map(bytes).sum();
    let mut dropped = 0;
    for line in &screen.lines {
        let above = screen.scrollback.saturating_sub(dropped) > lines;
        if !above && total <= wire::MAX_FROM_GUEST / 2 {
            break;
        }
        total -= bytes(line);
        dropped += 1;
    }
    screen.lines.drain(..dropped as usize);
    screen.scrollback = screen.scrollback.saturating_sub(dropped);
    screen.title.truncate(screen.title.floor_char_boundary(1024));
    screen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asker_comes_back_as_it_went() {
        let asker = Asker { generation: 3, stream: u32::MAX };
        assert_eq!(Asker::of(asker.token()), asker);
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let lines = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let screen = wire::Screen { lines, scrollback: 3, ..wire::Screen::default() };
        let one = with_scrollback(screen.clone(), 1);
        assert_eq!((one.lines, one.scrollback), (vec!["c".to_owned(), "d".to_owned()], 1));
        assert_eq!(with_scrollback(screen.clone(), 9), screen);
        let long = wire::Screen { lines: vec!["x".repeat(1000); 300], scrollback: 200, ..screen };
        let short = with_scrollback(long, u32::MAX);
        assert!(short.lines.len() < 132 && short.scrollback < 32, "{}", short.lines.len());
    }

    #[test]
    fn who_asks_while_a_program_ends_is_answered_with_what_it_left() {
        let asker = |stream| Asker { generation: 1, stream };
        for _ in 0..200 {
            let (woken, wake) = std::io::pipe().unwrap();
            let mut terminal = Terminal::new(Size { cols: 20, rows: 2 }, 10, Ok(wake.into()));
            terminal.feed([IoSlice::new(b"left"), IoSlice::new(b"")]);
            terminal.end();
            assert!(terminal.redraw(asker(1), 0).is_none() && terminal.peek(asker(2), 0).is_none());
            let mut shown = Vec::new();
            while shown.len() < 2 {
                let read = rustix::io::read(&woken, &mut [0; 8]);
                assert_eq!(read, Ok(8), "{shown:?} is all that was answered");
                shown.append(&mut terminal.answers());
            }
            assert!(matches!(&shown[0], Shown::Painted(by, bytes) if *by == asker(1) && !bytes.is_empty()));
            assert!(
                matches!(&shown[1], Shown::Peeked(by, Some(seen)) if *by == asker(2) && seen.lines[0] == "left")
            );
            assert!(terminal.redraw(asker(3), 0).is_some(), "now it is known at once");
        }
    }

    #[test]
    fn the_first_of_what_it_writes_is_told_at_once_and_the_last_within_a_second() {
        let mut terminal = Terminal::new(Size { cols: 1, rows: 1 }, 0, Err(io::ErrorKind::Other.into()));
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(terminal.wrote(began), News::Now);
        assert_eq!(terminal.wrote(after(200)), News::At(after(1000)));
        assert_eq!(terminal.wrote(after(900)), News::Known);
        assert!(terminal.is_due(after(1000)) && !terminal.is_due(after(1001)));
        assert_eq!(terminal.wrote(after(1500)), News::At(after(2000)));
        assert_eq!(terminal.wrote(after(2500)), News::Now);
        assert!(!terminal.is_due(after(2600)), "it was told meanwhile");
    }

    #[test]
    fn a_terminal_has_its_size_before_anything_runs_in_it() {
        let (ours, its) = open(Size { cols: 0, rows: 40 }).unwrap();
        let size = rustix::termios::tcgetwinsize(&its).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (1, 40));
        drop(ours);
    }
}
