//! Stopping sessions whose timeout or idle time ran out. Never destroys, and never shortens by being looked at.
//!
//! Deadlines stand in the table by the wall clock, so that they survive a restart; each is also followed by the
//! monotonic clock, so that a clock set back does not extend it for ever.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clock;
use super::driver::{DEFAULT_GRACE, Driver};
use crate::model::id::{SessionId, Timestamp};
use crate::model::session::{EngineKind, Reason, Session, Status};

/// Longest sleep while any deadline is set: a wall clock that jumps is noticed within this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Time after which a stop that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What is known of a timeout beside the row: the wall-clock value it was seen with, and when it is due by the
/// monotonic clock.
type Known = HashMap<SessionId, (Timestamp, Instant)>;

/// Watches deadlines for ever.
pub(super) async fn run(driver: Driver) {
    let mut known = Known::new();
    let mut retry: HashMap<SessionId, Instant> = HashMap::new();
    loop {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let sessions = driver.sessions();
        if known.len() > sessions.len() {
            let there: HashSet<&SessionId> = sessions.iter().map(|s| &s.id).collect();
            known.retain(|id, _| there.contains(id));
        }
        retry.retain(|_, at| *at > now);
        for session in &sessions {
            let Some((due, reason)) = deadline(&driver, session, &mut known) else { continue };
            let due = retry.get(&session.id).map_or(due, |at| due.max(*at));
            let over = due <= now && (reason == Reason::Timeout || driver.is_idle(session));
            if over {
                retry.insert(session.id.clone(), now + RETRY);
                stop_overdue(&driver, session, reason);
            } else {
                next = Some(next.map_or(due, |n| n.min(due)));
            }
        }
        let retry_at = retry.values().min().copied();
        let next = [next, retry_at].into_iter().flatten().min();
        tokio::select! {
            () = driver.0.deadlines.notified() => {}
            () = driver.0.usage.became_idle() => {}
            () = sleep_until(next) => {}
        }
    }
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(at) => sleep(at.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP)).await,
        None => std::future::pending().await,
    }
}

/// When there is something to do about a session, by the monotonic clock, and why.
fn deadline(driver: &Driver, session: &Arc<Session>, known: &mut Known) -> Option<(Instant, Reason)> {
    let runs = matches!(session.status, Status::Running | Status::Paused);
    // What is on another engine cannot be stopped on this one, and comes back as it was.
    if session.engine == EngineKind::External
        || !runs
        || session.operation.is_some()
        || driver.is_away(session)
    {
        return None;
    }
    let timeout = session.expires_at.map(|at| (timeout_due(session, at, known), Reason::Timeout));
    let idle = driver.tend(session).map(|at| (at, Reason::Idle));
    [timeout, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
}

/// When a timeout is due. A row from before a clock was set back does not say more than the timeout is long.
fn timeout_due(session: &Session, at: Timestamp, known: &mut Known) -> Instant {
    let left = u64::try_from(at.0.saturating_sub(clock::now().0)).unwrap_or(0);
    let left = left.min(session.timeout_ms.unwrap_or(left));
    let by_wall = Instant::now() + Duration::from_millis(left);
    let entry = known.entry(session.id.clone()).or_insert((at, by_wall));
    if entry.0 != at {
        *entry = (at, by_wall);
    }
    by_wall.min(entry.1)
}

/// Stops an overdue session, unless it was used or stopped by the time its turn comes.
fn stop_overdue(driver: &Driver, session: &Session, reason: Reason) {
    let (driver, id, deadline) = (driver.clone(), session.id.clone(), session.expires_at);
    tokio::spawn(async move {
        let this = driver.clone();
        let stopped = driver
            .submit(async move {
                let Some(mut held) = this.hold_id(&id).await else { return Ok(()) };
                let still = match reason {
                    Reason::Idle => this.is_idle(&held.session),
                    _ => held.session.expires_at == deadline,
                };
                if !still || held.session.operation.is_some() || this.is_away(&held.session) {
                    return Ok(());
                }
                tracing::info!(session = %held.session.name, reason = reason.as_str(), "a session is overdue");
                match reason {
                    Reason::Idle => this.put_to_rest(&mut held).await,
                    _ => this.stop_held(&mut held, DEFAULT_GRACE, reason).await,
                }
            })
            .await;
        if let Err(error) = stopped {
            tracing::warn!(%error, "cannot stop an overdue session; trying again");
        }
    });
}
