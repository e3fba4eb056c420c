//! The connection to abxd: frames in, frames out, never blocking, never holding more than it must.
//!
//! What is not output is queued and goes first. Output is taken from its ring only when all before it is on its way, so
//! that streams take turns frame by frame and none is ahead by more than what the socket holds.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::poller::{Interest, Poller, Token, Watched};
use super::wire::{
    self, Failed, HEADER_BYTES, Header, Kind, MAX_FROM_GUEST, MAX_TO_GUEST, Malformed, Payload,
};

/// Answers that may wait, in bytes, before no more questions are read.
const MAX_WAITING: usize = 1024 * 1024;

/// Read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// What the socket is asked to hold, in bytes; the system may give less.
const SOCKET_BYTES: usize = 1024 * 1024;

/// A connection that takes nothing for so long is not waited for by terminals.
const STALLED: Duration = Duration::from_secs(1);

/// Why a connection is over. The commands are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

impl From<Malformed> for Lost {
    fn from(_: Malformed) -> Self {
        Self
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: Watched,
    input: Vec<u8>,
    /// Bytes at the front of `input` that were taken.
    taken: usize,
    waiting: Vec<u8>,
    /// Bytes at the front of `waiting` that were sent.
    sent: usize,
    /// Since when the socket takes nothing.
    full_since: Option<Instant>,
    lost: bool,
    /// Whether both sides agreed on a version.
    pub(super) welcome: bool,
}

impl Link {
    /// Speaks on `socket`, which does not block.
    pub(super) fn new(socket: OwnedFd) -> Self {
        // Bigger is only faster.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
        Self {
            socket: Watched::new(socket, Token::Link),
            input: Vec::new(),
            taken: 0,
            waiting: Vec::new(),
            sent: 0,
            full_since: None,
            lost: false,
            welcome: false,
        }
    }

    /// Whether it is over.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether output can be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.waiting.is_empty() && self.full_since.is_none() && !self.lost
    }

    /// Whether all is on its way.
    pub(super) fn is_flushed(&self) -> bool {
        self.waiting.is_empty() || self.lost
    }

    /// Since when the socket takes nothing.
    pub(super) fn stalls_at(&self) -> Option<Instant> {
        self.full_since.map(|since| since + STALLED)
    }

    /// Whether the other side has taken nothing for long.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.stalls_at().is_some_and(|at| at <= now)
    }

    /// Queues a frame. One that is longer than abxd takes would end the connection: it is left out, and whoever waits for
    /// it as an answer is refused.
    pub(super) fn say(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        if payload.len() > MAX_FROM_GUEST {
            if kind.is_last() {
                let refused = Failed::new(Failed::LIMIT, "the answer is too long".to_owned());
                self.say(Kind::Failed, stream, &refused.encode());
            }
            return;
        }
        self.waiting.extend_from_slice(&wire::header(kind, stream, payload.len()));
        self.waiting.extend_from_slice(payload);
        if self.full_since.is_none() {
            self.flush();
        }
    }

    /// Sends output, whole: what the socket does not take at once is kept. Only after [`Self::can_send`].
    pub(super) fn send(&mut self, kind: Kind, stream: u32, pieces: [IoSlice<'_>; 2]) {
        let [first, second] = pieces;
        let header = wire::header(kind, stream, first.len() + second.len());
        let all = [IoSlice::new(&header), first, second];
        let mut sent = match rustix::io::writev(&self.socket, &all) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.lost = true;
                return;
            }
        };
        for piece in &all {
            let rest = &piece[sent.min(piece.len())..];
            self.waiting.extend_from_slice(rest);
            sent = sent.saturating_sub(piece.len());
        }
        if !self.waiting.is_empty() {
            self.full_since = Some(Instant::now());
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        while self.sent < self.waiting.len() && !self.lost {
            match rustix::io::write(&self.socket, &self.waiting[self.sent..]) {
                Ok(sent) => {
                    self.sent += sent;
                    self.full_since = None;
                }
                Err(Errno::AGAIN) => {
                    self.full_since.get_or_insert_with(Instant::now);
                    break;
                }
                Err(Errno::INTR) => {}
                Err(_) => self.lost = true,
            }
        }
        self.waiting.drain(..self.sent);
        self.sent = 0;
        if self.waiting.is_empty() {
            self.full_since = None;
            self.waiting.shrink_to(READ_BYTES);
        }
    }

    /// Reads once.
    pub(super) fn fill(&mut self) {
        self.input.drain(..self.taken);
        self.taken = 0;
        self.input.reserve(READ_BYTES);
        match rustix::io::read(&self.socket, rustix::buffer::spare_capacity(&mut self.input)) {
            Ok(0) => self.lost = true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.lost = true,
        }
    }

    /// The next frame that is there as a whole. Not while too many answers wait: then [`Self::settle`] stops reading,
    /// too.
    ///
    /// # Errors
    /// When a frame is longer than any may be.
    pub(super) fn next(&mut self) -> Result<Option<(Header, Vec<u8>)>, Lost> {
        if self.is_crowded() {
            return Ok(None);
        }
        let rest = &self.input[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::parse(*header, MAX_TO_GUEST)?;
        let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + header.length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.taken += HEADER_BYTES + header.length;
        if self.taken == self.input.len() {
            self.taken = 0;
            self.input.clear();
            self.input.shrink_to(READ_BYTES);
        }
        Ok(Some((header, payload)))
    }

    /// Whether what nobody asked for may be said: it waits here only as long as abxd takes something.
    pub(super) fn hears(&self) -> bool {
        self.welcome && !self.lost && self.full_since.is_none()
    }

    /// Whether too many answers wait.
    fn is_crowded(&self) -> bool {
        self.waiting.len() > MAX_WAITING
    }

    /// Waits for what can be done next.
    pub(super) fn settle(&mut self, poller: &Poller) {
        let interest = Interest { read: !self.is_crowded(), write: !self.waiting.is_empty() };
        poller.set(&mut self.socket, interest);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Link) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (theirs, Link::new(ours.into()))
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let (mut theirs, mut link) = pair();
        let bytes = wire::frame(Kind::Input, 7, b"some bytes");
        for byte in &bytes[..bytes.len() - 1] {
            theirs.write_all(&[*byte]).unwrap();
            link.fill();
            assert_eq!(link.next(), Ok(None));
        }
        theirs.write_all(&bytes[bytes.len() - 1..]).unwrap();
        link.fill();
        let (header, payload) = link.next().unwrap().unwrap();
        assert_eq!((header.kind, header.stream, payload), (Some(Kind::Input), 7, b"some bytes".to_vec()));
    }

    #[test]
    fn what_the_socket_does_not_take_goes_later_and_first() {
        let (mut theirs, mut link) = pair();
        let piece = vec![5; 60_000];
        let mut frames = 0;
        while link.can_send() {
            link.send(Kind::Stdout, 1, [IoSlice::new(&piece), IoSlice::new(b"tail")]);
            frames += 1;
        }
        link.say(Kind::Done, 2, b"");
        theirs.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        while !link.is_flushed() {
            let _ = theirs.read_to_end(&mut all);
            link.flush();
        }
        let _ = theirs.read_to_end(&mut all);
        let frame = wire::frame(Kind::Stdout, 1, &[piece, b"tail".to_vec()].concat());
        let mut expected = frame.repeat(frames);
        expected.extend(wire::frame(Kind::Done, 2, b""));
        assert!(all == expected, "{} bytes of {}", all.len(), expected.len());
    }

    #[test]
    fn a_frame_that_is_too_long_and_an_end_lose_the_connection() {
        let (mut theirs, mut link) = pair();
        theirs.write_all(&[Kind::Run as u8, 0xff, 0xff, 0xff, 0, 0, 0, 1]).unwrap();
        link.fill();
        assert_eq!(link.next(), Err(Lost));
        drop(theirs);
        link.fill();
        link.fill();
        assert!(link.is_lost());
    }

    #[test]
    fn what_abxd_would_not_take_is_left_out_and_an_answer_refused() {
        let (mut theirs, mut link) = pair();
        let long = vec![0; MAX_FROM_GUEST + 1];
        link.say(Kind::Entry, 7, &long);
        link.say(Kind::Screen, 7, &long);
        let refused = Failed::new(Failed::LIMIT, "the answer is too long".to_owned());
        let expected = wire::frame(Kind::Failed, 7, &refused.encode());
        let mut got = vec![0; expected.len()];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(got, expected);
    }

    #[test]
    fn no_question_is_taken_while_too_many_answers_wait() {
        let (mut theirs, mut link) = pair();
        theirs.write_all(&wire::frame(Kind::List, 7, b"")).unwrap();
        link.fill();
        let answer = vec![0; 200_000];
        for stream in 0..100 {
            link.say(Kind::Entry, stream, &answer);
        }
        assert_eq!(link.next(), Ok(None));
    }
}
