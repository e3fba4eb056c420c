//! Progress to the caller of a long operation, as notifications on its own connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::engine::PullProgress;

/// Least time between two notifications of one layer's bytes: ten a second please a progress bar and no more.
const INTERVAL: Duration = Duration::from_millis(100);

/// The `params` of an `event` notification that tells progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Always `progress`.
    pub kind: &'static str,
    /// The id that the caller chose.
    pub op: String,
    /// What is happening.
    pub text: String,
    /// Bytes done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_bytes: Option<u64>,
    /// Bytes in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

type Send = dyn Fn(&Event) + std::marker::Send + Sync;

/// Where progress goes; nowhere for a caller that gave no `op`.
#[derive(Clone, Default)]
pub struct Report(Option<Arc<Target>>);

struct Target {
    op: String,
    send: Box<Send>,
    last: Mutex<Option<Instant>>,
}

impl Report {
    /// Sends progress under the id `op`.
    pub fn new(op: String, send: impl Fn(&Event) + std::marker::Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Target { op, send: Box::new(send), last: Mutex::new(None) })))
    }

    /// Tells one line.
    pub fn line(&self, text: impl Into<String>) {
        if let Some(target) = &self.0 {
            target.tell(text.into(), None, None);
        }
    }

    /// Tells a step of a pull; byte counts at most ten times a second.
    pub fn pull(&self, step: &PullProgress) {
        let Some(target) = &self.0 else { return };
        if step.current_bytes.is_some() {
            let mut last = target.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|at| at.elapsed() < INTERVAL) {
                return;
            }
            *last = Some(Instant::now());
        }
        let text = if step.layer.is_empty() {
            step.status.clone()
        } else {
            format!("{}: {}", step.layer, step.status)
        };
        target.tell(text, step.current_bytes, step.total_bytes);
    }
}

impl Target {
    fn tell(&self, text: String, current_bytes: Option<u64>, total_bytes: Option<u64>) {
        (self.send)(&Event { kind: "progress", op: self.op.clone(), text, current_bytes, total_bytes });
    }
}
