//! Waiting for a condition.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails: long enough for the busiest machine, on which an engine that tests start
/// takes a minute to come up.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Waits until `condition` gives something.
///
/// # Panics
/// When it does not within the limit.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
