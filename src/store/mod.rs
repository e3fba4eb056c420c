//! The session table: who is there, what is being done to it, and which snapshots it has.
//!
//! One thread has the only connection that writes. Callers hand it closures; those that queue while the disk is busy
//! share the next transaction, and each is answered once its change would survive the loss of power. Reads touch neither
//! that thread nor SQLite: every commit is published to a view in memory, before its callers are told.
//!
//! The table takes rows as they are. What may be in them, and what follows from it, is the model's to say.

mod backup;
mod by;
pub mod error;
mod events;
mod execs;
mod files;
mod open;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod tx;
mod view;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

pub use self::backup::RESTORED_KEY;
pub use self::by::{acting, actor};
pub use self::error::StoreError;
pub use self::events::{Page, now};
pub use self::tx::Tx;
use self::view::View;
use self::writer::{Change, Job};
use crate::model::event::Event;
use crate::model::exec::Exec;
use crate::model::id::{ExecId, SessionId, Timestamp};
use crate::model::session::{Session, Snapshot};

/// Changes that may wait for the writer. A caller beyond them waits for room.
const QUEUE: usize = 1024;

/// Changes in one transaction. More would make the first caller wait long for the last one's rows, and would save
/// little: at this number the sync is a small part of the cost.
const BATCH: usize = 256;

/// The session table. Clones are cheap and share one table.
///
/// The writer ends when the last clone is gone, or at [`Store::close`].
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
}

/// The way to the writer.
struct Handle {
    /// None once closed.
    jobs: RwLock<Option<Sender>>,
    /// None once joined.
    thread: Mutex<Option<JoinHandle<()>>>,
    done: watch::Receiver<bool>,
    /// The database, and how it was opened.
    path: PathBuf,
    options: Options,
}

type Sender = mpsc::Sender<Box<dyn Job>>;

/// What the writer shows to readers.
struct Shared {
    view: RwLock<View>,
    commits: AtomicU64,
    /// Changes whenever there is a newer event.
    told: watch::Sender<()>,
    /// Changes whenever a command has an end, or no row any more, whatever brought it about.
    ended: watch::Sender<()>,
}

/// An open table, and what there is to say about how it was opened.
#[derive(Debug)]
pub struct Opened {
    /// The table.
    pub store: Store,
    /// Where a damaged file was put; the table is then the newest copy that is whole, or new and empty.
    pub set_aside: Option<PathBuf>,
    /// Other things that the user should know, one sentence each.
    pub notices: Vec<String>,
}

/// How a table is opened where the defaults do not serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Changes in one transaction, at least one.
    pub batch: usize,
    /// The name of another of SQLite's ways to reach a file system.
    pub vfs: Option<&'static str>,
    /// How long to wait for another process's lock.
    pub wait: Duration,
    /// The directory of its copies: there is one from before each migration, and the newest that is whole takes the place
    /// of a table that is gone or damaged. Without one there are none.
    pub backups: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { batch: BATCH, vfs: None, wait: schema::BUSY_WAIT, backups: None }
    }
}

impl Store {
    /// Opens the table at `path`, or makes one there, for this user alone. Blocks.
    ///
    /// A damaged file is renamed, never deleted, and another table takes its place.
    ///
    /// # Errors
    /// `Newer` when a later abx wrote it, and then nothing is touched; `Busy` when another process keeps it locked for
    /// seconds; `Full`; `Io` when the place cannot be used.
    pub fn open(path: &Path) -> Result<Opened, StoreError> {
        Self::open_with(path, Options::default())
    }

    /// Looks whether this abx knows the format of the table at `path`, and touches nothing, also where another process has
    /// the table open. What cannot be read is left to [`Store::open`] to judge.
    ///
    /// # Errors
    /// `Newer` alone.
    pub fn check_format(path: &Path) -> Result<(), StoreError> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let found = rusqlite::Connection::open_with_flags(path, flags).and_then(|conn| schema::format(&conn));
        match found {
            Ok(found) if found > schema::FORMAT => Err(open::newer(path, found)),
            _ => Ok(()),
        }
    }

    /// Opens the table as [`Store::open`] does, with settings.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: &Path, options: Options) -> Result<Opened, StoreError> {
        let mut ready = open::open(path, &options)?;
        let (set_aside, notices) = (ready.set_aside.take(), std::mem::take(&mut ready.notices));
        let shared = Arc::new(Shared {
            view: RwLock::new(ready.draft.view().clone()),
            commits: AtomicU64::new(0),
            told: watch::Sender::new(()),
            ended: watch::Sender::new(()),
        });
        let (sender, jobs) = mpsc::channel(QUEUE);
        let (finished, done) = watch::channel(false);
        let path = ready.path.clone();
        let thread = writer::start(ready, options.batch, jobs, Arc::clone(&shared), finished)?;
        let (jobs, thread) = (RwLock::new(Some(sender)), Mutex::new(Some(thread)));
        let handle = Handle { jobs, thread, done, path, options };
        Ok(Opened { store: Self { shared, handle: Arc::new(handle) }, set_aside, notices })
    }

    /// Finds a session by its name, else by its sandbox's name.
    pub fn session(&self, name: &str) -> Option<Arc<Session>> {
        let view = self.view();
        view.named(name).or_else(|| view.in_sandbox(name)).cloned()
    }

    /// Finds a session by id.
    pub fn session_by_id(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.view().session(id).cloned()
    }

    /// All sessions, newest first; of the same instant, the higher id first.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.view().sessions()
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.view().count()
    }

    /// Finds a snapshot by name, in whatever state.
    pub fn snapshot(&self, name: &str) -> Option<Arc<Snapshot>> {
        self.view().snapshot_named(name).cloned()
    }

    /// The snapshots of one session, or all of them, in whatever state, newest first.
    pub fn snapshots(&self, session: Option<&SessionId>) -> Vec<Arc<Snapshot>> {
        let view = self.view();
        match session {
            Some(id) => view.timeline(id).cloned().collect(),
            None => view.snapshots(),
        }
    }

    /// Finds a command by id.
    pub fn exec(&self, id: &ExecId) -> Option<Arc<Exec>> {
        self.view().execs().get(id).cloned()
    }

    /// Finds the command that a caller named by this key.
    pub fn exec_keyed(&self, session: &SessionId, key: &str) -> Option<Arc<Exec>> {
        self.view().execs().keyed(session, key).cloned()
    }

    /// The commands of a session, oldest first: those that run, and the last that have ended.
    pub fn execs(&self, session: &SessionId) -> Vec<Arc<Exec>> {
        self.view().execs().of(session).cloned().collect()
    }

    /// Waits until a command has ended, and gives its row as it is then, or the one given where it was forgotten.
    ///
    /// # Cancel safety
    /// Nothing but the waiting is lost.
    pub async fn ended(&self, exec: &Arc<Exec>) -> Arc<Exec> {
        // Before the look: an end in between is not missed.
        let mut ended = self.shared.ended.subscribe();
        loop {
            match self.exec(&exec.id) {
                Some(row) if row.ended.is_some() => return row,
                None => return Arc::clone(exec),
                // The sender is as old as this table.
                Some(_) => drop(ended.changed().await),
            }
        }
    }

    /// The events after `since` that are kept, oldest first.
    pub fn events(&self, since: u64) -> Vec<Arc<Event>> {
        self.view().events().after(since).cloned().collect()
    }

    /// The number of the newest event; 0 when there never was one.
    pub fn last_event(&self) -> u64 {
        self.view().events().last()
    }

    /// The first events after `since` that are kept, at most so many.
    pub fn page(&self, since: u64, most: usize) -> Page {
        self.view().events().page(since, most)
    }

    /// Changes whenever there is a newer event. Whoever asks for it before a page misses none that is not in the page.
    pub fn news(&self) -> watch::Receiver<()> {
        self.shared.told.subscribe()
    }

    /// Makes one change, and answers once it would survive the loss of power and readers see it.
    ///
    /// The closure runs on the writer's thread and holds everyone up: it must not wait for anything. An error it returns
    /// takes back all that it did, and nothing that others did.
    ///
    /// # Errors
    /// The closure's; `Busy`, `Full` or `Io` when the change could not be kept, also after a panic of the closure;
    /// `Closed` after [`Store::close`].
    ///
    /// # Cancel safety
    /// Once the change is in the queue it is made, whether or not somebody still waits. Dropping the future earlier,
    /// which only a full queue makes possible, leaves no trace.
    pub async fn write<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        #[cfg(test)]
        let _held = tests::hold_clock();
        let sender = self.handle.jobs.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Change { closure: Some(change), value: None, by: actor(), reply });
        sender.ok_or(StoreError::Closed)?.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Adds a session and returns its row.
    ///
    /// # Errors
    /// As [`Tx::insert_session`] and [`Store::write`].
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn insert(&self, session: Session) -> Result<Arc<Session>, StoreError> {
        self.write(move |tx| {
            tx.insert_session(&session)?;
            row(tx, &session.id)
        })
        .await
    }

    /// Changes the row of this id and returns it, with its revision one higher.
    ///
    /// # Errors
    /// As [`Tx::put_session`] and [`Store::write`].
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn update<F>(&self, id: &SessionId, change: F) -> Result<Arc<Session>, StoreError>
    where
        F: FnOnce(&mut Session) + Send + 'static,
    {
        let id = id.clone();
        self.write(move |tx| {
            let mut session = Session::clone(&*row(tx, &id)?);
            change(&mut session);
            session.id = id.clone();
            tx.replace(session)?;
            row(tx, &id)
        })
        .await
    }

    /// Takes no more changes, makes those in the queue, moves the log into the database and ends the writer. Reads go on
    /// from what was published last.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop any of this.
    pub async fn close(&self) {
        drop(self.handle.jobs.write().unwrap_or_else(PoisonError::into_inner).take());
        // An error says that the thread is gone, which is as well.
        let _ = self.handle.done.clone().wait_for(|done| *done).await;
        let thread = self.handle.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer of the table panicked");
        }
    }

    /// Copies the table as it is into the directory of its copies, unless there is one of the day that ends `now`, or
    /// nothing to copy. Blocks, but neither the writer nor who reads.
    ///
    /// # Errors
    /// `Full`, `Busy` or `Io`. The table is as it was, and so are the copies from before.
    pub fn back_up(&self, now: Timestamp) -> Result<Option<PathBuf>, StoreError> {
        let Handle { path, options, .. } = &*self.handle;
        let Some(dir) = &options.backups else { return Ok(None) };
        let empty = self.count() == 0 && self.view().snapshots().is_empty();
        let explain = |error: rusqlite::Error| error::explain(path, &error);
        if empty || !backup::is_due(dir, now).map_err(explain)? {
            return Ok(None);
        }
        let conn = open::connect_to_read(path, options)?;
        backup::take(&conn, dir, &backup::stamp(now).map_err(explain)?).map(Some)
    }

    /// How many transactions were committed since the table was opened.
    #[doc(hidden)]
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.shared.view.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("sessions", &self.count()).finish_non_exhaustive()
    }
}

fn row(tx: &Tx<'_>, id: &SessionId) -> Result<Arc<Session>, StoreError> {
    tx.shared(id).cloned().ok_or_else(|| StoreError::Gone { id: id.to_string() })
}
