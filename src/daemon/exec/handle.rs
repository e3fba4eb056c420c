//! Following a command to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::running::Running;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::exec::{ChunkStream, Input, start_refusal};
use crate::daemon::failure::Failure;
use crate::daemon::usage::InUse;
use crate::engine::{EngineError, ExecState, RunState, WindowSize};
use crate::model::exec::End;
use crate::model::exec::code::KILLED;
use crate::model::id::{ExecId, SessionId};
use crate::model::session::{Reason, Session, Status};
use crate::proto::stream::Size;

/// Longest wait between two looks at whether a command that closed its output has ended.
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// How often in a row the engine may fail to tell the state of a command before that is an error.
const STATE_TRIES: u32 = 5;

/// The engine may go on calling an exec running whose sandbox has ended: the sandbox is looked at every so many looks.
const SANDBOX_EVERY: u32 = 5;

/// How long after a killed command its sandbox may be seen to have ended, which the engine tells later.
const SANDBOX_FOLLOWS: Duration = Duration::from_millis(500);

/// How long after that it may be seen to be gone: whoever removes a running sandbox ends it first.
const REMOVAL_FOLLOWS: Duration = Duration::from_secs(1);

/// Between two looks at the sandbox of a killed command.
const SANDBOX_POLL: Duration = Duration::from_millis(50);

/// What is needed to follow and to end a command.
pub struct Handle {
    pub(super) driver: Driver,
    pub(super) session: Arc<Session>,
    pub(super) exec_id: String,
    /// The program's name, for messages.
    pub command: String,
    pub(super) started: Instant,
    pub(super) running: Arc<Running>,
    /// Whether it is frozen and will be ended when it is thawed.
    pub(super) owed: Arc<watch::Sender<bool>>,
    pub(super) _in_use: InUse,
}

/// How a command ended, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The code to give to whoever ran it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// One line, when it did not end by itself.
    pub reason: Option<String>,
    /// Whether it never started: then what came as its output is the engine's text.
    pub never_started: bool,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        Self { code: end.code, signal: end.signal, reason: end.reason, never_started: false }
    }
}

/// What one look at a command shows.
enum Look {
    Runs,
    /// Its row has its end.
    Noted(End),
    Ended(i32),
    NeverStarted(i32),
}

impl Handle {
    /// The command's id.
    pub fn id(&self) -> &str {
        &self.exec_id
    }

    /// The session that it runs in.
    pub fn session(&self) -> &SessionId {
        &self.session.id
    }

    /// Waits until the command has ended, after its output did. One that lives on without output is waited for.
    ///
    /// # Errors
    /// When the engine cannot be asked, several times in a row.
    pub async fn wait(&self) -> Result<Ended, Failure> {
        let mut pause = Duration::from_millis(1);
        let (mut looks, mut failed) = (0_u32, 0_u32);
        loop {
            looks += 1;
            let closely = looks.is_multiple_of(SANDBOX_EVERY);
            match self.look(closely).await {
                Ok(Look::Noted(end)) => return Ok(end.into()),
                Ok(Look::Ended(code)) => return Ok(self.ended(code).await),
                Ok(Look::NeverStarted(code)) => {
                    let seen = End { at: clock::now(), code, signal: None, reason: None };
                    let ended = self.driver.end_exec(&self.exec_id, seen).await;
                    return Ok(Ended { never_started: true, ..ended.into() });
                }
                // What is known here without asking anybody proves nothing.
                Ok(Look::Runs) if closely => failed = 0,
                Ok(Look::Runs) => {}
                Err(error) => {
                    failed += 1;
                    if failed >= STATE_TRIES {
                        return Err(Failure::from(error).about(self.session.name.as_str()));
                    }
                    tracing::debug!(%error, exec = self.exec_id, "cannot see a command, and looks again");
                    pause = LONGEST_POLL;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_POLL);
        }
    }

    /// Its end, if it never started; what is known of it without asking.
    pub(super) async fn ended_at_once(&self) -> Option<Ended> {
        match self.running.state(&*self.driver.0.engine).await {
            Ok(ExecState::NotStarted(_)) => self.wait().await.ok(),
            _ => None,
        }
    }

    /// Looks at the command, and at its sandbox too if `closely` or if the engine's answer may come from there.
    async fn look(&self, closely: bool) -> Result<Look, EngineError> {
        let state = self.running.state(&*self.driver.0.engine).await;
        // Where its output broke off, nobody hears of its end but the table.
        if let (Ok(ExecState::Running), Some(end)) = (&state, self.noted()) {
            return Ok(Look::Noted(end));
        }
        match state {
            Ok(ExecState::Exited(code)) => Ok(Look::Ended(code)),
            Ok(ExecState::NotStarted(code)) => Ok(Look::NeverStarted(code)),
            Ok(ExecState::Running) if closely && !self.sandbox_runs().await? => Ok(Look::Ended(KILLED)),
            Ok(ExecState::Starting | ExecState::Running) => Ok(Look::Runs),
            Err(EngineError::NoSandbox { .. }) => Ok(Look::Ended(KILLED)),
            Err(EngineError::Failed { text, .. }) if no_such_exec(&text) => Ok(Look::Ended(KILLED)),
            Err(error @ (EngineError::Conflict { .. } | EngineError::Failed { .. })) => {
                if self.sandbox_runs().await? { Err(error) } else { Ok(Look::Ended(KILLED)) }
            }
            Err(error) => Err(error),
        }
    }

    /// Its end, if its row has one.
    fn noted(&self) -> Option<End> {
        self.driver.0.store.exec(&ExecId::new(&self.exec_id))?.ended.clone()
    }

    async fn sandbox_runs(&self) -> Result<bool, EngineError> {
        let seen = self.driver.observe(&self.session).await?;
        Ok(seen.is_some_and(|s| matches!(s.state, RunState::Running | RunState::Paused)))
    }

    async fn ended(&self, code: i32) -> Ended {
        let out_of_memory = self.running.is_oom();
        if code != 0 && !out_of_memory {
            self.see_sandbox(code).await;
        }
        let row = self.driver.0.store.session_by_id(&self.session.id);
        let signal = self.running.signal_of(code);
        let name = self.session.name.as_str();
        let seen = End::seen(clock::now(), (code, signal), out_of_memory, name, row.as_deref());
        self.driver.end_exec(&self.exec_id, seen).await.into()
    }

    /// Why the command never started, in a line; `text` is what came in place of its output.
    pub fn start_refusal(&self, code: i32, text: &[u8]) -> String {
        let engines = || start_refusal(&self.command, code, &String::from_utf8_lossy(text));
        self.running.refusal().unwrap_or_else(engines)
    }

    /// Lets the session's row come to say what became of its sandbox, where that may have ended under the command: the
    /// engine tells of the sandbox later than of the command.
    async fn see_sandbox(&self, code: i32) {
        let ended = Instant::now();
        while let Some(row) = self.driver.0.store.session_by_id(&self.session.id) {
            let follows = match (row.operation, row.status, row.reason) {
                (None, Status::Running, _) => SANDBOX_FOLLOWS,
                (None, Status::Stopped, Some(Reason::Exited)) => REMOVAL_FOLLOWS,
                _ => break,
            };
            if !self.sandbox_runs().await.unwrap_or(true) {
                // Without an answer the row stays as it is, and so does the line.
                let _ = self.driver.compare_one(&self.session.id, false).await;
            }
            if code != KILLED || ended.elapsed() >= follows {
                break;
            }
            sleep(SANDBOX_POLL).await;
        }
    }

    /// Whether it can be followed again: abx-init runs it, and keeps what it writes.
    pub fn is_durable(&self) -> bool {
        matches!(*self.running, Running::Guest(_))
    }

    /// Leaves a terminal that goes on without anybody at it. Where the engine runs it, its output is read and dropped, so
    /// that the program never waits for a reader; as long as it writes, the session is not idle. Its input is held open:
    /// some engines end the output with it.
    pub fn leave(self, input: Option<Input>, mut output: ChunkStream) {
        if self.is_durable() {
            return;
        }
        let (driver, session) = (self.driver.clone(), self.session.id.clone());
        let (running, exec) = (Arc::clone(&self.running), self.exec_id.clone());
        // Only its output is a use from here on.
        drop(self);
        tokio::spawn(async move {
            while let Some(Ok(_)) = output.next().await {
                driver.0.usage.wrote(&session);
            }
            drop(input);
            if let Ok(ExecState::Exited(code)) = running.state(&*driver.0.engine).await {
                let signal = running.signal_of(code);
                driver.end_exec(&exec, End { at: clock::now(), code, signal, reason: None }).await;
            }
        });
    }

    /// Sets the size of its terminal.
    pub async fn resize(&self, size: Size) {
        let size = WindowSize { cols: size.cols, rows: size.rows };
        if let Err(error) = self.running.resize(&*self.driver.0.engine, size).await {
            tracing::debug!(%error, exec = self.exec_id, "cannot resize a terminal");
        }
    }

    /// A second handle on the same command.
    pub fn copy(&self) -> Handle {
        Handle {
            driver: self.driver.clone(),
            session: Arc::clone(&self.session),
            exec_id: self.exec_id.clone(),
            command: self.command.clone(),
            started: self.started,
            running: Arc::clone(&self.running),
            owed: Arc::clone(&self.owed),
            _in_use: self._in_use.again(),
        }
    }
}

/// Whether this is how an engine says that it does not know an exec: it forgets those of a container that has ended.
pub(super) fn no_such_exec(text: &str) -> bool {
    text.to_ascii_lowercase().contains("no such exec")
}
