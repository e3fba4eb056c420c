//! A place where calls wait until a test lets them through.

use std::sync::Arc;

use tokio::sync::watch;

/// Holds back the calls of one name. Dropping the last clone opens it.
#[derive(Clone)]
#[must_use = "a gate that is dropped at once holds nothing back"]
pub struct Gate {
    open: Arc<OpenOnDrop>,
    waiting: watch::Sender<usize>,
}

/// The engine's side of a gate.
#[derive(Clone)]
pub(super) struct Barrier {
    opened: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
}

struct OpenOnDrop(watch::Sender<bool>);

/// Counts a waiting call down however its future ends.
struct Leaving(watch::Sender<usize>);

impl Gate {
    pub(super) fn new() -> (Self, Barrier) {
        let (open, opened) = watch::channel(false);
        let waiting = watch::Sender::new(0);
        (Self { open: Arc::new(OpenOnDrop(open)), waiting: waiting.clone() }, Barrier { opened, waiting })
    }

    /// Lets all calls through, now and from now on.
    pub fn open(&self) {
        self.open.0.send_replace(true);
    }

    /// Waits until a call waits at the gate.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Waits until this many calls wait at the gate together.
    pub async fn reached_by(&self, calls: usize) {
        // The sender is ours, so it cannot be gone.
        let _ = self.waiting.subscribe().wait_for(|n| *n >= calls).await;
    }
}

impl Barrier {
    /// Waits until the gate is open.
    pub(super) async fn pass(mut self) {
        if *self.opened.borrow() {
            return;
        }
        self.waiting.send_modify(|n| *n += 1);
        let _leaving = Leaving(self.waiting);
        // Fails when every handle of the gate is gone, which opens it.
        let _ = self.opened.wait_for(|open| *open).await;
    }
}

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}
