//! The calls of one connection that have not been answered yet, and of all connections together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

/// Most calls under way on one connection. At the limit nothing more is read until one ends; an admitted batch may go
/// past it by its own length.
pub(super) const MAX_IN_FLIGHT: usize = 128;

/// Most calls under way in the whole daemon, those of clients that have gone included. One more is refused with kind
/// `limit`.
const MAX_UNDER_WAY: usize = 8_192;

/// Why nobody waits for the answer any more. What the call does goes on, unless it looks at its [`super::Audience`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// The client cancelled its request.
    Cancelled,
    /// The client is gone.
    Gone,
    /// The daemon stops and its deadline has come.
    Stopping,
}

/// Calls under way anywhere, so that a stop can wait for them.
#[derive(Debug)]
pub(crate) struct Work {
    count: watch::Sender<usize>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { count: watch::Sender::new(0) }
    }

    /// Whether no more calls may be started.
    pub(super) fn is_full(&self) -> bool {
        *self.count.borrow() >= MAX_UNDER_WAY
    }

    /// Waits until no call is under way.
    pub(crate) async fn idle(&self) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Calls under way on one connection.
#[derive(Debug)]
pub(super) struct Calls {
    table: Mutex<Table>,
    freed: Notify,
    work: Arc<Work>,
}

#[derive(Debug, Default)]
struct Table {
    count: usize,
    serial: u64,
    by_id: HashMap<String, Vec<(u64, oneshot::Sender<Abandoned>)>>,
}

/// Stands for one call under way; dropped when the call itself has ended, not when it was answered.
#[derive(Debug)]
pub(super) struct Ticket {
    calls: Arc<Calls>,
    key: Option<(String, u64)>,
}

impl Calls {
    pub(super) fn new(work: Arc<Work>) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), freed: Notify::new(), work })
    }

    /// Whether another message may be started.
    pub(super) fn has_room(&self) -> bool {
        self.table().count < MAX_IN_FLIGHT
    }

    /// Waits until a call ends. One waiter per connection.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Enters a call; the receiver is told when its answer is no longer wanted. A notification has no id.
    pub(super) fn enter(self: &Arc<Self>, id: Option<&str>) -> (Ticket, oneshot::Receiver<Abandoned>) {
        let (sender, receiver) = oneshot::channel();
        self.work.count.send_modify(|count| *count += 1);
        let mut table = self.table();
        table.count += 1;
        table.serial += 1;
        let serial = table.serial;
        let key = id.map(|id| (canonical(id), serial));
        if let Some((id, serial)) = &key {
            table.by_id.entry(id.clone()).or_default().push((*serial, sender));
        }
        (Ticket { calls: Arc::clone(self), key }, receiver)
    }

    /// Answers the oldest call of this id with an error; the call goes on.
    pub(super) fn cancel(&self, id: &str) {
        let mut table = self.table();
        if let Some(waiting) = table.by_id.get_mut(&canonical(id))
            && !waiting.is_empty()
        {
            // The call may end in this instant; then its own answer is on the way.
            let _ = waiting.remove(0).1.send(Abandoned::Cancelled);
        }
    }

    /// Answers all calls with an error: the client is gone, or the daemon stops.
    pub(super) fn abandon_all(&self, why: Abandoned) {
        for (_, sender) in self.table().by_id.drain().flat_map(|(_, waiting)| waiting) {
            let _ = sender.send(why);
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        // Nothing that can panic happens under the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.calls.table();
        table.count -= 1;
        if let Some((id, serial)) = self.key.take()
            && let Some(waiting) = table.by_id.get_mut(&id)
        {
            waiting.retain(|(number, _)| *number != serial);
            if waiting.is_empty() {
                table.by_id.remove(&id);
            }
        }
        drop(table);
        self.calls.freed.notify_one();
        self.calls.work.count.send_modify(|count| *count -= 1);
    }
}

/// The same id may be written with and without escapes; numbers are compared as they are written.
fn canonical(id: &str) -> String {
    if id.contains('\\')
        && let Ok(text) = serde_json::from_str::<String>(id)
    {
        return format!("\"{text}\"");
    }
    id.to_owned()
}
