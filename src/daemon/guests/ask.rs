//! Asking abx-init: each request is answered within a limit, or its connection ends.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::link::Opened;
use super::stream::Item;
use super::{Inner, Live};
use crate::engine::{EngineError, Observed, RunState};
use crate::guest::wire::Kind;

/// Longest wait for an answer. abx-init gives each at once, so this is for machines with much to do; past it whatever
/// is at the other end does not serve, and the next request goes over a new connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at whether a sandbox from which nothing comes still runs.
pub(super) const ALIVE_POLL: Duration = Duration::from_secs(1);

/// When a request that is made now must have been answered.
pub(super) fn deadline() -> Instant {
    Instant::now() + ANSWER_LIMIT
}

impl Inner {
    /// What comes next on a stream; none when its connection is lost. Cancel safe.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run or is frozen, so that nothing in it can answer, and the engine's.
    /// `Silent` at the deadline: the connection is ended.
    pub(super) async fn next(
        &self,
        live: &Live,
        open: &Opened,
        deadline: Instant,
    ) -> Result<Option<Item>, EngineError> {
        let next = async {
            loop {
                if let Ok(item) = timeout(ALIVE_POLL, open.next()).await {
                    return Ok(item);
                }
                self.require_running(Some(&live.sandbox.id)).await?;
            }
        };
        timeout_at(deadline, next).await.unwrap_or_else(|_| {
            live.link.close();
            let row = self.store.session_by_id(&live.session);
            let session = row.map_or_else(|| live.session.to_string(), |row| row.name.to_string());
            Err(EngineError::Silent { session, after: ANSWER_LIMIT })
        })
    }

    /// The one answer to a request.
    ///
    /// # Errors
    /// As [`Inner::next`], and when the connection is lost or something else comes.
    pub(super) async fn answer(&self, live: &Live, open: &Opened) -> Result<(Kind, Bytes), EngineError> {
        match self.next(live, open, deadline()).await? {
            Some(Item::Answer(kind, payload)) => Ok((kind, payload)),
            Some(Item::Output(..)) => Err(malformed(open)),
            None => Err(lost()),
        }
    }

    /// The sandbox with this id, which must run.
    ///
    /// # Errors
    /// `Conflict` when it does not, or is frozen.
    pub(super) async fn require_running(&self, sandbox: Option<&str>) -> Result<Observed, EngineError> {
        match self.engine.inspect(sandbox.unwrap_or_default()).await? {
            Some(seen) if seen.state == RunState::Running => Ok(seen),
            other => {
                let text = format!("the sandbox is {}", if other.is_some() { "not running" } else { "gone" });
                Err(EngineError::Conflict { call: "exec", text })
            }
        }
    }
}

pub(super) fn lost() -> EngineError {
    EngineError::Failed { call: "exec", text: "the connection to the sandbox is lost".to_owned() }
}

pub(super) fn malformed(open: &Opened) -> EngineError {
    open.link().refuse();
    EngineError::Failed { call: "exec", text: "abx-init answered something that makes no sense".to_owned() }
}
