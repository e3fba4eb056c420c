//! The one owner of sessions: every handler, timer and watcher goes through its handle.
//!
//! Operations on one session run one after the other, in the order asked; operations on different sessions side by
//! side. Nothing slow happens while a lock of the whole daemon is held: each operation is a task of its own, and reads
//! come from the store's published view.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, broadcast, watch};
use tokio::time::Instant;

use super::adopted::Adopted;
use super::engine_state::EngineState;
use super::exec::{Keys, Launches};
use super::failure::Failure;
use super::files::Copies;
use super::flatten::Deep;
use super::guests::{self, Guests};
use super::idle::Looking;
use super::late::LateFreezes;
use super::rebuild::Rebuilt;
use super::room::Pending;
use super::usage::Usage;
use crate::config::Config;
use crate::engine::labels::{REPLACED, SESSION_ID};
use crate::engine::{Engine, EngineError, Observed, RunState};
use crate::model::event::Told;
use crate::model::id::{SANDBOX_PREFIX, SessionId, SessionName};
use crate::model::session::{EngineKind, Session, Snapshot, SnapshotState};
use crate::model::step::is_frozen;
use crate::proto::errors::Kind;
use crate::proto::events::Event;
use crate::store::{self, Store};

/// Steps of operations that one who follows them may be behind. Past it, some are left out.
const PROGRESS: usize = 64;

/// The handle. Cheap to clone.
#[derive(Clone)]
pub struct Driver(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) home: PathBuf,
    /// Where clients connect: never mounted.
    pub(super) socket: PathBuf,
    pub(super) config: Config,
    pub(super) usage: Usage,
    /// Sessions whose sandboxes are being looked at.
    pub(super) looking: Looking,
    pub(super) copies: Copies,
    /// Snapshots whose images have too many layers.
    pub(super) deep: Deep,
    pub(super) launches: Launches,
    /// Commands that are asked for by their keys.
    pub(super) keys: Keys,
    pub(super) guests: Guests,
    pub(super) late: LateFreezes,
    /// What of a lost table came back.
    pub(super) rebuilt: Rebuilt,
    /// What containers that were taken over cannot say themselves.
    pub(super) adopted: Adopted,
    /// Snapshots that are being made, by what they take.
    pub(super) pending: Pending,
    /// Wakes the timer when a deadline may have changed.
    pub(super) deadlines: Notify,
    /// Wakes the watcher to compare every row with the engine.
    pub(super) compare: Notify,
    /// Whether the engine was away since the rows were last compared with it.
    pub(super) away: AtomicBool,
    /// Wakes whoever has something for a sandbox that was frozen.
    pub(super) thawed: Notify,
    /// Steps of operations, to those who subscribed to them.
    pub(super) progress: broadcast::Sender<Arc<Event>>,
    pub(super) engine_state: RwLock<EngineState>,
    pub(super) queues: Mutex<HashMap<SessionId, Arc<AsyncMutex<()>>>>,
    operations: watch::Sender<usize>,
}

/// A session whose turn it is: no other operation on it runs until this is dropped.
pub(super) struct Held {
    pub(super) session: Arc<Session>,
    /// Whether this operation has asked the engine to make a container.
    pub(super) asked: bool,
    /// What its user should know of the container that was made.
    pub(super) warnings: Vec<String>,
    _turn: OwnedMutexGuard<()>,
}

impl Held {
    /// A row together with the turn that was taken before it existed.
    pub(super) fn new(session: Arc<Session>, turn: OwnedMutexGuard<()>) -> Self {
        Self { session, asked: false, warnings: Vec::new(), _turn: turn }
    }
}

/// Counts a running operation until it is dropped.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl Driver {
    /// Takes over a store and an engine. Starts nothing by itself.
    pub fn new(store: Store, engine: Arc<dyn Engine>, home: &Path, socket: &Path, config: Config) -> Self {
        let usage = Usage::default();
        // Tests play its part, and need no more of it than that it is there.
        let program = if cfg!(test) { b"a program".as_slice() } else { guests::PROGRAM };
        let guests = Guests::new(guests::Setup {
            root: home.join("run"),
            program,
            engine: Arc::clone(&engine),
            store: store.clone(),
            usage: usage.clone(),
            keep: config.keep.value,
        });
        Self(Arc::new(Inner {
            store,
            engine,
            home: home.to_owned(),
            socket: socket.to_owned(),
            config,
            usage,
            looking: Looking::default(),
            copies: Copies::default(),
            deep: Deep::default(),
            guests,
            late: LateFreezes::default(),
            launches: Launches::default(),
            keys: Keys::default(),
            rebuilt: Rebuilt::default(),
            adopted: Adopted::open(home),
            pending: Pending::default(),
            deadlines: Notify::new(),
            compare: Notify::new(),
            away: AtomicBool::new(false),
            thawed: Notify::new(),
            progress: broadcast::Sender::new(PROGRESS),
            engine_state: RwLock::default(),
            queues: Mutex::default(),
            operations: watch::Sender::new(0),
        }))
    }

    /// Listens for the sandboxes that run already.
    pub(super) fn listen_for_sandboxes(&self) {
        self.0.guests.listen_all();
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The home directory, which is also the label that marks this daemon's sandboxes.
    pub fn home(&self) -> &Path {
        &self.0.home
    }

    /// A session by name, by its sandbox's name, or by `session-NAME` where its container is named otherwise (those
    /// taken over from the older tool).
    ///
    /// # Errors
    /// `session_not_found`.
    pub fn session(&self, name: &str) -> Result<Arc<Session>, Failure> {
        let store = &self.0.store;
        let wanted = &*composed(name);
        store
            .session(wanted)
            .or_else(|| wanted.strip_prefix(SANDBOX_PREFIX).and_then(|plain| store.session(plain)))
            .ok_or_else(|| Failure::no_session(name))
    }

    /// All sessions, newest first.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.0.store.sessions()
    }

    /// Number of sessions.
    pub fn count(&self) -> usize {
        self.0.store.count()
    }

    /// Snapshots that are there, newest first: of one session, or all. Those that were kept when their session was
    /// deleted are found by that session's name.
    ///
    /// # Errors
    /// `session_not_found` when there is neither a session nor a kept snapshot of this name.
    pub fn snapshots(&self, name: Option<&str>) -> Result<Vec<Arc<Snapshot>>, Failure> {
        let mut all = self.0.store.snapshots(None);
        all.retain(|s| s.state == SnapshotState::Ready);
        let Some(name) = name else { return Ok(all) };
        let session = self.session(name);
        let wanted = session.as_ref().map_or_else(|_| composed(name).into_owned(), |s| s.name.to_string());
        let id = session.as_ref().ok().map(|s| &s.id);
        all.retain(|s| match &s.session {
            Some(owner) => Some(owner) == id,
            None => s.session_name == wanted,
        });
        if all.is_empty() { session.map(|_| all) } else { Ok(all) }
    }

    /// The name that the session of a snapshot has now, or had when it was deleted.
    pub fn session_of(&self, snapshot: &Snapshot) -> String {
        let owner = snapshot.session.as_ref().and_then(|id| self.0.store.session_by_id(id));
        owner.map_or_else(|| snapshot.session_name.clone(), |session| session.name.to_string())
    }

    /// The name of a session by its id; the id itself once it is gone.
    pub fn name_of(&self, id: &SessionId) -> String {
        self.0.store.session_by_id(id).map_or_else(|| id.to_string(), |session| session.name.to_string())
    }

    /// Tells what no row tells.
    pub(super) async fn note(&self, told: Told) {
        let kind = told.kind.as_str();
        let noted = self.0.store.write(move |tx| {
            tx.note(told);
            Ok(())
        });
        if let Err(error) = noted.await {
            tracing::warn!(%error, kind, "an event is not kept");
        }
    }

    /// The label of this daemon's sandboxes.
    pub(super) fn label(&self) -> String {
        self.0.home.display().to_string()
    }

    /// Waits until no operation runs, or until `deadline`.
    pub async fn drain(&self, deadline: Instant) {
        let mut running = self.0.operations.subscribe();
        let idle = running.wait_for(|n| *n == 0);
        if tokio::time::timeout_at(deadline, idle).await.is_err() {
            tracing::warn!(running = *self.0.operations.borrow(), "stopping with operations under way");
        }
        self.note_last_uses().await;
        self.0.store.close().await;
    }

    /// Runs an operation to its end, whatever becomes of whoever waits for it.
    ///
    /// # Cancel safety
    /// Dropping the returned future does not end the operation.
    pub(super) async fn submit<T, F>(&self, operation: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.0.operations.send_modify(|n| *n += 1);
        let counted = Counted(self.0.operations.clone());
        let span = tracing::Span::current();
        let work = store::acting(store::actor(), async move {
            let _counted = counted;
            operation.await
        });
        let task = tokio::spawn(tracing::Instrument::instrument(work, span));
        match task.await {
            Ok(result) => {
                if let Err(failure) = &result {
                    self.mend_later(failure);
                }
                result
            }
            Err(error) => {
                tracing::error!(%error, "an operation panicked");
                self.0.compare.notify_one();
                Err(Failure::new(Kind::Internal, "the operation failed inside abxd").hint("abx daemon logs"))
            }
        }
    }

    /// Commits a change of the row, and wakes the timer and whoever waits for a thaw.
    pub(super) async fn commit<F>(&self, held: &mut Held, change: F) -> Result<(), Failure>
    where
        F: FnOnce(&mut Session) + Send + 'static,
    {
        let was_frozen = is_frozen(&held.session);
        held.session = self.0.store.update(&held.session.id, change).await?;
        self.follow_adopted(&held.session);
        if was_frozen && !is_frozen(&held.session) {
            self.0.thawed.notify_waiters();
        }
        self.0.deadlines.notify_one();
        Ok(())
    }

    /// Looks at the container behind a row: by id, or by label where the id was not recorded yet. One that was never
    /// started has nothing in it, and without a record nobody knows what it was made from: it is none.
    ///
    /// # Errors
    /// The engine's; `Elsewhere` where it is none because it is on another engine.
    pub(super) async fn observe(&self, session: &Session) -> Result<Option<Observed>, EngineError> {
        if session.engine == EngineKind::External {
            return Ok(None);
        }
        let seen = match &session.sandbox_id {
            Some(id) => self.0.engine.inspect(id).await?,
            None => self.containers_of(session).await?.into_iter().find(|o| o.state != RunState::Created),
        };
        if seen.is_none() {
            self.require_here(session).await?;
        }
        Ok(seen)
    }

    /// The containers that abx made for a session: the one with its name, and one that is being replaced. The labels
    /// alone do not tell: an image that a user commits from a sandbox hands them on to whatever runs it.
    pub(super) async fn containers_of(&self, session: &Session) -> Result<Vec<Observed>, EngineError> {
        let all = self.0.engine.list(&self.label()).await?;
        let aside = format!("{}{REPLACED}", session.sandbox);
        let ours = |o: &Observed| {
            o.labels.get(SESSION_ID).is_some_and(|id| id == session.id.as_str())
                && (o.name == session.sandbox || o.name.starts_with(&aside))
        };
        Ok(all.into_iter().filter(ours).collect())
    }
}

/// A name as names are kept: in NFC, so that two spellings of one name find one session.
pub(super) fn composed(name: &str) -> std::borrow::Cow<'_, str> {
    match SessionName::parse(name) {
        Ok(parsed) if parsed.as_str() != name => parsed.as_str().to_owned().into(),
        _ => name.into(),
    }
}

/// Longest grace that a stop may ask for: an hour.
pub const MAX_GRACE: Duration = Duration::from_secs(3600);

/// Grace where a stop names none (the engines' own default).
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);
