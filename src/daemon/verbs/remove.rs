//! Deleting a session.

use std::sync::Arc;

use crate::daemon::agents;
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::daemon::orphans;
use crate::engine::EngineError;
use crate::fault;
use crate::model::session::{EngineKind, Snapshot, SnapshotState};
use crate::model::step::{Verb, plan};
use crate::proto::sessions::DeleteResult;

impl Driver {
    /// Removes container and row, and the snapshots unless they are to be kept.
    ///
    /// # Errors
    /// As documented for `session.delete`. Where the engine goes away half-way, the intent is kept and carried out as
    /// soon as it answers again; where it is away from the start, nothing changes.
    ///
    /// # Cancel safety
    /// The deletion goes on when the caller is dropped.
    pub async fn delete(&self, name: &str, keep_snapshots: bool) -> Result<DeleteResult, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let verb = Verb::Delete { keep_snapshots };
            let mut held = this.hold_alone(&name, verb).await?;
            let doing = format!("cannot delete session '{}'", held.session.name);
            let failed = |failure: Failure| failure.while_doing(doing.clone()).about(&name);
            this.end_copies(&held.session, verb).await;
            this.observe(&held.session).await.map_err(|e| failed(e.into()))?;
            let plan =
                plan(&held.session, verb).map_err(|refusal| Failure::refused(&held.session, refusal))?;
            if let Some(operation) = plan.operation {
                this.intend(&mut held, operation).await?;
            }
            match this.finish_delete(&held, keep_snapshots).await {
                Ok(result) => Ok(result),
                Err(failure) => Err(failed(this.half_deleted(&mut held, failure).await)),
            }
        })
        .await
    }

    /// As [`Driver::delete`]; but of a session whose sandbox is on another engine than the one that answers the rows go,
    /// and what is there stays.
    ///
    /// # Errors
    /// As there, and `invalid_params` where snapshots are to be kept of what may have to be forgotten.
    pub async fn delete_or_forget(&self, name: &str, keep_snapshots: bool) -> Result<DeleteResult, Failure> {
        if keep_snapshots {
            return Err(Failure::params("give forget or keep_snapshots: what is forgotten keeps no row"));
        }
        let (this, wanted) = (self.clone(), name.to_owned());
        let forgotten = self.submit(async move {
            let held = this.hold_alone(&wanted, Verb::Delete { keep_snapshots }).await?;
            match this.observe(&held.session).await {
                Err(EngineError::Elsewhere { .. }) => this.forget_rows(&held).await.map(Some),
                _ => Ok(None),
            }
        });
        match forgotten.await? {
            Some(forgotten) => Ok(forgotten),
            None => self.delete(name, keep_snapshots).await,
        }
    }

    /// Carries a committed deletion to its end.
    pub(in crate::daemon) async fn finish_delete(
        &self,
        held: &Held,
        keep_snapshots: bool,
    ) -> Result<DeleteResult, Failure> {
        fault::point("delete.before").await;
        if held.session.engine != EngineKind::External {
            self.remove_containers(held).await?;
        }
        fault::point("delete.container").await;
        let mut removed = Vec::new();
        for snapshot in self.0.store.snapshots(Some(&held.session.id)) {
            if keep_snapshots && snapshot.state == SnapshotState::Ready {
                continue;
            }
            self.remove_snapshot(&snapshot).await?;
            if snapshot.state != SnapshotState::Creating {
                removed.push(snapshot.name.clone());
            }
        }
        fault::point("delete.snapshots").await;
        self.forget_adopted(&held.session.id);
        self.drop_session(held, Vec::new()).await?;
        fault::point("delete.after").await;
        removed.reverse();
        Ok(DeleteResult { deleted: held.session.name.to_string(), snapshots: removed })
    }

    /// Removes a session's rows, and nothing that an engine has; nor the record of a container that was taken over, without
    /// which it would not come back with its engine.
    async fn forget_rows(&self, held: &Held) -> Result<DeleteResult, Failure> {
        let mut snapshots = self.0.store.snapshots(Some(&held.session.id));
        snapshots.reverse();
        let names = snapshots.iter().map(|snapshot| snapshot.name.clone()).collect();
        tracing::info!(session = %held.session.name, "forgetting a session of another engine");
        self.drop_session(held, snapshots).await?;
        Ok(DeleteResult { deleted: held.session.name.to_string(), snapshots: names })
    }

    /// Removes a session's row, and those of these snapshots.
    async fn drop_session(&self, held: &Held, snapshots: Vec<Arc<Snapshot>>) -> Result<(), Failure> {
        let (gone, key) = (held.session.id.clone(), crate::daemon::effects::base_key(&held.session));
        self.0
            .store
            .write(move |tx| {
                snapshots.iter().try_for_each(|snapshot| orphans::drop_snapshot(tx, snapshot))?;
                tx.delete_meta(&key)?;
                agents::forget(tx, gone.as_str())?;
                tx.delete_session(&gone)
            })
            .await?;
        self.forget(&held.session.id);
        Ok(())
    }

    /// The recorded container, and any other that carries the session's label.
    async fn remove_containers(&self, held: &Held) -> Result<(), Failure> {
        if let Some(id) = &held.session.sandbox_id {
            self.0.engine.remove(id).await?;
        }
        for seen in self.containers_of(&held.session).await? {
            self.0.engine.remove(&seen.id).await?;
        }
        Ok(())
    }

    /// After a deletion that failed: if the container is still there, the session is as it was; otherwise the deletion
    /// is carried on later, and the caller is told.
    async fn half_deleted(&self, held: &mut Held, mut failure: Failure) -> Failure {
        if let Ok(Some(_)) = self.observe(&held.session).await {
            if let Err(error) = self.commit(held, |s| s.operation = None).await {
                tracing::error!(%error, "cannot take back the intent to delete");
            }
            return failure;
        }
        self.0.compare.notify_one();
        failure.causes.push("the deletion is carried on as soon as that is mended".to_owned());
        failure
    }
}
