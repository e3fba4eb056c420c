//! What is being used right now: the execs that run, and when each session was last used by the monotonic clock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model::id::SessionId;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Usage(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<HashMap<SessionId, Entry>>,
    /// Sessions that came up in this daemon's life, so that nothing runs in them that it does not know of.
    followed: Mutex<HashSet<SessionId>>,
    idle: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    running: usize,
    last_used: Instant,
}

/// Marks a session as used until it is dropped.
#[derive(Debug)]
pub struct InUse {
    usage: Usage,
    id: SessionId,
}

impl Usage {
    /// Begins a use.
    pub fn begin(&self, id: &SessionId) -> InUse {
        let mut map = self.lock();
        let entry = map.entry(id.clone()).or_insert(Entry { running: 0, last_used: Instant::now() });
        entry.running += 1;
        entry.last_used = Instant::now();
        InUse { usage: self.clone(), id: id.clone() }
    }

    /// Notes a use that is over at once, such as a byte of output or a connect.
    pub fn touch(&self, id: &SessionId) {
        let now = Instant::now();
        self.lock().entry(id.clone()).or_insert(Entry { running: 0, last_used: now }).last_used = now;
    }

    /// Since when the session is idle; none while something runs in it. A session that was not used in this daemon's
    /// life is idle for `unused`, as the wall clock and the table say, the first time it is asked for.
    pub fn idle_since(&self, id: &SessionId, unused: Duration) -> Option<Instant> {
        let mut map = self.lock();
        let entry = map.entry(id.clone()).or_insert_with(|| {
            let now = Instant::now();
            Entry { running: 0, last_used: now.checked_sub(unused).unwrap_or(now) }
        });
        (entry.running == 0).then_some(entry.last_used)
    }

    /// Notes that a session's sandbox came up just now.
    pub fn came_up(&self, id: &SessionId) {
        self.touch(id);
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    }

    /// Whether everything that runs in a session was started in this daemon's life.
    pub fn is_followed(&self, id: &SessionId) -> bool {
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Waits until some session's last use has ended. One waiter; an end while nobody waits is kept. Cancel safe.
    pub async fn became_idle(&self) {
        self.0.idle.notified().await;
    }

    /// Drops what is known of a session that is gone.
    pub fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(entry) = self.usage.lock().get_mut(&self.id) {
            entry.running = entry.running.saturating_sub(1);
            entry.last_used = Instant::now();
            if entry.running == 0 {
                self.usage.0.idle.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_is_idle_only_after_its_last_exec_ended() {
        let usage = Usage::default();
        let id = SessionId::new("a");
        let (one, two) = (usage.begin(&id), usage.begin(&id));
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        drop(one);
        assert_eq!(usage.idle_since(&id, Duration::ZERO), None);
        drop(two);
        assert_eq!(usage.idle_since(&id, Duration::ZERO), Some(Instant::now()));
    }
}
