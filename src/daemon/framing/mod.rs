//! The socket's framings: one method table behind JSON texts, `Content-Length` messages, HTTP and WebSocket, told apart
//! by the first bytes of a connection, and raw streams beside them.
//!
//! All of them hand one JSON text at a time to one dispatcher, so that batches, errors, limits, cancelling and stopping
//! are alike on each. The registry of methods is jsonrpsee's; its server is not used, because it runs the entries of a
//! batch one after another, drops a call when its client goes away, and answers too long messages and empty batches
//! differently per framing.

mod accept;
mod answer;
mod batch;
mod calls;
mod classify;
#[cfg(feature = "fault")]
pub(super) mod debug;
mod dispatch;
mod eager;
mod envelope;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod http;
mod json;
mod length;
mod memory;
mod params;
mod prepared;
pub mod replay;
mod scan;
mod stream;
#[cfg(test)]
mod tests;
mod websocket;

use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(super) use accept::Server;
pub use calls::Abandoned;
pub use params::{params, wrong};
pub use prepared::Prepared;
use replay::Replay;

use super::subscriptions::Place;

/// Most bytes of answers that wait for a client to read them. Past it nothing more is read of that client.
const MAX_UNSENT_BYTES: usize = 4 * 1024 * 1024;

/// Most notifications that wait for a client to read them. Past it [`Notifier::notify`] gives false, and
/// [`Notifier::send`] waits. A thousand subscribers that read nothing hold so many each.
const MAX_NOTIFICATIONS: usize = 32;

/// Most bytes that wait for a client to read them while notifications are still added, for the same reason.
const MAX_UNSENT_NOTIFICATIONS: usize = 16 * 1024;

/// How long a client may take no byte of what waits for it before its connection is closed.
const STALL: Duration = Duration::from_secs(30);

/// How often a client that nothing is read of, because it has closed its side or has too much under way, is looked at to
/// see whether it is there at all.
const HANGUP_CHECK: Duration = Duration::from_secs(1);

/// Most bytes that are read and thrown away of a client that is told that its connection closes, so that it comes to
/// read why.
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// How long the same may take.
const LINGER: Duration = Duration::from_secs(5);

/// How a connection's messages are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// JSON texts one after the other.
    Json,
    /// The base protocol of language servers.
    ContentLength,
    /// HTTP.
    Http,
    /// WebSocket.
    WebSocket,
    /// A raw stream.
    Raw,
}

/// Who is at the other end. In the extensions of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its process, where the system tells.
    pub pid: Option<i32>,
    /// The connection's number in this daemon's life.
    pub connection: u64,
    /// What it speaks.
    pub framing: Framing,
}

/// Who waits for the answer of a call. In the extensions of each call that may wait.
#[derive(Debug, Clone, Default)]
pub struct Audience(Option<watch::Receiver<Option<Abandoned>>>);

impl Audience {
    /// Gives the switch, too: sending why says that nobody waits any more.
    pub fn new() -> (watch::Sender<Option<Abandoned>>, Self) {
        let (leaves, left) = watch::channel(None);
        (leaves, Self(Some(left)))
    }

    /// Ends when nobody waits any more, and gives why: the request was cancelled, or the client is gone. Never for one that is nobody's
    /// call, and when the daemon stops. Cancel safe.
    pub async fn left(&self) -> Abandoned {
        if let Some(left) = &self.0
            && let Ok(why) = left.clone().wait_for(Option::is_some).await
            && let Some(why) = *why
        {
            return why;
        }
        std::future::pending().await
    }
}

/// Sends notifications on the connection that a call came from. In the extensions of each call.
#[derive(Debug, Clone)]
pub struct Notifier {
    queue: Option<mpsc::Sender<Vec<u8>>>,
}

impl Notifier {
    /// One that reaches nobody.
    pub fn none() -> Self {
        Self { queue: None }
    }

    fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (queue, receiver) = mpsc::channel(MAX_NOTIFICATIONS);
        (Self { queue: Some(queue) }, receiver)
    }

    /// Whether it reaches anybody at all.
    pub fn reaches(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues a notification of a subscription when there is room, if the subscription still goes on by then. False when
    /// it does not, or the client has gone. Cancel safe: it is queued whole or not at all.
    pub async fn send(&self, method: &str, params: &impl Serialize, place: &Place) -> bool {
        let Some(queue) = &self.queue else { return false };
        let Some(text) = answer::notification(method, params) else { return false };
        let Ok(room) = queue.reserve().await else { return false };
        place.while_open(|| room.send(text)).is_some()
    }

    /// Queues a notification, in order with others. False when the client does not read, has gone, or speaks plain
    /// HTTP.
    pub fn notify(&self, method: &str, params: &impl Serialize) -> bool {
        let Some(queue) = &self.queue else { return false };
        answer::notification(method, params).is_some_and(|text| queue.try_send(text).is_ok())
    }
}

/// What was told until now and not sent yet: it goes out before an answer does that comes after it.
fn told(notifications: &mut mpsc::Receiver<Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    (0..notifications.len()).map_while(|_| notifications.try_recv().ok())
}

/// Serves raw streams.
pub trait RawHandler: Send + Sync {
    /// Serves a connection that began with the preface, which `stream` no longer has. When the daemon closes its
    /// connections, after [`Drain::drain`], the future is dropped.
    fn serve(&self, stream: Replay<UnixStream>, peer: Peer) -> BoxFuture<'static, ()>;
}

/// What has to come to an end before the daemon may.
#[async_trait]
pub trait Drain: Send + Sync {
    /// Returns when running operations have finished or are recorded. It is dropped at the deadline.
    async fn drain(&self, deadline: Instant);
}

/// Whether connections are to close now.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    closing: watch::Receiver<bool>,
}

impl Closing {
    /// Gives the switch, too: sending true closes.
    fn new() -> (watch::Sender<bool>, Self) {
        let (sender, closing) = watch::channel(false);
        (sender, Self { closing })
    }

    /// Ends when they are; made once per connection. Cancel safe.
    fn waiting(&self) -> Waiting {
        let mut closing = self.closing.clone();
        let receiver = closing.clone();
        let wait = Box::pin(async move {
            // A server that is gone closes, too.
            let _ = closing.wait_for(|closing| *closing).await;
        });
        Waiting { wait, receiver, registered: None }
    }
}

/// Waits for the daemon to close its connections.
///
/// A connection asks each time it is woken, and to register with the watch again each time takes as long as to read a
/// request. So the watch is asked only when it has changed, or when someone else is to be woken.
struct Waiting {
    wait: Pin<Box<dyn Future<Output = ()> + Send>>,
    receiver: watch::Receiver<bool>,
    registered: Option<Waker>,
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let same = self.registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if same && matches!(self.receiver.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        self.registered = Some(cx.waker().clone());
        self.wait.as_mut().poll(cx)
    }
}

/// Ends our side and reads what the client still sends, within bounds: a connection that is closed with input unread is
/// reset, and then a client that is still sending never reads the answer.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let reading = async {
        stream.shutdown().await?;
        let mut scrap = vec![0; 64 * 1024];
        let mut left = LINGER_BYTES;
        loop {
            let read = stream.read(&mut scrap).await?;
            match left.checked_sub(read) {
                Some(rest) if read > 0 => left = rest,
                _ => return std::io::Result::Ok(()),
            }
        }
    };
    // Whatever happens here, the connection is over.
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// Whether the client is gone altogether; a client that only closed its sending side is not.
fn hung_up(stream: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR;
    nix::poll::poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|events| events.intersects(closed))
}
