//! The one thread that writes, and the group commit.
//!
//! What queued while the disk was busy with one transaction becomes the next one: no change waits for company, and many
//! callers share one sync. Each change has a savepoint of its own, so that one which fails takes nothing along.

use std::any::Any;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::Shared;
use super::error::{StoreError, explain};
use super::open::Ready;
use super::tx::Tx;
use super::view::Draft;
use crate::model::event::By;

/// A change in the queue: what to do, and whom to tell.
pub(super) trait Job: Send {
    /// Does it, inside a transaction that may still fail.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError>;

    /// Who asked for it.
    fn by(&self) -> Option<&By>;

    /// Tells the caller, once it is known whether the change is kept.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// A job made of a closure.
pub(super) struct Change<T, F> {
    /// Taken when it runs.
    pub(super) closure: Option<F>,
    /// What it returned.
    pub(super) value: Option<T>,
    /// Who asked for it.
    pub(super) by: Option<By>,
    /// The waiting caller, who may have gone.
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Change<T, F>
where
    T: Send,
    F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let closure = self.closure.take().ok_or(StoreError::Closed)?;
        self.value = Some(closure(tx)?);
        Ok(())
    }

    fn by(&self) -> Option<&By> {
        self.by.as_ref()
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        // Nobody may wait any more: the change holds all the same.
        let _ = reply.send(outcome.and_then(|()| value.ok_or(StoreError::Closed)));
    }
}

/// Starts the thread. It ends when every sender of `jobs` is gone and the queue is empty; `done` then turns true.
///
/// # Errors
/// When the system has no thread left.
pub(super) fn start(
    ready: Ready,
    limit: usize,
    jobs: mpsc::Receiver<Box<dyn Job>>,
    shared: Arc<Shared>,
    done: watch::Sender<bool>,
) -> Result<JoinHandle<()>, StoreError> {
    let path = ready.path.clone();
    let file = identity(&ready.path);
    let writer = Writer { conn: ready.conn, path: ready.path, file, draft: ready.draft, shared };
    thread::Builder::new()
        .name("abx-store".to_owned())
        .spawn(move || {
            writer.work(jobs, limit);
            // Nobody may wait for it.
            let _ = done.send(true);
        })
        .map_err(|error| StoreError::Io { path, text: error.to_string() })
}

struct Writer {
    conn: Connection,
    path: PathBuf,
    /// The file that was opened: what is written after it was removed would be gone with the process.
    file: Option<(u64, u64)>,
    draft: Draft,
    shared: Arc<Shared>,
}

/// Device and inode of a file; none if it is not there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Jobs with what became of each so far.
type Ran = Vec<(Box<dyn Job>, Result<(), StoreError>)>;

impl Writer {
    fn work(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>, limit: usize) {
        while let Some(first) = jobs.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < limit {
                let Ok(job) = jobs.try_recv() else { break };
                batch.push(job);
            }
            self.commit(batch);
        }
        self.close();
    }

    /// Runs a batch and tells each caller. One transaction, unless SQLite ends it half-way: then the changes in it have
    /// failed with that cause, and the rest goes into another.
    fn commit(&mut self, batch: Vec<Box<dyn Job>>) {
        let mut waiting = batch.into_iter();
        while waiting.len() > 0 {
            let mut ran = Ran::new();
            let kept = self.transact(&mut waiting, &mut ran);
            if let Err(error) = &kept {
                tracing::warn!(error = %error, changes = ran.len(), "failed to commit to the table");
            }
            let full = |outcome: &Result<(), StoreError>| matches!(outcome, Err(StoreError::Full { .. }));
            if full(&kept) || ran.iter().any(|(_, own)| full(own)) {
                self.relieve();
            }
            for (job, own) in ran {
                // A refusal may rest on a change that was not kept either: the cause of both is the true answer.
                job.finish(kept.clone().and(own));
            }
        }
    }

    /// Moves jobs from `waiting` to `ran` and commits them. On an error nothing of `ran` is kept, and the transaction is
    /// over. Takes at least one.
    fn transact(
        &mut self,
        waiting: &mut impl Iterator<Item = Box<dyn Job>>,
        ran: &mut Ran,
    ) -> Result<(), StoreError> {
        let begun = self.still_there().and_then(|()| self.execute("BEGIN IMMEDIATE"));
        if let Err(error) = begun {
            ran.extend(waiting.by_ref().map(|job| (job, Ok(()))));
            return Err(error);
        }
        for mut job in waiting.by_ref() {
            let own = self.run(job.as_mut());
            let cause = own.as_ref().err().cloned();
            ran.push((job, own));
            if self.conn.is_autocommit() {
                self.draft.undo_to(0);
                return Err(cause.unwrap_or_else(|| self.ended()));
            }
        }
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(error);
        }
        self.publish();
        Ok(())
    }

    fn still_there(&self) -> Result<(), StoreError> {
        if self.file.is_none() || identity(&self.path) == self.file {
            return Ok(());
        }
        let text = "the file was removed or replaced while in use; nothing more can be kept in it".to_owned();
        Err(StoreError::Io { path: self.path.clone(), text })
    }

    /// Moves the log into the database when the disk is full: on a small disk the log itself may be what fills it.
    fn relieve(&self) {
        if let Err(error) = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "failed to empty the log of the table");
        }
    }

    /// Runs one job in a savepoint. On an error its traces are gone, or the whole transaction is over.
    fn run(&mut self, job: &mut dyn Job) -> Result<(), StoreError> {
        let mark = self.draft.mark();
        self.execute("SAVEPOINT change")?;
        let mut tx = Tx::new(&self.conn, &self.path, &mut self.draft);
        let own = catch_unwind(AssertUnwindSafe(|| {
            job.run(&mut tx)?;
            tx.tell(mark, job.by())
        }));
        let failure = tx.into_failure();
        let outcome = match (own, failure) {
            (Err(panic), _) => Err(self.panicked(panic.as_ref())),
            (Ok(_), Some(failure)) => Err(failure),
            (Ok(own), None) => own,
        };
        if self.conn.is_autocommit() {
            return outcome.and_then(|()| Err(self.ended()));
        }
        let undone = match outcome {
            Ok(()) => return self.execute("RELEASE change").inspect_err(|_| self.roll_back()),
            Err(_) => self.execute("ROLLBACK TO change").and_then(|()| self.execute("RELEASE change")),
        };
        self.draft.undo_to(mark);
        if undone.is_err() {
            self.roll_back();
        }
        outcome
    }

    /// Ends the transaction if it is still open, and takes back all of it.
    fn roll_back(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(error = %error, "failed to roll back");
        }
        self.draft.undo_to(0);
    }

    fn publish(&mut self) {
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let published = self.draft.publish(&mut view);
        drop(view);
        if published.told {
            self.shared.told.send_replace(());
        }
        if published.ended {
            self.shared.ended.send_replace(());
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]))
            .map(drop)
            .map_err(|error| explain(&self.path, &error))
    }

    fn ended(&self) -> StoreError {
        StoreError::Io { path: self.path.clone(), text: "the transaction ended under a change".to_owned() }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> StoreError {
        let words = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no words");
        StoreError::Io { path: self.path.clone(), text: format!("a change panicked: {words}") }
    }

    /// Moves the log into the database, so that what lies there while nobody runs is one file.
    fn close(self) {
        let Self { conn, path, .. } = self;
        let moved = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let closed = conn.close().map_err(|(_, error)| error);
        if let Err(error) = moved.and(closed) {
            warn_unclosed(&path, &error);
        }
    }
}

fn warn_unclosed(path: &Path, error: &rusqlite::Error) {
    // Every acknowledged change is in the log, and the next start reads it.
    tracing::warn!(?path, %error, "failed to close the table tidily");
}
