//! The client's side of a raw stream: bytes of one command on a connection of its own.

mod sender;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::sender::Sender;
use super::calls::{RemoteError, remote};
use super::connect::ConnectError;
use crate::proto::errors::WireError;
use crate::proto::stream::{
    Exit, FrameKind, HEADER_BYTES, MAX_FRAME_BYTES, MAX_OPEN_BYTES, Open, Opened, PREFACE, parse_header,
};
use crate::proto::version::PROTOCOL;

/// Bytes read ahead for headers; payloads longer than this go past the buffer.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// How long the answer to an opening may take before the client asks whether the daemon still greets anybody: longer
/// than an engine usually needs.
const OPEN_PATIENCE: Duration = Duration::from_secs(1);

/// Why a stream has no command, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no daemon.
    #[error("{source}")]
    Connect {
        /// Why; printed in this error's place.
        source: ConnectError,
    },
    /// The daemon does not run the command.
    #[error("{}", .0.error.message)]
    Refused(Box<RemoteError>),
    /// The command's line or environment is too long.
    #[error("the command and its environment have {bytes} bytes, over the limit of {MAX_OPEN_BYTES}")]
    TooLarge {
        /// Size of the opening.
        bytes: usize,
    },
    /// The connection broke before the end.
    #[error("abxd went away; the command may still be running")]
    Gone {
        /// The system's error.
        source: io::Error,
    },
    /// What came is not what the protocol says.
    #[error("abxd sent something that this abx does not understand")]
    Garbled {
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// What comes out of a command.
#[derive(Debug)]
pub enum Frame<'a> {
    /// Bytes of its standard output.
    Stdout(&'a [u8]),
    /// Bytes of its standard error.
    Stderr(&'a [u8]),
    /// It ended; the last frame.
    Exit(Exit),
    /// Something went wrong; the last frame.
    Error(WireError),
}

/// A command that runs.
#[derive(Debug)]
pub struct RawStream {
    reader: BufReader<Incoming>,
    writer: Sender,
    opened: Opened,
    payload: Vec<u8>,
}

/// What comes. It is waited for with poll(2), not in the read itself: that is woken, too, each time the daemon takes some of
/// what another thread sent, and would cost each key a turn of the scheduler.
#[derive(Debug)]
struct Incoming {
    socket: UnixStream,
    patience: Option<Duration>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    doing: Option<String>,
}

impl RawStream {
    /// Sends the opening and waits for the answer; what is done before it is told to `doing`. Where that takes long, `alive`
    /// finds out whether the daemon still answers at all.
    pub(super) fn open(
        stream: UnixStream,
        open: &Open,
        alive: &dyn Fn() -> Result<(), ConnectError>,
        doing: &dyn Fn(&str),
    ) -> Result<Self, StreamError> {
        let gone = |source| StreamError::Gone { source };
        let mut opening = PREFACE.to_vec();
        serde_json::to_writer(&mut opening, open).map_err(|source| StreamError::Garbled { source })?;
        opening.push(b'\n');
        let bytes = opening.len() - PREFACE.len();
        if bytes > MAX_OPEN_BYTES {
            return Err(StreamError::TooLarge { bytes });
        }
        let writer = Sender::new(stream.try_clone().map_err(gone)?);
        let incoming = Incoming { socket: stream, patience: Some(OPEN_PATIENCE) };
        let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, incoming);
        let sent = (&*writer.socket()).write_all(&opening);
        // A daemon that closed early may still have said why.
        let mut line = match (read_answer(&mut reader, alive), sent) {
            (Err(StreamError::Gone { .. }), Err(source)) => return Err(gone(source)),
            (answer, _) => answer?,
        };
        let garbled = |source| StreamError::Garbled { source };
        loop {
            let answer: Answer<'_> = serde_json::from_slice(&line).map_err(garbled)?;
            if let Some(raw) = answer.error {
                return Err(StreamError::Refused(Box::new(remote(raw))));
            }
            let Some(first) = answer.doing else { break };
            doing(&first);
            line = read_answer(&mut reader, alive)?;
        }
        let opened: Opened = serde_json::from_slice(&line).map_err(garbled)?;
        if opened.protocol != PROTOCOL {
            let source = ConnectError::Protocol { version: opened.version, protocol: opened.protocol };
            return Err(StreamError::Connect { source });
        }
        reader.get_mut().patience = None;
        Ok(Self { reader, writer, opened, payload: Vec::new() })
    }

    /// What the daemon said when the command began.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Goes on with the connection of another, which follows the same command. Its senders go on, too.
    pub fn resume(&mut self, other: RawStream) {
        self.writer.move_to(&other.writer);
        self.reader = other.reader;
        self.opened = other.opened;
    }

    /// The way in.
    pub fn sender(&self) -> Sender {
        self.writer.clone()
    }

    /// Waits for the next frame. Frames of kinds that this version does not know are passed over.
    ///
    /// # Errors
    /// When the connection ends before the last frame.
    pub fn next_frame(&mut self) -> Result<Frame<'_>, StreamError> {
        let gone = |source| StreamError::Gone { source };
        let kind = loop {
            let mut head = [0; HEADER_BYTES];
            self.reader.read_exact(&mut head).map_err(gone)?;
            let (kind, length) = parse_header(head).map_err(gone)?;
            self.payload.resize(length.max(self.payload.len()).min(MAX_FRAME_BYTES), 0);
            self.reader.read_exact(&mut self.payload[..length]).map_err(gone)?;
            if let Some(kind) = kind {
                break (kind, length);
            }
        };
        let payload = &self.payload[..kind.1];
        let garbled = |source| StreamError::Garbled { source };
        match kind.0 {
            FrameKind::Stdout => Ok(Frame::Stdout(payload)),
            FrameKind::Stderr => Ok(Frame::Stderr(payload)),
            FrameKind::Exit => serde_json::from_slice(payload).map(Frame::Exit).map_err(garbled),
            FrameKind::Error => serde_json::from_slice(payload).map(Frame::Error).map_err(garbled),
            FrameKind::Input | FrameKind::Resize | FrameKind::Signal => {
                Err(gone(io::Error::new(io::ErrorKind::InvalidData, "abxd sent a client's frame")))
            }
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut waiting, patience.as_ref()))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.socket.read(buffer),
        }
    }
}

fn read_answer(
    reader: &mut BufReader<Incoming>,
    alive: &dyn Fn() -> Result<(), ConnectError>,
) -> Result<Vec<u8>, StreamError> {
    let mut line = Vec::new();
    loop {
        let left = (MAX_OPEN_BYTES + 1).saturating_sub(line.len()) as u64;
        match reader.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => return Ok(line),
            Ok(_) => return Err(StreamError::Gone { source: io::ErrorKind::UnexpectedEof.into() }),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                // An engine may be slow; a daemon that greets nobody hangs.
                alive().map_err(|source| StreamError::Connect { source })?;
            }
            Err(source) => return Err(StreamError::Gone { source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, connector};
    use super::*;
    use crate::proto::errors::Kind;
    use crate::proto::stream::header;

    fn open() -> Open {
        Open { session: "s".to_owned(), cmd: vec!["true".to_owned()], ..Open::default() }
    }

    fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
        [&header(kind, payload.len())[..], payload].concat()
    }

    #[test]
    fn output_and_the_end_come_as_frames_and_unknown_ones_are_passed_over() {
        let mut script = b"{\"exec\":\"e1\",\"version\":\"9.9.9\",\"protocol\":1}\n".to_vec();
        script.extend(frame(FrameKind::Stdout, b"out"));
        script.extend([200, 0, 0, 0, 2, 1, 2]);
        script.extend(frame(FrameKind::Stderr, b"err"));
        script.extend(frame(FrameKind::Exit, b"{\"exit_code\":3}"));
        let fake = Fake::raw(&script);
        let mut stream = connector(&fake).open(&open()).expect("opened");
        assert_eq!((stream.opened().exec.as_str(), stream.opened().version.as_str()), ("e1", "9.9.9"));
        assert!(matches!(stream.next_frame().expect("a frame"), Frame::Stdout(b"out")));
        assert!(matches!(stream.next_frame().expect("a frame"), Frame::Stderr(b"err")));
        assert!(matches!(
            stream.next_frame().expect("a frame"),
            Frame::Exit(Exit { exit_code: 3, reason: None })
        ));
        assert!(matches!(stream.next_frame().expect_err("the end"), StreamError::Gone { .. }));
    }

    #[test]
    fn what_is_done_first_is_told_before_the_answer() {
        let fake = Fake::raw(b"{\"doing\":\"one\"}\n{\"exec\":\"e1\",\"version\":\"1\",\"protocol\":1}\n");
        let told = std::cell::RefCell::new(Vec::new());
        let stream = connector(&fake).open_telling(&open(), &|line| told.borrow_mut().push(line.to_owned()));
        assert_eq!(stream.expect("opened").opened().exec, "e1");
        assert_eq!(*told.borrow(), ["one"]);
    }

    #[test]
    fn a_refusal_keeps_its_kind() {
        let fake = Fake::raw(
            b"{\"error\":{\"code\":1,\"message\":\"no session 's'\",\"data\":{\"kind\":\"session_not_found\"}}}\n",
        );
        let error = connector(&fake).open(&open()).expect_err("refused");
        let StreamError::Refused(remote) = error else { panic!("{error:?}") };
        assert_eq!(remote.error.kind(), Some(Kind::SessionNotFound));
    }

    #[test]
    fn another_protocol_is_refused_with_both_numbers() {
        let fake = Fake::raw(b"{\"exec\":\"e1\",\"version\":\"9.9.9\",\"protocol\":7}\n");
        let error = connector(&fake).open(&open()).expect_err("refused").to_string();
        assert!(error.contains("protocol 1") && error.contains("protocol 7"), "{error}");
    }

    #[test]
    fn an_opening_over_the_limit_is_not_sent() {
        let fake = Fake::raw(b"");
        let open = Open { cmd: vec!["x".repeat(MAX_OPEN_BYTES)], ..open() };
        assert!(matches!(connector(&fake).open(&open), Err(StreamError::TooLarge { .. })));
    }

    #[test]
    fn a_slow_answer_is_waited_for_while_the_daemon_greets_and_not_longer() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let asked = std::cell::Cell::new(0);
        let alive = || {
            let mut theirs = &theirs;
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                theirs.write_all(b"{\"exec\":\"e1\",\"version\":\"1\",\"protocol\":1}\n").expect("write");
            }
            Ok(())
        };
        assert_eq!(RawStream::open(ours, &open(), &alive, &|_| {}).expect("opened").opened().exec, "e1");
        assert_eq!(asked.get(), 2);
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let hung = || Err(ConnectError::Hung { pid: None });
        assert!(matches!(RawStream::open(ours, &open(), &hung, &|_| {}), Err(StreamError::Connect { .. })));
    }
}
