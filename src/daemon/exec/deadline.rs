//! Commands whose time runs out, also when the daemon that started them is gone: the deadline stands in the row.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::ExecRequest;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::model::exec::{Exec, Verdict};
use crate::model::id::Timestamp;

/// Between two tries to end a command whose sandbox takes no signal now: it is paused, or its engine is away.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// How long after its signals a command may be seen to end; past it, what no signal reaches is left.
const END_LIMIT: Duration = Duration::from_secs(15);

/// When a command's time runs out: no limit, a limit of zero, and one beyond all clocks mean never.
pub fn deadline(limit: Option<Duration>) -> Option<Instant> {
    limit.filter(|limit| !limit.is_zero()).and_then(|limit| Instant::now().checked_add(limit))
}

/// Runs `work` until the deadline; none if it is not done by then.
pub async fn by<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(at) => timeout_at(at, work).await.ok(),
        None => Some(work.await),
    }
}

/// The deadline of a command that runs, by the clock that only goes forward: now, if it has passed.
pub(super) fn remaining(exec: &Exec) -> Option<Instant> {
    let left = exec.deadline?.0.saturating_sub(clock::now().0);
    Instant::now().checked_add(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

impl ExecRequest {
    /// When its time runs out, as the table has it, if it begins now.
    pub(super) fn deadline_at(&self, now: Timestamp) -> Option<Timestamp> {
        let limit = self.timeout.filter(|limit| !limit.is_zero())?;
        i64::try_from(limit.as_millis()).ok().and_then(|ms| now.0.checked_add(ms)).map(Timestamp)
    }
}

impl Driver {
    /// Ends commands of the daemon before this one when their time runs out, and at once where it has. To be called once,
    /// when the sandboxes can be reached.
    pub(in crate::daemon) fn watch_deadlines(&self) {
        for exec in self.execs(None).unwrap_or_default() {
            if exec.ended.is_none() && exec.deadline.is_some() {
                tokio::spawn(self.clone().end_in_time(exec));
            }
        }
    }

    async fn end_in_time(self, exec: Arc<Exec>) {
        let id = exec.id.as_str();
        if by(remaining(&exec), self.0.store.ended(&exec)).await.is_some() {
            return;
        }
        self.judge_exec(id, Verdict::TimedOut).await;
        let mut told = false;
        loop {
            let wait = match self.kill_exec(id, None).await {
                Ok(_) => END_LIMIT,
                Err(failure) if told => {
                    tracing::debug!(%failure, exec = id, "still cannot end a command whose time ran out");
                    TRY_AGAIN
                }
                Err(failure) => {
                    // A sandbox may stay paused for days.
                    told = true;
                    tracing::warn!(%failure, exec = id, "cannot end a command whose time ran out, and tries again");
                    TRY_AGAIN
                }
            };
            if by(deadline(Some(wait)), self.0.store.ended(&exec)).await.is_some() {
                return;
            }
            if wait == END_LIMIT
                && let Some(end) = Verdict::TimedOut.end(clock::now())
            {
                tracing::warn!(exec = id, "a command whose time ran out does not end");
                self.end_exec(id, end).await;
                return;
            }
        }
    }
}
