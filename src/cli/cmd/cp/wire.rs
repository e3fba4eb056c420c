//! The end of a copy that is in a sandbox: its tar stream as something to read from, or to write to.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use crate::cli::args::CpArgs;
use crate::cli::context::{Context, refused};
use crate::cli::failure::Failure;
use crate::client::{Frame, RawStream, Sender, StreamError};
use crate::proto::copy::{CopyOpen, CopyPlace, Direction};
use crate::proto::stream::{MAX_FRAME_BYTES, Open};

/// What ended a stream, kept for whoever sees only that reading or writing failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Cause(Rc<RefCell<Option<Failure>>>);

impl Cause {
    /// The failure, if the stream had one.
    pub(super) fn take(&self) -> Option<Failure> {
        self.0.borrow_mut().take()
    }

    fn put(&self, failure: Failure) -> io::Error {
        let text = failure.message();
        self.0.borrow_mut().get_or_insert(failure);
        io::Error::other(text)
    }
}

/// Opens the stream of a copy, and gives what the daemon says of its place.
pub(super) fn open(
    context: &Context,
    session: &str,
    path: &str,
    direction: Direction,
    args: &CpArgs,
) -> Result<(RawStream, CopyPlace), Failure> {
    let follow = args.follow_link && direction == Direction::Out;
    let copy = CopyOpen { direction, path: path.to_owned(), follow, op: None };
    let resume = refused(args.no_resume);
    let open = Open { session: session.to_owned(), copy: Some(copy), resume, ..Open::default() };
    let stream = context.open(&open)?;
    let place = stream.opened().copy.clone();
    // An abxd that knows of no copies has refused the opening: it names no command.
    let place = place.ok_or_else(|| {
        Failure::daemon("the running abxd does not know how to copy", Vec::new())
            .with_hint("abx daemon restart")
    })?;
    Ok((stream, place))
}

/// Files that come out of a sandbox.
pub(super) struct Download {
    stream: RawStream,
    rest: Vec<u8>,
    at: usize,
    ended: bool,
    cause: Cause,
}

impl Download {
    /// Reads from this stream.
    pub(super) fn new(stream: RawStream, cause: Cause) -> Self {
        Self { stream, rest: Vec::new(), at: 0, ended: false, cause }
    }

    /// Reads what is left, so that the stream is known to have come to its end.
    ///
    /// # Errors
    /// When it did not.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(|_| ())
    }

    fn refill(&mut self) -> io::Result<()> {
        while self.at == self.rest.len() && !self.ended {
            match self.stream.next_frame() {
                Ok(Frame::Stdout(bytes)) => {
                    self.rest.clear();
                    self.rest.extend_from_slice(bytes);
                    self.at = 0;
                }
                Ok(Frame::Stderr(_)) => {}
                Ok(Frame::Exit(_)) => self.ended = true,
                Ok(Frame::Error(error)) => return Err(self.cause.put(Failure::from_wire(error, None))),
                Err(error) => return Err(self.cause.put(broken(error))),
            }
        }
        Ok(())
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.refill()?;
        let count = buffer.len().min(self.rest.len() - self.at);
        buffer[..count].copy_from_slice(&self.rest[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Files that go into a sandbox. Dropping it before its end tells the daemon that they are not whole.
pub(super) struct Upload {
    stream: RawStream,
    sender: Sender,
    buffer: Vec<u8>,
    cause: Cause,
}

impl Upload {
    /// Writes to this stream.
    pub(super) fn new(stream: RawStream, cause: Cause) -> Self {
        let sender = stream.sender();
        Self { stream, sender, buffer: Vec::with_capacity(MAX_FRAME_BYTES), cause }
    }

    /// Says that this was all, and waits until it is in the sandbox.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if self.sender.end_input().is_err() {
            return Err(self.refused());
        }
        match self.outcome() {
            Some(failure) => Err(self.cause.put(failure)),
            None => Ok(()),
        }
    }

    /// How the daemon ended the stream; none where all is well.
    fn outcome(&mut self) -> Option<Failure> {
        loop {
            match self.stream.next_frame() {
                Ok(Frame::Exit(_)) => return None,
                Ok(Frame::Error(error)) => return Some(Failure::from_wire(error, None)),
                Ok(Frame::Stdout(_) | Frame::Stderr(_)) => {}
                Err(error) => return Some(broken(error)),
            }
        }
    }

    /// Why the daemon takes no more.
    fn refused(&mut self) -> io::Error {
        let early = || Failure::refused("the sandbox took the files before their end");
        let failure = self.outcome().unwrap_or_else(early);
        self.cause.put(failure)
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MAX_FRAME_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == MAX_FRAME_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let sent = self.sender.input(&self.buffer);
        self.buffer.clear();
        if sent.is_err() { Err(self.refused()) } else { Ok(()) }
    }
}

fn broken(error: StreamError) -> Failure {
    match error {
        StreamError::Gone { source } => {
            let causes = if source.kind() == io::ErrorKind::UnexpectedEof {
                Vec::new()
            } else {
                vec![source.to_string()]
            };
            let text = "abxd went away before the copy was whole; what was copied so far stays";
            Failure::daemon(text, causes).with_hint("abx daemon status")
        }
        error => error.into(),
    }
}
