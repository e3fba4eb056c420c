//! Which descriptors are waited for, and what each of them means.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// Events taken at once; more wait for the next turn.
const EVENTS: usize = 128;

/// A command in the table of those that are known; never used again.
pub(super) type Key = u64;

/// What a descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// The connection to abxd.
    Link,
    /// Signals, among them the ends of processes.
    Signals,
    /// The directory in which abxd's socket appears.
    Directory,
    /// The socket that a bridge connects to.
    Listener,
    /// A screen has an answer.
    Screens,
    /// A program of the sandbox says something.
    Notices,
    /// Output of a command: 0 is standard output or the terminal, 1 standard error.
    Output(Key, usize),
    /// Input of a command.
    Input(Key),
}

impl Token {
    fn encode(self) -> u64 {
        let (key, kind) = match self {
            Self::Link => (0, 0),
            Self::Signals => (0, 1),
            Self::Directory => (0, 2),
            Self::Listener => (0, 3),
            Self::Screens => (0, 4),
            Self::Output(key, which) => (key, if which == 0 { 5 } else { 6 }),
            Self::Input(key) => (key, 7),
            Self::Notices => (0, 8),
        };
        key << 4 | kind
    }

    fn decode(data: u64) -> Self {
        let key = data >> 4;
        match data & 15 {
            0 => Self::Link,
            1 => Self::Signals,
            2 => Self::Directory,
            3 => Self::Listener,
            4 => Self::Screens,
            5 => Self::Output(key, 0),
            6 => Self::Output(key, 1),
            7 => Self::Input(key),
            _ => Self::Notices,
        }
    }
}

/// What a descriptor is waited for. One that is waited for nothing is taken out: a pipe whose other end is closed would
/// wake the loop for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Interest {
    /// Until it can be read.
    pub(super) read: bool,
    /// Until it can be written.
    pub(super) write: bool,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

/// A descriptor and what it is waited for. Closing it ends the waiting.
#[derive(Debug)]
pub(super) struct Watched {
    fd: OwnedFd,
    token: Token,
    now: Interest,
}

impl Watched {
    /// Holds `fd`, which is waited for nothing yet.
    pub(super) fn new(fd: OwnedFd, token: Token) -> Self {
        Self { fd, token, now: Interest::default() }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What waits.
pub(super) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// Waits for nothing yet.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Changes what a descriptor is waited for. A descriptor that cannot be waited for (the system's limit) stays as
    /// it is; the next change tries again.
    pub(super) fn set(&self, watched: &mut Watched, wanted: Interest) {
        if watched.now == wanted {
            return;
        }
        let data = epoll::EventData::new_u64(watched.token.encode());
        let none = Interest::default();
        let done = if wanted == none {
            epoll::delete(&self.epoll, &watched.fd)
        } else if watched.now == none {
            epoll::add(&self.epoll, &watched.fd, data, wanted.flags())
        } else {
            epoll::modify(&self.epoll, &watched.fd, data, wanted.flags())
        };
        if done.is_ok() {
            watched.now = wanted;
        }
    }

    /// Waits until something can be done, or `timeout` is over.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Vec<Token> {
        self.events.clear();
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        // Only an interruption can fail here, and that is a turn without events.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref());
        self.events.iter().map(|event| Token::decode(event.data.u64())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_went() {
        for token in [
            Token::Link,
            Token::Signals,
            Token::Directory,
            Token::Listener,
            Token::Screens,
            Token::Notices,
            Token::Output(9, 0),
            Token::Output(1 << 40, 1),
            Token::Input(3),
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }

    #[test]
    fn a_pipe_that_is_waited_for_nothing_wakes_nobody_though_its_writer_is_gone() {
        let mut poller = Poller::new().expect("a poller");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut reader = Watched::new(reader, Token::Output(1, 0));
        poller.set(&mut reader, Interest { read: true, write: false });
        drop(writer);
        assert_eq!(poller.wait(None), [Token::Output(1, 0)]);
        poller.set(&mut reader, Interest::default());
        assert_eq!(poller.wait(Some(Duration::ZERO)), []);
    }
}
