//! The user's terminal: its size, and raw mode that is undone on every path.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::termios::{LocalFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::proto::stream::Size;

/// The size of terminals that do not know theirs.
const USUAL_SIZE: Size = Size { cols: 80, rows: 24 };

/// The size of the terminal behind a descriptor, if there is one.
pub(crate) fn size(fd: impl AsFd) -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(fd).ok()?;
    let size = Size { cols: size.ws_col, rows: size.ws_row };
    Some(if size.cols == 0 || size.rows == 0 { USUAL_SIZE } else { size })
}

/// Raw mode of a terminal. Dropping it restores what was before; so does a panic, before it prints.
pub(crate) struct RawMode {
    modes: Arc<Modes>,
}

/// The two modes of one terminal; shared with the thread that handles signals.
pub(crate) struct Modes {
    fd: OwnedFd,
    // `Termios` is not `Sync`.
    state: Mutex<State>,
}

struct State {
    before: Termios,
    /// What is in force, and is set again after the process was stopped.
    raw: Termios,
    active: bool,
}

impl RawMode {
    /// Puts a terminal into raw mode, in which the keys for signals still are that and lines of ours still begin on the
    /// left.
    ///
    /// # Errors
    /// When it is no terminal.
    pub(crate) fn enter(fd: impl AsFd) -> io::Result<Self> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&fd)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        raw.local_flags |= before.local_flags & LocalFlags::ISIG;
        raw.output_flags = before.output_flags;
        tcsetattr(&fd, SetArg::TCSADRAIN, &raw)?;
        let modes = Arc::new(Modes { fd, state: Mutex::new(State { before, raw, active: true }) });
        let for_panics = modes.clone();
        let inner = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            for_panics.restore();
            inner(info);
        }));
        Ok(Self { modes })
    }

    /// Makes every key input, and leaves output as it is sent.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn pass_keys(&self) -> io::Result<()> {
        let mut state = self.modes.state.lock().unwrap_or_else(PoisonError::into_inner);
        cfmakeraw(&mut state.raw);
        tcsetattr(&self.modes.fd, SetArg::TCSADRAIN, &state.raw)?;
        Ok(())
    }

    /// The modes, for another thread.
    pub(crate) fn modes(&self) -> Arc<Modes> {
        self.modes.clone()
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.modes.restore();
    }
}

impl Modes {
    /// Restores what was before, once and for all.
    pub(crate) fn restore(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.active) {
            // Now, and not when the output has drained: it may be held by the user. A terminal that is gone needs
            // no restoring.
            let _ = tcsetattr(&self.fd, SetArg::TCSANOW, &state.before);
        }
    }

    /// Sets what was before while the process is stopped.
    pub(crate) fn suspend(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.active {
            let _ = tcsetattr(&self.fd, SetArg::TCSANOW, &state.before);
        }
    }

    /// Sets raw mode again after the process was stopped and continued: the shell has set its own meanwhile.
    pub(crate) fn renew(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.active {
            let _ = tcsetattr(&self.fd, SetArg::TCSADRAIN, &state.raw);
        }
    }
}
