//! What programs of the sandbox say they are doing, passed on to abxd: in their terminals' output, and through
//! `abx notify`, which sends one datagram each time and waits for an answer.
//!
//! Any program may send, of any user: the socket has a name that all see who share the sandbox's network. Who it was the
//! system tells, and which command that is of the program's own mark.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials, bind,
    recvmsg, sendto, setsockopt, socket, sockopt,
};

use super::arguments::NOTICES;
use super::link::Link;
use super::poller::{Interest, Poller, Token, Watched};
use super::processes;
use super::serve::Guest;
use super::wire::{Kind, NO_STREAM, Notice, Payload};

/// Longest datagram, in bytes: a notice with the longest texts.
const MAX_BYTES: usize = 64 + 2 * Notice::MAX_TEXT_BYTES;

/// Longest answer to one, in bytes.
pub(super) const MAX_ANSWER_BYTES: usize = 256;

/// Datagrams that are taken in a turn; others wait for the next.
const IN_A_TURN: usize = 8;

/// Notices that are taken in a second, of all programs. Others are refused.
const MAX_IN_A_SECOND: usize = 10;

/// Notices that wait for a connection to abxd; older ones are dropped.
const MAX_UNTOLD: usize = 16;

/// Where programs say what they are doing.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// None where another program has the name.
    socket: Option<Watched>,
    /// When the last ones were taken.
    taken: VecDeque<Instant>,
    /// Those that came while there was no connection.
    untold: VecDeque<Notice>,
}

/// What is answered: a byte that is 0 where it was taken, and a line where it was not.
pub(super) struct Answer;

impl Answer {
    fn write(refusal: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![u8::from(refusal.is_some())];
        bytes.extend_from_slice(refusal.unwrap_or_default().as_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn read(bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [0, ..] => Ok(()),
            [_, text @ ..] => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A datagram, and who sent it.
struct Letter {
    bytes: Vec<u8>,
    from: Option<UnixAddr>,
    pid: u32,
}

impl Mailbox {
    /// Listens beside the name at which bridges are waited for.
    pub(super) fn open(listen: Option<&str>, poller: &Poller) -> Self {
        let socket = listen.and_then(|name| open(&format!("{name}{NOTICES}")).ok());
        let socket = socket.map(|socket| {
            let mut watched = Watched::new(socket, Token::Notices);
            poller.set(&mut watched, Interest { read: true, write: false });
            watched
        });
        Self { socket, taken: VecDeque::new(), untold: VecDeque::new() }
    }

    fn next(&self) -> Option<Letter> {
        receive(self.socket.as_ref()?).ok()
    }

    fn answer(&self, letter: &Letter, refusal: Option<&str>) {
        if let (Some(socket), Some(to)) = (&self.socket, &letter.from) {
            // Who does not take it has gone, or does not want to know.
            let _ = sendto(socket.as_fd().as_raw_fd(), &Answer::write(refusal), to, MsgFlags::MSG_DONTWAIT);
        }
    }

    fn is_crowded(&mut self, now: Instant) -> bool {
        while self.taken.front().is_some_and(|at| now.duration_since(*at) >= Duration::from_secs(1)) {
            self.taken.pop_front();
        }
        self.taken.len() >= MAX_IN_A_SECOND
    }
}

impl Guest {
    /// Takes what programs say.
    pub(super) fn take_notices(&mut self) {
        for _ in 0..IN_A_TURN {
            let Some(letter) = self.mailbox.next() else { return };
            let refusal = self.take_letter(&letter).err();
            self.mailbox.answer(&letter, refusal);
        }
    }

    fn take_letter(&mut self, letter: &Letter) -> Result<(), &'static str> {
        let notice = Notice::decode(&letter.bytes).map_err(|_| "abx-init does not understand that")?;
        let short = notice.title.len().max(notice.body.len()) <= Notice::MAX_TEXT_BYTES;
        if !short || !(Notice::WORKING..=Notice::DONE).contains(&notice.state) {
            return Err("abx-init does not understand that");
        }
        let now = Instant::now();
        if self.mailbox.is_crowded(now) {
            return Err("too much was said in the last second");
        }
        self.mailbox.taken.push_back(now);
        let exec = processes::command_of(letter.pid).filter(|id| self.table.with_id(id).is_some());
        self.tell(Notice { exec: exec.unwrap_or_default(), source: Notice::COMMAND, ..notice });
        Ok(())
    }

    /// Tells abxd, now, or when it is back or takes something again.
    pub(super) fn tell(&mut self, notice: Notice) {
        if self.mailbox.untold.is_empty() && self.link.as_ref().is_some_and(Link::hears) {
            self.say(Kind::Notice, NO_STREAM, &notice.encode());
            return;
        }
        let untold = &mut self.mailbox.untold;
        if untold.len() == MAX_UNTOLD {
            untold.pop_front();
        }
        untold.push_back(notice);
    }

    /// Tells abxd what was said while it was away or took nothing.
    pub(super) fn tell_the_rest(&mut self) {
        while self.link.as_ref().is_some_and(Link::hears)
            && let Some(notice) = self.mailbox.untold.pop_front()
        {
            self.say(Kind::Notice, NO_STREAM, &notice.encode());
        }
    }
}

fn open(name: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    setsockopt(&socket, sockopt::PassCred, &true)?;
    bind(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(socket)
}

fn receive(socket: impl AsFd) -> nix::Result<Letter> {
    let mut buffer = [0; MAX_BYTES];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let mut pieces = [IoSliceMut::new(&mut buffer)];
    let socket = socket.as_fd().as_raw_fd();
    let received = recvmsg::<UnixAddr>(socket, &mut pieces, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let credentials = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmCredentials(who) => Some(who),
        _ => None,
    });
    // Who is in none of this sandbox's namespaces of processes has no number here.
    let pid = credentials.and_then(|who| u32::try_from(who.pid()).ok()).unwrap_or(0);
    let (read, from) = (received.bytes, received.address);
    Ok(Letter { bytes: buffer[..read].to_vec(), from, pid })
}
