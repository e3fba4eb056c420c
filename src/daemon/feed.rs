//! Events to those who follow them.
//!
//! A subscription is a task that reads the events that the store keeps, a page at a time, and waits for news of more. So
//! one that does not read costs a page and what its connection queues, wherever it began, and is closed when what it has
//! not read is no longer kept.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::clock;
use super::driver::{Driver, composed};
use super::failure::Failure;
use super::framing::Notifier;
use super::named;
use super::progress::{Progress, Report};
use super::rpc::convert;
use super::subscriptions::{Answered, Begun, Reserved, Voice};
use crate::model::event::Event;
use crate::model::id::SessionId;
use crate::proto::events::{self as wire, EVENT_NOTIFICATION, EventListParams, PROGRESS, SubscribeParams};
use crate::store::Page;

/// Most bytes of the events in one answer of `event.list`; there is one in it at least. Their client goes on after the
/// last of them.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// Events that a subscription takes from the store at a time: as many as its connection queues.
const PAGE: usize = 32;

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

/// Begins to send events, and gives the subscription's id. The first notification tells from where on.
///
/// # Errors
/// `session_not_found`, and `invalid_params` for kinds that cannot be any.
pub fn subscribe(driver: &Driver, place: Reserved, asked: &SubscribeParams) -> Result<u64, Failure> {
    named::kinds(&asked.kinds)?;
    if let Some(session) = &asked.session
        && driver.meant(session).is_none()
    {
        return Err(Failure::no_session(session));
    }
    let filter = Filter::new(driver, asked.session.as_deref(), &asked.kinds);
    let (driver, since) = (driver.clone(), asked.since);
    Ok(place.begin(|begun| async move {
        let Begun { id, voice, answered, over } = begun;
        let forward = Forward { driver, voice, filter, id };
        tokio::select! {
            () = over.wait() => {}
            () = forward.run(since, answered) => {}
        }
    }))
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
                let _ = caller.notify(EVENT_NOTIFICATION, &*event);
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
    ///
    /// # Errors
    /// `invalid_params` for kinds that cannot be any.
    pub fn list_events(&self, asked: &EventListParams) -> Result<Vec<Arc<RawValue>>, Failure> {
        named::kinds(&asked.kinds)?;
        let filter = Filter::new(self, asked.session.as_deref(), &asked.kinds);
        let mut events = self.0.store.events(asked.since);
        events.retain(|event| filter.takes(event));
        let Some(limit) = asked.limit else { return Ok(page(events.iter())) };
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut last = page(events.iter().rev().take(most));
        last.reverse();
        Ok(last)
    }
}

/// Those that fit into one answer.
fn page<'a>(events: impl Iterator<Item = &'a Arc<Event>>) -> Vec<Arc<RawValue>> {
    let mut page: Vec<Arc<RawValue>> = Vec::new();
    let mut bytes = 0;
    for event in events {
        let Ok(text) = to_raw_value(&on_the_wire(event)) else { continue };
        bytes += text.get().len() + 1;
        if bytes > MAX_PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(Arc::from(text));
    }
    page
}

/// Steps of operations.
type Steps = broadcast::Receiver<Arc<wire::Event>>;

/// One subscription.
struct Forward {
    driver: Driver,
    voice: Voice,
    filter: Filter,
    id: u64,
}

impl Forward {
    /// Sends what is kept, then what comes, until the client is gone or has fallen behind.
    async fn run(self, since: Option<u64>, answered: Answered) {
        let store = &self.driver.0.store;
        // Before the first page: nothing between is missed.
        let (mut progress, mut news) = (self.driver.0.progress.subscribe(), store.news());
        let Page { mut events, missed, last } = store.page(since.unwrap_or(u64::MAX), PAGE);
        let mut seq = events.first().map_or(last, |event| event.seq - 1);
        answered.wait().await;
        if !self.send(&self.own("subscribed", seq, &json!({ "missed": missed }))).await {
            return;
        }
        loop {
            for event in events {
                seq = event.seq;
                if !self.pass(&event).await {
                    return;
                }
            }
            let page = store.page(seq, PAGE);
            if page.missed > 0 {
                let missed = page.missed;
                tracing::info!(missed, subscription = self.id, "a subscriber does not read");
                self.send(&self.own("lagged", seq, &json!({ "missed": missed }))).await;
                return;
            }
            events = page.events;
            if events.is_empty() && !self.rest(&mut news, &mut progress).await {
                return;
            }
        }
    }

    /// Waits for news of more events, or passes on a step of an operation. False: there is nothing more to come, or
    /// nobody whom it would reach.
    async fn rest(&self, news: &mut watch::Receiver<()>, progress: &mut Steps) -> bool {
        tokio::select! {
            biased;
            more = news.changed() => more.is_ok(),
            step = progress.recv() => self.pass_progress(step).await,
        }
    }

    async fn pass(&self, event: &Event) -> bool {
        if !self.filter.takes(event) {
            return true;
        }
        self.send(&wire::Event { subscription: Some(self.id), ..on_the_wire(event) }).await
    }

    async fn send(&self, event: &wire::Event<impl Serialize>) -> bool {
        self.voice.send(EVENT_NOTIFICATION, event).await
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
fn on_the_wire(event: &Event) -> wire::Event<Box<RawValue>> {
    wire::Event {
        seq: event.seq,
        at: clock::rfc3339(event.at),
        kind: event.kind.as_str().to_owned(),
        session: event.name.clone(),
        session_id: event.session.as_ref().map(ToString::to_string),
        revision: event.revision,
        by: event.by.as_ref().map(convert::by),
        data: RawValue::from_string(event.data.clone()).unwrap_or_default(),
        subscription: None,
    }
}
