//! Signals to this process, from before a command is opened until its stream ends: which end the client, which are the
//! command's, and what the terminal is like meanwhile.

use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use super::failure::Failure;
use super::terminal::{Modes, RawMode, size};
use crate::client::Sender;
use crate::proto::stream::{Exit, Size};

/// How long the main thread has to end after a signal that ends the client, before the signal does it: it may be stuck
/// on an output that nobody reads, or on an engine that does not answer. A command that begins within this time gets
/// the signal.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a stream ended.
pub(crate) enum End {
    /// The command did.
    Exit(Exit),
    /// The user left.
    Detached,
    /// A signal to this process.
    Signal(i32),
}

/// Why the stream ended, if not by itself.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Arc<Mutex<Option<End>>>);

impl Verdict {
    /// The first one stands.
    pub(crate) fn give(&self, end: End) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
    }

    /// Whether there is one.
    pub(crate) fn is_given(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes it.
    pub(crate) fn take(&self) -> Option<End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What goes to the command beside its input.
pub(crate) enum Control {
    /// Its terminal's new size.
    Resize(Size),
    /// A signal.
    Signal(u8),
}

/// A command that runs, as far as signals are concerned.
pub(crate) struct Live {
    /// The size its terminal was opened with, if it has one.
    pub(crate) tty: Option<Size>,
    /// Why the stream ends.
    pub(crate) verdict: Verdict,
    /// The way to it.
    pub(crate) sender: Sender,
    /// The same, for what must not wait.
    pub(crate) control: mpsc::Sender<Control>,
}

/// Catches signals until it is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    handle: Handle,
}

#[derive(Default)]
struct Shared {
    raw: Mutex<Option<Arc<Modes>>>,
    live: Mutex<Option<Live>>,
    began: Condvar,
}

impl Watch {
    /// Catches signals from here on. To be called before the command is opened, so that none ends this process between.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start() -> Result<Self, Failure> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH])
            .map_err(|error| Failure::local("failed to catch signals", &error))?;
        let (shared, handle) = (Arc::<Shared>::default(), signals.handle());
        let watched = shared.clone();
        thread::spawn(move || watched.run(signals));
        Ok(Self { shared, handle })
    }

    /// The terminal is in raw mode now: what stops or ends this process restores it first.
    pub(crate) fn guard(&self, raw: &RawMode) {
        *self.shared.raw.lock().unwrap_or_else(PoisonError::into_inner) = Some(raw.modes());
    }

    /// The command runs now.
    pub(crate) fn begin(&self, mut live: Live) {
        // The size may have changed while the command was being started.
        live.resize();
        *self.shared.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
        self.shared.began.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl Live {
    fn resize(&mut self) {
        let now = size(std::io::stdout());
        if let (Some(_), Some(size)) = (self.tty, now)
            && now != self.tty
        {
            self.tty = now;
            self.send(Control::Resize(size));
        }
    }

    fn send(&self, control: Control) {
        // Where nobody takes it, the stream has ended.
        let _ = self.control.send(control);
    }
}

impl Shared {
    fn run(&self, mut signals: Signals) {
        let mut forwarded = false;
        for signal in &mut signals {
            match signal {
                SIGWINCH => self.with_live(Live::resize),
                SIGTSTP => {
                    self.with_raw(Modes::suspend);
                    // Comes back when the process goes on; should it fail, it never stopped.
                    let _ = emulate_default_handler(SIGTSTP);
                    self.with_raw(Modes::renew);
                }
                SIGCONT => {
                    self.with_raw(Modes::renew);
                    self.with_live(Live::resize);
                }
                // A terminal's own keys arrive as input; what comes as a signal is for the command the first time.
                SIGINT | SIGTERM if !forwarded && self.forwards() => {
                    forwarded = true;
                    let number = u8::try_from(signal).into_iter();
                    number.for_each(|number| self.with_live(|live| live.send(Control::Signal(number))));
                }
                signal => return self.end(signal),
            }
        }
    }

    /// Whether there is a command to have a signal, now or in a moment.
    fn forwards(&self) -> bool {
        if self.raw.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return false;
        }
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let (live, _) = self
            .began
            .wait_timeout_while(live, LAST_WORDS, |live| live.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        live.is_some()
    }

    fn end(&self, signal: i32) {
        let mut running = false;
        self.with_live(|live| {
            running = true;
            live.verdict.give(End::Signal(signal));
            live.sender.hang_up();
        });
        if running {
            thread::sleep(LAST_WORDS);
        }
        self.with_raw(Modes::restore);
        // Does not come back.
        let _ = emulate_default_handler(signal);
    }

    fn with_raw(&self, act: impl FnOnce(&Modes)) {
        if let Some(modes) = &*self.raw.lock().unwrap_or_else(PoisonError::into_inner) {
            act(modes);
        }
    }

    fn with_live(&self, act: impl FnOnce(&mut Live)) {
        if let Some(live) = &mut *self.live.lock().unwrap_or_else(PoisonError::into_inner) {
            act(live);
        }
    }
}
