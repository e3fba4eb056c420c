//! Signals to abx-init, and the ends of processes: its own children's and those of whoever lost their parents.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};

use super::wire::Exited;

/// What is taken: the end of a child, what asks for the sandbox's end, what is passed on to the main program.
const TAKEN: [Signal; 8] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGPWR,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Where signals arrive.
#[derive(Debug)]
pub(super) struct Signals(SignalFd);

impl Signals {
    /// Takes the signals from now on, for this thread and those that it starts. They reach abx-init even as PID 1, which
    /// the kernel otherwise spares: a signal that is blocked waits.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn take() -> io::Result<Self> {
        let set: SigSet = TAKEN.into_iter().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// A descriptor that can be read when there is one.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }
}

/// Lets those who lose their parents become children of this process, as PID 1 has them anyway.
pub(super) fn adopt_orphans() {
    // An old kernel without it still has PID 1.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// What waiting for children found.
#[derive(Debug)]
pub(super) enum Reaped {
    /// This one ended so.
    Ended(u32, Exited),
    /// None that has ended.
    NoneYet,
    /// There are no children at all.
    NoneLeft,
}

/// Takes one child that has ended.
pub(super) fn reap() -> Reaped {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Reaped::Ended(pid.as_raw_nonzero().get().unsigned_abs(), exited(status)),
        Ok(None) => Reaped::NoneYet,
        Err(Errno::CHILD) => Reaped::NoneLeft,
        Err(_) => Reaped::NoneYet,
    }
}

/// The signal may be one without a name.
fn exited(status: WaitStatus) -> Exited {
    let signal = status.terminating_signal().unwrap_or(0);
    let code = status.exit_status().unwrap_or(128 + signal);
    Exited { code, signal: u8::try_from(signal).unwrap_or(0), ..Exited::default() }
}
