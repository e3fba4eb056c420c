//! HTTP: one POST per message. A GET that asks for it becomes a WebSocket.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::calls::Abandoned;
use super::dispatch::{Connection, Outcome};
use super::envelope::NO_ID;
use super::memory::{SHORT_BYTES, Share};
use super::replay::Replay;
use super::{Closing, Framing, HANGUP_CHECK, LINGER_BYTES, Notifier, STALL, answer, hung_up, websocket};
use crate::proto::errors::Kind;
use crate::proto::version::MAX_MESSAGE_BYTES;

/// How long the rest of a body that is too long is read and thrown away, so that its sender comes to read the answer.
const DISCARD: Duration = Duration::from_secs(5);

/// Longest head of a request, and most bytes that are read at once.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Serves the connection: requests one after the other as HTTP has it, or one WebSocket. `connect` makes what messages
/// are dispatched with.
pub(super) async fn serve(
    stream: Replay<UnixStream>,
    connect: impl Fn(Framing, Notifier) -> Connection,
    closing: &Closing,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let connection = Arc::new(connect(Framing::Http, Notifier::none()));
    let socket = stream.get_ref().as_fd().try_clone_to_owned()?;
    let upgrade = Arc::new(Mutex::new(None));
    let service = service_fn(|request| respond(request, Arc::clone(&connection), Arc::clone(&upgrade)));
    let http = hyper::server::conn::http1::Builder::new()
        // A client that has sent all it wants to and closes that side still gets its answers.
        .half_close(true)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream.given_up_after(STALL)), service)
        .with_upgrades();
    tokio::pin!(http);
    tokio::select! {
        biased;
        ended = &mut http => ended?,
        // Whoever only closed its side is waited for, so the end of what is read says nothing.
        () = gone(&socket) => return Ok(()),
        () = closing.waiting() => {
            connection.calls().abandon_all(Abandoned::Stopping);
            http.as_mut().graceful_shutdown();
            http.await?;
        }
    }
    drop(socket);
    let taken = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(taken) = taken {
        let upgraded: OnUpgrade = taken;
        let parts = upgraded
            .await?
            .downcast::<TokioIo<Replay<UnixStream>>>()
            .map_err(|_| "the upgraded stream is not the one that was served")?;
        let (notifier, notifications) = Notifier::new();
        let connection = connect(Framing::WebSocket, notifier);
        websocket::serve(parts.io.into_inner(), &parts.read_buf, &connection, notifications, closing).await?;
    }
    Ok(())
}

/// Ends when the client is gone altogether. What it sent before that is read meanwhile.
async fn gone(socket: &OwnedFd) {
    loop {
        tokio::time::sleep(HANGUP_CHECK).await;
        if hung_up(socket) {
            return;
        }
    }
}

async fn respond(
    mut request: Request<Incoming>,
    connection: Arc<Connection>,
    upgrade: Arc<Mutex<Option<OnUpgrade>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(header::ORIGIN) {
        return Ok(refuse(StatusCode::FORBIDDEN, "requests of web pages are refused"));
    }
    let mut response = if request.method() == Method::GET && wants_websocket(&request) {
        match accept(&request) {
            Ok(response) => {
                let taken = hyper::upgrade::on(&mut request);
                *upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
                return Ok(response);
            }
            Err(response) => response,
        }
    } else if request.method() == Method::POST {
        post(request, &connection).await
    } else {
        let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "send JSON-RPC by POST");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        response
    };
    if connection.refuses() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn post(request: Request<Incoming>, connection: &Connection) -> Response<Full<Bytes>> {
    if !may_be_json(request.headers().get(header::CONTENT_TYPE)) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
    }
    let expects = request.headers().contains_key(header::EXPECT);
    let held = connection.share();
    let text = match collect(request.into_body(), expects, &held).await {
        Ok(text) => text,
        Err(Failed::Full) => {
            let text = "too much is held for clients: no room for a long message";
            let mut response =
                json(StatusCode::SERVICE_UNAVAILABLE, answer::of_kind(NO_ID, Kind::Limit, text));
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        Err(Failed::TooLong(seen)) => {
            let mut response = json(StatusCode::PAYLOAD_TOO_LARGE, answer::too_long(seen));
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        Err(Failed::Body) => return refuse(StatusCode::BAD_REQUEST, "the body ended too early"),
    };
    // Requests wait for their answers here, but notifications do not.
    while !connection.calls().has_room() {
        connection.calls().freed().await;
    }
    let answer = match connection.start(&text).await {
        Outcome::Nothing => None,
        Outcome::Ready(answer) => Some(answer),
        Outcome::Pending(answer) => answer.await,
    };
    drop(text);
    match answer {
        Some(answer) => {
            held.set(answer.text.len());
            let body = Bytes::from_owner(Unsent { text: answer.text, _held: held });
            with_type(StatusCode::OK, "application/json", body)
        }
        None => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
    }
}

/// An answer that the client has not read.
struct Unsent {
    text: Vec<u8>,
    _held: Share,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

enum Failed {
    /// There is no room for long bodies.
    Full,
    /// The body is at least this long.
    TooLong(u64),
    Body,
}

async fn collect(mut body: Incoming, expects: bool, held: &Share) -> Result<Bytes, Failed> {
    let announced = body.size_hint().exact();
    if let Some(length) = announced.filter(|length| *length > MAX_MESSAGE_BYTES as u64) {
        // A client that waits for leave to send reads the answer instead of it.
        if !expects {
            discard(body).await;
        }
        return Err(Failed::TooLong(length));
    }
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = timeout(STALL, body.frame()).await.map_err(|_| Failed::Body)? {
        let Ok(data) = frame.map_err(|_| Failed::Body)?.into_data() else { continue };
        let length = first.as_ref().map_or(whole.len(), Bytes::len) + data.len();
        held.set(length);
        if length > SHORT_BYTES && held.is_tight() {
            discard(body).await;
            return Err(Failed::Full);
        }
        if length > MAX_MESSAGE_BYTES {
            discard(body).await;
            return Err(Failed::TooLong(length as u64));
        }
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            head => {
                whole.extend_from_slice(&head.unwrap_or_default());
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// Reads on without keeping anything. A connection that closes with input unread is reset, and the answer lost.
async fn discard(mut body: Incoming) {
    let reading = async {
        let mut left = LINGER_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else { return };
            left = rest;
        }
    };
    // Past the time the answer goes out anyway.
    let _ = timeout(DISCARD, reading).await;
}

/// Absent, some kind of JSON, or what curl says when it is told nothing.
fn may_be_json(content_type: Option<&HeaderValue>) -> bool {
    let Some(value) = content_type else { return true };
    let Ok(value) = value.to_str() else { return false };
    if value == "application/json" {
        return true;
    }
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.is_empty()
        || kind.ends_with("/json")
        || kind.ends_with("+json")
        || matches!(
            kind.as_str(),
            "application/json-rpc" | "application/jsonrequest" | "application/x-www-form-urlencoded"
        )
}

fn wants_websocket(request: &Request<Incoming>) -> bool {
    has_token(request, header::CONNECTION, "upgrade") && has_token(request, header::UPGRADE, "websocket")
}

fn has_token(request: &Request<Incoming>, name: header::HeaderName, token: &str) -> bool {
    request
        .headers()
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|value| value.trim().eq_ignore_ascii_case(token))
}

#[expect(clippy::result_large_err, reason = "both sides are the response, built once per connection")]
fn accept(request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Response<Full<Bytes>>> {
    let headers = request.headers();
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let mut response = refuse(StatusCode::UPGRADE_REQUIRED, "only version 13 of WebSocket is spoken");
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(response);
    }
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "no Sec-WebSocket-Key"));
    };
    let accepted =
        HeaderValue::try_from(derive_accept_key(key.as_bytes())).expect("base64 is a header value");
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Ok(response)
}

fn json(status: StatusCode, text: Vec<u8>) -> Response<Full<Bytes>> {
    with_type(status, "application/json", Bytes::from(text))
}

fn refuse(status: StatusCode, why: &'static str) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", Bytes::from(format!("{why}\n")))
}

fn with_type(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
