//! WebSocket: one message per text; a binary one is taken for text too.

use std::io;
use std::task::Poll;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::answer::of_kind;
use super::calls::Abandoned;
use super::dispatch::{Answer, Connection, Outcome};
use super::envelope::NO_ID;
use super::memory::{SHORT_BYTES, Share};
use super::replay::Replay;
use super::{
    Closing, HANGUP_CHECK, MAX_UNSENT_BYTES, MAX_UNSENT_NOTIFICATIONS, STALL, answer, hung_up, linger, told,
};
use crate::proto::errors::Kind;
use crate::proto::version::MAX_MESSAGE_BYTES;

/// Bytes read at a time, allocated for the connection's life.
const READ_BYTES: usize = 4 * 1024;

/// Serves the connection until either side closes it.
pub(super) async fn serve(
    stream: Replay<UnixStream>,
    read: &Bytes,
    connection: &Connection,
    notifications: mpsc::Receiver<Vec<u8>>,
    closing: &Closing,
) -> Result<(), Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let part = read.to_vec();
    let socket = WebSocketStream::from_partially_read(stream, part, Role::Server, Some(config)).await;
    let mut wire = Wire { socket, unsent: 0, whole: 0, held: connection.share(), end: None };
    wire.drive(connection, notifications, closing).await?;
    if let Some(end) = wire.end {
        // The client may not read any more; then there is nobody to tell.
        let _ = tokio::time::timeout(STALL, wire.socket.close(Some(end.into_frame()))).await;
        let (_, mut stream) = wire.socket.into_inner().into_parts();
        linger(&mut stream).await;
    }
    Ok(())
}

/// Why the daemon closes a connection.
#[derive(Debug, Clone, Copy)]
enum End {
    TooLong,
    NotText,
    Refused,
    Stopping,
    Protocol,
    Full,
    Cut,
}

impl End {
    fn into_frame(self) -> CloseFrame {
        let (code, reason) = match self {
            Self::TooLong => (CloseCode::Size, "message too long"),
            Self::NotText => (CloseCode::Invalid, "not UTF-8"),
            Self::Refused => (CloseCode::Again, "too many connections"),
            Self::Stopping => (CloseCode::Away, "the daemon is stopping"),
            Self::Protocol => (CloseCode::Protocol, "not WebSocket"),
            Self::Full => (CloseCode::Again, "too much is held for clients"),
            Self::Cut => (CloseCode::Policy, "the rest of a message did not come"),
        };
        CloseFrame { code, reason: Utf8Bytes::from_static(reason) }
    }
}

struct Wire {
    socket: WebSocketStream<Replay<UnixStream>>,
    /// Bytes given to the socket since it was last flushed.
    unsent: usize,
    /// Bytes that had come when the last message was whole.
    whole: u64,
    /// What is unsent, and has come in part.
    held: Share,
    end: Option<End>,
}

enum Event {
    /// The client took some of what waits for it.
    Moved,
    Flushed(Result<(), Error>),
    Came(Option<Result<Message, Error>>),
}

impl Wire {
    async fn drive(
        &mut self,
        connection: &Connection,
        mut notifications: mpsc::Receiver<Vec<u8>>,
        closing: &Closing,
    ) -> Result<(), Error> {
        let mut pending = FuturesUnordered::new();
        let mut closing = closing.waiting();
        let mut stall = Instant::now() + STALL;
        let mut written = self.socket.get_ref().written();
        let (mut came, mut read) = (Instant::now(), 0);
        loop {
            let before = std::mem::replace(&mut written, self.socket.get_ref().written());
            if self.unsent == 0 || written != before {
                stall = Instant::now() + STALL;
            }
            if self.unsent == 0 {
                // What still comes for a connection that ends for its own fault is not waited for.
                if self.end.is_some_and(|end| !matches!(end, End::Stopping) || pending.is_empty()) {
                    return Ok(());
                }
            }
            let room = self.unsent < MAX_UNSENT_BYTES;
            let tells = self.unsent < MAX_UNSENT_NOTIFICATIONS;
            let has_room = connection.calls().has_room();
            let reads = self.end.is_none() && room && has_room;
            let part = usize::try_from(self.socket.get_ref().received() - self.whole).unwrap_or(usize::MAX);
            self.held.set(self.unsent.saturating_add(part));
            let in_part = reads && part > SHORT_BYTES;
            if in_part && self.held.is_tight() {
                self.end = Some(End::Full);
                self.send(of_kind(
                    NO_ID,
                    Kind::Limit,
                    "too much is held for clients: no room for a long message",
                ))?;
                continue;
            }
            let before = std::mem::replace(&mut read, self.socket.get_ref().received());
            if !in_part || read != before {
                came = Instant::now();
            }
            tokio::select! {
                biased;
                Some(text) = notifications.recv(), if tells => self.send(text)?,
                Some(answer) = pending.next(), if room => self.answer(answer, &mut notifications)?,
                () = &mut closing, if self.end.is_none() => {
                    self.end = Some(End::Stopping);
                    connection.calls().abandon_all(Abandoned::Stopping);
                }
                event = self.event(reads) => match event {
                    Event::Moved => {}
                    Event::Flushed(flushed) => {
                        flushed?;
                        self.unsent = 0;
                    }
                    Event::Came(None) => return Ok(()),
                    Event::Came(Some(message)) => match self.take(message, connection).await? {
                        Outcome::Nothing => {}
                        Outcome::Ready(answer) => self.answer(Some(answer), &mut notifications)?,
                        Outcome::Pending(answer) => pending.push(answer),
                    },
                },
                () = connection.calls().freed(), if !has_room => {}
                () = tokio::time::sleep_until(came + STALL), if in_part => self.end = Some(End::Cut),
                () = tokio::time::sleep(HANGUP_CHECK), if !reads && self.end.is_none() => {
                    if hung_up(self.socket.get_ref().get_ref()) {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep_until(stall), if self.unsent > 0 => {
                    let error = io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answers");
                    return Err(Error::Io(error));
                }
            }
        }
    }

    /// Waits for the first of: some or all is sent, a message came. One future for all, so that neither side waits
    /// for the other when a client sends much before it reads. Cancel safe: the state is in the socket.
    async fn event(&mut self, reads: bool) -> Event {
        let unsent = self.unsent > 0;
        let socket = &mut self.socket;
        std::future::poll_fn(|cx| {
            let before = socket.get_ref().written();
            if unsent && let Poll::Ready(flushed) = socket.poll_flush_unpin(cx) {
                return Poll::Ready(Event::Flushed(flushed));
            }
            if socket.get_ref().written() != before {
                return Poll::Ready(Event::Moved);
            }
            if reads && let Poll::Ready(message) = socket.poll_next_unpin(cx) {
                return Poll::Ready(Event::Came(message));
            }
            Poll::Pending
        })
        .await
    }

    async fn take(
        &mut self,
        message: Result<Message, Error>,
        connection: &Connection,
    ) -> Result<Outcome<Answer>, Error> {
        self.whole = self.socket.get_ref().received();
        let outcome = match message {
            Ok(Message::Text(text)) => connection.start(text.as_bytes()).await,
            Ok(Message::Binary(bytes)) => connection.start(&bytes).await,
            // Pings and closes are answered by the library, which sends on the next flush.
            Ok(_) => {
                self.unsent += 1;
                return Ok(Outcome::Nothing);
            }
            Err(Error::Capacity(CapacityError::MessageTooLong { size, .. })) => {
                self.end = Some(End::TooLong);
                return Ok(Outcome::Ready(answer::too_long(size as u64).into()));
            }
            Err(Error::Utf8(_)) => {
                self.end = Some(End::NotText);
                return Ok(Outcome::Ready(answer::not_utf8().into()));
            }
            Err(Error::Protocol(error)) if error != ProtocolError::ResetWithoutClosingHandshake => {
                tracing::debug!(%error, "a client does not keep to WebSocket");
                self.end = Some(End::Protocol);
                return Ok(Outcome::Nothing);
            }
            Err(error) => return Err(error),
        };
        if connection.refuses() {
            self.end = Some(End::Refused);
        }
        Ok(outcome)
    }

    /// Sends an answer, if there is one, after what its call told.
    fn answer(
        &mut self,
        answer: Option<Answer>,
        notifications: &mut mpsc::Receiver<Vec<u8>>,
    ) -> Result<(), Error> {
        let Some(answer) = answer else { return Ok(()) };
        told(notifications).try_for_each(|text| self.send(text))?;
        let Answer { text, held } = answer;
        self.send(text)?;
        drop(held);
        Ok(())
    }

    /// Queues the text in the socket's own buffer, which takes it even where the client does not read: how much may wait
    /// there is counted here.
    fn send(&mut self, text: Vec<u8>) -> Result<(), Error> {
        self.unsent += text.len();
        let text = Utf8Bytes::try_from(text).expect("answers are JSON, which is UTF-8");
        self.socket.start_send_unpin(Message::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jsonrpsee::RpcModule;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

    use super::*;
    use crate::daemon::framing::calls::Work;
    use crate::daemon::framing::dispatch::Dispatcher;
    use crate::daemon::framing::{Framing, Notifier, Peer};
    use crate::daemon::shutdown::Shutdown;

    /// More than a socket takes several times.
    const ANSWER_BYTES: usize = 2 * 1024 * 1024;

    /// Serves one connection, whose only method has a long answer.
    async fn served(stream: UnixStream) -> Result<(), Error> {
        let mut methods = RpcModule::new(());
        methods.register_method("fill", |_, (), _| "x".repeat(ANSWER_BYTES)).expect("one method");
        let (methods, shutdown, work) = (methods.into(), Shutdown::new(), Arc::new(Work::new()));
        let dispatcher = Dispatcher { methods, shutdown, work, memory: Arc::default() };
        let peer = Peer { uid: 0, gid: 0, pid: None, connection: 1, framing: Framing::WebSocket };
        let (notifier, notifications) = Notifier::new();
        let connection = Connection::new(Arc::new(dispatcher), peer, notifier, false);
        let (_closes, closing) = Closing::new();
        serve(Replay::new(Bytes::new(), stream), &Bytes::new(), &connection, notifications, &closing).await
    }

    /// Asks for the long answer, and gives the stream that it comes on.
    async fn asked() -> (UnixStream, tokio::task::JoinHandle<Result<(), Error>>) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let served = tokio::spawn(served(server));
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"fill"}"#;
        client.send(Message::text(request)).await.expect("sent");
        (client.into_inner(), served)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_some_of_its_answer_now_and_then_gets_all_of_it() {
        let (client, served) = asked().await;
        let (mut taken, mut part, begun) = (0, vec![0; 64 * 1024], Instant::now());
        while taken < ANSWER_BYTES {
            tokio::time::sleep(STALL - Duration::from_secs(10)).await;
            client.ready(Interest::READABLE).await.expect("open");
            while let Ok(read) = client.try_read(&mut part) {
                assert!(read > 0, "closed after {taken} bytes");
                taken += read;
            }
        }
        assert!(begun.elapsed() > 2 * STALL, "the socket took all at once");
        served.abort();
    }

    #[tokio::test]
    async fn who_does_not_keep_to_the_protocol_is_told_so_in_the_frame_that_closes() {
        let masked = |head: &[u8], length: usize| [head, &[0; 4], &vec![0; length]].concat();
        for (what, frame) in [
            ("unmasked", b"\x81\x01a".to_vec()),
            ("a lone continuation", masked(b"\x80\x80", 0)),
            ("a ping in pieces", masked(b"\x09\x80", 0)),
            ("a long ping", masked(b"\x89\xfe\x00\x7e", 126)),
            ("a reserved bit", masked(b"\xc1\x80", 0)),
            ("an unknown kind", masked(b"\x83\x80", 0)),
        ] {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let served = tokio::spawn(served(server));
            client.write_all(&frame).await.expect("sent");
            client.shutdown().await.expect("ended");
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.expect("read");
            assert!(matches!(said[..], [0x88, _, 0x03, 0xea, ..]), "{what}: {said:?}");
            served.await.expect("no panic").expect("ended in order");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, served) = asked().await;
        let error = served.await.expect("no panic").expect_err("nobody reads");
        assert!(matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut));
    }
}
