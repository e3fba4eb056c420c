//! `abx-init` as it is put into sandboxes, started as an ordinary process and spoken to in the words of its protocol.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod follow;
mod input;
mod notices;
mod run;
mod stop;
pub(crate) mod talk;
mod terminals;
mod trust;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use talk::Talk;

use crate::support::until;

/// The program under test: the one that abxd carries.
pub(crate) const ABX_INIT: &str = env!("ABX_INIT");

/// An `abx-init` that runs, and the socket that it calls.
struct Guest {
    process: Child,
    directory: tempfile::TempDir,
    listener: UnixListener,
}

impl Guest {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut command = Command::new(ABX_INIT);
        command.arg("init").arg("--dial").arg(&socket).args(arguments).stdin(Stdio::null());
        Self { process: command.spawn().unwrap(), directory, listener }
    }

    /// Its next connection, on which both sides have agreed.
    fn connect(&self) -> Talk {
        Talk::agree(self.listener.accept().unwrap().0)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("sock")
    }

    fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).unwrap())
    }

    fn term(&self) {
        nix::sys::signal::kill(self.pid(), nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Waits for its end; the exit code.
    fn ended(&mut self) -> Option<i32> {
        until("abx-init ends", || self.process.try_wait().unwrap()).code()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a process is there and no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
