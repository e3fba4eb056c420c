//! `abx-init`'s inside: PID 1 of a sandbox, which runs its commands and owns its terminals.
//!
//! Knows nothing of the daemon but [`wire`], what the two say to each other. One thread does everything and never blocks
//! (`serve`); only the screens' models have threads of their own. It runs on Linux alone, in a sandbox that may hold
//! nothing else: no shell, no library, no file of users.

#[cfg(all(target_os = "linux", feature = "guest"))]
mod arguments;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod bridge;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod command;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod dial;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod exec;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod follower;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod homes;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod input;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod link;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod oom;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod poller;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod processes;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod reap;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod requests;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod ring;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod screen;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod serve;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod start;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod stop;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod table;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod terminal;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod timers;
#[cfg(all(target_os = "linux", feature = "guest"))]
mod users;
pub mod wire;

use std::process::ExitCode;

/// Runs `abx-init`.
#[cfg(all(target_os = "linux", feature = "guest"))]
pub fn run() -> ExitCode {
    start::run()
}

/// Runs `abx-init`, which there is only on Linux.
#[cfg(not(all(target_os = "linux", feature = "guest")))]
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}
