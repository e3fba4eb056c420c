//! Turns: at most one operation is at a session at a time.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::driver::{Driver, Held};
use super::failure::Failure;
use crate::model::id::SessionId;

impl Driver {
    /// Waits for this session's turn.
    pub(super) async fn hold(&self, name: &str) -> Result<Held, Failure> {
        let id = self.session(name)?.id.clone();
        self.hold_id(&id).await.ok_or_else(|| Failure::no_session(name))
    }

    /// Waits for this session's turn; none if it is deleted by then.
    pub(super) async fn hold_id(&self, id: &SessionId) -> Option<Held> {
        let turn = self.turn(id).await;
        let session = self.0.store.session_by_id(id);
        if session.is_none() {
            self.forget(id);
        }
        Some(Held::new(session?, turn))
    }

    /// As [`Driver::hold_id`], but none where an operation has the turn: that one settles the row itself.
    pub(super) fn try_hold_id(&self, id: &SessionId) -> Option<Held> {
        let turn = self.try_turn(id)?;
        let session = self.0.store.session_by_id(id);
        if session.is_none() {
            self.forget(id);
        }
        Some(Held::new(session?, turn))
    }

    /// Takes the turn of an id, whether or not it has a row.
    pub(super) async fn turn(&self, id: &SessionId) -> OwnedMutexGuard<()> {
        let queue = self.queues().entry(id.clone()).or_default().clone();
        queue.lock_owned().await
    }

    /// As [`Driver::turn`], but none where an operation has it.
    pub(super) fn try_turn(&self, id: &SessionId) -> Option<OwnedMutexGuard<()>> {
        let queue = self.queues().entry(id.clone()).or_default().clone();
        queue.try_lock_owned().ok()
    }

    /// Drops the queue of an id that has no row any more.
    pub(super) fn forget(&self, id: &SessionId) {
        self.queues().remove(id);
        self.0.usage.forget(id);
        self.0.copies.forget(id);
        self.0.guests.remove(id);
        self.0.late.forget(id);
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<AsyncMutex<()>>>> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
