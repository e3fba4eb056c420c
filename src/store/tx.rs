//! What one change may do: every read and write of both tables, inside the transaction that is open.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use super::error::{StoreError, explain};
use super::view::{Draft, View};
use super::{events, execs, rows};
use crate::model::event::{By, Told};
use crate::model::exec::{End, Exec, Verdict};
use crate::model::id::{ExecId, SessionId, SnapshotId, Timestamp};
use crate::model::session::{Session, Snapshot};

/// An open change of the table. Sees what changes before it in the same transaction did, and what it did itself.
///
/// After a failure of SQLite itself the change cannot be kept: every later write answers with that failure, and so does
/// the change as a whole, whatever its closure returns.
pub struct Tx<'a> {
    conn: &'a Connection,
    path: &'a Path,
    draft: &'a mut Draft,
    failed: Option<StoreError>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(conn: &'a Connection, path: &'a Path, draft: &'a mut Draft) -> Self {
        Self { conn, path, draft, failed: None }
    }

    /// SQLite's first failure in this change.
    pub(super) fn into_failure(self) -> Option<StoreError> {
        self.failed
    }

    /// Finds a session by id, without a copy of the row.
    pub(super) fn shared(&self, id: &SessionId) -> Option<&Arc<Session>> {
        self.view().session(id)
    }

    /// Does what [`Tx::put_session`] says, without a copy.
    pub(super) fn replace(&mut self, session: Session) -> Result<(), StoreError> {
        let Some(old) = self.shared(&session.id).cloned() else {
            return Err(StoreError::Gone { id: session.id.to_string() });
        };
        if (&old.name, &old.sandbox) != (&session.name, &session.sandbox) {
            self.check_names(&session)?;
        }
        let ended = !session.status.has_processes() && session.operation.is_none();
        let row = Session {
            revision: after(old.revision),
            snapshot: old.snapshot.clone(),
            snapshots: old.snapshots,
            attention: session.attention.clone().filter(|_| !ended),
            main_over: session.main_over && !ended && session.sandbox_id == old.sandbox_id,
            ..rows::fitting(session)
        };
        self.run(|conn| rows::update_session(conn, &old, &row))?;
        let at = row.last_active;
        self.draft.set_session(&old.id, Some(Arc::new(row)));
        if ended {
            // Whatever ran in a sandbox ended with it.
            self.end_execs(&old.id, at)?;
        }
        Ok(())
    }

    /// Lets the table take no more pages than it has, as on a full disk.
    #[cfg(test)]
    pub(crate) fn fill(&self) {
        self.conn.query_row("PRAGMA max_page_count = 1", [], |_| Ok(())).expect("the pragma answers");
    }

    /// The connection, for tests that bring SQLite itself to fail.
    #[cfg(test)]
    pub(super) fn raw(&self) -> &Connection {
        self.conn
    }

    fn view(&self) -> &View {
        self.draft.view()
    }

    /// Runs statements that belong together, unless SQLite has failed before.
    fn run(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        work(self.conn).map_err(|error| {
            let error = explain(self.path, &error);
            self.failed = Some(error.clone());
            error
        })
    }

    /// Refuses names that another row than `session`'s has.
    fn check_names(&self, session: &Session) -> Result<(), StoreError> {
        let (name, sandbox) = (session.name.as_str(), &session.sandbox);
        let others = |found: Option<&Arc<Session>>| found.is_some_and(|other| other.id != session.id);
        if others(self.view().named(name)) {
            return Err(StoreError::Exists { name: name.to_owned() });
        }
        if others(self.view().in_sandbox(sandbox)) {
            return Err(StoreError::Exists { name: sandbox.clone() });
        }
        Ok(())
    }

    /// Notes the end of every command of a session that runs by its row.
    fn end_execs(&mut self, session: &SessionId, at: Timestamp) -> Result<(), StoreError> {
        let Some(end) = self.shared(session).map(|row| End::with_sandbox(at, row)) else { return Ok(()) };
        let open: Vec<Arc<Exec>> =
            self.view().execs().of(session).filter(|exec| exec.ended.is_none()).cloned().collect();
        for exec in open {
            self.put_exec(&exec.judged(Verdict::WithSandbox).ended(end.clone()))?;
        }
        Ok(())
    }

    /// Brings what a session says about its snapshots up to the snapshot rows.
    fn recount(&mut self, id: &SessionId) -> Result<(), StoreError> {
        let Some(session) = self.shared(id) else { return Ok(()) };
        let (snapshot, snapshots) = self.view().saved(id);
        if (&snapshot, snapshots) == (&session.snapshot, session.snapshots) {
            return Ok(());
        }
        let row =
            Session { snapshot, snapshots, revision: after(session.revision), ..Session::clone(session) };
        self.run(|conn| rows::update_revision(conn, &row))?;
        self.draft.set_session(id, Some(Arc::new(row)));
        Ok(())
    }
}

impl Tx<'_> {
    /// Finds a session by id.
    pub fn session(&self, id: &SessionId) -> Option<Session> {
        self.shared(id).map(|row| Session::clone(row))
    }

    /// Finds a session by its name, else by its sandbox's name.
    pub fn session_named(&self, name: &str) -> Option<Session> {
        let view = self.view();
        view.named(name).or_else(|| view.in_sandbox(name)).map(|row| Session::clone(row))
    }

    /// All sessions, newest first, as changed so far.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.view().sessions()
    }

    /// Adds a session, with revision 1 and no snapshots whatever the row says.
    ///
    /// # Errors
    /// `Exists` with the session's name, its sandbox's name or its id, whichever is taken.
    pub fn insert_session(&mut self, session: &Session) -> Result<(), StoreError> {
        if self.shared(&session.id).is_some() {
            return Err(StoreError::Exists { name: session.id.to_string() });
        }
        self.check_names(session)?;
        let row = Session { revision: 1, snapshot: None, snapshots: 0, ..rows::fitting(session.clone()) };
        self.run(|conn| rows::insert_session(conn, &row))?;
        self.draft.set_session(&session.id, Some(Arc::new(row)));
        Ok(())
    }

    /// Replaces the row of the session's id, and raises the stored revision by one. The row's own revision and what it
    /// says about snapshots do not matter.
    ///
    /// # Errors
    /// `Gone` when there is no such row; `Exists` with the session's or its sandbox's name when another row has it.
    pub fn put_session(&mut self, session: &Session) -> Result<(), StoreError> {
        self.replace(session.clone())
    }

    /// Removes a session. Snapshots that it still has stay, with the name that it had last but in nobody's timeline.
    ///
    /// # Errors
    /// `Gone` when there is no such row.
    pub fn delete_session(&mut self, id: &SessionId) -> Result<(), StoreError> {
        let Some(name) = self.shared(id).map(|row| row.name.clone()) else {
            return Err(StoreError::Gone { id: id.to_string() });
        };
        self.run(|conn| rows::delete_session(conn, id, &name))?;
        let orphans: Vec<_> = self.view().timeline(id).cloned().collect();
        for snapshot in orphans {
            let row =
                Snapshot { session: None, session_name: name.to_string(), ..Snapshot::clone(&snapshot) };
            self.draft.set_snapshot(&snapshot.id, Some(Arc::new(row)));
        }
        let gone: Vec<ExecId> = self.view().execs().of(id).map(|exec| exec.id.clone()).collect();
        for exec in gone {
            self.draft.set_exec(&exec, None);
        }
        self.draft.set_session(id, None);
        Ok(())
    }

    /// The snapshots of a session, newest first, as changed so far.
    pub fn snapshots_of(&self, session: &SessionId) -> Vec<Arc<Snapshot>> {
        self.view().timeline(session).cloned().collect()
    }

    /// Finds a snapshot by name, in whatever state.
    pub fn snapshot_named(&self, name: &str) -> Option<Snapshot> {
        self.view().snapshot_named(name).map(|row| Snapshot::clone(row))
    }

    /// Adds a snapshot, or replaces the one of its id. Where that changes what its session says about snapshots, that
    /// session's revision rises by one.
    ///
    /// # Errors
    /// `SnapshotExists` when another snapshot, in whatever state, has the name; `Gone` when its session is not there.
    pub fn put_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        if self.view().snapshot_named(&snapshot.name).is_some_and(|other| other.id != snapshot.id) {
            return Err(StoreError::SnapshotExists { name: snapshot.name.clone() });
        }
        if let Some(id) = snapshot.session.as_ref().filter(|id| self.shared(id).is_none()) {
            return Err(StoreError::Gone { id: id.to_string() });
        }
        let old = self.view().snapshot(&snapshot.id).cloned();
        let row = Snapshot {
            size_bytes: snapshot.size_bytes.min(rows::MOST),
            own_bytes: snapshot.own_bytes.map(|bytes| bytes.min(rows::MOST)),
            ..snapshot.clone()
        };
        self.run(|conn| rows::put_snapshot(conn, &row))?;
        self.draft.set_snapshot(&snapshot.id, Some(Arc::new(row)));
        let before =
            old.and_then(|old| old.session.clone()).filter(|id| Some(id) != snapshot.session.as_ref());
        for session in before.iter().chain(&snapshot.session) {
            self.recount(session)?;
        }
        Ok(())
    }

    /// Removes a snapshot, with the same effect on its session as [`Tx::put_snapshot`].
    ///
    /// # Errors
    /// `Gone` when there is no such row.
    pub fn delete_snapshot(&mut self, id: &SnapshotId) -> Result<(), StoreError> {
        let Some(old) = self.view().snapshot(id).cloned() else {
            return Err(StoreError::Gone { id: id.to_string() });
        };
        self.run(|conn| rows::delete_snapshot(conn, id))?;
        self.draft.set_snapshot(id, None);
        old.session.iter().try_for_each(|session| self.recount(session))
    }

    /// Finds a command by id.
    pub fn exec(&self, id: &ExecId) -> Option<Arc<Exec>> {
        self.view().execs().get(id).cloned()
    }

    /// Adds a command, or changes how the one of its id runs and ended. The oldest that have ended are forgotten when a
    /// session has too many.
    ///
    /// # Errors
    /// `Gone` when its session is not there; `KeyTaken` when another command of the session has its key.
    pub fn put_exec(&mut self, exec: &Exec) -> Result<(), StoreError> {
        if self.shared(&exec.session).is_none() {
            return Err(StoreError::Gone { id: exec.session.to_string() });
        }
        if let Some(key) = &exec.key
            && self.view().execs().keyed(&exec.session, key).is_some_and(|other| other.id != exec.id)
        {
            return Err(StoreError::KeyTaken { key: key.clone() });
        }
        self.run(|conn| execs::put(conn, exec))?;
        self.draft.set_exec(&exec.id, Some(Arc::new(exec.clone())));
        for id in self.view().execs().beyond(&exec.session) {
            self.run(|conn| execs::delete(conn, &id))?;
            self.draft.set_exec(&id, None);
        }
        Ok(())
    }

    /// Decides about a command before it ends, and notes its end, as [`Exec::judged`] and [`Exec::ended`] have it; gives
    /// its row as it is then, if it is there.
    ///
    /// # Errors
    /// SQLite's failures alone.
    pub fn settle_exec(
        &mut self,
        id: &ExecId,
        verdict: Option<Verdict>,
        end: Option<End>,
    ) -> Result<Option<Arc<Exec>>, StoreError> {
        let Some(old) = self.exec(id) else { return Ok(None) };
        let judged = verdict.map_or_else(|| Exec::clone(&old), |verdict| old.judged(verdict));
        let new = match end {
            Some(end) => judged.ended(end),
            None => judged,
        };
        if new != *old {
            self.put_exec(&new)?;
        }
        Ok(Some(Arc::new(new)))
    }

    /// Removes a command, if it is there.
    ///
    /// # Errors
    /// SQLite's failures alone.
    pub fn delete_exec(&mut self, id: &ExecId) -> Result<(), StoreError> {
        if self.view().execs().get(id).is_some() {
            self.run(|conn| execs::delete(conn, id))?;
            self.draft.set_exec(id, None);
        }
        Ok(())
    }

    /// Changes a session's row in place, as [`Tx::put_session`] would.
    ///
    /// # Errors
    /// As there.
    pub fn change_session(
        &mut self,
        id: &SessionId,
        change: impl FnOnce(&mut Session),
    ) -> Result<(), StoreError> {
        let mut session = self.session(id).ok_or_else(|| StoreError::Gone { id: id.to_string() })?;
        change(&mut session);
        self.replace(session)
    }

    /// Tells something that no row does.
    pub fn note(&mut self, told: Told) {
        self.draft.note(None, told);
    }

    /// Tells something of a session that its row does not.
    pub fn note_of(&mut self, session: &SessionId, told: Told) {
        self.draft.note(Some(session), told);
    }

    /// Writes what the changes since `mark` tell.
    pub(super) fn tell(&mut self, mark: usize, by: Option<&By>) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        events::write(self.conn, self.draft, mark, by).map_err(|error| {
            let error = explain(self.path, &error);
            self.failed = Some(error.clone());
            error
        })
    }

    /// Reads a value of the daemon's own.
    pub fn meta(&self, key: &str) -> Option<String> {
        self.draft.meta(key).cloned()
    }

    /// The keys of the daemon's own values that begin so.
    pub fn meta_keys(&self, prefix: &str) -> Vec<String> {
        self.draft.meta_keys(prefix).cloned().collect()
    }

    /// Keeps a value of the daemon's own.
    ///
    /// # Errors
    /// SQLite's failures alone.
    pub fn set_meta(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        self.run(|conn| rows::set_meta(conn, key, value))?;
        self.draft.set_meta(key, value);
        Ok(())
    }

    /// Drops an entry of the daemon's own, if it is there.
    ///
    /// # Errors
    /// When the change cannot be kept.
    pub fn delete_meta(&mut self, key: &str) -> Result<(), StoreError> {
        self.run(|conn| rows::delete_meta(conn, key))?;
        self.draft.delete_meta(key);
        Ok(())
    }
}

/// The revision after this one. At the end of the numbers it stays: a client then misses a change, and nothing breaks.
fn after(revision: u64) -> u64 {
    revision.saturating_add(1).min(rows::MOST)
}
