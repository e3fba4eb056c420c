//! The client's side of a raw stream: bytes of one command on a connection of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{RemoteError, remote};
use super::connect::ConnectError;
use crate::proto::errors::WireError;
use crate::proto::stream::{
    Exit, FrameKind, HEADER_BYTES, MAX_FRAME_BYTES, MAX_OPEN_BYTES, Open, Opened, PREFACE, Size, header,
    parse_header,
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
    /// Counts the connections.
    generation: u64,
    /// Whether another connection may come when this one is lost.
    comes_back: bool,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl RawStream {
    /// Sends the opening and waits for the answer. Where that takes long, `alive` finds out whether the daemon still
    /// answers at all.
    pub(super) fn open(
        stream: UnixStream,
        open: &Open,
        alive: &dyn Fn() -> Result<(), ConnectError>,
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
        let line = match (read_answer(&mut reader, alive), sent) {
            (Err(StreamError::Gone { .. }), Err(source)) => return Err(gone(source)),
            (answer, _) => answer?,
        };
        let garbled = |source| StreamError::Garbled { source };
        let answer: Answer<'_> = serde_json::from_slice(&line).map_err(garbled)?;
        if let Some(raw) = answer.error {
            return Err(StreamError::Refused(Box::new(remote(raw))));
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

impl Sender {
    fn new(socket: UnixStream) -> Self {
        let state = State { socket: Arc::new(socket), generation: 0, comes_back: false };
        Self {
            way: Arc::new(Way { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() }),
        }
    }

    /// Whether what is sent while the connection is lost waits, and goes out when it is back; without it, sending fails
    /// then. What a daemon had taken and not passed on when it was killed is lost all the same: for the keys of a
    /// terminal, not for a file of which a piece would be missing.
    pub fn set_comes_back(&self, comes_back: bool) {
        self.state().comes_back = comes_back;
        self.way.changed.notify_all();
    }

    fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.state().socket)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.way.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, other: &Sender) {
        let socket = other.socket();
        let mut state = self.state();
        state.socket = socket;
        state.generation += 1;
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
        let _turn = self.way.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (socket, generation) = {
                let state = self.state();
                (Arc::clone(&state.socket), state.generation)
            };
            let Err(error) = (&*socket).write_all(&frame) else { return Ok(()) };
            let lost = |state: &mut State| state.comes_back && state.generation == generation;
            let state =
                self.way.changed.wait_while(self.state(), lost).unwrap_or_else(PoisonError::into_inner);
            if state.generation == generation {
                return Err(error);
            }
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
        assert_eq!(RawStream::open(ours, &open(), &alive).expect("opened").opened().exec, "e1");
        assert_eq!(asked.get(), 2);
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let hung = || Err(ConnectError::Hung { pid: None });
        assert!(matches!(RawStream::open(ours, &open(), &hung), Err(StreamError::Connect { .. })));
    }

    #[test]
    fn frames_of_several_threads_are_never_torn() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sender = Sender::new(ours);
        let threads: Vec<_> = (0..4_u8)
            .map(|n| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..50).try_for_each(|_| sender.input(&vec![n; 1000])))
            })
            .collect();
        let mut reader = BufReader::new(theirs);
        for _ in 0..200 {
            let mut head = [0; HEADER_BYTES];
            reader.read_exact(&mut head).expect("a header");
            assert_eq!(parse_header(head).expect("short"), (Some(FrameKind::Input), 1000));
            let mut payload = vec![0; 1000];
            reader.read_exact(&mut payload).expect("a payload");
            assert!(payload.iter().all(|b| *b == payload[0]));
        }
        for thread in threads {
            thread.join().expect("no panic").expect("sent");
        }
    }

    #[test]
    fn keys_wait_while_a_connection_is_lost_and_pass_when_it_is_back() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sender = Sender::new(ours);
        drop(theirs);
        sender.input(b"a").expect_err("nobody is there, and nobody comes");
        sender.set_comes_back(true);
        let typing = std::thread::spawn({
            let sender = sender.clone();
            move || sender.input(b"b").and_then(|()| sender.input(b"c"))
        });
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        sender.move_to(&Sender::new(ours));
        typing.join().expect("no panic").expect("sent");
        let mut frames = [0; 2 * (HEADER_BYTES + 1)];
        theirs.read_exact(&mut frames).expect("both");
        let one = |key: &[u8]| [&header(FrameKind::Input, 1)[..], key].concat();
        assert_eq!(frames[..], [one(b"b"), one(b"c")].concat());
        drop(theirs);
        let waiting = std::thread::spawn({
            let sender = sender.clone();
            move || sender.input(b"c")
        });
        sender.hang_up();
        waiting.join().expect("no panic").expect_err("no other connection comes");
    }
}
