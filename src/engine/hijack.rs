//! Our own HTTP to the engine: one connection per request, and the raw stream of a command.
//!
//! The library's stream takes terminal output that begins with byte 0, 1 or 2 for a frame header and loses it, and its
//! requests go without the version that was agreed on; here neither happens.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
use hyper::upgrade::Parts;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::address::Address;
use super::{Chunk, EngineError};
use crate::fault;

/// How long a connect may take.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// How long the engine may take to answer a start with the head of its stream: it answers before it starts anything.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(30);

/// How long the text of an error may take after its status: it was said already that the call failed.
const ERROR_DEADLINE: Duration = Duration::from_secs(3);

/// Output read at once, in bytes: what the engine writes at once, twice.
const READ_BYTES: usize = 64 * 1024;

/// Longest frame of output, in bytes. Engines write at most 32 KiB; far more means that the boundary was lost.
const MAX_FRAME_BYTES: u32 = 16 * 1024 * 1024;

/// Longest text of an error that is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Bytes of a frame's header: stream, three zeros, length in big-endian.
const HEADER_BYTES: usize = 8;

/// The input of a command.
pub type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// The output of a command.
pub type Output = BoxStream<'static, Result<Chunk, EngineError>>;

/// A connection that failed, or an answer that is no success.
#[derive(Debug)]
pub enum Refusal {
    /// No connection, or it broke.
    Transport(String),
    /// No answer in this time.
    Late(Duration),
    /// The engine's status and text.
    Status(u16, String),
}

/// Sends one request on a connection of its own. `request` has the path only.
///
/// # Errors
/// When the connection cannot be made or breaks before the answer's head.
pub async fn send<B>(address: &Address, request: Request<B>) -> io::Result<Response<Incoming>>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tokio::time::timeout(CONNECT_DEADLINE, Socket::connect(address))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the connection is not accepted"))??;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the connection: when the answer was read or dropped, or taken over by an upgrade.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to the engine ended");
        }
    });
    sender.send_request(with_host(address, request)).await.map_err(|error| io::Error::other(chain(&error)))
}

/// An error and its causes in one line, for errors that say little themselves.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Starts a command that was created, and takes over the connection for its bytes.
///
/// # Errors
/// `Refusal`, before anything was started.
pub async fn start_exec(
    address: &Address,
    path: &str,
    body: String,
    tty: bool,
    stdin: bool,
) -> Result<(Option<Input>, Output), Refusal> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "tcp")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| Refusal::Transport(error.to_string()))?;
    let deadline = fault::deadline(UPGRADE_DEADLINE);
    let answer = tokio::time::timeout(deadline, send(address, request))
        .await
        .map_err(|_| Refusal::Late(deadline))?
        .map_err(|error| Refusal::Transport(error.to_string()))?;
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let upgraded = hyper::upgrade::on(answer).await;
            let upgraded = upgraded.map_err(|error| Refusal::Transport(chain(&error)))?;
            let parts = upgraded.downcast::<TokioIo<Socket>>();
            let Parts { io, read_buf, .. } =
                parts.map_err(|_| Refusal::Transport("the stream is not ours".to_owned()))?;
            let (read, write) = io.into_inner().into_split();
            Ok((stdin.then_some(write), output(read, read_buf, tty)))
        }
        // Something between us and the engine dropped the upgrade: output still comes, input cannot go.
        StatusCode::OK if stdin => {
            Err(Refusal::Transport("the engine's address does not pass upgraded connections".to_owned()))
        }
        StatusCode::OK => {
            let body = answer.into_body().into_data_stream().map(|r| r.map_err(io::Error::other));
            Ok((None, output(BodyReader { body: body.boxed(), rest: Bytes::new() }, Bytes::new(), tty)))
        }
        status => Err(Refusal::Status(status.as_u16(), error_text(answer).await)),
    }
}

/// The text of an answer that is no success; nothing where it does not come.
pub async fn error_text(answer: Response<Incoming>) -> String {
    let body = Limited::new(answer.into_body(), MAX_ERROR_BYTES).collect();
    let body = tokio::time::timeout(ERROR_DEADLINE, body).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let json = serde_json::from_slice::<serde_json::Value>(&body).ok();
    let message = json.as_ref().and_then(|value| value["message"].as_str());
    message.map_or_else(|| String::from_utf8_lossy(&body).trim().to_owned(), str::to_owned)
}

fn with_host<B>(address: &Address, mut request: Request<B>) -> Request<B> {
    // An engine on a socket ignores the name, but wants one that is valid.
    let host = match address {
        Address::Unix(_) => HeaderValue::from_static("engine"),
        Address::Tcp(host) => {
            HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("engine"))
        }
    };
    request.headers_mut().insert(HOST, host);
    let path = request.uri().path_and_query().map(|path| path.as_str().to_owned());
    *request.uri_mut() = path.and_then(|path| path.parse().ok()).unwrap_or_else(|| Uri::from_static("/"));
    request
}

fn output(read: impl AsyncRead + Send + Unpin + 'static, first: Bytes, tty: bool) -> Output {
    let demux = Demux { read, buffer: BytesMut::from(first), tty, frame: None, done: false };
    stream::unfold(demux, |mut demux| async move {
        let next = demux.next().await?;
        Some((next, demux))
    })
    .fuse()
    .boxed()
}

/// Takes the two outputs apart as they are asked for; holds at most one read of bytes.
struct Demux<R> {
    read: R,
    buffer: BytesMut,
    tty: bool,
    /// Which output, and how much of its frame is still to come.
    frame: Option<(u8, usize)>,
    done: bool,
}

impl<R: AsyncRead + Unpin> Demux<R> {
    async fn next(&mut self) -> Option<Result<Chunk, EngineError>> {
        while !self.done {
            match self.take() {
                Ok(Some(chunk)) => return Some(Ok(chunk)),
                Ok(None) => {}
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
            self.buffer.reserve(READ_BYTES);
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    self.done = true;
                    let cut = self.frame.is_some() || !self.buffer.is_empty();
                    return cut.then(|| Err(broken("it ended in the middle of a frame")));
                }
                Ok(_) => {}
                Err(error) => {
                    self.done = true;
                    return Some(Err(broken(&error.to_string())));
                }
            }
        }
        None
    }

    /// A chunk of what was read, if there is one.
    fn take(&mut self) -> Result<Option<Chunk>, EngineError> {
        if self.tty {
            let bytes = self.buffer.split().freeze();
            return Ok((!bytes.is_empty()).then_some(Chunk::Stdout(bytes)));
        }
        loop {
            let Some((stream, left)) = self.frame else {
                if self.buffer.len() < HEADER_BYTES {
                    return Ok(None);
                }
                let (stream, zeros) = (self.buffer[0], &self.buffer[1..4]);
                if stream > 3 || zeros != [0, 0, 0] {
                    return Err(broken("it has no frame where one must begin"));
                }
                self.buffer.advance(4);
                let length = self.buffer.get_u32();
                if length > MAX_FRAME_BYTES {
                    return Err(broken(&format!("a frame of {length} bytes is over the limit")));
                }
                self.frame = (length > 0).then_some((stream, length as usize));
                continue;
            };
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let bytes = self.buffer.split_to(left.min(self.buffer.len())).freeze();
            self.frame = (left > bytes.len()).then_some((stream, left - bytes.len()));
            return match stream {
                2 => Ok(Some(Chunk::Stderr(bytes))),
                3 => Err(broken(&String::from_utf8_lossy(&bytes))),
                _ => Ok(Some(Chunk::Stdout(bytes))),
            };
        }
    }
}

fn broken(why: &str) -> EngineError {
    EngineError::Failed { call: "exec", text: format!("the command's output broke off: {why}") }
}

/// A connection of either kind.
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            Address::Tcp(host) => {
                let stream = TcpStream::connect(host).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Both directions, without a lock between them. Dropping the writing one ends it.
    fn into_split(self) -> (Box<dyn AsyncRead + Send + Unpin>, Input) {
        match self {
            Self::Unix(stream) => {
                let (read, write) = stream.into_split();
                (Box::new(read), Box::pin(write))
            }
            Self::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (Box::new(read), Box::pin(write))
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The body of an answer as a reader.
struct BodyReader {
    body: BoxStream<'static, io::Result<Bytes>>,
    rest: Bytes,
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match self.body.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.rest = bytes,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one by one, then ends.
    async fn demux(pieces: &[&[u8]], tty: bool) -> Vec<Result<Chunk, String>> {
        let mut builder = tokio_test_pieces(pieces);
        let first = Bytes::from(builder.remove(0));
        let (mut sender, receiver) = tokio::io::duplex(1);
        let feed = tokio::spawn(async move {
            for piece in builder {
                tokio::io::AsyncWriteExt::write_all(&mut sender, &piece).await.expect("fed");
            }
        });
        let got = output(receiver, first, tty).map(|r| r.map_err(|e| e.to_string())).collect().await;
        feed.abort();
        got
    }

    fn tokio_test_pieces(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        pieces.iter().map(|piece| piece.to_vec()).collect()
    }

    /// What came on each output, whatever the pieces.
    fn joined(chunks: Vec<Result<Chunk, String>>) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for chunk in chunks {
            match chunk.expect("no error") {
                Chunk::Stdout(bytes) => out.extend(bytes),
                Chunk::Stderr(bytes) => err.extend(bytes),
            }
        }
        (out, err)
    }

    #[tokio::test]
    async fn frames_that_arrive_byte_by_byte_are_put_together() {
        let got = demux(
            &[
                &[1, 0, 0],
                &[0, 0, 0, 0, 3, b'a'],
                b"bc",
                &[2, 0, 0, 0, 0, 0, 0, 1, b'e'],
                &[1, 0, 0, 0, 0, 0, 0, 0],
            ],
            false,
        )
        .await;
        assert_eq!(joined(got), (b"abc".to_vec(), b"e".to_vec()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_whose_text_never_comes_is_told_all_the_same() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&path).expect("binds");
        let engine = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            assert!(stream.read(&mut [0; 4096]).await.expect("a request") > 0);
            let head = b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, head).await.expect("answered");
            std::future::pending::<()>().await;
        });
        let started = start_exec(&Address::Unix(path), "/x", "{}".to_owned(), false, false).await;
        assert!(matches!(started.err(), Some(Refusal::Status(500, text)) if text.is_empty()));
        engine.abort();
    }

    #[tokio::test]
    async fn a_terminals_bytes_are_never_taken_for_frames() {
        let bytes: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 9, 2, 0];
        let got = demux(&[bytes, &[0, 1]], true).await;
        assert_eq!(joined(got).0, [bytes, &[0, 1]].concat());
    }

    #[tokio::test]
    async fn a_lost_boundary_a_huge_frame_and_a_torn_one_are_errors() {
        for bytes in [
            &[9, 0, 0, 0, 0, 0, 0, 1, 0][..],
            &[1, 0, 0, 0, 0xff, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 5, b'x'],
            &[1, 0],
        ] {
            let got = demux(&[bytes], false).await;
            assert!(got.last().expect("something").is_err(), "{bytes:?}: {got:?}");
        }
    }

    #[tokio::test]
    async fn the_engines_own_error_frame_is_an_error() {
        let got = demux(&[&[3, 0, 0, 0, 0, 0, 0, 2, b'n', b'o']], false).await;
        assert!(got[0].as_ref().expect_err("an error").contains("no"));
    }
}
