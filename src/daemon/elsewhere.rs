//! Sessions whose sandboxes are on another engine than the one that answers.
//!
//! An engine has an id of its own, and each row remembers on which its sandbox was last seen. What the engine that answers
//! does not have is gone only if it was there: else its engine is away, as if nobody answered. So a home that is pointed to
//! another engine loses nothing, and one that is pointed back has everything as it was.

use std::sync::Arc;

use super::driver::{Driver, Held};
use super::engine_state::place_key;
use super::failure::quoted;
use crate::engine::labels;
use crate::engine::{About, EngineError};
use crate::model::session::{Session, Snapshot, Status};

impl Driver {
    /// Whether a session's sandbox was last seen on another engine than the one that answered last.
    pub(super) fn is_elsewhere(&self, session: &Session) -> bool {
        let ours = self.engine_identity();
        matches!((&session.sandbox_engine, &ours), (Some(theirs), Some(ours)) if theirs != ours)
    }

    /// As [`Driver::is_elsewhere`], or that is not known: no engine has answered yet.
    pub(super) fn is_away(&self, session: &Session) -> bool {
        let unknown = || session.sandbox_engine.is_some() && self.engine_state().about.is_none();
        self.is_elsewhere(session) || unknown()
    }

    /// Refuses a session of which the engine that answers has nothing, if its sandbox was last seen on another. All that a
    /// session is made from again is something.
    ///
    /// # Errors
    /// `Elsewhere`, and those of asking the engine.
    pub(super) async fn require_here(&self, session: &Session) -> Result<(), EngineError> {
        match self.require_own_engine(session).await {
            Err(elsewhere @ EngineError::Elsewhere { .. }) => match self.stands_in(session) {
                Some(snapshot) if self.has_snapshot(&snapshot).await? => Ok(()),
                _ => Err(elsewhere),
            },
            own => own,
        }
    }

    /// Refuses a session whose sandbox was last seen on another engine than the one that answers.
    async fn require_own_engine(&self, session: &Session) -> Result<(), EngineError> {
        let Some(theirs) = session.sandbox_engine.clone() else { return Ok(()) };
        // Asked now: what was known of it may be of the one before.
        let About { identity, address, .. } = self.ask_engine().await?;
        if identity.is_none_or(|ours| ours == theirs) {
            return Ok(());
        }
        let key = place_key(&theirs);
        let place = self.0.store.write(move |tx| Ok(tx.meta(&key))).await.ok().flatten();
        Err(EngineError::Elsewhere { session: session.name.to_string(), theirs, place, address })
    }

    /// As [`Driver::require_here`], for a snapshot that is to go: what another engine has of it would come back with that
    /// engine.
    pub(super) async fn require_snapshot_here(&self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let owner = snapshot.session.as_ref().and_then(|id| self.0.store.session_by_id(id));
        match owner.filter(|owner| owner.sandbox_engine.is_some()) {
            Some(owner) if !self.has_snapshot(snapshot).await? => self.require_own_engine(&owner).await,
            _ => Ok(()),
        }
    }

    /// The snapshot that a session is made from again, where its container has nothing that is newer.
    pub(super) fn stands_in(&self, session: &Session) -> Option<Arc<Snapshot>> {
        let nothing_newer = session.sandbox_id.is_none() || session.status == Status::Saved;
        self.newest_snapshot(session).filter(|_| nothing_newer)
    }

    async fn has_snapshot(&self, snapshot: &Snapshot) -> Result<bool, EngineError> {
        Ok(self.0.engine.image(&labels::snapshot_reference(&snapshot.id)).await?.is_some())
    }

    /// Takes over that the engine that answers has the session's sandbox, or all that it is made from again.
    pub(super) async fn note_here(&self, held: &mut Held) -> Result<(), super::failure::Failure> {
        match self.engine_identity() {
            Some(ours) if held.session.sandbox_engine.as_ref() != Some(&ours) => {
                self.commit(held, move |s| s.sandbox_engine = Some(ours)).await
            }
            _ => Ok(()),
        }
    }

    /// What the user should know of sessions that cannot be reached so, in a sentence.
    pub(super) fn elsewhere_notice(&self) -> Option<String> {
        let about = self.engine_state().about?;
        let all = self.sessions();
        let mut away = all.iter().filter(|session| self.is_elsewhere(session));
        let first = away.next()?;
        let count = 1 + away.count();
        let (name, address) = (quoted(first.name.as_str()), about.address);
        Some(format!(
            "{count} of the sessions ({name}{}) have their sandboxes on another engine than the one at {address}, and stay as \
             they are until abx uses that one again (engine.address, DOCKER_HOST)",
            if count > 1 { ", ..." } else { "" }
        ))
    }
}
