//! A terminal's screen, on a thread of its own: takes what the program writes, and paints it for those who come later.
//!
//! The thread that moves bytes never waits for it. It puts work into a queue, in the order in which things happened, and
//! is woken when there are answers. A painting is of the moment at which it was asked for: what was fed before is in it,
//! what is fed after goes to the follower directly.

#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "tests ask it for more"))]
mod emulator;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod model;
mod modes;
mod signals;
mod split;
mod styles;
#[cfg(test)]
mod tests;
mod text;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::wire;
use model::{ScreenModel, Vterm};

/// Bytes that may wait for the model. Then the terminal is not read, and its program waits.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Most bytes that the model takes in one go, so that it can end between two.
const MAX_PORTION_BYTES: usize = 64 * 1024;

/// Makes a model.
type Make = fn(wire::Size, u32) -> Box<dyn ScreenModel>;

/// What was asked for is ready.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// The screen as bytes that paint it.
    Painted {
        /// Which request.
        token: u64,
        /// To be sent before anything that was fed after the request.
        bytes: Vec<u8>,
    },
    /// The screen as text.
    Peeked {
        /// Which request.
        token: u64,
        /// The screen.
        screen: wire::Screen,
    },
    /// The program rang, or said something. At most so many a second that one who looks late finds few.
    Heard(wire::Notice),
    /// There is room again, after [`Screen::feed`] said that there was none.
    Room,
}

/// A terminal's screen. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wake: File,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    waiting_bytes: usize,
    full: bool,
    closed: bool,
    answers: Vec<Answer>,
}

#[derive(Debug)]
enum Job {
    Feed(Vec<u8>),
    Resize(wire::Size),
    Redraw { token: u64, scrollback: u32 },
    Peek { token: u64, scrollback: u32 },
}

impl Screen {
    /// Starts an empty screen that keeps so many lines of scrollback. `wake` is written to whenever there are answers
    /// and were none.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(size: wire::Size, scrollback: u32, wake: OwnedFd) -> io::Result<Self> {
        Self::start_with(|size, scrollback| Box::new(Vterm::new(size, scrollback)), size, scrollback, wake)
    }

    fn start_with(make: Make, size: wire::Size, scrollback: u32, wake: OwnedFd) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), wake: File::from(wake) });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("screen".to_owned()).spawn(move || {
            let mut guarded = Guarded { model: make(size, scrollback), make, size, scrollback };
            while let Some(job) = of_thread.next() {
                guarded.work(job, &of_thread);
            }
        })?;
        Ok(Self { shared })
    }

    /// Takes what the program wrote; much of it is worked on at once, little when it is [roused](Self::rouse) or asked.
    /// False: it was taken, but the queue is full now; the terminal is not to be read until there is [`Answer::Room`].
    pub(crate) fn feed(&self, bytes: &[u8]) -> bool {
        let mut state = self.shared.lock();
        match state.jobs.back_mut() {
            Some(Job::Feed(last)) if last.len() + bytes.len() <= MAX_PORTION_BYTES => {
                last.extend_from_slice(bytes);
            }
            _ => state.jobs.extend(bytes.chunks(MAX_PORTION_BYTES).map(|part| Job::Feed(part.to_vec()))),
        }
        state.waiting_bytes += bytes.len();
        state.full = state.waiting_bytes >= MAX_WAITING_BYTES;
        if state.waiting_bytes >= MAX_PORTION_BYTES {
            self.shared.changed.notify_one();
        }
        !state.full
    }

    /// Has it work on what it took.
    pub(crate) fn rouse(&self) {
        self.shared.changed.notify_one();
    }

    /// Gives it another size.
    pub(crate) fn resize(&self, size: wire::Size) {
        self.shared.ask(Job::Resize(size));
    }

    /// Asks for a painting, with so many lines of scrollback: [`Answer::Painted`].
    pub(crate) fn redraw(&self, token: u64, scrollback: u32) {
        self.shared.ask(Job::Redraw { token, scrollback });
    }

    /// Asks for the text, with so many lines of scrollback: [`Answer::Peeked`].
    pub(crate) fn peek(&self, token: u64, scrollback: u32) {
        self.shared.ask(Job::Peek { token, scrollback });
    }

    /// Takes the answers that are ready, in the order of their requests.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.shared.lock().answers)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Waits for work; `None` once there is to be no more.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn answer(&self, answer: Answer) {
        let mut state = self.lock();
        state.answers.push(answer);
        if state.answers.len() == 1 {
            self.wake();
        }
    }

    fn fed(&self, bytes: usize) {
        let mut state = self.lock();
        state.waiting_bytes -= bytes;
        if state.full && state.waiting_bytes <= MAX_WAITING_BYTES / 2 {
            state.full = false;
            state.answers.push(Answer::Room);
            if state.answers.len() == 1 {
                self.wake();
            }
        }
    }

    fn wake(&self) {
        // Eight bytes, as an eventfd wants them. It fails when it is full, and then the reader is woken already, or when
        // the reader is gone.
        let _ = (&self.wake).write(&1_u64.to_ne_bytes());
    }
}

/// A model that is replaced by an empty one when it panics: the program goes on, and paints again sooner or later.
struct Guarded {
    model: Box<dyn ScreenModel>,
    make: Make,
    size: wire::Size,
    scrollback: u32,
}

impl Guarded {
    fn work(&mut self, job: Job, shared: &Shared) {
        match job {
            Job::Feed(bytes) => {
                let heard = self.with(|model| model.process(&bytes)).unwrap_or_default();
                heard.into_iter().for_each(|notice| shared.answer(Answer::Heard(notice)));
                shared.fed(bytes.len());
            }
            Job::Resize(size) => {
                self.size = size;
                self.with(|model| model.resize(size));
            }
            Job::Redraw { token, scrollback } => {
                let bytes = self.read(|model| model.redraw(scrollback));
                shared.answer(Answer::Painted { token, bytes });
            }
            Job::Peek { token, scrollback } => {
                let screen = self.read(|model| model.peek(scrollback));
                shared.answer(Answer::Peeked { token, screen });
            }
        }
    }

    /// Reads from the model, or else from the empty one that replaced it.
    fn read<R: Default>(&mut self, read: impl Fn(&mut dyn ScreenModel) -> R) -> R {
        self.with(&read).or_else(|| self.with(&read)).unwrap_or_default()
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut dyn ScreenModel) -> R) -> Option<R> {
        // A model that panicked is not looked at again, so its broken state cannot be seen.
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut *self.model)));
        if result.is_err() {
            self.model = (self.make)(self.size, self.scrollback);
        }
        result.ok()
    }
}
