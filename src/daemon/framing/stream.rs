//! A connection that carries messages on a plain stream of bytes, in whichever way they are told apart.

use std::io;

use bytes::{Buf, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::calls::Abandoned;
use super::dispatch::{Answer, Connection, Outcome};
use super::eager::Eager;
use super::envelope::NO_ID;
use super::memory::{SHORT_BYTES, Share};
use super::{
    Closing, HANGUP_CHECK, MAX_UNSENT_BYTES, MAX_UNSENT_NOTIFICATIONS, STALL, answer, hung_up, linger, told,
};
use crate::proto::errors::Kind;

/// Bytes asked of the system at a time; most requests are far shorter.
const READ_BYTES: usize = 8 * 1024;

/// The same in the middle of a long message.
const LONG_READ_BYTES: usize = 128 * 1024;

/// Most bytes that an empty buffer keeps, so that an idle connection is small.
const KEPT_BYTES: usize = 32 * 1024;

/// How messages are told apart in a stream of bytes.
pub(super) trait Codec {
    /// Takes the next message off the buffer. `ended`: no more bytes will come.
    fn next(&mut self, buffer: &mut BytesMut, ended: bool) -> Next;

    /// Writes one answer or notification.
    fn frame(&self, answer: &[u8], out: &mut BytesMut);
}

/// What stands next in the buffer.
pub(super) enum Next {
    /// Nothing whole.
    More,
    /// One JSON text.
    Text(BytesMut),
    /// Something that is answered with this error; what follows can be read.
    Bad(Vec<u8>),
    /// Something that is answered with this error, and the connection ends.
    Fatal(Vec<u8>),
}

/// Serves the connection until the client has closed it and has all its answers, or the daemon closes it. Dropping the
/// future drops only the waiting: what was asked for goes on.
pub(super) async fn serve<C: Codec>(
    mut stream: UnixStream,
    buffer: BytesMut,
    codec: C,
    connection: &Connection,
    notifications: mpsc::Receiver<Vec<u8>>,
    closing: &Closing,
) -> io::Result<()> {
    let mut wire = Wire { codec, buffer, out: BytesMut::new(), input: Input::Open, held: connection.share() };
    wire.drive(&mut stream, connection, notifications, closing).await?;
    if let Input::Refused = wire.input {
        linger(&mut stream).await;
    }
    Ok(())
}

/// Ends at this instant; never where there is none.
async fn passed(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

struct Wire<C> {
    codec: C,
    buffer: BytesMut,
    out: BytesMut,
    input: Input,
    /// What the buffers have.
    held: Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// The client will send no more.
    Ended,
    /// The client sent what ends a connection.
    Refused,
    /// The daemon closes the connection.
    Closing,
}

impl<C: Codec> Wire<C> {
    async fn drive(
        &mut self,
        stream: &mut UnixStream,
        connection: &Connection,
        mut notifications: mpsc::Receiver<Vec<u8>>,
        closing: &Closing,
    ) -> io::Result<()> {
        let mut pending = FuturesUnordered::new();
        let mut closing = closing.waiting();
        let mut stall = None;
        let mut came = Instant::now();
        let mut eager = Eager::default();
        loop {
            let more = self.take_messages(connection, &mut notifications, &mut pending).await;
            let moved = self.send(stream)?;
            if moved {
                eager.answered();
            }
            if self.out.is_empty() {
                stall = None;
            } else if moved || stall.is_none() {
                stall = Some(Instant::now() + STALL);
            }
            if more && self.out.len() < MAX_UNSENT_BYTES {
                continue;
            }
            let answered = pending.is_empty() || self.input == Input::Refused;
            if self.input != Input::Open && answered && self.out.is_empty() {
                return Ok(());
            }
            let room = self.out.len() < MAX_UNSENT_BYTES;
            let tells = self.out.len() < MAX_UNSENT_NOTIFICATIONS;
            let reads = self.input == Input::Open && room && connection.calls().has_room();
            self.held.set(self.out.len() + self.buffer.len());
            // What is in the buffer and was not taken has come in part.
            let in_part = reads && self.buffer.len() > SHORT_BYTES;
            if in_part && self.held.is_tight() {
                self.refuse("too much is held for clients: no room for a long message");
                continue;
            }
            if !in_part {
                came = Instant::now();
            }
            self.reserve();
            let (mut reader, writer) = stream.split();
            tokio::select! {
                biased;
                ready = writer.writable(), if !self.out.is_empty() => ready?,
                Some(text) = notifications.recv(), if tells => self.frame(&text),
                Some(answer) = pending.next(), if room => self.answer(answer, &mut notifications),
                () = &mut closing, if self.input != Input::Closing => {
                    // What has arrived is answered, if only by that it was not begun.
                    if reads {
                        let _nothing_more = stream.try_read_buf(&mut self.buffer);
                    }
                    self.input = Input::Closing;
                    connection.calls().abandon_all(Abandoned::Stopping);
                }
                read = reader.read_buf(&mut self.buffer), if reads => {
                    if read? == 0 {
                        self.input = Input::Ended;
                    }
                    came = Instant::now();
                }
                () = tokio::time::sleep_until(came + STALL), if in_part => {
                    self.refuse("the rest of a message did not come");
                }
                () = eager.awake(), if reads && pending.is_empty() => {}
                () = connection.calls().freed(), if !connection.calls().has_room() => {}
                () = passed(stall), if stall.is_some() => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answers"));
                }
                () = tokio::time::sleep(HANGUP_CHECK), if !reads => {
                    if hung_up(stream) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Starts the messages in the buffer, as far as there is room for their calls and answers. Gives whether there may be
    /// more in it.
    async fn take_messages(
        &mut self,
        connection: &Connection,
        notifications: &mut mpsc::Receiver<Vec<u8>>,
        pending: &mut FuturesUnordered<futures_util::future::BoxFuture<'static, Option<Answer>>>,
    ) -> bool {
        while self.input != Input::Refused && connection.calls().has_room() {
            if self.out.len() >= MAX_UNSENT_BYTES {
                return true;
            }
            match self.codec.next(&mut self.buffer, self.input == Input::Ended) {
                Next::More => return false,
                Next::Bad(error) => self.frame(&error),
                Next::Fatal(error) => {
                    self.frame(&error);
                    self.input = Input::Refused;
                }
                Next::Text(text) => match connection.start(&text).await {
                    Outcome::Nothing => {}
                    Outcome::Ready(answer) => self.answer(Some(answer), notifications),
                    Outcome::Pending(answer) => pending.push(answer),
                },
            }
            // One answer is all that a refused connection gets.
            if connection.refuses() && !self.out.is_empty() {
                self.input = Input::Refused;
            }
        }
        false
    }

    /// Says why the connection ends, and reads nothing more.
    fn refuse(&mut self, why: &str) {
        self.frame(&answer::of_kind(NO_ID, Kind::Limit, why));
        self.buffer = BytesMut::new();
        self.input = Input::Refused;
    }

    /// Frames an answer, if there is one, after what its call told.
    fn answer(&mut self, answer: Option<Answer>, notifications: &mut mpsc::Receiver<Vec<u8>>) {
        let Some(answer) = answer else { return };
        told(notifications).for_each(|text| self.frame(&text));
        self.frame(&answer.text);
    }

    fn frame(&mut self, text: &[u8]) {
        self.codec.frame(text, &mut self.out);
    }

    /// Writes what the system takes. Gives whether it took anything.
    fn send(&mut self, stream: &UnixStream) -> io::Result<bool> {
        let mut moved = false;
        while !self.out.is_empty() {
            match stream.try_write(&self.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.out.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            moved = true;
        }
        if self.out.capacity() > KEPT_BYTES {
            self.out = BytesMut::new();
        }
        Ok(moved)
    }

    fn reserve(&mut self) {
        if self.buffer.len() < READ_BYTES && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.buffer.reserve(if self.buffer.len() < READ_BYTES { READ_BYTES } else { LONG_READ_BYTES });
    }
}
