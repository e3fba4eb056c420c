//! Connections from their first byte to their last, and the order in which they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::calls::Work;
use super::classify::{Spoken, classify};
use super::dispatch::{Connection, Dispatcher};
use super::json::JsonTexts;
use super::length::LengthPrefixed;
use super::replay::Replay;
use super::{Closing, Framing, Notifier, Peer, answer, http, linger, stream};
use crate::daemon::Services;
use crate::daemon::listener::{Accepted, Listener};
use crate::daemon::shutdown::Shutdown;
use crate::proto::errors::Kind;

/// Most connections at a time. One more is told so and closed.
const MAX_CONNECTIONS: usize = 1_024;

/// From this many on, a connection that has not sent a byte in 30 s makes room for others.
const CROWDED: usize = MAX_CONNECTIONS - MAX_CONNECTIONS / 8;

/// Most connections at a time that are being told that there are too many. One more is closed without a word.
const MAX_REFUSALS: usize = 128;

/// How long a refused connection may take to ask for something, so that it can be answered in its own framing.
const REFUSAL: Duration = Duration::from_secs(5);

/// How long a stop waits for what is under way; then it is answered as unfinished.
const DRAIN: Duration = Duration::from_secs(9);

/// How long a stop then waits for clients to take their last answers.
const FLUSH: Duration = Duration::from_secs(1);

/// How long those who were let in are still answered when another daemon goes on with the socket: who connects, asks and
/// leaves need not know of it.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Serves connections.
pub(in crate::daemon) struct Server {
    shared: Arc<Shared>,
    services: Services,
    close: watch::Sender<bool>,
    connections: JoinSet<()>,
    count: u64,
}

struct Shared {
    dispatcher: Arc<Dispatcher>,
    raw: Arc<dyn super::RawHandler>,
    closing: Closing,
    served: AtomicUsize,
    refused: AtomicUsize,
}

impl Server {
    pub(in crate::daemon) fn new(services: Services, shutdown: Shutdown) -> Self {
        let (close, closing) = Closing::new();
        let methods = services.methods.clone();
        let dispatcher =
            Dispatcher { methods, shutdown, work: Arc::new(Work::new()), memory: Arc::default() };
        let shared = Shared {
            dispatcher: Arc::new(dispatcher),
            raw: Arc::clone(&services.raw),
            closing,
            served: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared), services, close, connections: JoinSet::new(), count: 0 }
    }

    /// Serves until the shutdown begins, then stops in order: new work is refused, what runs finishes or is recorded,
    /// the socket goes, connections get their last answers and close. The lock is the listener's, and goes with it.
    ///
    /// Where another program goes on with the socket it stays, and what is answered from memory still is: the listener is
    /// given back for it.
    pub(in crate::daemon) async fn run(mut self, mut listener: Listener) -> Option<Listener> {
        let shutdown = self.shared.dispatcher.shutdown.clone();
        self.accept_until(&mut listener, shutdown.wait()).await;
        let deadline = Instant::now() + DRAIN;
        let services = self.services.clone();
        let work = Arc::clone(&self.shared.dispatcher.work);
        let drained = async {
            let both = async { tokio::join!(services.drain.drain(deadline), work.idle()) };
            if timeout_at(deadline, both).await.is_err() {
                tracing::warn!("stopping without waiting any longer for what is under way");
            }
        };
        let handed_over = shutdown.successor().is_some();
        if listener.is_activated() || handed_over {
            // The socket stays, and whoever comes now waits there for the next daemon.
            drained.await;
            if handed_over {
                let _some_stay = timeout(LAST_WORDS, self.ended()).await;
            }
        } else {
            // Whoever comes now is told that the daemon stops, instead of waiting for nothing.
            self.accept_until(&mut listener, drained).await;
            listener.unlink();
            while let Some(accepted) = listener.waiting() {
                self.admit(accepted);
            }
        }
        self.close().await;
        handed_over.then_some(listener)
    }

    async fn close(&mut self) {
        self.close.send_replace(true);
        if timeout(FLUSH, self.ended()).await.is_err() {
            tracing::warn!(connections = self.connections.len(), "closing connections that do not read");
            self.connections.shutdown().await;
        }
    }

    /// Waits until every connection has ended. Cancel safe.
    async fn ended(&mut self) {
        while self.connections.join_next().await.is_some() {}
    }

    async fn accept_until(&mut self, listener: &mut Listener, end: impl Future<Output = ()>) {
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => return,
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
                accepted = listener.accept() => self.admit(accepted),
            }
        }
    }

    fn admit(&mut self, accepted: Accepted) {
        self.count += 1;
        let shared = Arc::clone(&self.shared);
        let number = self.count;
        let span = tracing::debug_span!("connection", number);
        let full = shared.served.load(Ordering::Relaxed) >= MAX_CONNECTIONS;
        let (counter, limit): (fn(&Shared) -> &AtomicUsize, _) =
            if full { (|s| &s.refused, MAX_REFUSALS) } else { (|s| &s.served, MAX_CONNECTIONS) };
        if counter(&shared).load(Ordering::Relaxed) >= limit {
            return;
        }
        let place = Place::take(shared, counter);
        let task = async move {
            let serving = serve(accepted, number, &place.shared, full);
            if !full {
                serving.await;
            } else if timeout(REFUSAL, serving).await.is_err() {
                tracing::debug!("a connection over the limit said nothing");
            }
        };
        self.connections.spawn(task.instrument(span));
    }
}

/// One of the places for connections; dropping it makes room.
struct Place {
    shared: Arc<Shared>,
    counter: fn(&Shared) -> &AtomicUsize,
}

impl Place {
    fn take(shared: Arc<Shared>, counter: fn(&Shared) -> &AtomicUsize) -> Self {
        counter(&shared).fetch_add(1, Ordering::Relaxed);
        Self { shared, counter }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.counter)(&self.shared).fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(accepted: Accepted, number: u64, shared: &Shared, refuse: bool) {
    let Accepted { mut stream, uid, gid, pid } = accepted;
    let crowded = || shared.served.load(Ordering::Relaxed) >= CROWDED;
    let classified = tokio::select! {
        classified = classify(&mut stream, crowded) => classified,
        () = shared.closing.waiting() => return,
    };
    let (spoken, buffer) = match classified {
        Ok(classified) => classified,
        Err(error) => return tracing::debug!(%error, "the connection ended before it said anything"),
    };
    let framing = match spoken {
        Spoken::Json => Framing::Json,
        Spoken::ContentLength => Framing::ContentLength,
        Spoken::Http => Framing::Http,
        Spoken::Raw => Framing::Raw,
        Spoken::Nothing => return,
        Spoken::Garbage => {
            let error = answer::garbage();
            // The client may have gone; then there is nobody to tell.
            let _ = stream.write_all(&error).await;
            return linger(&mut stream).await;
        }
    };
    let peer = Peer { uid, gid, pid, connection: number, framing };
    tracing::debug!(?peer, "connected");
    speak(stream, buffer, peer, shared, refuse).await;
}

async fn speak(stream: UnixStream, buffer: BytesMut, peer: Peer, shared: &Shared, refuse: bool) {
    let connect = |framing, notifier| {
        Connection::new(Arc::clone(&shared.dispatcher), Peer { framing, ..peer }, notifier, refuse)
    };
    let closing = &shared.closing;
    let (notifier, receiver) = Notifier::new();
    let ended = match peer.framing {
        Framing::Json => {
            let connection = connect(peer.framing, notifier);
            stream::serve(stream, buffer, JsonTexts::new(), &connection, receiver, closing).await
        }
        Framing::ContentLength => {
            let connection = connect(peer.framing, notifier);
            stream::serve(stream, buffer, LengthPrefixed::new(), &connection, receiver, closing).await
        }
        Framing::Http | Framing::WebSocket => {
            let served = http::serve(Replay::new(buffer.freeze(), stream), connect, closing).await;
            return served.unwrap_or_else(|error| tracing::debug!(%error, "an HTTP connection ended"));
        }
        Framing::Raw => return raw(stream, buffer, peer, shared, refuse).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn raw(mut stream: UnixStream, buffer: BytesMut, peer: Peer, shared: &Shared, refuse: bool) {
    let refused = if refuse {
        Some((Kind::Limit, "too many connections: close one and try again"))
    } else if shared.dispatcher.shutdown.begun() {
        Some((Kind::ShuttingDown, "the daemon is stopping"))
    } else {
        None
    };
    if let Some((kind, why)) = refused {
        // The client may have gone; then there is nobody to tell.
        let _ = stream.write_all(&answer::refused(kind, why)).await;
        return linger(&mut stream).await;
    }
    tokio::select! {
        () = shared.raw.serve(Replay::new(buffer.freeze(), stream), peer) => {}
        () = shared.closing.waiting() => {}
    }
}
