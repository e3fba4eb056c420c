//! Following a command to its end, and ending it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::usage::InUse;
use crate::engine::{EngineError, ExecState, RunState, WindowSize};
use crate::model::session::{Operation, Reason, Session, Status};
use crate::proto::stream::Size;

/// The code of a command whose time ran out (as in coreutils' `timeout`).
pub const TIMED_OUT: i32 = 124;

/// The code of a command that was killed.
const KILLED: i32 = 137;

/// Time between TERM and KILL for a command whose time ran out or whose client is gone.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Longest wait between two looks at whether a command that closed its output has ended.
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// What is needed to follow and to end a command.
pub struct Handle {
    pub(super) driver: Driver,
    pub(super) session: Arc<Session>,
    pub(super) exec_id: String,
    pub(super) engine_id: String,
    pub(super) user: Option<String>,
    /// The program's name, for messages.
    pub command: String,
    pub(super) started: Instant,
    pub(super) _in_use: InUse,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The code to give to whoever ran it.
    pub code: i32,
    /// One line, when it did not end by itself.
    pub reason: Option<String>,
    /// Whether it never started: then what came as its output is the engine's text.
    pub never_started: bool,
}

impl Handle {
    /// Waits until the command has ended, after its output did. One that lives on without output is waited for; at
    /// `deadline` it is ended, and the code is [`TIMED_OUT`].
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub async fn wait(&self, deadline: Option<Instant>) -> Result<Ended, Failure> {
        let mut pause = Duration::from_millis(1);
        let mut looked = 0_u32;
        loop {
            match self.driver.0.engine.exec_state(&self.engine_id).await {
                Ok(ExecState::Exited(code)) => return Ok(self.ended(code).await),
                Ok(ExecState::NotStarted(code)) => {
                    self.note_end().await;
                    return Ok(Ended { code, reason: None, never_started: true });
                }
                Ok(ExecState::Running) => {}
                Err(
                    EngineError::NoSandbox { .. } | EngineError::Conflict { .. } | EngineError::Failed { .. },
                ) => {
                    return Ok(self.ended(KILLED).await);
                }
                Err(error) => return Err(error.into()),
            }
            // The engine may go on calling an exec running whose sandbox has ended.
            looked += 1;
            if looked.is_multiple_of(5) && !self.sandbox_runs().await? {
                return Ok(self.ended(KILLED).await);
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                self.end_now().await;
                return Ok(Ended {
                    code: TIMED_OUT,
                    reason: Some("its time ran out".to_owned()),
                    never_started: false,
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_POLL);
        }
    }

    async fn sandbox_runs(&self) -> Result<bool, Failure> {
        let seen = self.driver.observe(&self.session).await?;
        Ok(seen.is_some_and(|s| matches!(s.state, RunState::Running | RunState::Paused)))
    }

    async fn ended(&self, code: i32) -> Ended {
        self.note_end().await;
        let reason = if code == 0 { None } else { self.why().await };
        Ended { code, reason, never_started: false }
    }

    async fn note_end(&self) {
        let now = clock::now();
        let noted = self.driver.0.store.update(&self.session.id, move |s| s.last_active = now).await;
        if let Err(error) = noted {
            tracing::debug!(%error, "cannot note the end of a command");
        }
    }

    /// Why the sandbox ended under a command, if it did.
    async fn why(&self) -> Option<String> {
        let name = self.session.name.as_str();
        let row = self.driver.0.store.session_by_id(&self.session.id);
        let resting = row.as_ref().is_some_and(|s| s.operation.is_none() && s.status == Status::Running);
        if resting && !self.sandbox_runs().await.unwrap_or(true) {
            // Without an answer the row stays as it is, and so does the line.
            let _ = self.driver.compare_one(&self.session.id, false).await;
        }
        let Some(row) = self.driver.0.store.session_by_id(&self.session.id) else {
            return Some(format!("session '{name}' was deleted"));
        };
        let text = match (row.operation, row.status, row.reason) {
            (Some(Operation::Delete | Operation::DeleteKeep), ..) => "is being deleted",
            (Some(Operation::Save), ..) => "is being saved",
            (Some(Operation::Stop), ..) => "is being stopped",
            (_, Status::Running | Status::Paused | Status::Starting, _) => return None,
            (_, _, Some(Reason::Timeout)) => "was stopped: its timeout ran out",
            (_, _, Some(Reason::Idle)) => "was stopped: it was idle",
            (_, _, Some(Reason::OomKilled)) => "ran out of memory",
            (_, _, Some(Reason::Engine)) => "was stopped: the engine stopped",
            (_, _, Some(Reason::Removed)) => "was removed outside abx",
            (_, _, Some(Reason::Exited)) => "ended: its main program exited",
            (_, Status::Saved, _) => "was saved",
            _ => "was stopped",
        };
        Some(format!("session '{name}' {text}"))
    }

    /// Sends a signal to every process of the command.
    pub async fn signal(&self, signal: i32) {
        let sandbox = self.session.sandbox_id.clone().unwrap_or_default();
        let sent =
            self.driver.0.engine.exec_signal(&sandbox, &self.exec_id, self.user.as_deref(), signal).await;
        if let Err(error) = sent {
            tracing::debug!(%error, exec = self.exec_id, signal, "cannot signal a command");
        }
    }

    /// Sets the size of its terminal.
    pub async fn resize(&self, size: Size) {
        if let Err(error) = self
            .driver
            .0
            .engine
            .exec_resize(&self.engine_id, WindowSize { cols: size.cols, rows: size.rows })
            .await
        {
            tracing::debug!(%error, exec = self.exec_id, "cannot resize a terminal");
        }
    }

    /// TERM, a grace, KILL, on a task of its own.
    pub(super) fn end(&self) {
        let copy = self.copy();
        tokio::spawn(async move { copy.end_now().await });
    }

    /// TERM, a grace, KILL.
    pub async fn end_now(&self) {
        self.signal(15).await;
        if timeout(KILL_GRACE, self.gone()).await.is_err() {
            self.signal(9).await;
        }
    }

    async fn gone(&self) {
        while matches!(self.driver.0.engine.exec_state(&self.engine_id).await, Ok(ExecState::Running)) {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A second handle on the same command.
    pub fn copy(&self) -> Handle {
        Handle {
            driver: self.driver.clone(),
            session: Arc::clone(&self.session),
            exec_id: self.exec_id.clone(),
            engine_id: self.engine_id.clone(),
            user: self.user.clone(),
            command: self.command.clone(),
            started: self.started,
            _in_use: self.driver.0.usage.begin(&self.session.id),
        }
    }
}
