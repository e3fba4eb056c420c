//! What sandboxes tell without being asked: kills for want of memory, what agents say, and ends of commands that nobody
//! follows here. All are noted in the table as abx-init tells of them, and ends also when it is connected again after some time.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use tokio::time::{Instant, sleep, sleep_until};

use super::{Guests, Inner, Live, Slot};
use crate::daemon::clock;
use crate::daemon::exec::{KILL_GRACE, NOTE_AGAIN, settle};
use crate::guest::wire::{Entry, Exited, Kind, Payload, Signal};
use crate::model::exec::signal::{KILL, TERM};
use crate::model::exec::{End, Exec, Verdict};
use crate::model::id::{ExecId, SessionId, Timestamp};
use crate::model::session::Session;

/// Most ends of one sandbox that wait to be noted: more than it may have of commands at once.
const MAX_WAITING: usize = 1024;

/// What becomes of commands that run in a sandbox and are in no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// They get one: at a new connection they are of a table that was lost.
    TakeUp,
    /// Nothing: they are on their way into the table, or out of it.
    Leave,
}

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
            self.0.catch_up(&slot, &live, Unknown::Leave).await;
        }
    }

    /// Has a command ended whose start was given up on after abx-init was asked for it: right behind the request, where
    /// that still waits to be read, else at the next connection, where it is found by the verdict in its row.
    pub fn give_up(&self, session: &Session, id: &str) {
        let slot = self.slots().get(&session.id).cloned();
        let Some(live) = slot.and_then(|slot| slot.live()) else { return };
        live.signal(id, KILL);
        let (this, session) = (self.clone(), session.clone());
        // It may have come and gone already.
        tokio::spawn(async move { this.refresh(&session).await });
    }
}

impl Live {
    /// Sends a signal to all that a command started, whatever the answer is.
    fn signal(&self, id: &str, signal: i32) {
        let signal = u8::try_from(signal).unwrap_or_default();
        let _ = self.link.open(Kind::Signal, &Signal { id: id.to_owned(), signal }.encode(), 0);
    }

    /// Ends a command that nobody waits for.
    fn end(self: &Arc<Self>, id: &str) {
        self.signal(id, TERM);
        let (live, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move {
            sleep(KILL_GRACE).await;
            live.signal(&id, KILL);
        });
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
        let noted = guests.note_all(&slot).await;
        // After the ends: nothing is heard of what has ended.
        due = guests.note_heard(&slot).await;
        drop(guests);
        if !noted {
            // What could not be noted is where it was.
            sleep(NOTE_AGAIN).await;
            slot.has_news.notify_one();
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The row of a command that runs, as its sandbox tells of it; none of one that no daemon can have named so.
fn row_of(session: &SessionId, entry: &Entry) -> Option<Exec> {
    let id = uuid::Uuid::parse_str(&entry.id).ok()?.to_string();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Some(Exec {
        id: ExecId::new(id),
        session: session.clone(),
        key: None,
        argv: entry.argv.iter().map(text).collect(),
        terminal: Some(entry.terminal.clone()).filter(|name| !name.is_empty()),
        tty: entry.size.is_some(),
        detached: true,
        started_at: Timestamp(i64::try_from(entry.started_ms).unwrap_or(i64::MAX)),
        deadline: None,
        verdict: None,
        ended: None,
    })
}

impl Inner {
    /// Gives whether the table has all of it.
    async fn note_all(&self, slot: &Slot) -> bool {
        let counted = self.count_kills(slot).await;
        let noted = self.note_ends(slot).await;
        let caught_up = match slot.live().filter(|_| slot.is_behind.swap(false, Ordering::Relaxed)) {
            Some(live) => self.catch_up(slot, &live, Unknown::Leave).await,
            // The next connection begins with it.
            None => true,
        };
        counted && noted && caught_up
    }

    async fn count_kills(&self, slot: &Slot) -> bool {
        let kills = slot.kills.lock().unwrap_or_else(PoisonError::into_inner).news();
        if kills == 0 {
            return true;
        }
        let counted =
            self.store.update(&slot.session, move |s| s.oom_events = s.oom_events.saturating_add(kills));
        let Err(error) = counted.await else { return true };
        tracing::warn!(%error, session = %slot.session, "cannot count kills for want of memory");
        slot.kills.lock().unwrap_or_else(PoisonError::into_inner).put_back(kills);
        error.is_final()
    }

    /// Notes the ends that were told of. Gives whether none is left.
    async fn note_ends(&self, slot: &Slot) -> bool {
        let mut told = std::mem::take(&mut *slot.ended.lock().unwrap_or_else(PoisonError::into_inner));
        // A sandbox may tell of any number of ends: the table is written for those alone that it waits for.
        let open = self.open_execs(slot);
        told.retain(|entry| open.iter().any(|exec| exec.id.as_str() == entry.id));
        let ends = told.iter().filter_map(|entry| Some((entry.id.clone(), Seen::told(entry)?)));
        let noted = self.note(slot, ends.collect()).await;
        if !noted {
            let mut waiting = slot.ended.lock().unwrap_or_else(PoisonError::into_inner);
            told.append(&mut waiting);
            told.truncate(MAX_WAITING);
            *waiting = told;
        }
        noted
    }

    /// Notes what ended while there was no connection, and ends what goes on although it was given up. Gives whether it is
    /// noted, or cannot be known before the next connection.
    pub(super) async fn catch_up(&self, slot: &Slot, live: &Arc<Live>, unknown: Unknown) -> bool {
        if unknown == Unknown::Leave && self.open_execs(slot).is_empty() {
            return true;
        }
        let known = match self.entries(live).await {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%error, session = %slot.session, "cannot ask what runs there");
                return true;
            }
        };
        if unknown == Unknown::TakeUp {
            self.take_up(slot, &known).await;
        }
        let known: HashMap<&str, &Entry> = known.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let mut ends = Vec::new();
        for exec in self.open_execs(slot) {
            let id = exec.id.as_str();
            let given_up = exec.verdict.is_some_and(Verdict::gives_up);
            match known.get(id).map(|entry| Seen::told(entry)) {
                Some(Some(seen)) => ends.push((id.to_owned(), seen)),
                Some(None) if given_up => live.end(id),
                Some(None) => {}
                // Begun in this daemon's life: on its way, or run by the engine and followed there.
                None if exec.started_at >= self.since && !given_up => {}
                None => ends.push((id.to_owned(), Seen::Unseen)),
            }
        }
        let noted = self.note(slot, ends).await;
        if !noted {
            slot.is_behind.store(true, Ordering::Relaxed);
            slot.has_news.notify_one();
        }
        noted
    }

    /// Gives what runs there and is in no row one, so that its terminals are found again and its end is noted. What a
    /// sandbox tells is bounded by its list, and takes no id that is in the table.
    async fn take_up(&self, slot: &Slot, known: &[Entry]) {
        let rows = self.store.execs(&slot.session);
        let is_known = |entry: &&Entry| rows.iter().any(|exec| exec.id.as_str() == entry.id);
        let found: Vec<Exec> = known
            .iter()
            .filter(|entry| entry.ended.is_none() && !is_known(entry))
            .filter_map(|entry| row_of(&slot.session, entry))
            .collect();
        if found.is_empty() {
            return;
        }
        tracing::warn!(session = %slot.session, commands = found.len(), "took up commands that no row tells of");
        let written = self.store.write(move |tx| {
            for exec in found {
                if tx.exec(&exec.id).is_none() && tx.session(&exec.session).is_some() {
                    tx.put_exec(&exec)?;
                }
            }
            Ok(())
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, session = %slot.session, "cannot note what runs there");
        }
    }

    /// Commands of which the table has no end.
    fn open_execs(&self, slot: &Slot) -> Vec<Arc<Exec>> {
        let all = self.store.execs(&slot.session);
        all.into_iter().filter(|exec| exec.ended.is_none()).collect()
    }

    /// Gives whether they are noted, or never can be.
    async fn note(&self, slot: &Slot, ends: Vec<(String, Seen)>) -> bool {
        if ends.is_empty() {
            return true;
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
        let Err(error) = noted.await else { return true };
        tracing::warn!(%error, session = %slot.session, "cannot note how commands ended");
        error.is_final()
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
