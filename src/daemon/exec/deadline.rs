//! Commands whose time runs out, and those that are owed their end, also when the daemon that started them is gone:
//! deadline and verdict stand in the row.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::ExecRequest;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::model::exec::{End, Exec, Verdict};
use crate::model::id::{SessionId, Timestamp};
use crate::model::step::is_frozen;

/// Between two tries to end a command whose sandbox takes no signal now: it is paused, or its engine is away.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(5);

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
    let deadline = exec.deadline?.0;
    // A row from before the clock was set back does not say more than the time is long.
    let whole = deadline.saturating_sub(exec.started_at.0);
    let left = deadline.saturating_sub(clock::now().0).min(whole);
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
    /// Ends commands of the daemon before this one that are owed their end, and others when their time runs out: at once
    /// where it has. To be called once, when the sandboxes can be reached.
    pub(in crate::daemon) fn watch_deadlines(&self) {
        for exec in self.execs(None).unwrap_or_default() {
            if exec.is_owed_its_end() {
                tokio::spawn(self.clone().end_owed(exec));
            } else if exec.ended.is_none() && exec.deadline.is_some() {
                tokio::spawn(self.clone().end_in_time(exec));
            }
        }
    }

    async fn end_in_time(self, exec: Arc<Exec>) {
        if by(remaining(&exec), self.0.store.ended(&exec)).await.is_none() {
            self.judge_exec(exec.id.as_str(), Verdict::TimedOut).await;
            self.end_owed(exec).await;
        }
    }

    /// Ends a command on which a verdict was passed, as soon as its sandbox takes signals, and notes its end.
    pub(super) async fn end_owed(self, exec: Arc<Exec>) {
        let (id, session) = (exec.id.as_str(), &exec.session);
        let mut told = false;
        loop {
            let thawed = self.0.thawed.notified();
            tokio::pin!(thawed);
            // Before the try: a thaw in between is not missed.
            thawed.as_mut().enable();
            let tried = self.kill_exec(id, None).await;
            if let Err(failure) = &tried
                && !std::mem::replace(&mut told, true)
            {
                // A sandbox may stay paused for days.
                tracing::info!(%failure, exec = id, "cannot end a command now, and tries again");
            }
            let wait = if tried.is_ok() { END_LIMIT } else { TRY_AGAIN };
            tokio::select! {
                _ = self.0.store.ended(&exec) => return,
                () = thawed.as_mut(), if tried.is_err() => continue,
                () = sleep(wait) => {}
            }
            if tried.is_ok() && !self.is_frozen(session) {
                tracing::warn!(exec = id, "a command that was ended does not end");
                // The verdict counts more.
                self.end_exec(id, End::unseen(clock::now())).await;
                return;
            }
        }
    }

    /// Whether nothing in a session's sandbox takes a signal: it is frozen, or may be any moment.
    pub(super) fn is_frozen(&self, session: &SessionId) -> bool {
        self.0.store.session_by_id(session).is_some_and(|session| is_frozen(&session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::set_clock;
    use crate::model::id::ExecId;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_gives_no_command_of_before_more_time_than_it_had() {
        const DAY_MS: i64 = 24 * 3_600_000;
        let began = clock::now();
        let exec = Exec {
            id: ExecId::new("x"),
            session: SessionId::new("a"),
            key: None,
            argv: vec!["sleep".to_owned()],
            terminal: None,
            tty: false,
            detached: true,
            started_at: began,
            deadline: Some(began.plus_ms(60_000)),
            verdict: None,
            ended: None,
        };
        let left = |ahead| {
            set_clock(ahead);
            remaining(&exec).expect("it has a deadline").saturating_duration_since(Instant::now())
        };
        assert_eq!(left(-DAY_MS), Duration::from_secs(60));
        assert_eq!(left(DAY_MS), Duration::ZERO);
    }
}
