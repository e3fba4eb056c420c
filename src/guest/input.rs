//! What waits to be read by a command, and whose credit it is.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::poller::{Interest, Key, Poller, Token, Watched};

/// Input that may wait in all, from whomever, in bytes. Past it nobody else may begin to write; those who do may fill
/// their windows.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// The input of one command.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// None once it has ended, or nobody reads it.
    to: Option<Watched>,
    waiting: VecDeque<Piece>,
    bytes: usize,
    ends: bool,
}

#[derive(Debug)]
struct Piece {
    from: u32,
    bytes: Vec<u8>,
    done: usize,
}

/// So many bytes of a stream were taken.
pub(super) type Taken = (u32, usize);

impl Input {
    /// Writes to `fd`; without one all that comes is thrown away.
    pub(super) fn new(fd: Option<OwnedFd>, key: Key) -> Self {
        Self { to: fd.map(|fd| Watched::new(fd, Token::Input(key))), ..Self::default() }
    }

    /// Whether one more may begin to write.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < MAX_WAITING
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds what came on a stream.
    pub(super) fn push(&mut self, from: u32, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.waiting.push_back(Piece { from, bytes, done: 0 });
    }

    /// Ends it after what waits.
    pub(super) fn end(&mut self) {
        self.ends = true;
    }

    /// Ends it now: the command has ended.
    pub(super) fn close(&mut self) -> Vec<Taken> {
        self.to = None;
        self.take_all()
    }

    /// Writes what can be written. What nobody will read counts as taken, so that its sender does not wait for ever.
    pub(super) fn write(&mut self) -> Vec<Taken> {
        let mut taken = Vec::new();
        while let (Some(to), Some(piece)) = (&self.to, self.waiting.front_mut()) {
            match rustix::io::write(to, &piece.bytes[piece.done..]) {
                Ok(written) => {
                    piece.done += written;
                    self.bytes -= written;
                    taken.push((piece.from, written));
                    if piece.done == piece.bytes.len() {
                        self.waiting.pop_front();
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.to = None,
            }
        }
        if self.to.is_none() {
            taken.extend(self.take_all());
        }
        if self.ends && self.waiting.is_empty() {
            self.to = None;
        }
        taken
    }

    /// Waits for the command only while something waits for it.
    pub(super) fn settle(&mut self, poller: &Poller) {
        let write = !self.waiting.is_empty();
        if let Some(to) = &mut self.to {
            poller.set(to, Interest { read: false, write });
        }
    }

    fn take_all(&mut self) -> Vec<Taken> {
        self.bytes = 0;
        self.waiting.drain(..).map(|piece| (piece.from, piece.bytes.len() - piece.done)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, Input) {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        (reader, Input::new(Some(writer), 1))
    }

    fn sum(taken: &[Taken]) -> usize {
        taken.iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn it_ends_only_after_what_waits() {
        let (reader, mut input) = pipe();
        input.push(1, vec![7; 100_000]);
        input.end();
        let first = sum(&input.write());
        assert_eq!(first, 65_536);
        let mut all = 0;
        let mut buffer = vec![0; 200_000];
        while let Ok(read) = rustix::io::read(&reader, &mut buffer) {
            if read == 0 {
                break;
            }
            all += read;
            input.write();
        }
        assert_eq!(all, 100_000);
    }

    #[test]
    fn what_nobody_reads_counts_as_taken() {
        let (reader, mut input) = pipe();
        drop(reader);
        input.push(1, vec![7; 10]);
        input.push(2, vec![7; 20]);
        assert_eq!(input.write(), [(1, 10), (2, 20)]);
        input.push(2, vec![7; 30]);
        assert_eq!(input.write(), [(2, 30)]);
        assert!(input.has_room());
    }
}
