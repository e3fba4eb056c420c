//! Commands in sandboxes: starting them, following them to their end, ending them.
//!
//! The one interface between the callers (`exec.run`, the raw stream) and whatever runs commands in a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use super::clock;
use super::driver::Driver;
use super::failure::Failure;
use super::resolve;
use super::usage::InUse;
use crate::engine::{Chunk, EngineError, ExecIo, ExecSpec, ExecState, WindowSize};
use crate::model::session::{Operation, Reason, Session, Status};
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;
use crate::proto::stream::Size;

/// The code of a command whose time ran out (as in coreutils' `timeout`).
pub const TIMED_OUT: i32 = 124;

/// The code of a command that was killed.
const KILLED: i32 = 137;

/// Time between TERM and KILL for a command whose time ran out or whose client is gone.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Longest wait between two looks at whether a command that closed its output has ended.
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// Most arguments of a command, and most bytes in all of them: what Linux takes (a quarter of the usual stack limit).
const MAX_ARGV_BYTES: usize = 2 * 1024 * 1024;

/// Output that is kept of each stream by `exec.run`, in bytes. What is beyond is read and dropped.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Program and arguments; empty for the session's shell.
    pub cmd: Vec<String>,
    /// Added to the session's environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: Option<String>,
    /// User.
    pub user: Option<String>,
    /// On a terminal of this size.
    pub tty: Option<Size>,
    /// Whether there will be input.
    pub stdin: bool,
    /// Whether this is an attach: it stamps `last_connected` and is not counted.
    pub attach: bool,
}

/// A command that runs. Dropping it does not end it.
pub struct Live {
    /// Its id.
    pub id: String,
    /// Its streams.
    pub io: ExecIo,
    /// What is needed to follow and to end it.
    pub handle: Handle,
}

/// What is needed to follow and to end a command.
pub struct Handle {
    driver: Driver,
    session: Arc<Session>,
    exec_id: String,
    engine_id: String,
    user: Option<String>,
    started: Instant,
    _in_use: InUse,
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

/// What a buffered command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub ended: Ended,
    /// The beginning of its output.
    pub stdout: Vec<u8>,
    /// The beginning of its errors.
    pub stderr: Vec<u8>,
    /// Whether more came than was kept.
    pub truncated: bool,
    /// How long it ran.
    pub took: Duration,
}

impl Driver {
    /// Starts a command.
    ///
    /// # Errors
    /// `session_not_found`, `wrong_state`, `invalid_params` and the engine's kinds. That there is no such program is no
    /// error here: it is the command's end.
    pub async fn exec(&self, request: ExecRequest) -> Result<Live, Failure> {
        let session = self.session(&request.session)?;
        plan(&session, Verb::Exec).map_err(|refusal| Failure::refused(&session, refusal))?;
        let sandbox = session.sandbox_id.clone().unwrap_or_default();
        check(&request)?;
        let in_use = self.0.usage.begin(&session.id);
        let spec = spec(&session, &request);
        let io = match self.0.engine.exec(&sandbox, &spec).await {
            Ok(io) => io,
            Err(error) => return Err(self.explain_exec(&session, error).await),
        };
        let now = clock::now();
        let attach = request.attach;
        self.0
            .store
            .update(&session.id, move |s| {
                s.last_active = now;
                if attach {
                    s.last_connected = Some(now);
                } else {
                    s.exec_count = s.exec_count.saturating_add(1);
                }
            })
            .await?;
        let handle = Handle {
            driver: self.clone(),
            session,
            exec_id: spec.exec_id.clone(),
            engine_id: io.engine_id.clone(),
            user: spec.user,
            started: Instant::now(),
            _in_use: in_use,
        };
        Ok(Live { id: spec.exec_id, io, handle })
    }

    /// A sandbox that the engine says cannot run anything is looked at again, so that the refusal names its state.
    async fn explain_exec(&self, session: &Session, error: EngineError) -> Failure {
        if matches!(error, EngineError::Conflict { .. } | EngineError::NoSandbox { .. }) {
            // The state is what matters here; an engine that went away shows in the error itself.
            let _ = self.compare_one(&session.id, false).await;
            if let Some(now) = self.0.store.session_by_id(&session.id)
                && let Err(refusal) = plan(&now, Verb::Exec)
            {
                return Failure::refused(&now, refusal);
            }
        }
        Failure::from(error).about(session.name.as_str())
    }

    /// Runs a command to its end and keeps the beginning of its output.
    ///
    /// # Errors
    /// As for [`Driver::exec`], and `command_not_found` or `command_not_executable` when it never started.
    ///
    /// # Cancel safety
    /// The command goes on when the caller is dropped.
    pub async fn exec_run(
        &self,
        request: ExecRequest,
        input: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Output, Failure> {
        let this = self.clone();
        self.submit(async move {
            let live = this.exec(request).await?;
            let deadline = limit.map(|limit| Instant::now() + limit);
            let output = collect(live, input, deadline).await?;
            if output.ended.never_started {
                return Err(never_started(&output));
            }
            Ok(output)
        })
        .await
    }
}

fn never_started(output: &Output) -> Failure {
    let kind = if output.ended.code == 126 { Kind::CommandNotExecutable } else { Kind::CommandNotFound };
    let reason = output.ended.reason.clone().unwrap_or_else(|| "the command cannot be run".to_owned());
    Failure::new(kind, reason)
}

async fn collect(live: Live, input: Option<String>, deadline: Option<Instant>) -> Result<Output, Failure> {
    let Live { id, mut io, handle } = live;
    let feed = io.input.take().map(|mut stdin| {
        let text = input.unwrap_or_default();
        tokio::spawn(async move {
            // A command that does not read its input is no error.
            let _ = stdin.write_all(text.as_bytes()).await;
            let _ = stdin.shutdown().await;
        })
    });
    let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
    let mut timed_out = false;
    loop {
        let next = match deadline.filter(|_| !timed_out) {
            Some(at) => tokio::select! {
                chunk = io.output.next() => chunk,
                () = tokio::time::sleep_until(at) => {
                    timed_out = true;
                    handle.end();
                    continue;
                }
            },
            None => io.output.next().await,
        };
        match next {
            Some(Ok(Chunk::Stdout(bytes))) => truncated |= keep(&mut stdout, &bytes),
            Some(Ok(Chunk::Stderr(bytes))) => truncated |= keep(&mut stderr, &bytes),
            Some(Err(error)) if !timed_out => return Err(error.into()),
            Some(Err(_)) | None => break,
        }
    }
    let mut ended = handle.wait(deadline.filter(|_| !timed_out)).await?;
    if timed_out || ended.code == TIMED_OUT && ended.reason.is_some() {
        ended = Ended { code: TIMED_OUT, reason: Some("its time ran out".to_owned()), never_started: false };
    }
    if ended.never_started {
        let text =
            String::from_utf8_lossy(if stdout.is_empty() { &stderr } else { &stdout }).trim().to_owned();
        ended.reason = Some(text).filter(|t| !t.is_empty()).or(ended.reason);
    }
    if let Some(feed) = feed {
        feed.abort();
    }
    Ok(Output { id, ended, stdout, stderr, truncated, took: handle.started.elapsed() })
}

/// Keeps what fits and says whether something did not.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    bytes.len() > room
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
        Ok(seen.is_some_and(|s| {
            matches!(s.state, crate::engine::RunState::Running | crate::engine::RunState::Paused)
        }))
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
        if let Err(error) = self.driver.0.engine.exec_resize(&self.engine_id, window(size)).await {
            tracing::debug!(%error, exec = self.exec_id, "cannot resize a terminal");
        }
    }

    /// TERM, a grace, KILL, on a task of its own.
    fn end(&self) {
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
            started: self.started,
            _in_use: self.driver.0.usage.begin(&self.session.id),
        }
    }
}

fn check(request: &ExecRequest) -> Result<(), Failure> {
    if request.cmd.iter().map(|arg| arg.len() + 1).sum::<usize>() > MAX_ARGV_BYTES {
        return Err(Failure::new(Kind::Limit, format!("a command has at most {MAX_ARGV_BYTES} bytes")));
    }
    if request.cmd.iter().any(|arg| arg.contains('\0')) || request.cmd.first().is_some_and(String::is_empty) {
        return Err(Failure::params("a command is a program and its arguments, without NUL bytes"));
    }
    if !request.attach && request.cmd.is_empty() {
        return Err(Failure::params("no command to run"));
    }
    if request.cwd.as_deref().is_some_and(|cwd| !cwd.starts_with('/')) {
        return Err(Failure::params("the working directory must be an absolute path in the sandbox"));
    }
    resolve::check_env(request.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

/// The session's shell: bash where there is one, as a login shell.
const SHELL: [&str; 3] =
    ["/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"];

fn spec(session: &Session, request: &ExecRequest) -> ExecSpec {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    if request.tty.is_some() {
        env.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    env.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    if let Some(workspace) = &session.spec.workspace {
        // The workspace belongs to a user of the host: git trusts this one path, and no other.
        let trust = [("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", workspace.target.as_str())];
        env.extend(trust.map(|(key, value)| (format!("GIT_CONFIG_{key}"), value.to_owned())));
    }
    env.extend(session.spec.env.iter().map(|(k, v)| (k.clone(), v.reveal().to_owned())));
    env.extend(request.env.clone());
    let argv = if request.cmd.is_empty() { SHELL.map(str::to_owned).to_vec() } else { request.cmd.clone() };
    ExecSpec {
        exec_id: uuid::Uuid::now_v7().to_string(),
        argv,
        env: env.into_iter().collect(),
        cwd: request.cwd.clone().or_else(|| session.spec.workspace.as_ref().map(|w| w.target.clone())),
        user: request.user.clone().or_else(|| session.spec.user.clone()),
        tty: request.tty.map(window),
        stdin: request.stdin,
    }
}

fn window(size: Size) -> WindowSize {
    WindowSize { cols: size.cols, rows: size.rows }
}
