//! Containers and images of ours that no row explains.
//!
//! There are two reasons for one. The table was lost: it is made again from them. Or the engine was still making it
//! when the operation was given up, because the daemon died or the answer came too late: nobody was told of it, and it is
//! removed.

use std::collections::{HashMap, HashSet};

use super::agents;
use super::clock;
use super::driver::Driver;
use super::rebuild::{self, Source};
use crate::engine::labels;
use crate::engine::{EngineError, Image, Observed, RunState};
use crate::model::id::{SessionId, SnapshotId};
use crate::model::session::{Reason, Runtime, Session, Snapshot, SnapshotState, Status};
use crate::store::Tx;
use crate::store::error::StoreError;

/// The key under which the store keeps the ids of snapshots that were given up, the latest last.
const GIVEN_UP_KEY: &str = "snapshots.given_up";

/// Most of them that are remembered: there is one for each save that was cut off, and its image comes within minutes or
/// never.
const MAX_GIVEN_UP: usize = 64;

/// Drops a snapshot's row, and what is kept beside it. The image of one that was never ready may still come.
///
/// # Errors
/// The store's.
pub(super) fn drop_snapshot(tx: &mut Tx<'_>, snapshot: &Snapshot) -> Result<(), StoreError> {
    if snapshot.state != SnapshotState::Ready {
        let known = tx.meta(GIVEN_UP_KEY).unwrap_or_default();
        let mut ids: Vec<&str> = known.split_whitespace().chain([snapshot.id.as_str()]).collect();
        ids.drain(..ids.len().saturating_sub(MAX_GIVEN_UP));
        tx.set_meta(GIVEN_UP_KEY, &ids.join(" "))?;
    }
    agents::forget(tx, snapshot.id.as_str())?;
    tx.delete_snapshot(&snapshot.id)
}

fn was_given_up(tx: &Tx<'_>, snapshot: &SnapshotId) -> bool {
    tx.meta(GIVEN_UP_KEY).is_some_and(|ids| ids.split_whitespace().any(|id| id == snapshot.as_str()))
}

impl Driver {
    /// Looks at a container of ours that no row has recorded. One that was never started was made for an operation that
    /// was given up before the engine was done with it, and goes. Of one that ran the table was lost, and its row is made
    /// again from the labels. The container is looked at anew when its turn has come, for a deletion may have been under
    /// way.
    pub(super) async fn compare_container(&self, container: &Observed) -> Result<(), EngineError> {
        let Some(id) = container.labels.get(labels::SESSION_ID).map(SessionId::new) else { return Ok(()) };
        if !self.is_sandbox(container) || self.is_explained(&id, container) {
            return Ok(());
        }
        let turn = match self.0.store.session_by_id(&id) {
            // What runs an operation looks for itself.
            Some(_) => self.try_turn(&id),
            None => Some(self.turn(&id).await),
        };
        let Some(turn) = turn else { return Ok(()) };
        if !self.is_explained(&id, container)
            && let Some(now) = self.look_at(&container.id).await?
        {
            match (now.state, self.0.store.session_by_id(&id)) {
                // What was taken over is somebody's, also where it never ran.
                (RunState::Created, _) if !self.is_adopted(&now) => self.remove_unstarted(&now).await?,
                (_, None) => self.put_rebuilt(&now).await,
                (_, Some(_)) => {}
            }
        }
        drop(turn);
        if self.0.store.session_by_id(&id).is_none() {
            self.forget(&id);
        }
        Ok(())
    }

    /// Compares a container that was just made, if it is of this home.
    pub(super) async fn compare_made(&self, sandbox_id: &str) -> Result<(), EngineError> {
        match self.0.engine.inspect(sandbox_id).await? {
            Some(made) if made.labels.get(labels::SESSION_HOME) == Some(&self.label()) => {
                self.compare_container(&made).await
            }
            _ => Ok(()),
        }
    }

    /// Whether a row says why the container is there: it is the session's, or is about to be.
    fn is_explained(&self, id: &SessionId, container: &Observed) -> bool {
        self.0.store.session_by_id(id).is_some_and(|row| {
            container.state != RunState::Created
                || row.operation.is_some()
                || row.sandbox_id.as_ref() == Some(&container.id)
        })
    }

    async fn remove_unstarted(&self, container: &Observed) -> Result<(), EngineError> {
        tracing::info!(container = container.name, "removing a container that was never started");
        match self.0.engine.remove(&container.id).await {
            Err(error) if !matches!(error, EngineError::Unavailable { .. }) => {
                tracing::warn!(%error, container = container.name, "it stays until the next comparison");
                Ok(())
            }
            removed => removed,
        }
    }

    /// Images of snapshots without a row, and snapshots that were being made or deleted.
    pub(super) async fn compare_images(
        &self,
        images: &HashMap<SnapshotId, Image>,
    ) -> Result<(), EngineError> {
        let rows = self.0.store.snapshots(None);
        let known: HashSet<&SnapshotId> = rows.iter().map(|s| &s.id).collect();
        for snapshot in rows.iter().filter(|s| s.state != SnapshotState::Ready) {
            // A session's own unsettled snapshots are settled with it, when its turn comes.
            let busy = snapshot.session.as_ref().and_then(|id| self.0.store.session_by_id(id));
            if busy.is_none_or(|s| s.operation.is_none() && snapshot.state == SnapshotState::Deleting)
                && let Err(error) = self.settle_snapshot(snapshot, images.get(&snapshot.id)).await
            {
                tracing::warn!(%error, snapshot = snapshot.name, "cannot settle a snapshot");
            }
        }
        for row in rows.iter().filter(|row| row.state == SnapshotState::Ready) {
            let Some(image) = images.get(&row.id) else { continue };
            self.0.deep.add(&row.id, image.layers.len());
            if row.image_id != image.id
                && let Err(error) = self.follow_name(&row.id).await
            {
                tracing::warn!(%error, snapshot = row.name, "a snapshot's row does not know its image");
            }
        }
        let mut unknown: Vec<_> = images.iter().filter(|(id, _)| !known.contains(id)).collect();
        // By the time at which they were taken: what a session was saved to last is what counts.
        unknown.sort_by_key(|(id, _)| *id);
        for (id, image) in unknown {
            // In this order: a row is gone only after its tag, so that a tag without a row was not deleted by abx.
            let has_row = self.0.store.snapshots(None).iter().any(|s| s.id == *id);
            if !has_row && self.0.engine.image(&labels::snapshot_reference(id)).await?.is_some() {
                self.explain_image(id, image).await?;
            }
        }
        Ok(())
    }

    /// Removes the image of a snapshot that was given up; of any other the table was lost.
    async fn explain_image(&self, id: &SnapshotId, image: &Image) -> Result<(), EngineError> {
        let given_up = id.clone();
        match self.0.store.write(move |tx| Ok(was_given_up(tx, &given_up))).await {
            Ok(true) => {}
            Ok(false) => {
                self.put_rebuilt_snapshot(image).await;
                return self.save_again(id, image).await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot tell whether a snapshot was given up");
                return Ok(());
            }
        }
        tracing::info!(snapshot = %id, "removing the image of a save that was given up");
        self.0.engine.remove_snapshot(id).await
    }

    async fn put_rebuilt(&self, container: &Observed) {
        let Some(row) = self.row_again(container) else { return };
        let row = Session { sandbox_engine: self.engine_identity(), ..rebuild::used_now(row, clock::now()) };
        tracing::warn!(session = %row.name, "made a row again from its container's labels");
        let connects = (row.runtime == Runtime::Init).then(|| row.id.clone());
        match self.0.store.write(move |tx| rebuild::insert(tx, row, Source::Container)).await {
            Ok(name) => self.0.rebuilt.add(name, Source::Container),
            Err(error) => tracing::error!(%error, "cannot keep a row that was made again"),
        }
        if let Some(id) = connects {
            self.0.guests.expect(&id);
        }
    }

    /// A session whose container has not run since it was saved to this snapshot is saved to it still.
    async fn save_again(&self, id: &SnapshotId, image: &Image) -> Result<(), EngineError> {
        let Some(ended_at) = labels::ended_at(image) else { return Ok(()) };
        let rows = self.0.store.snapshots(None);
        let Some(snapshot) = rows.iter().find(|row| row.id == *id) else { return Ok(()) };
        let Some(mut held) = snapshot.session.as_ref().and_then(|owner| self.try_hold_id(owner)) else {
            return Ok(());
        };
        let rests = matches!(held.session.status, Status::Stopped | Status::Saved);
        if !rests || held.session.operation.is_some() {
            return Ok(());
        }
        let seen = self.observe(&held.session).await?;
        if seen.and_then(|seen| seen.finished_at_ms) != Some(ended_at) {
            return Ok(());
        }
        let saved = self.commit(&mut held, |s| {
            s.status = Status::Saved;
            s.reason = s.reason.or(Some(Reason::User));
        });
        let kept = match saved.await {
            Ok(()) => self.remember_base(&held.session, &snapshot.name).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = kept {
            tracing::error!(%failure, session = %held.session.name, "cannot keep that a session is saved");
        }
        Ok(())
    }

    async fn put_rebuilt_snapshot(&self, image: &Image) {
        let Some(snapshot) = labels::rebuild_snapshot(image) else { return };
        let owner = labels::rebuild_from_snapshot(image);
        tracing::warn!(snapshot = snapshot.name, "made a snapshot's row again from its image's labels");
        let written = self
            .0
            .store
            .write(move |tx| {
                let owner = owner.filter(|owner| tx.session(&owner.id).is_none());
                let name = owner.map(|owner| rebuild::insert(tx, owner, Source::Snapshot)).transpose()?;
                rebuild::insert_snapshot(tx, snapshot)?;
                Ok(name)
            })
            .await;
        match written {
            Ok(Some(name)) => self.0.rebuilt.add(name, Source::Snapshot),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "cannot keep a snapshot's row that was made again"),
        }
    }
}
