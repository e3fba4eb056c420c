//! Waiting for a session to be as somebody wants it, without looking again and again.

use std::sync::Arc;
use std::time::Duration;

use super::driver::Driver;
use super::exec::{by, deadline};
use super::failure::Failure;
use crate::model::id::SessionId;
use crate::model::session::Session;
use crate::model::until::Until;
use crate::proto::errors::Kind;
use crate::proto::terminals::MAIN_TERMINAL;

/// What came of waiting.
#[derive(Debug)]
pub struct Waited {
    /// Whether it is so.
    pub reached: bool,
    /// The row as it was then; none when it is deleted.
    pub session: Option<Arc<Session>>,
}

impl Driver {
    /// Waits until a session is so, or for `limit`. It is followed through its names.
    ///
    /// # Errors
    /// `session_not_found`, also when it is deleted meanwhile and something else was waited for.
    ///
    /// # Cancel safety
    /// Nothing but the waiting is lost.
    pub async fn wait_session(
        &self,
        name: &str,
        until: Until,
        limit: Option<Duration>,
    ) -> Result<Waited, Failure> {
        let id = self.session(name)?.id.clone();
        match by(deadline(limit), self.seen(&id, until)).await {
            Some(seen) => seen.map_err(|failure| failure.unwrap_or_else(|| Failure::no_session(name))),
            None => Ok(Waited { reached: false, session: self.0.store.session_by_id(&id) }),
        }
    }

    /// Whether a command runs on the terminal that agents run in. Those that run are never forgotten.
    fn runs_on_main(&self, id: &SessionId) -> bool {
        let all = self.0.store.execs(id);
        all.iter().any(|exec| exec.ended.is_none() && exec.terminal.as_deref() == Some(MAIN_TERMINAL))
    }

    /// # Errors
    /// None when it is deleted and that was not waited for.
    async fn seen(&self, id: &SessionId, until: Until) -> Result<Waited, Option<Failure>> {
        // Before the first look: a change in between is not missed.
        let mut news = self.0.store.news();
        loop {
            let session = self.0.store.session_by_id(id);
            if until.holds(session.as_deref(), || self.runs_on_main(id)) {
                return Ok(Waited { reached: true, session });
            }
            if session.is_none() {
                return Err(None);
            }
            if news.changed().await.is_err() {
                return Err(Some(Failure::new(Kind::ShuttingDown, "abxd is stopping")));
            }
        }
    }
}
