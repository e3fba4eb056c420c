//! The subscriptions of one connection: their ids, how many there may be, and their end.
//!
//! What they send is their makers' business.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::{oneshot, watch};

use super::failure::Failure;
use super::framing::Notifier;
use crate::proto::errors::Kind;

/// Subscriptions of one connection. A client that wants more events than these give wants filters of its own.
const MAX_SUBSCRIPTIONS: usize = 64;

/// The subscriptions of one connection. They end with it.
#[derive(Debug, Default)]
pub struct Subscriptions(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    /// Whether the connection has ended.
    closed: bool,
    /// What ends each when it is dropped; none while it has not begun.
    open: HashMap<u64, Option<oneshot::Sender<Infallible>>>,
}

/// A place for one more. Dropping it gives it back.
#[derive(Debug)]
pub struct Reserved {
    id: u64,
    notifier: Notifier,
    answered: Answered,
    table: Arc<Mutex<Table>>,
}

/// Which subscription of a connection somebody belongs to.
#[derive(Debug, Clone)]
pub struct Place {
    id: u64,
    table: Arc<Mutex<Table>>,
}

/// What a subscription needs to send.
#[derive(Debug)]
pub struct Begun {
    /// Its id.
    pub id: u64,
    /// Where it sends.
    pub voice: Voice,
    /// When it may begin to.
    pub answered: Answered,
    /// When it is to end.
    pub over: Over,
}

/// Where a subscription sends, as long as it goes on: once the call that ends it is answered, its client hears nothing
/// more of it.
#[derive(Debug)]
pub struct Voice {
    notifier: Notifier,
    place: Place,
}

/// The end of a subscription that its client or its connection brings about.
#[derive(Debug)]
pub struct Over(oneshot::Receiver<Infallible>);

/// Keeps the subscriptions that a message makes from sending anything until it is dropped, which is when the answer is
/// sent: their client does not know of them before.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "its end is what is waited for")] watch::Sender<()>);

/// Whether the message is answered that a call is of. In the extensions of each call that subscribes.
#[derive(Debug, Clone, Default)]
pub struct Answered(Option<watch::Receiver<()>>);

impl Held {
    /// One for a message, and what waits for it.
    pub(super) fn new() -> (Self, Answered) {
        let (held, answered) = watch::channel(());
        (Self(held), Answered(Some(answered)))
    }
}

impl Answered {
    /// Waits until it is: the client knows of its subscription.
    pub async fn wait(self) {
        if let Some(mut answered) = self.0 {
            // Nothing is ever sent: it ends with the sender.
            while answered.changed().await.is_ok() {}
        }
    }
}

impl Subscriptions {
    /// Keeps a place, before anything is done that a subscription is for.
    ///
    /// # Errors
    /// `limit` when the connection has too many.
    pub fn reserve(&self, notifier: &Notifier, answered: Answered) -> Result<Reserved, Failure> {
        let mut table = lock(&self.0);
        if table.open.len() >= MAX_SUBSCRIPTIONS {
            let text = format!("a connection has at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(Failure::new(Kind::Limit, text));
        }
        table.last += 1;
        let id = table.last;
        // What is opened for a connection that is gone is over when it begins.
        if !table.closed {
            table.open.insert(id, None);
        }
        Ok(Reserved { id, notifier: notifier.clone(), answered, table: Arc::clone(&self.0) })
    }

    /// Ends a subscription, if it is there.
    pub fn end(&self, id: u64) {
        let ended = lock(&self.0).open.remove(&id);
        drop(ended);
    }

    /// Ends all, and each that begins from now on: the connection has ended.
    pub(super) fn close(&self) {
        let ended = {
            let mut table = lock(&self.0);
            table.closed = true;
            std::mem::take(&mut table.open)
        };
        drop(ended);
    }
}

impl Place {
    /// Whether the subscription goes on: from the call that ends it on it does not, whatever it still has to do.
    pub fn is_open(&self) -> bool {
        self.while_open(|| ()).is_some()
    }

    /// Does something unless it is over. It does not end meanwhile, so this must be short.
    pub(super) fn while_open<T>(&self, something: impl FnOnce() -> T) -> Option<T> {
        let table = lock(&self.table);
        table.open.contains_key(&self.id).then(something)
    }
}

impl Voice {
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { notifier: Notifier::none(), place: Place { id: 0, table: Arc::default() } }
    }

    /// Queues a notification when there is room. False when the subscription is over. Cancel safe: it is queued whole or
    /// not at all.
    pub async fn send(&self, method: &str, params: &impl Serialize) -> bool {
        self.notifier.send(method, params, &self.place).await
    }
}

impl Reserved {
    /// The place itself, for those who belong to what is going to begin.
    pub fn place(&self) -> Place {
        Place { id: self.id, table: Arc::clone(&self.table) }
    }

    /// Begins it, and gives its id.
    pub fn begin<F>(self, work: impl FnOnce(Begun) -> F) -> u64
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = self.id;
        let (alive, over) = oneshot::channel();
        if let Some(place) = lock(&self.table).open.get_mut(&id) {
            *place = Some(alive);
        }
        let voice = Voice { notifier: self.notifier.clone(), place: self.place() };
        let work = work(Begun { id, voice, answered: self.answered.clone(), over: Over(over) });
        // It is given back when the work has ended.
        tokio::spawn(async move {
            let _place = self;
            work.await;
        });
        id
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let ended = lock(&self.table).open.remove(&self.id);
        drop(ended);
    }
}

impl Over {
    /// Waits for it.
    pub async fn wait(self) {
        // Nothing is ever sent: it comes with the sender's end.
        let _ = self.0.await;
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
