//! A pseudo-terminal whose far end is the program's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};

use super::daemon::LONG;

/// A user's terminal.
pub(crate) struct Terminal {
    user: File,
    program: OwnedFd,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

impl Terminal {
    /// One of 80 columns and 24 rows.
    pub(crate) fn new() -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).expect("a pseudo-terminal");
        let user = File::from(master);
        let shown = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let (mut screen, seen) = (user.try_clone().expect("clone"), shown.clone());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut buffer) {
                seen.0.lock().expect("no panic").extend_from_slice(&buffer[..read]);
                seen.1.notify_all();
            }
        });
        Self { user, program: slave, shown }
    }

    /// Runs a program on it.
    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        let end = || Stdio::from(self.program.try_clone().expect("clone"));
        command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("spawn")
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.user.write_all(keys).expect("typed");
    }

    /// Changes its size. Whoever has it as controlling terminal would get a signal; the program here has not.
    pub(crate) fn resize(&self, cols: u16, rows: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.program, size).expect("resized");
    }

    /// Whether the program has set it to raw mode.
    pub(crate) fn is_raw(&self) -> bool {
        !self.modes().local_flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Its modes.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.program).expect("modes")
    }

    /// What was shown after so many bytes.
    pub(crate) fn shown_from(&self, at: usize) -> Vec<u8> {
        self.shown.0.lock().expect("no panic")[at..].to_vec()
    }

    /// Waits until this was shown.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let (shown, changed) = &*self.shown;
        let shown = shown.lock().expect("no panic");
        let there = |shown: &mut Vec<u8>| !String::from_utf8_lossy(shown).contains(text);
        let (shown, waited) = changed.wait_timeout_while(shown, LONG, there).expect("no panic");
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(!waited.timed_out(), "{text:?} was never shown, but {shown:?}");
        shown
    }
}
