//! When to stop: asked by a client, or by a signal.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::handover::Successor;

/// Whether the daemon is stopping. Clones share one answer.
#[derive(Debug, Clone)]
pub struct Shutdown {
    stage: Arc<watch::Sender<Stage>>,
    successor: Arc<OnceLock<Successor>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Begun,
    Forced,
}

impl Shutdown {
    /// Makes one that has not begun and that no signal begins.
    pub fn new() -> Self {
        Self { stage: Arc::new(watch::Sender::new(Stage::Running)), successor: Arc::default() }
    }

    /// Lets SIGTERM and SIGINT begin it, and a second one end the process without waiting. SIGHUP begins it too, unless
    /// `spawned`: a daemon that a client started outlives the client's terminal.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen(&self, spawned: bool) -> io::Result<()> {
        let term = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        tokio::spawn(follow(self.clone(), term, interrupt, hangup, spawned));
        Ok(())
    }

    /// Begins it; again is no error.
    pub fn begin(&self) {
        self.raise(Stage::Begun);
    }

    /// Begins it so that another program goes on with the socket. False when it had begun already.
    pub fn hand_over(&self, to: Successor) -> bool {
        if self.begun() || self.successor.set(to).is_err() {
            return false;
        }
        self.begin();
        true
    }

    /// The program that goes on, if one does. Nothing is told to be stopping then: who is not answered any more is by the
    /// next one.
    pub fn successor(&self) -> Option<&Successor> {
        self.successor.get()
    }

    /// Whether it has begun.
    pub fn begun(&self) -> bool {
        *self.stage.borrow() >= Stage::Begun
    }

    /// Waits until it begins. Cancel safe.
    pub async fn wait(&self) {
        self.reach(Stage::Begun).await;
    }

    /// Waits until a second signal asks to stop without waiting. Cancel safe.
    pub async fn forced(&self) {
        self.reach(Stage::Forced).await;
    }

    fn raise(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let higher = *stage < to;
            if higher {
                *stage = to;
            }
            higher
        });
    }

    async fn reach(&self, wanted: Stage) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.stage.subscribe().wait_for(|stage| *stage >= wanted).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

async fn follow(
    shutdown: Shutdown,
    mut term: Signal,
    mut interrupt: Signal,
    mut hangup: Signal,
    spawned: bool,
) {
    loop {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hangup.recv() => {
                if spawned {
                    continue;
                }
                "SIGHUP"
            }
        };
        if shutdown.begun() {
            tracing::warn!(signal = name, "asked again to stop: not waiting any longer");
            shutdown.raise(Stage::Forced);
        } else {
            tracing::info!(signal = name, "asked to stop");
            shutdown.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn beginning_wakes_every_clone_and_does_not_force() {
        let shutdown = Shutdown::new();
        let clone = shutdown.clone();
        let waiter = tokio::spawn(async move { clone.wait().await });
        assert!(!shutdown.begun());
        shutdown.begin();
        waiter.await.expect("woken");
        assert!(shutdown.begun());
        assert!(*shutdown.stage.borrow() < Stage::Forced);
    }
}
