//! A copy of the table that took its place: what happened since it was made is known from the engine alone.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::{Account, used_now};
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::engine_state::place_key;
use crate::daemon::orphans;
use crate::engine::labels::{self, REPLACED};
use crate::engine::{EngineError, Image, Observed, RunState};
use crate::model::event::{EventKind, Fact, Told};
use crate::model::id::{SessionId, SnapshotId, Timestamp};
use crate::model::session::{Operation, Runtime, Session, Snapshot, SnapshotState, Status};
use crate::store::error::StoreError;
use crate::store::{RESTORED_KEY, Tx};

/// The key under which a table remembers that it is a copy, and was not compared with the engine yet.
const UNLINKED_KEY: &str = "rebuilt.unlinked";

/// The key under which it remembers with which engines it was compared meanwhile, by their ids, one a line.
const LINKED_KEY: &str = "rebuilt.linked";

impl Driver {
    /// Looks what became of the table before anything is done with it. `set_aside` is where a damaged one is now.
    pub(in crate::daemon) async fn account_for_table(&self, set_aside: Option<&Path>) {
        let kept = set_aside.map(|path| path.display().to_string());
        let begun = self.0.store.write(move |tx| {
            let copy = tx.meta(RESTORED_KEY);
            if let Some(copy) = &copy {
                tx.delete_meta(RESTORED_KEY)?;
                tx.set_meta(UNLINKED_KEY, copy)?;
                tx.delete_meta(LINKED_KEY)?;
                begin_anew(tx, clock::now())?;
            }
            if kept.is_some() || copy.is_some() {
                let sentence = sentence(kept.as_deref(), copy.as_deref());
                tracing::warn!("{sentence}");
                Account::change(tx, |account| account.set_table(sentence))?;
                let fact = |text: Option<String>| text.map_or(Fact::Nothing, Fact::Text);
                let data = vec![("kept", fact(kept)), ("copy", fact(copy))];
                tx.note(Told { kind: EventKind::TableReplaced, data });
            }
            Ok((Account::untold(tx), tx.meta(UNLINKED_KEY).is_some().then(|| linked(tx))))
        });
        match begun.await {
            Ok((untold, unlinked)) => self.0.rebuilt.begin(untold, unlinked),
            Err(error) => tracing::error!(%error, "cannot tell what became of the session table"),
        }
    }

    /// Brings a table that is a copy up to what the engine has, before its rows are compared one by one: snapshots that are
    /// gone, and containers that were made or renamed since. What is on another engine waits for that one. Does nothing for
    /// any other table.
    ///
    /// # Errors
    /// The engine's; it is then done at the next comparison.
    pub(in crate::daemon) async fn catch_up(
        &self,
        containers: &[Observed],
        images: &HashMap<SnapshotId, Image>,
    ) -> Result<(), EngineError> {
        let here = self.engine_identity();
        if !self.0.rebuilt.is_unlinked(here.as_deref()) {
            return Ok(());
        }
        let alone = self.knows_no_other(here.clone()).await;
        for snapshot in self.0.store.snapshots(None) {
            let ready = snapshot.state == SnapshotState::Ready;
            if ready
                && self.was_here(&snapshot, here.as_ref(), alone)
                && !images.contains_key(&snapshot.id)
                && self.0.engine.image(&snapshot.image_id).await?.is_none()
            {
                self.drop_gone(&snapshot).await;
            }
        }
        let ran = |c: &&Observed| c.state != RunState::Created && self.is_sandbox(c);
        for container in containers.iter().filter(ran) {
            self.link(container, containers).await?;
        }
        match self.0.store.write(move |tx| note_linked(tx, here)).await {
            Ok(left) => self.0.rebuilt.linked(left),
            Err(error) => tracing::warn!(%error, "the copy of the table will be compared again"),
        }
        Ok(())
    }

    /// Whether a snapshot was made on the engine of this id. Nobody knows it of one that outlived its session: it
    /// was, where the table is `alone` with that engine.
    fn was_here(&self, snapshot: &Snapshot, here: Option<&String>, alone: bool) -> bool {
        let owner = snapshot.session.as_ref().and_then(|id| self.0.store.session_by_id(id));
        match owner.and_then(|owner| owner.sandbox_engine.clone()) {
            Some(theirs) => Some(&theirs) == here,
            None => alone,
        }
    }

    /// Whether the table knows of no engine but the one of this id.
    async fn knows_no_other(&self, here: Option<String>) -> bool {
        let known = self.0.store.write(move |tx| {
            let places = tx.meta_keys(&place_key(""));
            let rows = tx.sessions().into_iter().filter_map(|row| row.sandbox_engine.clone());
            let mut known = rows.map(|engine| place_key(&engine)).chain(places);
            let here = here.map(|here| place_key(&here));
            Ok(known.all(|engine| Some(engine) == here))
        });
        known.await.unwrap_or(false)
    }

    async fn drop_gone(&self, snapshot: &Snapshot) {
        tracing::warn!(
            snapshot = snapshot.name,
            "dropping a snapshot that was deleted since the table was copied"
        );
        let gone = snapshot.clone();
        if let Err(error) = self.0.store.write(move |tx| orphans::drop_snapshot(tx, &gone)).await {
            tracing::error!(%error, snapshot = snapshot.name, "cannot drop the row of a snapshot that is gone");
        }
    }

    /// Gives a row the container that its session has now, and the names that both have. The engine holds what came last.
    async fn link(&self, container: &Observed, all: &[Observed]) -> Result<(), EngineError> {
        let Some(id) = container.labels.get(labels::SESSION_ID).map(SessionId::new) else { return Ok(()) };
        // One without a row was made since, and gets one later: its turn must not be taken, for with that of a session that
        // is gone goes all that is kept for it, the way to its commands above all.
        if self.0.store.session_by_id(&id).is_none() {
            return Ok(());
        }
        let Some(mut held) = self.try_hold_id(&id) else { return Ok(()) };
        let recorded = held.session.sandbox_id.clone();
        let is_recorded = recorded.as_ref() == Some(&container.id);
        let other_there = !is_recorded && all.iter().any(|other| recorded.as_ref() == Some(&other.id));
        let same = is_recorded && container.name == held.session.sandbox;
        if other_there || same || container.name.contains(REPLACED) {
            return Ok(());
        }
        let Some(now) = self.look_at(&container.id).await? else { return Ok(()) };
        let Some(made) = self.row_again(&now) else { return Ok(()) };
        tracing::warn!(session = %held.session.name, container = now.name, "its container is another than when the table was copied");
        let renamed = now.name != held.session.sandbox;
        let whole = made.clone();
        let linked = self.commit(&mut held, move |row| {
            take_container(row, &whole);
            if renamed {
                row.sandbox = whole.sandbox;
                row.name = whole.name;
            }
        });
        let names_taken = linked.await.is_err();
        if names_taken
            && let Err(failure) = self.commit(&mut held, move |row| take_container(row, &made)).await
        {
            tracing::error!(%failure, session = %held.session.name, "cannot record a session's container");
        }
        if held.session.runtime == Runtime::Init {
            self.0.guests.expect(&held.session.id);
        }
        Ok(())
    }
}

/// The engines with which a table that is a copy was compared.
fn linked(tx: &Tx<'_>) -> BTreeSet<String> {
    tx.meta(LINKED_KEY).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Notes that it was compared with this one, and gives those with which it was; none once no row waits for another.
fn note_linked(tx: &mut Tx<'_>, here: Option<String>) -> Result<Option<BTreeSet<String>>, StoreError> {
    let mut done = linked(tx);
    done.insert(here.unwrap_or_default());
    let waits = |row: &Session| row.sandbox_engine.as_ref().is_some_and(|engine| !done.contains(engine));
    if tx.sessions().iter().any(|row| waits(row)) {
        let lines: Vec<&str> = done.iter().map(String::as_str).collect();
        tx.set_meta(LINKED_KEY, &lines.join("\n"))?;
        return Ok(Some(done));
    }
    tx.delete_meta(UNLINKED_KEY)?;
    tx.delete_meta(LINKED_KEY)?;
    Ok(None)
}

fn take_container(row: &mut Session, made: &Session) {
    row.sandbox_id.clone_from(&made.sandbox_id);
    row.image_id.clone_from(&made.image_id);
    row.runtime = made.runtime;
}

/// Ends what was being done when the copy was made, and has the times of what runs count from now. Whatever came of an
/// operation has ended long ago: of a start that was under way then, nothing may be taken back now, and nothing deleted.
/// And what was used since then nobody knows: no timeout and no idle time may end it at once.
fn begin_anew(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), StoreError> {
    for session in tx.sessions() {
        let runs = matches!(session.status, Status::Running | Status::Paused);
        if session.operation.is_none() && !runs {
            continue;
        }
        tx.change_session(&session.id, |row| {
            if row.operation.take() == Some(Operation::Start) {
                row.status = Status::Stopped;
            }
            if runs {
                *row = used_now(row.clone(), now);
            }
        })?;
    }
    Ok(())
}

fn sentence(kept: Option<&str>, copy: Option<&str>) -> String {
    let before = match kept {
        Some(path) => format!("the session table was damaged and is kept as {path}"),
        None => "the session table was gone".to_owned(),
    };
    match copy {
        Some(copy) => format!(
            "{before}; its copy {copy} took its place: of what changed since then, only what the engine knows came back"
        ),
        None => format!("{before}; sessions come back from their containers and snapshots"),
    }
}
