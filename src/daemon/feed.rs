//! Events to those who follow them.
//!
//! A subscription is a task that reads the store's feed, which is shared: one that does not read costs a place in it and
//! what its connection queues, and is closed when it has fallen too far behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::clock;
use super::driver::{Driver, composed};
use super::failure::Failure;
use super::framing::Notifier;
use super::progress::{Progress, Report};
use crate::model::event::Event;
use crate::model::id::SessionId;
use crate::proto::errors::Kind;
use crate::proto::events::{self as wire, EventListParams, PROGRESS, SubscribeParams};
use crate::store::Followed;

/// Subscriptions of one connection. A client that wants more than these wants filters of its own.
const MAX_SUBSCRIPTIONS: usize = 64;

/// Most bytes of the events in one answer of `event.list`; there is one in it at least. Their client goes on after the
/// last of them.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// The method that notifications are of.
const METHOD: &str = "event";

/// The subscriptions of one connection. They end with it.
#[derive(Debug, Default)]
pub struct Subscriptions {
    table: Mutex<Table>,
    /// Answers that make subscriptions known and were not sent yet.
    unanswered: watch::Sender<usize>,
}

/// Keeps new subscriptions from sending anything until it is dropped: their client does not know of them yet.
#[derive(Debug)]
pub(super) struct Held(watch::Sender<usize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send_modify(|unanswered| *unanswered -= 1);
    }
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    tasks: HashMap<u64, AbortHandle>,
}

/// Which events.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    session: Option<Whose>,
    kinds: Vec<String>,
}

#[derive(Debug, Clone)]
enum Whose {
    Id(SessionId),
    /// There never was one of this name, as far as is known.
    Name(String),
}

impl Filter {
    /// Events of a session, if one is named, that are of one of some kinds, if there are any.
    pub(super) fn new(driver: &Driver, session: Option<&str>, kinds: &[String]) -> Self {
        let whose = session.map(|session| {
            let known = driver.meant(session).map(Whose::Id);
            known.unwrap_or_else(|| driver.last_named(&composed(session)))
        });
        Self { session: whose, kinds: kinds.to_vec() }
    }

    /// Whether this one is meant.
    pub(super) fn takes(&self, event: &Event) -> bool {
        let whose = match &self.session {
            None => true,
            Some(Whose::Id(id)) => event.session.as_ref() == Some(id),
            Some(Whose::Name(name)) => event.name.as_ref() == Some(name),
        };
        let kind = event.kind.as_str();
        let is = |wanted: &String| kind == wanted || (wanted.ends_with('.') && kind.starts_with(&**wanted));
        whose && (self.kinds.is_empty() || self.kinds.iter().any(is))
    }

    fn takes_progress(&self, step: &wire::Event) -> bool {
        let whose = match &self.session {
            None => true,
            Some(Whose::Id(id)) => step.session_id.as_deref() == Some(id.as_str()),
            Some(Whose::Name(name)) => step.session.as_ref() == Some(name),
        };
        whose && self.kinds.iter().any(|wanted| wanted == PROGRESS)
    }
}

impl Subscriptions {
    /// Holds those that begin from now on, for as long as their answer is not sent.
    pub(super) fn hold(&self) -> Held {
        self.unanswered.send_modify(|unanswered| *unanswered += 1);
        Held(self.unanswered.clone())
    }

    /// Begins to send events, and gives the subscription's id. The first notification tells from where on.
    ///
    /// # Errors
    /// `limit` when the connection has too many; `session_not_found`; `invalid_params` where a connection cannot carry
    /// notifications.
    pub fn begin(
        self: &Arc<Self>,
        driver: &Driver,
        notifier: &Notifier,
        asked: &SubscribeParams,
    ) -> Result<u64, Failure> {
        if !notifier.reaches() {
            let text = "this connection carries no notifications: speak WebSocket on it";
            return Err(Failure::params(text).hint("event.list gives what has happened so far"));
        }
        if let Some(session) = &asked.session
            && driver.meant(session).is_none()
        {
            return Err(Failure::no_session(session));
        }
        let filter = Filter::new(driver, asked.session.as_deref(), &asked.kinds);
        let mut table = self.lock();
        table.tasks.retain(|_, task| !task.is_finished());
        if table.tasks.len() >= MAX_SUBSCRIPTIONS {
            let text = format!("a connection has at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(Failure::new(Kind::Limit, text));
        }
        table.last += 1;
        let id = table.last;
        let forward = Forward { driver: driver.clone(), notifier: notifier.clone(), filter, id };
        let (since, unanswered) = (asked.since, self.unanswered.subscribe());
        table.tasks.insert(id, tokio::spawn(forward.run(since, unanswered)).abort_handle());
        Ok(id)
    }

    /// Ends a subscription, if it is there.
    pub fn end(&self, id: u64) {
        if let Some(task) = self.lock().tasks.remove(&id) {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.lock().tasks.values().for_each(AbortHandle::abort);
    }
}

impl Driver {
    /// Where an operation tells its progress, with the session that it is about, if it is about one.
    pub fn report(&self, session: Option<&str>, op: Option<String>, caller: Option<Notifier>) -> Report {
        let op = op.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let (driver, session) = (self.clone(), session.map(str::to_owned));
        Report::new(op, move |step| {
            let event = Arc::new(driver.progress(session.as_deref(), step));
            if let Some(caller) = &caller {
                // A client that does not read its progress misses some of it.
                let _ = caller.notify(METHOD, &*event);
            }
            // Nobody may have subscribed.
            let _ = driver.0.progress.send(event);
        })
    }

    /// The session of this name, else of this id, be it that it is gone.
    fn meant(&self, session: &str) -> Option<SessionId> {
        if let Ok(row) = self.session(session) {
            return Some(row.id.clone());
        }
        let id = SessionId::new(session);
        let is_known = self.0.store.session_by_id(&id).is_some()
            || self.0.store.events(0).iter().any(|event| event.session.as_ref() == Some(&id));
        is_known.then_some(id)
    }

    /// The session that last had a name which none has now.
    fn last_named(&self, name: &str) -> Whose {
        let events = self.0.store.events(0);
        let last = events.iter().rev().find(|event| event.name.as_deref() == Some(name));
        last.and_then(|event| event.session.clone()).map_or_else(|| Whose::Name(name.to_owned()), Whose::Id)
    }

    fn progress(&self, session: Option<&str>, step: &Progress) -> wire::Event {
        let row = session.and_then(|session| self.session(session).ok());
        wire::Event {
            session: row.as_ref().map(|row| row.name.to_string()).or_else(|| session.map(str::to_owned)),
            session_id: row.map(|row| row.id.to_string()),
            data: serde_json::to_value(step).unwrap_or_default(),
            ..untold(PROGRESS, self.0.store.last_event())
        }
    }

    /// What has happened, oldest first, as JSON and as much of it as an answer takes: its beginning, or its end where so
    /// many are asked for.
    pub fn list_events(&self, asked: &EventListParams) -> Vec<Arc<RawValue>> {
        let filter = Filter::new(self, asked.session.as_deref(), &asked.kinds);
        let mut events = self.0.store.events(asked.since);
        events.retain(|event| filter.takes(event));
        let Some(limit) = asked.limit else { return page(events.iter()) };
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut last = page(events.iter().rev().take(most));
        last.reverse();
        last
    }
}

/// Those that fit into one answer.
fn page<'a>(events: impl Iterator<Item = &'a Arc<Event>>) -> Vec<Arc<RawValue>> {
    let mut page: Vec<Arc<RawValue>> = Vec::new();
    let mut bytes = 0;
    for event in events {
        let Ok(text) = to_raw_value(&convert(event)) else { continue };
        bytes += text.get().len() + 1;
        if bytes > MAX_PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(Arc::from(text));
    }
    page
}

/// One subscription.
struct Forward {
    driver: Driver,
    notifier: Notifier,
    filter: Filter,
    id: u64,
}

impl Forward {
    /// Sends what is kept, then what comes, until the client is gone or has fallen behind.
    async fn run(self, since: Option<u64>, mut unanswered: watch::Receiver<usize>) {
        let store = &self.driver.0.store;
        let mut progress = self.driver.0.progress.subscribe();
        let Followed { kept, last, mut feed } = store.follow(since.unwrap_or(u64::MAX));
        let oldest = kept.first().map(|event| event.seq);
        let missed = since.zip(oldest).map_or(0, |(since, oldest)| oldest - since - 1);
        let mut seq = oldest.map_or(last, |oldest| oldest - 1);
        if unanswered.wait_for(|unanswered| *unanswered == 0).await.is_err() {
            return;
        }
        if !self.send(&self.own("subscribed", seq, &json!({ "missed": missed }))).await {
            return;
        }
        for event in kept {
            seq = event.seq;
            if !self.pass(&event).await {
                return;
            }
        }
        loop {
            let next = tokio::select! {
                biased;
                next = feed.recv() => next,
                step = progress.recv() => {
                    if !self.pass_progress(step).await {
                        return;
                    }
                    continue;
                }
            };
            match next {
                Ok(event) => {
                    seq = event.seq;
                    if !self.pass(&event).await {
                        return;
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    tracing::info!(missed, subscription = self.id, "a subscriber does not read");
                    self.send(&self.own("lagged", seq, &json!({ "missed": missed }))).await;
                    return;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn pass(&self, event: &Event) -> bool {
        if !self.filter.takes(event) {
            return true;
        }
        self.send(&wire::Event { subscription: Some(self.id), ..convert(event) }).await
    }

    async fn send(&self, event: &wire::Event<impl Serialize>) -> bool {
        self.notifier.send(METHOD, event).await
    }

    /// An event of the subscription itself.
    fn own(&self, kind: &str, seq: u64, data: &Value) -> wire::Event {
        wire::Event { data: data.clone(), subscription: Some(self.id), ..untold(kind, seq) }
    }

    /// A step of an operation, if this subscription asked for them. Of those that come too fast some are left out.
    async fn pass_progress(&self, step: Result<Arc<wire::Event>, RecvError>) -> bool {
        match step {
            Ok(step) if self.filter.takes_progress(&step) => {
                self.send(&wire::Event { subscription: Some(self.id), ..wire::Event::clone(&step) }).await
            }
            _ => true,
        }
    }
}

/// An event that is kept nowhere.
fn untold(kind: &str, seq: u64) -> wire::Event {
    wire::Event {
        seq,
        at: clock::rfc3339(clock::now()),
        kind: kind.to_owned(),
        session: None,
        session_id: None,
        revision: None,
        by: None,
        data: Value::Null,
        subscription: None,
    }
}

/// An event as the wire has it.
fn convert(event: &Event) -> wire::Event<Box<RawValue>> {
    let by = event.by.as_ref();
    wire::Event {
        seq: event.seq,
        at: clock::rfc3339(event.at),
        kind: event.kind.as_str().to_owned(),
        session: event.name.clone(),
        session_id: event.session.as_ref().map(ToString::to_string),
        revision: event.revision,
        by: by.map(|by| wire::By { client: by.client.clone(), pid: by.pid }),
        data: RawValue::from_string(event.data.clone()).unwrap_or_default(),
        subscription: None,
    }
}
