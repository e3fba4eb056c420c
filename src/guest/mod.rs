//! `abx-init`'s inside: PID 1 of a sandbox, which runs its commands and owns its terminals.
//!
//! Knows nothing of the daemon but [`wire`], what the two say to each other. One thread does everything and never blocks
//! (`serve`); only the screens' models have threads of their own. It runs on Linux alone, in a sandbox that may hold
//! nothing else: no shell, no library, no file of users.

pub mod wire;

/// What abx-init is made of, beside what it shares with the daemon.
#[cfg(all(target_os = "linux", feature = "guest"))]
#[path = "."]
mod inside {
    use super::wire;

    mod arguments;
    mod bridge;
    mod command;
    mod dial;
    mod exec;
    mod follower;
    mod homes;
    mod input;
    mod link;
    mod notices;
    mod notify;
    mod oom;
    mod poller;
    mod processes;
    mod reap;
    mod requests;
    mod ring;
    mod screen;
    mod serve;
    mod start;
    mod stop;
    mod table;
    mod terminal;
    mod timers;
    mod users;

    #[cfg(feature = "fuzzing")]
    pub(crate) use self::screen::fuzzing;
    pub(super) use self::start::run;
}

#[cfg(all(target_os = "linux", feature = "fuzzing"))]
pub(crate) use inside::fuzzing;

use std::process::ExitCode;

/// Runs `abx-init`.
#[cfg(all(target_os = "linux", feature = "guest"))]
pub fn run() -> ExitCode {
    inside::run()
}

/// Runs `abx-init`, which there is only on Linux.
#[cfg(not(all(target_os = "linux", feature = "guest")))]
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}
