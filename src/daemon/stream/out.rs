//! What goes to the client of a command, and how it goes on a raw stream.

use std::future::Future;
use std::io;
use std::time::Duration;

use buf_list::BufList;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBuf;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::json;
use crate::daemon::exec::ChunkStream;
use crate::daemon::halves::WriteHalf;
use crate::engine::{Chunk, EngineError};
use crate::proto::errors::WireError;
use crate::proto::stream::{Exit, FrameKind, MAX_FRAME_BYTES, header};

/// Output that is read from the engine ahead of a client that does not read, in bytes. Past it the command waits. As long
/// as an engine has output of a command that has ended, it may hang on the whole sandbox: so what is a screenful for a
/// pager must not stay with it.
const READ_AHEAD_BYTES: usize = 1024 * 1024;

/// Output that is kept for the client of a command that is being ended, in bytes. What is beyond is read and dropped.
const MAX_LAST_BYTES: usize = 2 * READ_AHEAD_BYTES;

/// Output from this size on is written from where it is; smaller pieces are gathered, so that many of them are few
/// writes and little to keep track of.
const WHOLE_BYTES: usize = 4096;

/// What the socket of a command without a terminal is asked to hold, in bytes: with the system's own size, which is a
/// fifth of it, the three processes that output passes through wait for each other. A terminal keeps that: what is in
/// the socket is what a viewer that has stopped to read sees before a fresh screen.
const SOCKET_BYTES: usize = 1024 * 1024;

/// Where a command's output goes.
pub(super) trait Sink: Send {
    /// Adds output to what is to be sent.
    fn push(&mut self, chunk: Chunk);

    /// Bytes that wait to be sent.
    fn waiting(&self) -> usize;

    /// Sends all that waits.
    ///
    /// # Cancel safety
    /// What was not sent still waits.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the last word, after all that waits, and ends.
    fn last(&mut self, last: &Last) -> impl Future<Output = io::Result<()>> + Send;
}

/// The last that a client hears of its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Last {
    /// How it ended.
    Exit(Exit),
    /// Why it is not followed to its end.
    Error(WireError),
}

/// The sending side, and possibly a chunk that is held back.
pub(super) struct Out<S = Frames> {
    sink: S,
    held: Option<Chunk>,
    /// Past so many bytes that wait to be sent no more output is read.
    ahead: usize,
}

/// Whole frames that wait to be written to a raw stream.
pub(super) struct Frames {
    write: WriteHalf,
    rest: Waiting,
    /// How long the client may take nothing, before that is an error.
    patience: Option<Duration>,
}

/// Frames in their order.
#[derive(Default)]
struct Waiting {
    first: BufList,
    /// What comes after it, gathered.
    then: BytesMut,
}

impl Out {
    /// Writes frames.
    pub(super) fn new(write: WriteHalf) -> Self {
        Self::to(Frames { write, rest: Waiting::default(), patience: None })
    }

    /// Lets the socket hold much, for output that nobody looks at as it comes.
    pub(super) fn widen(&self) {
        // Not allowed is only slower.
        let _ = setsockopt(&self.sink.write, SndBuf, &SOCKET_BYTES);
    }

    /// Fails once the client has taken nothing for so long. The last frame waits for it all the same.
    pub(super) fn give_up_after(&mut self, patience: Duration) {
        self.sink.patience = Some(patience);
    }

    /// Sends a line of the opening.
    pub(super) async fn line(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        self.sink.rest.then.extend_from_slice(&json(value));
        self.sink.rest.then.extend_from_slice(b"\n");
        self.sink.flush().await
    }
}

impl<S: Sink> Out<S> {
    /// Sends there.
    pub(super) fn to(sink: S) -> Self {
        Self { sink, held: None, ahead: READ_AHEAD_BYTES }
    }

    /// Reads no output before all that was read is sent: abx-init keeps what was not read, and what waits here would
    /// be lost if this process were killed.
    pub(super) fn read_nothing_ahead(&mut self) {
        self.ahead = 0;
    }

    /// Keeps a chunk until it is known whether it is the command's.
    pub(super) fn hold(&mut self, chunk: Chunk) {
        self.held = Some(chunk);
    }

    /// Takes back what was held.
    pub(super) fn take_held(&mut self) -> Option<Bytes> {
        self.held.take().map(|chunk| match chunk {
            Chunk::Stdout(bytes) | Chunk::Stderr(bytes) => bytes,
        })
    }

    /// Lets what was held go after all.
    pub(super) fn release(&mut self) {
        if let Some(chunk) = self.held.take() {
            self.push(chunk);
        }
    }

    /// Adds output to what is to be sent.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.sink.push(chunk);
    }

    /// Adds output, unless too much waits already.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        self.release();
        if self.sink.waiting() < MAX_LAST_BYTES {
            self.push(chunk);
        }
    }

    /// Sends what waits until there is more output, which it gives.
    pub(super) async fn flush_until(
        &mut self,
        output: &mut ChunkStream,
    ) -> io::Result<Option<Result<Chunk, EngineError>>> {
        loop {
            let waiting = self.sink.waiting();
            tokio::select! {
                biased;
                flushed = self.sink.flush(), if waiting > 0 => flushed?,
                next = output.next(), if waiting == 0 || waiting < self.ahead => return Ok(next),
            }
        }
    }

    /// Sends all that waits.
    ///
    /// # Cancel safety
    /// What was not sent still waits.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.sink.flush().await
    }

    /// Sends the last word, after all that waits or is held, and ends.
    pub(super) async fn last(&mut self, last: &Last) -> io::Result<()> {
        self.release();
        self.sink.last(last).await
    }
}

impl Sink for Frames {
    fn push(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Stdout(bytes) => self.rest.frames(FrameKind::Stdout, &bytes),
            Chunk::Stderr(bytes) => self.rest.frames(FrameKind::Stderr, &bytes),
        }
    }

    fn waiting(&self) -> usize {
        self.rest.len()
    }

    async fn flush(&mut self) -> io::Result<()> {
        while let Some(first) = self.rest.first() {
            let written = self.write.write_buf(first);
            match self.patience {
                Some(patience) => timeout(patience, written).await??,
                None => written.await?,
            };
        }
        Ok(())
    }

    async fn last(&mut self, last: &Last) -> io::Result<()> {
        self.patience = None;
        let (kind, payload) = match last {
            Last::Exit(exit) => (FrameKind::Exit, json(exit)),
            Last::Error(error) => (FrameKind::Error, json(error)),
        };
        self.rest.frames(kind, &payload.into());
        self.flush().await?;
        self.write.shutdown().await
    }
}

impl Waiting {
    /// Bytes of it.
    fn len(&self) -> usize {
        self.first.remaining() + self.then.len()
    }

    /// What is to be written next; none when nothing is.
    fn first(&mut self) -> Option<&mut BufList> {
        if !self.first.has_remaining() {
            self.first.push_chunk(self.then.split());
        }
        self.first.has_remaining().then_some(&mut self.first)
    }

    fn frames(&mut self, kind: FrameKind, bytes: &Bytes) {
        for begin in (0..bytes.len()).step_by(MAX_FRAME_BYTES) {
            let part = bytes.slice(begin..bytes.len().min(begin + MAX_FRAME_BYTES));
            self.then.extend_from_slice(&header(kind, part.len()));
            if part.len() < WHOLE_BYTES {
                self.then.extend_from_slice(&part);
            } else {
                self.first.push_chunk(self.then.split());
                self.first.push_chunk(part);
            }
        }
    }
}
