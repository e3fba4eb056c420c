//! Named points where a test may pause or kill the daemon, deadlines that it may shorten, and the clock that it may set.
//! Without the feature `fault` every call is empty.
//!
//! A test sets `ABX_FAULT=POINT=kill` (or `POINT=pause:FILE`; several separated by commas) in the daemon's environment.
//! `kill` raises SIGKILL at the point; `pause:FILE` makes `FILE.reached` and waits there until the file exists.
//!
//! `ABX_FAULT_DEADLINE` names a file: while it is there, no deadline of an engine call is longer than the milliseconds in
//! it. What a test does before it holds an engine still has all the time that it has elsewhere.
//!
//! A test of this crate sets the wall clock of its own thread with `set_clock`.

use std::time::Duration;

/// Passes the named point.
#[cfg(not(feature = "fault"))]
pub async fn point(_name: &'static str) {}

/// Passes the named point.
#[cfg(feature = "fault")]
pub async fn point(name: &'static str) {
    let Some(setting) = crate::paths::variable("ABX_FAULT") else { return };
    for entry in setting.split(',') {
        let Some((wanted, action)) = entry.split_once('=') else { continue };
        if wanted != name {
            continue;
        }
        if action == "kill" {
            // Errors cannot happen: the process may always signal itself, and then it is gone.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            std::future::pending::<()>().await;
        }
        if let Some(file) = action.strip_prefix("pause:") {
            // A test that waits for it says that it never came.
            let _ = std::fs::File::create(format!("{file}.reached"));
            while !std::path::Path::new(file).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// How long a call of an engine may take that is given this long.
#[cfg(not(feature = "fault"))]
pub const fn deadline(given: Duration) -> Duration {
    given
}

/// How long a call of an engine may take that is given this long.
#[cfg(feature = "fault")]
pub fn deadline(given: Duration) -> Duration {
    let shortened = crate::paths::variable("ABX_FAULT_DEADLINE")
        .and_then(|file| std::fs::read_to_string(file).ok())
        .and_then(|millis| millis.trim().parse().ok());
    shortened.map_or(given, |millis| given.min(Duration::from_millis(millis)))
}

/// What the wall clock says, which is this.
#[cfg(not(test))]
pub const fn clock(millis: i64) -> i64 {
    millis
}

#[cfg(test)]
thread_local! {
    static AHEAD: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// What the wall clock says on this thread, which is this as far as nobody has set it.
#[cfg(test)]
pub fn clock(millis: i64) -> i64 {
    millis.saturating_add(AHEAD.get()).max(0)
}

/// Sets the wall clock of this thread so many milliseconds ahead of the true one, or behind it.
#[cfg(test)]
pub fn set_clock(ahead_ms: i64) {
    AHEAD.set(ahead_ms);
}
