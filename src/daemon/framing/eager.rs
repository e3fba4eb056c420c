//! Staying awake for the next request.
//!
//! A client that waits for its answer mostly sends the next request a few microseconds after it. A thread that has gone
//! to sleep by then is woken on an idle core, which takes tens of microseconds, several times what the request itself
//! takes (measured: 75 µs against 15 µs for the same call). So a connection that was just answered keeps its thread
//! looking for a moment, between the turns of all other tasks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long a connection is looked at after an answer. About as long as a thread takes to be woken: looking longer than
/// that costs more than it gains.
const AWAKE: Duration = Duration::from_micros(50);

/// When a connection was last answered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Eager(Option<Instant>);

impl Eager {
    /// Notes an answer.
    pub(super) fn answered(&mut self) {
        self.0 = Some(Instant::now());
    }

    /// Has the task polled again after the other tasks and the system's events have had their turn, as long as an
    /// answer is fresh.
    pub(super) fn poll(&self, cx: &mut Context<'_>) {
        if self.0.is_some_and(|at| at.elapsed() < AWAKE) {
            // It is woken by the runtime itself; what the future would say is of no interest.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        }
    }

    /// Never ends, and keeps whoever waits beside it polled as long as an answer is fresh. Cancel safe.
    pub(super) async fn awake(self) {
        std::future::poll_fn(|cx| {
            self.poll(cx);
            Poll::<()>::Pending
        })
        .await;
    }
}
