//! The command line as a process: real streams, real signals, a real terminal; the daemon is a script.

mod attach;
mod daemon;
mod exec;
mod manage;
mod notice;
mod pipes;
mod services;
pub(crate) mod terminal;

use std::path::Path;
use std::process::Command;

/// The program under test, for a home, without the surrounding environment.
pub(crate) fn abx(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abx"));
    command.env_clear().env("ABX_HOME", home).env("HOME", home).env("TERM", "xterm-test");
    command.arg("--no-autostart");
    command
}
