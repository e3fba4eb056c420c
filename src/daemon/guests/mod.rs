//! The connections to the abx-init in each sandbox: one per sandbox, opened by abx-init, and opened again by it after
//! either side was gone.
//!
//! Owns the directories that are mounted into sandboxes. Decides nothing about sessions: whoever asks has the row.

mod accept;
mod act;
mod ask;
mod bridge;
mod command;
mod ends;
mod follow;
mod heard;
mod link;
mod place;
mod rest;
mod stream;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub use self::act::Act;
pub use self::command::{Command, NotStarted, Started};
pub use self::follow::{Followed, Kept, Wanted};
use self::heard::Ears;
use self::link::{Event, Link};
use self::place::Places;
use self::rest::Rest;
use super::clock;
use super::usage::Usage;
use crate::engine::{Engine, EngineError, Observed};
use crate::guest::wire::Entry;
use crate::model::id::{SessionId, Timestamp};
use crate::model::session::{Runtime, Session, Status};
use crate::store::Store;

/// abx-init for this machine, as the build script made it; empty where there is none.
pub const PROGRAM: &[u8] = include_bytes!(env!("ABX_INIT"));

/// How long a sandbox that runs may take to connect, after its start or ours. Past it the engine runs its commands.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long a sandbox that did not connect in that time is not waited for again: one that cannot must not make each of
/// its commands slow.
const SILENCE: Duration = Duration::from_secs(60);

/// Kills of one sandbox that are counted in the life of a daemon. What comes from inside is not trusted: past it the
/// number says nothing anyway, and the table is not written for it.
const MAX_KILLS: u64 = 10_000;

/// What connections to sandboxes need.
pub struct Setup {
    /// Where the directories are that are mounted into sandboxes.
    pub root: PathBuf,
    /// abx-init; empty where there is none for this machine.
    pub program: &'static [u8],
    /// What says which process is a sandbox's.
    pub engine: Arc<dyn Engine>,
    /// The table.
    pub store: Store,
    /// Told of terminals that write.
    pub usage: Usage,
    /// Output that is kept of each command, in bytes of each of the two.
    pub keep: u32,
}

/// The handle. Cheap to clone.
#[derive(Clone)]
pub struct Guests(Arc<Inner>);

struct Inner {
    places: Places,
    engine: Arc<dyn Engine>,
    store: Store,
    usage: Usage,
    /// Output that abx-init keeps of each command, in bytes of each of the two.
    keep: u32,
    /// When this daemon began.
    since: Timestamp,
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
}

/// One session's.
struct Slot {
    session: SessionId,
    current: watch::Sender<Option<Arc<Live>>>,
    /// What accepts connections.
    accepting: Mutex<Option<AbortHandle>>,
    /// What notes the news.
    noting: Mutex<Option<AbortHandle>>,
    /// The main program as the engine last said, and when.
    main: Mutex<Option<(Instant, u32)>>,
    /// Held by who opens a connection through the engine.
    calling: tokio::sync::Mutex<()>,
    /// Until when nobody waits for a connection.
    silent_until: Mutex<Option<Instant>>,
    /// Pauses after connections that made no sense.
    rest: Mutex<Rest>,
    /// Whether it cannot connect by itself: there is nowhere to, or it cannot be told from others that do.
    unreachable: AtomicBool,
    /// Kills for want of memory.
    kills: Mutex<Kills>,
    /// Ends that are not in the table yet.
    ended: Mutex<Vec<Entry>>,
    /// Whether more may have ended than the table could be told of.
    is_behind: AtomicBool,
    /// What was heard of its agents.
    ears: Mutex<Ears>,
    /// Wakes whoever puts all of it there.
    has_news: Notify,
}

/// The kernel's kills in a sandbox, of which abx-init and the engine both tell, in any order, and each may miss some.
#[derive(Debug, Default)]
struct Kills {
    by_guest: u64,
    by_engine: u64,
    /// How many are in the table.
    counted: u64,
}

impl Kills {
    /// Takes what abx-init tells.
    fn told(&mut self, kills: u64) {
        self.by_guest = self.by_guest.saturating_add(kills).min(MAX_KILLS);
    }

    /// Those that are not in the table yet, which they are from now on.
    fn news(&mut self) -> u64 {
        let all = self.by_guest.max(self.by_engine);
        all - std::mem::replace(&mut self.counted, all)
    }

    /// Takes back that so many are in the table.
    fn put_back(&mut self, kills: u64) {
        self.counted = self.counted.saturating_sub(kills);
    }
}

/// A connection, and what the engine says of the sandbox at its other end.
struct Live {
    session: SessionId,
    link: Arc<Link>,
    sandbox: Observed,
}

impl Guests {
    /// Connections to the sandboxes of a table. Starts nothing by itself.
    pub fn new(setup: Setup) -> Self {
        let Setup { root, program, engine, store, usage, keep } = setup;
        let places = Places::new(root, program);
        let since = clock::now();
        let slots = Mutex::default();
        Self(Arc::new(Inner { places, engine, store, usage, keep, since, slots }))
    }

    /// Makes a session's directory and listens in it, for a sandbox that is about to be made or started. None where
    /// that cannot be: the sandbox then goes without abx-init.
    pub fn prepare(&self, id: &SessionId) -> Option<PathBuf> {
        if !self.0.places.has_program() {
            return None;
        }
        let made = self.0.places.prepare(id).and_then(|dir| self.listen(id).map(|()| dir));
        if let Some(slot) = self.slots().get(id) {
            slot.be_silent_for(None);
            *slot.rest() = Rest::default();
            slot.unreachable.store(false, Ordering::Relaxed);
            slot.forget_main();
        }
        made.inspect_err(|error| tracing::warn!(%error, session = %id, "a sandbox goes without abx-init"))
            .ok()
    }

    /// Listens for all sandboxes that may run, which know where. Once, before anything else is asked for.
    pub fn listen_all(&self) {
        self.0.places.remove_unfinished();
        for session in self.0.store.sessions() {
            let may_run = session.operation.is_some()
                || matches!(session.status, Status::Running | Status::Paused | Status::Starting);
            if session.runtime == Runtime::Init && may_run {
                self.expect(&session.id);
            }
        }
    }

    /// Listens for a sandbox that runs. One whose directory is gone has another in its place only when it is started
    /// again, and is called through the engine until then.
    pub fn expect(&self, id: &SessionId) {
        let listens = self.listen(id);
        let Some(slot) = self.slots().get(id).cloned() else { return };
        let Err(error) = listens else { return };
        if !slot.unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, session = %id, "a sandbox cannot connect by itself; it is called through the engine");
        }
    }

    /// Ends a session's connection and removes its directory.
    pub fn remove(&self, id: &SessionId) {
        // First, so that nobody listens there again meanwhile.
        if let Err(error) = self.0.places.remove(id) {
            tracing::warn!(%error, session = %id, "a session's directory stays behind");
        }
        let slot = self.slots().remove(id);
        if let Some(slot) = slot {
            slot.stop();
        }
    }

    /// Removes directories of sessions that are not there any more: a crash came between the two.
    pub fn sweep(&self) {
        for id in self.0.places.all() {
            if self.0.store.session_by_id(&id).is_none() {
                tracing::info!(session = %id, "removing the directory of a session that is gone");
                self.remove(&id);
            }
        }
    }

    /// Notes that the engine told of a kill for want of memory; false where nobody counts those of this session here.
    pub fn note_kill(&self, id: &SessionId) -> bool {
        let slot = self.slots().get(id).cloned();
        slot.is_some_and(|slot| {
            slot.note_kills(|known| known.by_engine += 1);
            true
        })
    }

    /// The connection to a session's sandbox, which is waited for as long as the sandbox runs, but not for ever.
    ///
    /// # Errors
    /// `Conflict` when the sandbox takes no commands in the state that it is in, and the engine's.
    async fn live(&self, session: &Session) -> Result<Option<Arc<Live>>, EngineError> {
        // Whoever asks may have looked the session up before it was deleted.
        if self.0.store.session_by_id(&session.id).is_none() {
            return Err(EngineError::Conflict { call: "exec", text: "the session is gone".to_owned() });
        }
        self.expect(&session.id);
        let Some(slot) = self.slots().get(&session.id).cloned() else { return Ok(None) };
        let found = slot.live();
        if found.is_some() {
            return Ok(found);
        }
        let sandbox = self.0.require_running(session.sandbox_id.as_deref()).await?;
        if slot.is_silent() || slot.rest().is_long() {
            return Ok(None);
        }
        if slot.is_called(&sandbox)
            && let Err(error) = self.call(&slot, sandbox).await
        {
            tracing::warn!(%error, session = %session.name, "cannot call a sandbox through the engine");
        }
        let found = slot.other_than(None, Instant::now() + CONNECT_LIMIT).await;
        if found.is_none() {
            tracing::warn!(session = %session.name, "a sandbox does not connect; the engine runs its commands");
            slot.be_silent_for(Some(SILENCE));
        }
        Ok(found)
    }

    async fn look(&self, session: &Session) -> Result<Option<Observed>, EngineError> {
        self.0.engine.inspect(session.sandbox_id.as_deref().unwrap_or_default()).await
    }

    /// Listens, unless that is done already.
    fn listen(&self, id: &SessionId) -> std::io::Result<()> {
        let slot = Arc::clone(self.slots().entry(id.clone()).or_insert_with(|| {
            let slot = Arc::new(Slot::new(id));
            let noting = tokio::spawn(ends::note_news(Arc::downgrade(&self.0), Arc::clone(&slot)));
            *slot.noting.lock().unwrap_or_else(PoisonError::into_inner) = Some(noting.abort_handle());
            // What the row says may be due to change.
            slot.has_news.notify_one();
            slot
        }));
        let mut accepting = slot.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = accepting.as_ref().filter(|task| !task.is_finished()) {
            if self.0.places.is_bound(id) {
                return Ok(());
            }
            // Somebody removed the directory, and it may have been made anew since: nobody finds this one any more.
            task.abort();
        }
        let listener = self.0.places.bind(id)?;
        let task = tokio::spawn(accept::run(Arc::downgrade(&self.0), Arc::clone(&slot), listener));
        *accepting = Some(task.abort_handle());
        Ok(())
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Slot>>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn new(session: &SessionId) -> Self {
        Self {
            session: session.clone(),
            current: watch::Sender::new(None),
            accepting: Mutex::new(None),
            noting: Mutex::new(None),
            main: Mutex::new(None),
            calling: tokio::sync::Mutex::new(()),
            silent_until: Mutex::new(None),
            rest: Mutex::default(),
            unreachable: AtomicBool::new(false),
            kills: Mutex::default(),
            ended: Mutex::default(),
            is_behind: AtomicBool::new(false),
            ears: Mutex::new(Ears::new()),
            has_news: Notify::new(),
        }
    }

    /// The connection, if there is one.
    fn live(&self) -> Option<Arc<Live>> {
        self.current.borrow().as_ref().filter(|live| !live.link.is_gone()).cloned()
    }

    /// Whether a connection to its sandbox is opened from here, through the engine.
    fn is_called(&self, sandbox: &Observed) -> bool {
        sandbox.is_bridged() || self.unreachable.load(Ordering::Relaxed)
    }

    /// Lets the sandbox rest, if what came on this connection made no sense.
    fn note_nonsense(&self, live: &Live) {
        if live.link.takes_nonsense() {
            let pause = self.rest().begin();
            tracing::warn!(session = %self.session, ?pause, "a sandbox is left alone: what it said makes no sense");
        }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self) -> bool {
        let until = *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn be_silent_for(&self, time: Option<Duration>) {
        let until = time.map(|time| Instant::now() + time);
        *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Waits for a connection that is not this one; none at the deadline. Cancel safe.
    async fn other_than(&self, old: Option<&Arc<Link>>, deadline: Instant) -> Option<Arc<Live>> {
        let fits = |live: &Live| !live.link.is_gone() && old.is_none_or(|old| !Arc::ptr_eq(old, &live.link));
        let mut current = self.current.subscribe();
        let found = timeout_at(deadline, current.wait_for(|now| now.as_deref().is_some_and(fits))).await;
        found.ok()?.ok()?.clone()
    }

    /// Takes a connection in the place of the one before.
    fn put(self: &Arc<Self>, live: Live) -> Arc<Live> {
        let live = Arc::new(live);
        let put = Arc::clone(&live);
        if let Some(old) = self.current.send_replace(Some(Arc::clone(&live))) {
            old.link.close();
        }
        let slot = Arc::clone(self);
        tokio::spawn(async move {
            live.link.ended().await;
            slot.note_nonsense(&live);
            slot.current.send_if_modified(|now| {
                let ours = now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &live));
                now.take_if(|_| ours).is_some()
            });
        });
        put
    }

    fn stop(&self) {
        for task in [&self.accepting, &self.noting] {
            if let Some(task) = task.lock().unwrap_or_else(PoisonError::into_inner).take() {
                task.abort();
            }
        }
        if let Some(live) = self.current.send_replace(None) {
            live.link.close();
        }
    }

    fn note(&self, event: Event, usage: &Usage) {
        match event {
            Event::Active(exec) => {
                usage.wrote(&self.session);
                self.wrote(exec);
            }
            Event::Notice(notice) => self.said(*notice),
            Event::Ended(entry) => self.ended(*entry),
            Event::Oom(kills) => self.note_kills(|known| known.told(kills)),
        }
    }

    fn note_kills(&self, note: impl FnOnce(&mut Kills)) {
        note(&mut self.kills.lock().unwrap_or_else(PoisonError::into_inner));
        self.has_news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_of_which_two_tell_is_one() {
        let mut kills = Kills::default();
        kills.by_guest += 2;
        assert_eq!(kills.news(), 2);
        kills.by_engine += 1;
        assert_eq!(kills.news(), 0);
        kills.by_engine += 2;
        assert_eq!(kills.news(), 1);
        kills.put_back(1);
        assert_eq!(kills.news(), 1, "what could not be noted is news again");
    }

    #[test]
    fn a_sandbox_that_tells_of_kills_without_end_is_believed_so_far() {
        let mut kills = Kills::default();
        kills.told(u64::MAX);
        assert_eq!(kills.news(), MAX_KILLS);
        kills.told(u64::MAX);
        assert_eq!(kills.news(), 0);
    }
}
