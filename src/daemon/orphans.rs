//! Containers and images of ours without a row: a table that was lost is made again from them.

use std::collections::{HashMap, HashSet};

use super::driver::Driver;
use super::rebuild;
use crate::engine::labels;
use crate::engine::{EngineError, Image, Observed};
use crate::model::id::{SessionId, SnapshotId};
use crate::model::session::{Runtime, Session, SnapshotState};

impl Driver {
    /// A container of ours without a row: the table was lost, so the row is made again from the labels. The container
    /// is looked at anew when its turn has come, for a deletion may have been under way.
    pub(super) async fn compare_container(&self, container: &Observed) -> Result<(), EngineError> {
        let Some(id) = container.labels.get(labels::SESSION_ID).map(SessionId::new) else { return Ok(()) };
        // What a user runs from an image of a sandbox has the labels, but not the name.
        if self.0.store.session_by_id(&id).is_some() || !container.name.starts_with("session-") {
            return Ok(());
        }
        let turn = self.turn(&id).await;
        if self.0.store.session_by_id(&id).is_none()
            && let Some(now) = self.0.engine.inspect(&container.id).await?
        {
            self.put_rebuilt(labels::rebuild(&now)).await;
        }
        drop(turn);
        if self.0.store.session_by_id(&id).is_none() {
            self.forget(&id);
        }
        Ok(())
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
        for (id, image) in images.iter().filter(|(id, _)| !known.contains(id)) {
            // In this order: a row is gone only after its tag, so that a tag without a row was not deleted by abx.
            let has_row = self.0.store.snapshots(None).iter().any(|s| s.id == *id);
            if !has_row && self.0.engine.image(&labels::snapshot_reference(id)).await?.is_some() {
                self.put_rebuilt_snapshot(image).await;
            }
        }
        Ok(())
    }

    async fn put_rebuilt(&self, row: Option<Session>) {
        let Some(row) = row else { return };
        tracing::warn!(session = %row.name, "made a row again from its container's labels");
        let connects = (row.runtime == Runtime::Init).then(|| row.id.clone());
        if let Err(error) = self.0.store.write(move |tx| rebuild::insert(tx, row)).await {
            tracing::error!(%error, "cannot keep a row that was made again");
        }
        if let Some(id) = connects {
            self.0.guests.expect(&id);
        }
    }

    async fn put_rebuilt_snapshot(&self, image: &Image) {
        let Some(snapshot) = labels::rebuild_snapshot(image) else { return };
        let owner = labels::rebuild_from_snapshot(image);
        tracing::warn!(snapshot = snapshot.name, "made a snapshot's row again from its image's labels");
        let written = self
            .0
            .store
            .write(move |tx| {
                if let Some(owner) = owner.filter(|o| tx.session(&o.id).is_none()) {
                    rebuild::insert(tx, owner)?;
                }
                rebuild::insert_snapshot(tx, snapshot)
            })
            .await;
        if let Err(error) = written {
            tracing::error!(%error, "cannot keep a snapshot's row that was made again");
        }
    }
}
