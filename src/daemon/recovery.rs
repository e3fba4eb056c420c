//! Bringing the table and the engine back together: at start, after the engine was away, and whenever something may
//! have changed outside abx. Every decision is `model::reconcile`'s, and is logged.

use std::collections::HashMap;
use std::time::Duration;

use super::clock;
use super::driver::{Driver, Held};
use super::failure::Failure;
use super::orphans;
use crate::engine::labels;
use crate::engine::{EngineError, Image, Observed, RunState};
use crate::model::id::{SessionId, SnapshotId};
use crate::model::reconcile::{Change, Recovery, Seen, recover, settle};
use crate::model::session::{
    EngineKind, Operation, Reason, Runtime, Session, Snapshot, SnapshotState, Status,
};
use crate::proto::errors::Kind;

/// Time until rows are compared whose outcome the table could not keep.
const MEND: Duration = Duration::from_secs(1);

/// What the model calls what the engine saw.
pub(super) fn seen(observed: Option<&Observed>) -> Seen {
    match observed.map(|o| (o.state, o.oom_killed)) {
        None => Seen::Gone,
        Some((RunState::Running, _)) => Seen::Running,
        Some((RunState::Paused, _)) => Seen::Paused,
        Some((RunState::Created | RunState::Exited, oom_killed)) => Seen::Stopped { oom_killed },
    }
}

impl Driver {
    /// Compares one row with its container, finishing an operation that was cut off.
    pub(super) async fn settle_held(&self, held: &mut Held) -> Result<(), Failure> {
        if held.session.engine == EngineKind::External {
            return Ok(());
        }
        if held.session.operation.is_some() {
            return self.recover_held(held).await;
        }
        if held.session.status == Status::Unknown {
            return self.judge_imported(held).await;
        }
        let observed = self.observe(&held.session).await?;
        self.apply(held, observed.as_ref(), self.was_away()).await
    }

    async fn apply(
        &self,
        held: &mut Held,
        observed: Option<&Observed>,
        restarted: bool,
    ) -> Result<(), Failure> {
        if let Some(change) = settle(&held.session, seen(observed), restarted) {
            if change.status == Status::Paused
                && held.session.status == Status::Running
                && let Some(frozen) = observed.filter(|_| self.0.late.expects(&held.session.id))
            {
                tracing::info!(session = %held.session.name, "thawing what a save that was given up froze late");
                self.0.engine.unpause(&frozen.id).await?;
                // Not before: where the thaw fails, the next comparison tries it again.
                self.0.late.forget(&held.session.id);
                return Ok(());
            }
            let (from, to) = (held.session.status.as_str(), change.status.as_str());
            tracing::info!(session = %held.session.name, from, to, reason = ?change.reason, "reality differs from the row");
            if held.session.status == Status::Running && change.reason == Some(Reason::Engine) {
                self.owe(&held.session).await?;
            }
            self.set_state(held, change).await?;
        }
        // A container that was taken over from the older tool has no label by which it could be found again.
        if observed.is_none() && held.session.sandbox_id.is_some() && held.session.external.is_none() {
            if let Some(image) = &held.session.image_id
                && let Err(error) = self.0.engine.sweep_image(image).await
            {
                tracing::warn!(%error, image, "an image that nothing needs stays until the next look at all of them");
            }
            self.commit(held, |s| s.sandbox_id = None).await?;
        }
        if let Some(observed) = observed.filter(|o| held.session.sandbox_id.as_ref() != Some(&o.id)) {
            let id = observed.id.clone();
            self.commit(held, move |s| s.sandbox_id = Some(id)).await?;
        }
        // Without its container it is refused while it is elsewhere: what it is made from again is here.
        if observed.is_some() || self.is_elsewhere(&held.session) {
            self.note_here(held).await?;
        }
        if let Some(observed) = observed.filter(|o| o.name != held.session.sandbox) {
            tracing::info!(session = %held.session.name, container = observed.name, "the container has another name");
            self.name_container(held).await;
        }
        Ok(())
    }

    async fn set_state(&self, held: &mut Held, change: Change) -> Result<(), Failure> {
        let now = clock::now();
        if change.status == Status::Running && held.session.status != Status::Running {
            // What rested was idle for long, and begins anew.
            self.0.usage.touch(&held.session.id);
        }
        let is_up = |status| matches!(status, Status::Running | Status::Paused);
        let comes_up = is_up(change.status) && !is_up(held.session.status);
        self.commit(held, move |s| {
            let (ran, runs) = (is_up(s.status), is_up(change.status));
            s.status = change.status;
            s.reason = change.reason;
            s.operation = None;
            match (ran, runs) {
                (_, false) => s.expires_at = None,
                (false, true) => s.expires_at = s.timeout_ms.map(|ms| now.plus_ms(ms)),
                (true, true) => {}
            }
        })
        .await?;
        if comes_up && held.session.runtime == Runtime::Init {
            // Whoever started it did not go by way of this daemon's life, or of this table.
            self.0.guests.expect(&held.session.id);
        }
        Ok(())
    }

    /// Finishes or takes back an operation that was cut off. The row may be gone afterwards.
    pub(super) async fn recover_held(&self, held: &mut Held) -> Result<(), Failure> {
        // Before anything is taken for gone: what is missing here may all be on another engine.
        self.observe(&held.session).await?;
        self.settle_replaced(held).await?;
        if !matches!(held.session.operation, Some(Operation::Delete | Operation::DeleteKeep)) {
            // Before anything runs again: an image that is still being made would be of files that change under it.
            self.settle_snapshots(&held.session.id).await?;
            self.refresh(held);
        }
        let observed = self.observe(&held.session).await?;
        let decision = recover(&held.session, seen(observed.as_ref()));
        tracing::info!(session = %held.session.name, operation = ?held.session.operation, ?decision, "an operation was cut off");
        match decision {
            Recovery::Undo => {
                self.undo_start(held).await?;
                return Err(Failure::no_session(held.session.name.as_str()));
            }
            Recovery::FinishDelete { keep_snapshots } => {
                self.finish_delete(held, keep_snapshots).await?;
                return Err(Failure::no_session(held.session.name.as_str()));
            }
            Recovery::Thaw => {
                if let Some(observed) = &observed {
                    self.0.engine.unpause(&observed.id).await?;
                }
                self.set_state(held, Change { status: Status::Running, reason: None }).await?;
            }
            Recovery::Settle(change) => {
                if held.session.operation == Some(Operation::SaveRunning) && change.status == Status::Running
                {
                    self.0.late.expect(&held.session.id);
                }
                // Only what brought it to running counts its timeout anew.
                let brought = matches!(held.session.operation, Some(Operation::Start | Operation::Resume));
                let running = change.status == Status::Running && brought;
                match observed.as_ref().filter(|_| running) {
                    Some(observed) => self.now_running(held, observed).await?,
                    None => self.set_state(held, change).await?,
                }
            }
        }
        Ok(())
    }

    /// Where going back to a snapshot was cut off there are two containers: the recorded one is the session's, the
    /// other goes. None recorded as existing any more: the one that is left is the session's.
    async fn settle_replaced(&self, held: &mut Held) -> Result<(), Failure> {
        let Some(recorded) = held.session.sandbox_id.clone() else { return Ok(()) };
        let ours = self.containers_of(&held.session).await?;
        if ours.iter().any(|o| o.id == recorded) {
            for extra in ours.iter().filter(|o| o.id != recorded) {
                tracing::info!(session = %held.session.name, container = extra.name, "removing a second container");
                self.0.engine.remove(&extra.id).await?;
            }
        } else if let Some(left) = ours.iter().find(|o| o.state != RunState::Created)
            && self.0.engine.inspect(&recorded).await?.is_none()
        {
            let id = left.id.clone();
            self.commit(held, move |s| s.sandbox_id = Some(id)).await?;
        }
        Ok(())
    }

    /// Finishes snapshots of a session that were being made or deleted when something was cut off.
    async fn settle_snapshots(&self, session: &SessionId) -> Result<(), Failure> {
        let unsettled: Vec<_> = self.0.store.snapshots(Some(session)).into_iter().collect();
        if unsettled.iter().all(|s| s.state == SnapshotState::Ready) {
            return Ok(());
        }
        let images = by_snapshot(self.0.engine.snapshot_images(&self.label()).await?);
        for snapshot in unsettled {
            self.settle_snapshot(&snapshot, images.get(&snapshot.id)).await?;
        }
        Ok(())
    }

    pub(super) async fn settle_snapshot(
        &self,
        snapshot: &Snapshot,
        image: Option<&Image>,
    ) -> Result<(), Failure> {
        match (snapshot.state, image) {
            (SnapshotState::Ready, _) => {}
            (SnapshotState::Deleting, _) => self.remove_snapshot(snapshot).await?,
            (SnapshotState::Creating, Some(image)) => {
                tracing::info!(snapshot = snapshot.name, "the image of a save that was cut off is there");
                let ready = Snapshot {
                    image_id: image.id.clone(),
                    size_bytes: image.size_bytes,
                    own_bytes: labels::own_bytes(image),
                    excluded: labels::excluded(image),
                    state: SnapshotState::Ready,
                    ..snapshot.clone()
                };
                self.0.store.write(move |tx| tx.put_snapshot(&ready)).await?;
            }
            (SnapshotState::Creating, None) => {
                tracing::info!(snapshot = snapshot.name, "dropping a snapshot that was never made");
                let unmade = snapshot.clone();
                self.0.store.write(move |tx| orphans::drop_snapshot(tx, &unmade)).await?;
            }
        }
        Ok(())
    }

    /// After an outcome that the table could not keep: has every row compared with the engine, until it can.
    pub(super) fn mend_later(&self, failure: &Failure) {
        if matches!(failure.kind, Kind::StoreBusy | Kind::StoreFull) {
            let this = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(MEND).await;
                this.0.compare.notify_one();
            });
        }
    }

    /// Compares every row with the engine. `restarted` says that the engine was away since the last comparison.
    ///
    /// # Errors
    /// When the engine stops answering half-way; what was compared by then holds.
    pub async fn compare_all(&self, restarted: bool) -> Result<(), EngineError> {
        self.ask_engine().await?;
        let containers = self.own_containers().await?;
        let images = by_snapshot(self.0.engine.snapshot_images(&self.label()).await?);
        let mut of_session: HashMap<&str, Vec<&Observed>> = HashMap::new();
        for container in &containers {
            if let Some(id) = container.labels.get(labels::SESSION_ID) {
                of_session.entry(id).or_default().push(container);
            }
        }
        self.catch_up(&containers, &images).await?;
        for session in self.sessions() {
            let ours = of_session.get(session.id.as_str()).map_or(&[][..], Vec::as_slice);
            if !self.may_differ(&session, ours, &images) {
                continue;
            }
            // One that has its turn taken is left to the operation that has it: nobody waits for a pull here.
            if let Some(held) = self.try_hold_id(&session.id) {
                self.compare_held(held, restarted).await?;
            }
        }
        for container in &containers {
            self.compare_container(container).await?;
        }
        self.compare_images(&images).await?;
        self.sessions().iter().for_each(|session| self.follow_adopted(session));
        // Rows of containers that are there have been made again by now.
        self.0.guests.sweep();
        Ok(())
    }

    /// Whether a row is worth a look of its own, judged by the listing alone.
    fn may_differ(&self, session: &Session, ours: &[&Observed], images: &HashMap<SnapshotId, Image>) -> bool {
        if session.engine == EngineKind::External {
            return false;
        }
        let recorded = ours.iter().find(|o| Some(&o.id) == session.sandbox_id.as_ref()).copied();
        if recorded.is_none() && self.is_elsewhere(session) {
            return self.stands_in(session).is_some_and(|snapshot| images.contains_key(&snapshot.id));
        }
        let here = self.engine_identity();
        session.operation.is_some()
            || session.status == Status::Unknown
            || ours.len() > 1
            || recorded.is_none() && ours.iter().any(|o| o.state != RunState::Created)
            || recorded.is_none() && session.sandbox_id.is_some() && session.external.is_none()
            || recorded.is_some_and(|o| {
                o.name != session.sandbox || (here.is_some() && session.sandbox_engine != here)
            })
            || settle(session, seen(recorded), false).is_some()
    }

    /// Compares one row, when its turn comes; an operation that runs settles the row itself. Gone rows are fine.
    ///
    /// # Errors
    /// `Unavailable` alone: what is wrong with one session is logged and stops no comparison.
    pub(super) async fn compare_one(&self, id: &SessionId, restarted: bool) -> Result<(), EngineError> {
        match self.hold_id(id).await {
            Some(held) => self.compare_held(held, restarted).await,
            None => Ok(()),
        }
    }

    async fn compare_held(&self, mut held: Held, restarted: bool) -> Result<(), EngineError> {
        let Err(failure) = self.try_compare(&mut held, restarted).await else { return Ok(()) };
        if failure.kind == Kind::EngineUnavailable && self.is_elsewhere(&held.session) {
            tracing::debug!(%failure, session = %held.session.name, "not compared with this engine");
            return Ok(());
        }
        if failure.kind == Kind::EngineUnavailable {
            return Err(EngineError::Unavailable { tried: failure.causes });
        }
        self.mend_later(&failure);
        if failure.kind != Kind::SessionNotFound {
            tracing::warn!(%failure, session = %held.session.name, "cannot compare a session");
        }
        Ok(())
    }

    async fn try_compare(&self, held: &mut Held, restarted: bool) -> Result<(), Failure> {
        if held.session.operation.is_some() || held.session.status == Status::Unknown {
            return self.settle_held(held).await;
        }
        let observed = self.observe(&held.session).await?;
        self.apply(held, observed.as_ref(), restarted).await?;
        self.settle_replaced(held).await
    }
}

fn by_snapshot(images: Vec<Image>) -> HashMap<SnapshotId, Image> {
    let id = |image: &Image| image.labels.get(labels::SNAPSHOT_ID).map(SnapshotId::new);
    images.into_iter().filter_map(|image| Some((id(&image)?, image))).collect()
}
