//! Copies that run. An engine does nothing else about a sandbox while it gives or takes files of it, and how long that
//! takes is up to a client: who has to do something about the sandbox ends them first, and they say why.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::model::id::SessionId;
use crate::model::session::Session;
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;

/// Longest wait until copies that were ended have let go of the sandbox. They need none; past it the operation goes on,
/// and the engine's own deadlines hold.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The copies of each session that has or had some.
#[derive(Debug, Default)]
pub struct Copies(Mutex<HashMap<SessionId, watch::Sender<Option<Failure>>>>);

/// A copy that runs until this is dropped.
#[derive(Debug)]
pub struct Running(watch::Receiver<Option<Failure>>);

impl Copies {
    pub(super) fn begin(&self, id: &SessionId) -> Running {
        Running(self.lock().entry(id.clone()).or_default().subscribe())
    }

    /// Drops what is known of a session that is gone.
    pub(in crate::daemon) fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    async fn end(&self, session: &Session, why: Failure) {
        let Some(copies) = self.lock().remove(&session.id) else { return };
        copies.send_replace(Some(why));
        if timeout(RELEASE_LIMIT, copies.closed()).await.is_err() {
            tracing::warn!(session = %session.name, "copies that were ended have not let go of the sandbox");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<Option<Failure>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Waits until the copy has to end, and gives the reason. Cancel safe.
    pub async fn ended(&mut self) -> Failure {
        let why = self.0.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_else(|| Failure::new(Kind::SessionNotFound, "the session is gone; the copy was ended"))
    }
}

impl Driver {
    /// Waits for this session's turn. Before that its copies end: whoever has the turn may wait for them at the engine.
    pub(in crate::daemon) async fn hold_alone(&self, name: &str, verb: Verb) -> Result<Held, Failure> {
        if let Ok(session) = self.session(name) {
            self.end_copies(&session, verb).await;
        }
        self.hold(name).await
    }

    /// Ends the copies of a session that would hold up what a verb does at the engine.
    pub(in crate::daemon) async fn end_copies(&self, session: &Session, verb: Verb) {
        let Some(becomes) = becomes(verb) else { return };
        if plan(session, verb).is_ok_and(|plan| plan.operation.is_some()) {
            let name = session.name.as_str();
            let text = format!("session '{name}' is being {becomes}; the copy was ended");
            self.0.copies.end(session, Failure::new(Kind::Busy, text).about(name)).await;
        }
    }
}

/// What is done to a session by a verb that copies must not hold up.
fn becomes(verb: Verb) -> Option<&'static str> {
    match verb {
        Verb::Stop => Some("stopped"),
        Verb::Save { .. } | Verb::Fork => Some("saved"),
        Verb::Rollback { .. } => Some("taken back to a snapshot"),
        Verb::Delete { .. } => Some("deleted"),
        Verb::Pause => Some("paused"),
        Verb::Resume | Verb::Unpause | Verb::Exec | Verb::Files => None,
    }
}
