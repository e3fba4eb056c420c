//! A daemon that ends with its test.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Home, Socket, until};

/// A running abxd. Killed on drop; its log is shown if the test failed.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    /// Starts one on this home and waits until it answers.
    pub(crate) fn start(home: &Home) -> Self {
        Self::spawn(home, &mut home.abxd())
    }

    /// Starts this command as the daemon of this home and waits until it answers.
    pub(crate) fn spawn(home: &Home, command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().expect("abxd starts");
        let mut daemon = Self { child, log: home.root().join("log/abxd.log"), socket: home.socket() };
        until("the daemon to listen", || {
            let ended = daemon.child.try_wait().expect("a child");
            assert!(ended.is_none(), "abxd ended: {ended:?}");
            UnixStream::connect(&daemon.socket).ok()
        });
        daemon
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Socket {
        Socket::connect(&self.socket)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &str {
        self.socket.to_str().expect("text")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is ours");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the daemon to end", || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            // The test fails with or without this.
            let _ = writeln!(std::io::stderr(), "--- {:?}\n{log}---", self.log);
        }
    }
}
