//! Progress of long operations: to the caller on its own connection, and to whoever subscribed to it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::failure::Failure;
use super::framing::{Abandoned, Audience};
use crate::engine::PullProgress;
use crate::proto::errors::Kind;

/// Least time between two notifications of one layer's bytes: ten a second please a progress bar and no more.
const INTERVAL: Duration = Duration::from_millis(100);

/// A step of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The operation's id: the caller's choice, else one of ours.
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

type Send = dyn Fn(&Progress) + std::marker::Send + Sync;

/// Where progress goes, and who waits for the end of it.
#[derive(Clone, Default)]
pub struct Report {
    target: Option<Arc<Target>>,
    audience: Audience,
}

struct Target {
    op: String,
    send: Box<Send>,
    last: Mutex<Option<Instant>>,
    /// What is to be told in the answer; none where there is no answer to hold it.
    warnings: Option<Mutex<Vec<String>>>,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Report").field(&self.target.as_ref().map(|target| &target.op)).finish()
    }
}

impl Report {
    /// Sends progress under the id `op`.
    pub fn new(op: String, send: impl Fn(&Progress) + std::marker::Send + Sync + 'static) -> Self {
        let warnings = Some(Mutex::default());
        Self::to(Target { op, send: Box::new(send), last: Mutex::new(None), warnings })
    }

    /// Sends lines alone, to somebody who gets no answer that could hold warnings: they are lines, too.
    pub fn aloud(send: impl Fn(&Progress) + std::marker::Send + Sync + 'static) -> Self {
        let (op, send) = (String::new(), Box::new(send));
        Self::to(Target { op, send, last: Mutex::new(None), warnings: None })
    }

    /// Tells what a user should know of what was done.
    pub fn warn(&self, text: String) {
        let Some(target) = &self.target else { return };
        match &target.warnings {
            Some(warnings) => warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text),
            None => target.tell(format!("Warning: {text}"), None, None),
        }
    }

    /// What there was to warn of.
    pub fn warnings(&self) -> Vec<String> {
        let told = self.target.as_ref().and_then(|target| target.warnings.as_ref());
        told.map(|told| told.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    fn to(target: Target) -> Self {
        Self { target: Some(Arc::new(target)), audience: Audience::default() }
    }

    /// Says who waits for the operation, and may cancel it.
    #[must_use]
    pub fn awaited_by(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Does a part of the operation that can be given up, unless the caller cancels the request before its end. One that
    /// is only gone has cancelled nothing.
    ///
    /// # Errors
    /// Those of `part`, and `wrong_state` where it was cancelled, of which the caller has been told already.
    pub(super) async fn unless_cancelled<T, E: Into<Failure>>(
        &self,
        part: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        let cancelled = async {
            if self.audience.left().await != Abandoned::Cancelled {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            done = part => done.map_err(Into::into),
            () = cancelled => Err(Failure::new(Kind::WrongState, "the request was cancelled")),
        }
    }

    /// Tells one line.
    pub fn line(&self, text: impl Into<String>) {
        if let Some(target) = &self.target {
            target.tell(text.into(), None, None);
        }
    }

    /// Tells a step of a pull; byte counts at most ten times a second.
    pub fn pull(&self, step: &PullProgress) {
        let Some(target) = &self.target else { return };
        if step.current_bytes.is_some() && !target.is_due() {
            return;
        }
        let text = if step.layer.is_empty() {
            step.status.clone()
        } else {
            format!("{}: {}", step.layer, step.status)
        };
        target.tell(text, step.current_bytes, step.total_bytes);
    }

    /// Tells how many bytes are done; at most ten times a second.
    pub fn bytes(&self, text: &str, done: u64) {
        if let Some(target) = self.target.as_ref().filter(|target| target.is_due()) {
            target.tell(text.to_owned(), Some(done), None);
        }
    }
}

impl Target {
    fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at| at.elapsed() < INTERVAL) {
            return false;
        }
        *last = Some(Instant::now());
        true
    }

    fn tell(&self, text: String, current_bytes: Option<u64>, total_bytes: Option<u64>) {
        (self.send)(&Progress { op: self.op.clone(), text, current_bytes, total_bytes });
    }
}
