//! `abx-init`'s inside: PID 1 of a sandbox, which runs its commands and owns its terminals.
//!
//! Knows nothing of the daemon but [`wire`], what the two say to each other.

#[cfg(feature = "guest")]
#[cfg_attr(not(test), expect(dead_code, reason = "terminals are its user, and come next"))]
mod screen;
pub mod wire;

use std::process::ExitCode;

/// Runs `abx-init`.
pub fn run() -> ExitCode {
    ExitCode::SUCCESS
}
