//! The way in of a raw stream, which goes on over a connection that is lost and comes back.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::proto::stream::{FrameKind, HEADER_BYTES, MAX_FRAME_BYTES, Size, header};

/// What is kept of what is typed while the connection is lost, in bytes: a page that is pasted. Past it, whoever types
/// waits.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// The way in. Clones share it; a frame is never torn by another.
#[derive(Debug, Clone)]
pub struct Sender {
    way: Arc<Way>,
}

#[derive(Debug)]
struct Way {
    /// One frame at a time.
    turn: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    socket: Arc<UnixStream>,
    /// Whether another connection may come when this one is lost.
    comes_back: bool,
    /// Whether this one is lost. Then frames are kept for the next.
    lost: bool,
    kept: Vec<u8>,
}

impl Sender {
    pub(super) fn new(socket: UnixStream) -> Self {
        let state = State { socket: Arc::new(socket), comes_back: false, lost: false, kept: Vec::new() };
        Self {
            way: Arc::new(Way { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() }),
        }
    }

    /// Whether what is sent while the connection is lost is kept, and goes out when it is back; without it, sending fails
    /// then. What a daemon had taken and not passed on when it was killed is lost all the same: for the keys of a
    /// terminal, not for a file of which a piece would be missing.
    pub fn set_comes_back(&self, comes_back: bool) {
        self.state().comes_back = comes_back;
        self.way.changed.notify_all();
    }

    pub(super) fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.state().socket)
    }

    /// Goes on with the connection of another, and sends there first what was kept; where nobody waits for it any more,
    /// it ends at once.
    pub(super) fn move_to(&self, other: &Sender) {
        let socket = other.socket();
        let _turn = self.turn();
        let mut state = self.state();
        state.socket = Arc::clone(&socket);
        // Under the same lock as the change: who hangs up has either seen this connection or said so before.
        if !state.comes_back {
            // Fails only when the connection is gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        // It is new and holds as much. Where it is lost again, so is this.
        let sent = (&*socket).write_all(&kept);
        self.state().lost = sent.is_err();
        self.way.changed.notify_all();
    }

    /// Sends bytes of input. Blocks while the command does not read.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn input(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(MAX_FRAME_BYTES).try_for_each(|chunk| self.frame(FrameKind::Input, chunk))
    }

    /// Says that there is no more input.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn end_input(&self) -> io::Result<()> {
        self.frame(FrameKind::Input, &[])
    }

    /// Tells the terminal's new size.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        let payload = serde_json::to_vec(&size).map_err(io::Error::other)?;
        self.frame(FrameKind::Resize, &payload)
    }

    /// Passes a signal on to the command.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn signal(&self, number: u8) -> io::Result<()> {
        self.frame(FrameKind::Signal, &[number])
    }

    /// Ends the connection at once, also for a thread that waits on it. No other comes.
    pub fn hang_up(&self) {
        self.set_comes_back(false);
        // Fails only when the connection is gone already.
        let _ = self.socket().shutdown(Shutdown::Both);
    }

    fn frame(&self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.extend_from_slice(&header(kind, payload.len()));
        frame.extend_from_slice(payload);
        let mut turn = self.turn();
        loop {
            let socket = {
                let mut state = self.state();
                if !state.lost {
                    Arc::clone(&state.socket)
                } else if !state.comes_back {
                    return Err(io::ErrorKind::NotConnected.into());
                } else if state.kept.len() + frame.len() <= MAX_KEPT_BYTES {
                    state.kept.extend_from_slice(&frame);
                    return Ok(());
                } else {
                    // Who brings the next connection takes a turn.
                    drop(turn);
                    let waits = |state: &mut State| state.lost && state.comes_back;
                    drop(self.way.changed.wait_while(state, waits));
                    turn = self.turn();
                    continue;
                }
            };
            let Err(error) = (&*socket).write_all(&frame) else { return Ok(()) };
            let mut state = self.state();
            if !state.comes_back {
                return Err(error);
            }
            state.lost = true;
        }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.way.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.way.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::proto::stream::parse_header;

    #[test]
    fn frames_of_several_threads_are_never_torn() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sender = Sender::new(ours);
        let threads: Vec<_> = (0..4_u8)
            .map(|n| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..50).try_for_each(|_| sender.input(&vec![n; 1000])))
            })
            .collect();
        for _ in 0..200 {
            let mut head = [0; HEADER_BYTES];
            theirs.read_exact(&mut head).expect("a header");
            assert_eq!(parse_header(head).expect("short"), (Some(FrameKind::Input), 1000));
            let mut payload = vec![0; 1000];
            theirs.read_exact(&mut payload).expect("a payload");
            assert!(payload.iter().all(|b| *b == payload[0]));
        }
        for thread in threads {
            thread.join().expect("no panic").expect("sent");
        }
    }

    #[test]
    fn keys_are_kept_while_a_connection_is_lost_and_pass_when_it_is_back() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sender = Sender::new(ours);
        drop(theirs);
        sender.input(b"a").expect_err("nobody is there, and nobody comes");
        sender.set_comes_back(true);
        // Whoever types is not held up: the next keys may be those that leave.
        sender.input(b"b").and_then(|()| sender.input(b"c")).expect("kept");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        sender.move_to(&Sender::new(ours));
        sender.input(b"d").expect("sent");
        let mut frames = [0; 3 * (HEADER_BYTES + 1)];
        theirs.read_exact(&mut frames).expect("all of them");
        let one = |key: &[u8]| [&header(FrameKind::Input, 1)[..], key].concat();
        assert_eq!(frames[..], [one(b"b"), one(b"c"), one(b"d")].concat());
    }

    #[test]
    fn who_hangs_up_ends_the_connection_that_comes_meanwhile_too() {
        for hangs_up_first in [true, false] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let sender = Sender::new(ours);
            sender.set_comes_back(true);
            drop(theirs);
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            let mut reads = ours.try_clone().expect("a second one");
            if hangs_up_first {
                sender.hang_up();
            }
            sender.move_to(&Sender::new(ours));
            if !hangs_up_first {
                sender.hang_up();
            }
            // Without an end it would be waited for, for ever.
            for end in [&mut reads, &mut theirs] {
                end.set_nonblocking(true).expect("a socket");
                assert_eq!(end.read(&mut [0]).expect("its end"), 0);
            }
            sender.input(b"x").expect_err("nobody is there, and nobody comes");
        }
    }

    #[test]
    fn who_types_more_than_is_kept_waits_for_the_connection_or_for_its_end() {
        let more = vec![b'x'; MAX_KEPT_BYTES];
        for comes in [true, false] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let sender = Sender::new(ours);
            sender.set_comes_back(true);
            drop(theirs);
            let waiting = std::thread::spawn({
                let (sender, more) = (sender.clone(), more.clone());
                move || sender.input(&more)
            });
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            if comes {
                sender.move_to(&Sender::new(ours));
                let mut frame = vec![0; HEADER_BYTES + more.len()];
                theirs.read_exact(&mut frame).expect("all of it");
                assert!(frame[HEADER_BYTES..] == more);
            } else {
                sender.hang_up();
            }
            assert_eq!(waiting.join().expect("no panic").is_ok(), comes);
        }
    }
}
