//! What sandboxes tell without being asked: kills for want of memory, what agents say, and ends of commands that nobody
//! follows here. All are noted in the table as abx-init tells of them, and ends also when it is connected again after some time.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use tokio::time::{Instant, sleep_until};

use super::{Guests, Inner, Live, Slot};
use crate::daemon::clock;
use crate::daemon::exec::settle;
use crate::guest::wire::{Entry, Exited};
use crate::model::exec::{End, Exec};
use crate::model::id::{ExecId, Timestamp};
use crate::model::session::Session;

/// Most ends of one sandbox that wait to be noted: more than it may have of commands at once.
const MAX_WAITING: usize = 1024;

impl Slot {
    /// Takes an end that abx-init told of.
    pub(super) fn ended(&self, entry: Entry) {
        let mut waiting = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // What is beyond is noted at the next connection.
        if waiting.len() < MAX_WAITING {
            waiting.push(entry);
        }
        drop(waiting);
        self.has_news.notify_one();
    }
}

impl Guests {
    /// Asks a sandbox what has ended there, and notes it.
    pub async fn refresh(&self, session: &Session) {
        let slot = self.slots().get(&session.id).cloned();
        if let Some(slot) = slot
            && let Some(live) = slot.live()
        {
            self.0.catch_up(&slot, &live).await;
        }
    }
}

/// Puts what a sandbox tells without being asked into the table, until it is aborted.
pub(super) async fn note_news(guests: Weak<Inner>, slot: Arc<Slot>) {
    let mut due = None;
    loop {
        tokio::select! {
            () = slot.has_news.notified() => {}
            () = until(due) => {}
        }
        let Some(guests) = guests.upgrade() else { return };
        guests.count_kills(&slot).await;
        // Before what was heard: nothing is heard of what has ended.
        guests.note_ends(&slot).await;
        due = guests.note_heard(&slot).await;
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Inner {
    async fn count_kills(&self, slot: &Slot) {
        let kills = slot.kills.lock().unwrap_or_else(PoisonError::into_inner).news();
        if kills == 0 {
            return;
        }
        let counted =
            self.store.update(&slot.session, move |s| s.oom_events = s.oom_events.saturating_add(kills));
        if let Err(error) = counted.await {
            tracing::warn!(%error, session = %slot.session, "cannot count kills for want of memory");
        }
    }

    /// Notes the ends that were told of.
    async fn note_ends(&self, slot: &Slot) {
        let told = std::mem::take(&mut *slot.ended.lock().unwrap_or_else(PoisonError::into_inner));
        // A sandbox may tell of any number of ends: the table is written for those alone that it waits for.
        let open = self.open_execs(slot);
        let told = told.iter().filter(|entry| open.iter().any(|exec| exec.id.as_str() == entry.id));
        self.note(slot, told.filter_map(|entry| Some((entry.id.clone(), Seen::told(entry)?))).collect())
            .await;
    }

    /// Notes what ended while there was no connection.
    pub(super) async fn catch_up(&self, slot: &Slot, live: &Live) {
        if self.open_execs(slot).is_empty() {
            return;
        }
        let known = match self.entries(live).await {
            Ok(known) => known,
            Err(error) => {
                return tracing::warn!(%error, session = %slot.session, "cannot ask what runs there");
            }
        };
        let known: HashMap<&str, &Entry> = known.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let ends = self.open_execs(slot).into_iter().filter_map(|exec| match known.get(exec.id.as_str()) {
            Some(entry) => Some((exec.id.to_string(), Seen::told(entry)?)),
            // Begun in this daemon's life: on its way, or run by the engine and followed there.
            None if exec.started_at >= self.since => None,
            None => Some((exec.id.to_string(), Seen::Unseen)),
        });
        self.note(slot, ends.collect()).await;
    }

    /// Commands of which the table has no end.
    fn open_execs(&self, slot: &Slot) -> Vec<Arc<Exec>> {
        let all = self.store.execs(&slot.session);
        all.into_iter().filter(|exec| exec.ended.is_none()).collect()
    }

    async fn note(&self, slot: &Slot, ends: Vec<(String, Seen)>) {
        if ends.is_empty() {
            return;
        }
        let session = slot.session.clone();
        let noted = self.store.write(move |tx| {
            let row = tx.session(&session);
            for (id, seen) in ends {
                let id = ExecId::new(id);
                if tx.exec(&id).is_some_and(|exec| exec.session == session && exec.ended.is_none()) {
                    settle(tx, &id, seen.end(row.as_ref()))?;
                }
            }
            Ok(())
        });
        if let Err(error) = noted.await {
            tracing::warn!(%error, session = %slot.session, "cannot note how commands ended");
        }
        self.ends.notify_waiters();
    }
}

/// What is known of an end.
enum Seen {
    /// What abx-init tells.
    Told(Exited, Timestamp),
    /// That it is over.
    Unseen,
}

impl Seen {
    fn told(entry: &Entry) -> Option<Self> {
        let exited = entry.ended.clone()?;
        let at = i64::try_from(entry.ended_ms).map(Timestamp).unwrap_or_else(|_| clock::now());
        Some(Self::Told(exited, at.min(clock::now())))
    }

    fn end(self, row: Option<&Session>) -> End {
        match self {
            Self::Told(exited, at) => {
                let signal = Some(exited.signal).filter(|signal| *signal > 0);
                let name = row.map(|row| row.name.to_string()).unwrap_or_default();
                End::seen(at, (exited.code, signal), exited.oom, &name, row)
            }
            Self::Unseen => End::unseen(clock::now()),
        }
    }
}

/// Wakes whoever waits for the end of a command.
pub type Ends = Arc<tokio::sync::Notify>;
