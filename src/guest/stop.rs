//! The end of the sandbox: everything is asked to end, and abx-init ends after it. The engine's KILL is the deadline.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::processes;
use super::serve::Guest;
use super::timers::Timer;
use super::wire::Run;

/// How long what is still to be said may take once everything has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The id of the image's own program.
pub(super) const MAIN: &str = "main-program";

/// The sandbox is ending.
#[derive(Debug, Default)]
pub(super) struct Stop {
    /// When abx-init leaves, whatever has not been said; known once everything has ended.
    leave_at: Option<Instant>,
}

impl Guest {
    /// Asks everything to end. Being asked a second time changes nothing.
    pub(super) fn begin_to_stop(&mut self) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(Stop::default());
        self.reap();
        if self.childless {
            return;
        }
        processes::signal_everything(Signal::SIGTERM);
        // A shell that someone types into ignores TERM, and ends when its terminal is gone.
        for key in self.table.keys() {
            let Some(command) = self.table.get(key) else { continue };
            if command.terminal.is_some() && command.exited.is_none() {
                processes::signal_session(command.record.pid, Signal::SIGHUP);
            }
        }
    }

    /// Whether it is time to end: it was asked for, everything has ended, and abxd was told.
    pub(super) fn may_leave(&mut self) -> bool {
        if self.stop.is_none() || !self.childless {
            return false;
        }
        let now = Instant::now();
        let told = self.table.running() == 0 && self.is_quiet();
        let Some(stop) = &mut self.stop else { return false };
        let at = *stop.leave_at.get_or_insert_with(|| {
            self.timers.add(now + LAST_WORDS, Timer::Leave);
            now + LAST_WORDS
        });
        told || at <= now
    }

    /// Starts the image's own program. Its end, or its failure to start, ends nothing else.
    ///
    /// # Errors
    /// Why it does not run.
    pub(super) fn start_main(&mut self, run: &Run) -> Result<(), String> {
        let failed = match self.start(run) {
            Ok(_) => return Ok(()),
            Err(failed) => failed,
        };
        let code = if failed.why == super::wire::Failed::NOT_FOUND { 127 } else { 126 };
        let key = self.table.key();
        self.table.insert(key, super::command::Command::failed(key, run, code));
        self.touch(key);
        Err(failed.text)
    }

    /// Passes a signal on to the image's own program.
    pub(super) fn pass_on(&mut self, signal: Signal) {
        let Some(key) = self.table.with_id(MAIN) else { return };
        if let Some(command) = self.table.get(key).filter(|command| command.exited.is_none()) {
            processes::send_group(command.record.pid, signal);
        }
    }
}
