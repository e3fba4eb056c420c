//! What is being used right now: commands and clients, when each session was last used by the monotonic clock, and what
//! looks at its sandbox found since.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model::id::SessionId;
use crate::model::idle::{Busy, Countdown, is_at_work};

/// How long after a terminal wrote something it is said to be at it.
const WRITING: Duration = Duration::from_secs(5);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Usage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    entries: Mutex<HashMap<SessionId, Entry>>,
    /// Sessions that came up in this daemon's life, so that nothing runs in them that it does not know of.
    followed: Mutex<HashSet<SessionId>>,
    idle: Notify,
    /// From when on the times of countdowns are counted: far enough back for all that was last used before.
    origin: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    execs: usize,
    clients: usize,
    last_used: Instant,
    wrote: Option<Instant>,
    looked: Option<Looked>,
    /// What the last look found to be at work.
    at_work: Option<Busy>,
    warned: bool,
}

/// A look at a sandbox.
#[derive(Debug, Clone, Copy)]
struct Looked {
    at: Instant,
    /// None where the engine does not tell.
    cpu: Option<Duration>,
    quiet: bool,
}

/// What a look at a sandbox found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Whether a command runs that nobody here has begun.
    pub works: bool,
    /// CPU time that it has used; none where that cannot be told.
    pub cpu: Option<Duration>,
}

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Why it is not idle; empty when it is.
    pub busy: Vec<Busy>,
    /// Since when nothing was used; none while something is.
    pub since: Option<Instant>,
}

/// Marks a session as used until it is dropped.
#[derive(Debug)]
pub struct InUse {
    usage: Usage,
    id: SessionId,
    by: Busy,
}

impl Default for Usage {
    fn default() -> Self {
        let now = Instant::now();
        // A machine that came up a moment ago has no time before that: whatever was used before then counts from then.
        let origin = (0..=40).rev().find_map(|n| now.checked_sub(Duration::from_secs(1 << n))).unwrap_or(now);
        Self(Arc::new(Shared {
            entries: Mutex::default(),
            followed: Mutex::default(),
            idle: Notify::new(),
            origin,
        }))
    }
}

impl Entry {
    fn new(last_used: Instant) -> Self {
        Self { execs: 0, clients: 0, last_used, wrote: None, looked: None, at_work: None, warned: false }
    }

    fn used(&mut self) {
        self.last_used = Instant::now();
        self.warned = false;
    }

    fn running(&mut self, by: Busy) -> &mut usize {
        if by == Busy::Client { &mut self.clients } else { &mut self.execs }
    }

    fn is_running(&self) -> bool {
        self.execs + self.clients > 0
    }
}

impl Usage {
    /// Begins a use: a command's, or a client's.
    pub fn begin(&self, id: &SessionId, by: Busy) -> InUse {
        self.with(id, |entry| {
            *entry.running(by) += 1;
            entry.used();
        });
        InUse { usage: self.clone(), id: id.clone(), by }
    }

    /// Notes a use that is over at once, such as a connect.
    pub fn touch(&self, id: &SessionId) {
        self.with(id, Entry::used);
    }

    /// Notes that a terminal wrote something.
    pub fn wrote(&self, id: &SessionId) {
        self.with(id, |entry| {
            entry.used();
            entry.wrote = Some(entry.last_used);
        });
    }

    /// How a session stands. One that was not used in this daemon's life is idle for `unused`, as the wall clock and the
    /// table say, the first time it is asked for.
    pub fn standing(&self, id: &SessionId, unused: Duration) -> Standing {
        let entry = self.entry(id, unused);
        let writes = entry.wrote.is_some_and(|at| at.elapsed() < WRITING);
        let all = [
            (entry.execs > 0).then_some(Busy::Exec),
            writes.then_some(Busy::Terminal),
            (entry.clients > 0).then_some(Busy::Client),
            entry.at_work,
        ];
        let busy = all.into_iter().flatten().collect();
        Standing { busy, since: (!entry.is_running()).then_some(entry.last_used) }
    }

    /// The countdown of a session that may be unused for `idle`; none while something runs in it.
    pub fn countdown(&self, id: &SessionId, unused: Duration, idle: Duration) -> Option<Countdown> {
        let entry = self.entry(id, unused);
        let looked = entry.looked.filter(|looked| looked.at >= entry.last_used);
        (!entry.is_running()).then_some(Countdown {
            since: self.time(entry.last_used),
            idle,
            looked: looked.map(|looked| (self.time(looked.at), looked.quiet)),
            warned: entry.warned,
        })
    }

    /// Takes what a look at a session found that began `at` this time. One that finds it at work counts as a use.
    pub fn looked(&self, id: &SessionId, at: Instant, look: Look) {
        self.with(id, |entry| {
            let before = entry.looked.filter(|before| before.at >= entry.last_used);
            let burns = before.is_some_and(|before| match (before.cpu, look.cpu) {
                (Some(then), Some(now)) => is_at_work(now.saturating_sub(then), at - before.at),
                _ => false,
            });
            entry.at_work = match (look.works, burns) {
                (true, _) => Some(Busy::Exec),
                (false, true) => Some(Busy::Cpu),
                (false, false) => None,
            };
            let quiet = before.is_some() && entry.at_work.is_none();
            if entry.at_work.is_some() && at > entry.last_used {
                entry.last_used = at;
                entry.warned = false;
            }
            entry.looked = Some(Looked { at, cpu: look.cpu, quiet });
        });
    }

    /// Notes that a session was warned of.
    pub fn warned(&self, id: &SessionId) {
        self.with(id, |entry| entry.warned = true);
    }

    /// Notes that a session's sandbox came up just now.
    pub fn came_up(&self, id: &SessionId) {
        self.with(id, |entry| {
            entry.used();
            (entry.wrote, entry.at_work, entry.looked) = (None, None, None);
        });
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

    /// An instant, in the time of countdowns.
    pub fn time(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.0.origin)
    }

    /// The instant of a time of countdowns.
    pub fn instant(&self, time: Duration) -> Instant {
        self.0.origin + time
    }

    fn entry(&self, id: &SessionId, unused: Duration) -> Entry {
        let fresh = || {
            let now = Instant::now();
            Entry::new(now.checked_sub(unused).unwrap_or(self.0.origin).max(self.0.origin))
        };
        *self.lock().entry(id.clone()).or_insert_with(fresh)
    }

    fn with(&self, id: &SessionId, change: impl FnOnce(&mut Entry)) {
        change(self.lock().entry(id.clone()).or_insert_with(|| Entry::new(Instant::now())));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    /// A second mark of the same use.
    pub fn again(&self) -> Self {
        self.usage.begin(&self.id, self.by)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(entry) = self.usage.lock().get_mut(&self.id) {
            let running = entry.running(self.by);
            *running = running.saturating_sub(1);
            entry.used();
            if !entry.is_running() {
                self.usage.0.idle.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn used(millis: u64) -> Look {
        Look { works: false, cpu: Some(Duration::from_millis(millis)) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_idle_only_after_its_last_use_ended() {
        let usage = Usage::default();
        let id = SessionId::new("a");
        let (one, two) = (usage.begin(&id, Busy::Exec), usage.begin(&id, Busy::Client));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(usage.standing(&id, Duration::ZERO).busy, [Busy::Exec, Busy::Client]);
        drop(one);
        assert_eq!(usage.standing(&id, Duration::ZERO).since, None);
        assert_eq!(usage.countdown(&id, Duration::ZERO, IDLE), None);
        drop(two);
        let standing = Standing { busy: Vec::new(), since: Some(Instant::now()) };
        assert_eq!(usage.standing(&id, Duration::ZERO), standing);
    }

    #[tokio::test(start_paused = true)]
    async fn cpu_time_between_two_looks_is_work_and_what_was_used_before_the_countdown_is_not() {
        let usage = Usage::default();
        let id = SessionId::new("a");
        usage.looked(&id, Instant::now(), used(0));
        tokio::time::advance(Duration::from_secs(60)).await;
        drop(usage.begin(&id, Busy::Exec));
        usage.looked(&id, Instant::now(), used(60_000));
        assert_eq!(usage.standing(&id, Duration::ZERO).busy, [], "it is the command's");
        tokio::time::advance(Duration::from_secs(60)).await;
        usage.looked(&id, Instant::now(), used(60_900));
        assert_eq!(usage.standing(&id, Duration::ZERO).busy, [Busy::Cpu]);
        assert_eq!(usage.standing(&id, Duration::ZERO).since, Some(Instant::now()));
        tokio::time::advance(Duration::from_secs(60)).await;
        usage.looked(&id, Instant::now(), used(60_901));
        assert_eq!(usage.standing(&id, Duration::ZERO).busy, []);
        let looked = usage.countdown(&id, Duration::ZERO, IDLE).expect("counts").looked;
        assert_eq!(looked, Some((usage.time(Instant::now()), true)));
    }
}
