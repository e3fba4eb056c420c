//! A call that its client no longer waits for: the thread that makes it is let go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What ends a call that waits.
pub(super) type HangUp = Box<dyn FnOnce() + Send>;

/// On the side of the one who waits: dropping it ends the call.
pub(super) struct Waiting(Leaving);

/// On the side of the thread that makes the call.
#[derive(Clone, Default)]
pub(super) struct Leaving(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    left: bool,
    hang_up: Option<HangUp>,
}

impl Leaving {
    /// For a new call.
    pub(super) fn new() -> (Waiting, Self) {
        let leaving = Self::default();
        (Waiting(leaving.clone()), leaving)
    }

    /// From now on this is how the call ends. At once, where nobody waits any more.
    pub(super) fn by(&self, hang_up: HangUp) {
        let mut state = self.state();
        if state.left {
            drop(state);
            return hang_up();
        }
        state.hang_up = Some(hang_up);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let hang_up = {
            let mut state = self.0.state();
            state.left = true;
            state.hang_up.take()
        };
        if let Some(hang_up) = hang_up {
            hang_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn whoever_leaves_ends_the_call_before_and_after_it_began() {
        let ended = Arc::new(AtomicU32::new(0));
        let end = || {
            let ended = ended.clone();
            Box::new(move || {
                ended.fetch_add(1, Ordering::Relaxed);
            })
        };
        let (waiting, leaving) = Leaving::new();
        leaving.by(end());
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(waiting);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        leaving.by(end());
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }
}
