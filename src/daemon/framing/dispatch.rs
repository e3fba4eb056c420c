//! From one JSON text to its answer, alike for every framing.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jsonrpsee::types::{Id, Params};
use jsonrpsee::{AsyncMethod, ConnectionId, MethodCallback, MethodResponse};
use jsonrpsee::{Extensions, Methods};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::answer;
use super::batch::{self, Room, TURN};
use super::calls::{Abandoned, Calls, Work};
use super::envelope::{self, Call, Entry, Message, NO_ID};
use super::memory::{Memory, Share};
use super::prepared::{self, Prepared};
use super::{Audience, Notifier, Peer};
use crate::daemon::caller::Introduced;
use crate::daemon::shutdown::Shutdown;
use crate::daemon::stream::notify::Seats;
use crate::daemon::subscriptions::{Answered, Held, Subscriptions};
use crate::proto::errors::Kind;
use crate::proto::methods::subscribes;

/// The notification by which a client says that it no longer waits; named as language servers name it.
const CANCEL: &str = "$/cancelRequest";

/// Longest part of an id that stands in the log, in characters.
const MAX_LOGGED_ID_CHARS: usize = 40;

/// What all connections share.
pub(crate) struct Dispatcher {
    pub(crate) methods: Methods,
    pub(crate) shutdown: Shutdown,
    pub(crate) work: Arc<Work>,
    pub(crate) memory: Arc<Memory>,
}

/// What one connection's messages are dispatched with.
pub(super) struct Connection {
    dispatcher: Arc<Dispatcher>,
    calls: Arc<Calls>,
    extensions: Extensions,
    id: ConnectionId,
    refuse: bool,
    subscriptions: Arc<Subscriptions>,
}

/// An answer that is to be sent. What waits for it to be sent waits until this is dropped.
pub(super) struct Answer {
    pub(super) text: Vec<u8>,
    pub(super) held: Option<Held>,
}

impl From<Vec<u8>> for Answer {
    fn from(text: Vec<u8>) -> Self {
        Self { text, held: None }
    }
}

/// What became of a message.
pub(super) enum Outcome<A = Vec<u8>> {
    /// There is nothing to answer.
    Nothing,
    /// The answer.
    Ready(A),
    /// The answer will come. Dropping this drops only the waiting.
    Pending(BoxFuture<'static, Option<A>>),
}

impl Outcome {
    /// The same, with what waits until its answer is sent.
    fn with(self, held: Option<Held>) -> Outcome<Answer> {
        match self {
            Self::Nothing => Outcome::Nothing,
            Self::Ready(text) => Outcome::Ready(Answer { text, held }),
            Self::Pending(text) => {
                Outcome::Pending(text.map(|text| text.map(|text| Answer { text, held })).boxed())
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.calls.abandon_all(Abandoned::Gone);
        self.subscriptions.close();
    }
}

impl Connection {
    /// `refuse` answers every request with kind `limit`.
    pub(super) fn new(dispatcher: Arc<Dispatcher>, peer: Peer, notifier: Notifier, refuse: bool) -> Self {
        let calls = Calls::new(Arc::clone(&dispatcher.work));
        // Only an identifier, so a wrapped one on a 32-bit platform does no harm.
        let id = ConnectionId(usize::try_from(peer.connection).unwrap_or(usize::MAX));
        let mut extensions = Extensions::new();
        extensions.insert(peer);
        extensions.insert(Introduced::default());
        let subscriptions = Arc::new(Subscriptions::default());
        extensions.insert(Arc::clone(&subscriptions));
        extensions.insert(notifier);
        extensions.insert(Arc::<Seats>::default());
        Self { dispatcher, calls, extensions, id, refuse, subscriptions }
    }

    /// The calls under way.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Whether every request is refused.
    pub(super) fn refuses(&self) -> bool {
        self.refuse
    }

    /// What the connection holds of what the daemon has for all.
    pub(super) fn share(&self) -> Share {
        Share::new(&self.dispatcher.memory, 0)
    }

    /// Starts what one JSON text asks for. Each call is polled once here and gets a task of its own only if it has to
    /// wait, so a fast call costs no hop and a slow one holds nothing up. Within a batch others have their turns.
    pub(super) async fn start(&self, text: &[u8]) -> Outcome<Answer> {
        match envelope::parse(text) {
            Message::Bad { code, why } => Outcome::Ready(answer::plain(NO_ID, code, &why).into()),
            Message::One(entry) => {
                let (held, answered) = hold(std::slice::from_ref(&entry)).unzip();
                self.entry(entry, answered.as_ref()).with(held)
            }
            Message::Batch(entries) => {
                let ((held, answered), room) = (hold(&entries).unzip(), Room::new(self.share()));
                let mut outcomes = Vec::with_capacity(entries.len());
                let mut turn = (0, 0);
                for entry in entries {
                    outcomes.push(self.entry_within(entry, &room, answered.as_ref()));
                    if outcomes.len() >= turn.0 + TURN.0 || room.bytes() >= turn.1 + TURN.1 {
                        turn = (outcomes.len(), room.bytes());
                        tokio::task::yield_now().await;
                    }
                }
                batch::answer(outcomes, room).with(held)
            }
        }
    }

    fn entry(&self, entry: Entry<'_>, answered: Option<&Answered>) -> Outcome {
        match entry {
            Entry::Invalid { id, why } => Outcome::Ready(answer::plain(id, answer::INVALID_REQUEST, why)),
            Entry::Call(call) => match call.id {
                Some(id) => self.request(id, &call, answered),
                None => {
                    self.notification(&call);
                    Outcome::Nothing
                }
            },
        }
    }

    /// An entry of a batch, whose answer is left out where there is no room for it.
    fn entry_within(&self, entry: Entry<'_>, room: &Room, answered: Option<&Answered>) -> Outcome {
        let id = match &entry {
            Entry::Call(Call { id: None, .. }) => return self.entry(entry, answered),
            Entry::Call(Call { id: Some(id), .. }) | Entry::Invalid { id, .. } => (*id).to_owned(),
        };
        if let Some(why) = room.is_full() {
            let text = format!("{why}; this entry was not carried out");
            return Outcome::Ready(answer::of_kind(&id, Kind::Limit, &text));
        }
        match self.entry(entry, answered) {
            Outcome::Nothing => Outcome::Nothing,
            Outcome::Ready(answer) => Outcome::Ready(room.fit(&id, answer)),
            Outcome::Pending(answer) => {
                let room = room.clone();
                Outcome::Pending(async move { answer.await.map(|answer| room.fit(&id, answer)) }.boxed())
            }
        }
    }

    fn request(&self, id: &str, call: &Call<'_>, answered: Option<&Answered>) -> Outcome {
        if self.refuse {
            let text = "too many connections: close one and try again";
            return Outcome::Ready(answer::of_kind(id, Kind::Limit, text));
        }
        let found = self.find(&call.method);
        if self.dispatcher.shutdown.begun() {
            let at_once = matches!(found, Some((_, MethodCallback::Sync(_))));
            if !at_once || self.dispatcher.shutdown.successor().is_none() {
                return Outcome::Ready(answer::not_begun(id, "the daemon is stopping"));
            }
        }
        if self.dispatcher.work.is_full() {
            let text = "too many calls are under way: try again when some have ended";
            return Outcome::Ready(answer::of_kind(id, Kind::Limit, text));
        }
        if self.dispatcher.memory.is_full() {
            let text = "too much is held for clients that do not read: try again when it is less";
            return Outcome::Ready(answer::of_kind(id, Kind::Limit, text));
        }
        let Some((name, callback)) = found else {
            return Outcome::Ready(answer::not_found(id, &call.method));
        };
        match envelope::by_name(call.params) {
            Ok(params) => self.run(Some((id, answered)), name, callback, params),
            Err(why) => Outcome::Ready(answer::of_kind(id, Kind::InvalidParams, why)),
        }
    }

    fn notification(&self, call: &Call<'_>) {
        let Ok(params) = envelope::by_name(call.params) else { return };
        if call.method == CANCEL {
            #[derive(serde::Deserialize)]
            struct Cancel<'a> {
                #[serde(borrow)]
                id: &'a serde_json::value::RawValue,
            }
            if let Ok(Cancel { id }) = serde_json::from_str(params) {
                self.calls.cancel(id.get());
            }
            return;
        }
        if self.refuse || self.dispatcher.shutdown.begun() || self.dispatcher.work.is_full() {
            return;
        }
        if let Some((name, callback)) = self.find(&call.method) {
            let _unanswered = self.run(None, name, callback, params);
        }
    }

    /// Subscriptions are ordinary methods that keep the connection's [`Notifier`], so that they work alike in every
    /// framing; the registry's own kind of subscription is bound to its own transports and never registered.
    fn find(&self, name: &str) -> Option<(&'static str, &MethodCallback)> {
        self.dispatcher
            .methods
            .method_with_name(name)
            .filter(|(_, callback)| matches!(callback, MethodCallback::Sync(_) | MethodCallback::Async(_)))
    }

    fn run(
        &self,
        asked: Option<(&str, Option<&Answered>)>,
        name: &'static str,
        callback: &MethodCallback,
        params: &str,
    ) -> Outcome {
        let mut extensions = self.extensions.clone();
        if let Some((_, Some(answered))) = asked {
            extensions.insert(answered.clone());
        }
        let id = asked.map(|(id, _)| id);
        match callback {
            MethodCallback::Sync(method) => {
                let slot = Prepared::default();
                extensions.insert(slot.clone());
                let params = Params::new(Some(params));
                let call =
                    catch_unwind(AssertUnwindSafe(|| method(Id::Null, params, usize::MAX, extensions)));
                match (id, slot.take()) {
                    (Some(id), Some(result)) if call.is_ok() => Outcome::Ready(prepared::answer(id, &result)),
                    (id, _) => finished(id, call.ok()),
                }
            }
            MethodCallback::Async(method) => self.run_async(id, name, Arc::clone(method), params, extensions),
            MethodCallback::Subscription(_) | MethodCallback::Unsubscription(_) => Outcome::Nothing,
        }
    }

    fn run_async(
        &self,
        id: Option<&str>,
        name: &'static str,
        method: AsyncMethod<'static>,
        params: &str,
        mut extensions: Extensions,
    ) -> Outcome {
        let (leaves, audience) = Audience::new();
        extensions.insert(audience);
        let params = Params::new(Some(params)).into_owned();
        let logged = Logged(id.unwrap_or("-"));
        let span = tracing::info_span!("call", connection = self.id.0, id = %logged, method = name);
        let connection = self.id;
        let call = async move { method(Id::Null, params, connection, usize::MAX, extensions).await };
        let mut call = AssertUnwindSafe(call).catch_unwind().instrument(span).boxed();
        // The task polls again at once, so nothing that happens in between is missed.
        if let Some(response) = (&mut call).now_or_never() {
            return finished(id, response.ok());
        }
        let (reply, answer) = oneshot::channel();
        let (ticket, abandoned) = self.calls.enter(id);
        let (id, memory) = (id.map(str::to_owned), Arc::clone(&self.dispatcher.memory));
        tokio::spawn(async move {
            let _ticket = ticket;
            // The connection may be gone; what the call does is not bound to it.
            tokio::select! {
                biased;
                response = &mut call => {
                    let text = text(id.as_deref(), response.ok());
                    let share = Share::new(&memory, text.as_ref().map_or(0, Vec::len));
                    drop(reply.send((text, share)));
                }
                Ok(why) = abandoned => {
                    drop(reply.send((id.map(|id| gave_up(&id, why)), Share::new(&memory, 0))));
                    // Those who wait come back to the next daemon.
                    if why != Abandoned::Stopping {
                        leaves.send_replace(Some(why));
                    }
                    drop(call.await);
                }
            }
        });
        // Until it is taken over it is nobody else's.
        Outcome::Pending(async move { answer.await.ok().and_then(|(text, _share)| text) }.boxed())
    }
}

/// Holds the subscriptions of a message until its answer is sent.
fn hold(entries: &[Entry<'_>]) -> Option<(Held, Answered)> {
    let begins_one = |entry: &Entry<'_>| matches!(entry, Entry::Call(call) if subscribes(&call.method));
    entries.iter().any(begins_one).then(Held::new)
}

/// An id as it stands in the log.
struct Logged<'a>(&'a str);

impl fmt::Display for Logged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().take(MAX_LOGGED_ID_CHARS).try_for_each(|character| f.write_char(character))
    }
}

fn finished(id: Option<&str>, response: Option<MethodResponse>) -> Outcome {
    text(id, response).map_or(Outcome::Nothing, Outcome::Ready)
}

/// The text for the wire; no response means that the method panicked, which the log has.
fn text(id: Option<&str>, response: Option<MethodResponse>) -> Option<Vec<u8>> {
    let id = id?;
    Some(match response {
        Some(response) => answer::with_id(response.as_ref(), id),
        None => answer::of_kind(id, Kind::Internal, "a fault in abxd: its log has the details"),
    })
}

fn gave_up(id: &str, why: Abandoned) -> Vec<u8> {
    match why {
        // Nobody reads it where the client is gone.
        Abandoned::Cancelled | Abandoned::Gone => {
            answer::plain(id, answer::REQUEST_CANCELLED, "the request was cancelled")
        }
        Abandoned::Stopping => {
            let text = "the daemon stopped before the answer was known";
            answer::of_kind(id, Kind::ShuttingDown, text)
        }
    }
}
