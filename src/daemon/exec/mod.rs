//! Commands in sandboxes: starting them, following them to their end, ending them.
//!
//! The one interface between the callers (`exec.run`, the raw stream) and whatever runs commands in a sandbox.

mod collect;
mod deadline;
mod detached;
mod ending;
mod follow;
mod handle;
mod keys;
mod launches;
mod records;
mod running;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep, timeout};

pub use self::collect::{MAX_OUTPUT_BYTES, Output, TOO_LONG, start_refusal};
pub use self::deadline::{by, deadline};
pub(super) use self::ending::KILL_GRACE;
pub use self::follow::{TerminalOf, no_terminal};
pub use self::handle::{Ended, Handle};
pub use self::keys::Keys;
pub use self::launches::Launches;
pub(super) use self::records::{NOTE_AGAIN, settle};
use self::running::Running;
use super::driver::Driver;
use super::failure::Failure;
use super::framing::Audience;
use super::guests::{NotStarted, Started};
use super::named;
use super::progress::Report;
use super::shutdown::Shutdown;
use crate::engine::{Chunk, EngineError, ExecIo, ExecSpec, ExecState, WindowSize};
use crate::fault;
use crate::model::exec::Verdict;
use crate::model::id::SessionId;
use crate::model::idle::Busy;
use crate::model::session::{Runtime, Session};
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;
use crate::proto::stream::{AgentStart, Size};

/// Longest wait for an operation that keeps a sandbox from taking a command: a save of a large sandbox under a pause.
/// Past it the command is refused as `busy`.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for the process of a command that was started, before its sandbox is frozen: as long as an engine that
/// has much to do takes to make one. Past it the sandbox is frozen all the same.
const PROCESS_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at it.
const PROCESS_POLL: Duration = Duration::from_millis(5);

/// A command's output, as the engine gives it.
pub type ChunkStream = BoxStream<'static, Result<Chunk, EngineError>>;

/// A command's input.
pub type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Program and arguments; with `attach`, empty for the session's shell.
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
    /// Whether it goes on without anybody who waits for it.
    pub detached: bool,
    /// What its caller names it by.
    pub key: Option<String>,
    /// The name of its terminal, if that is to have one.
    pub terminal: Option<String>,
    /// Whether `cmd` is to be the session's agent.
    pub agent: Option<AgentStart>,
    /// How long it may run: none and zero are no limit.
    pub timeout: Option<Duration>,
    /// Who waits for the result of [`Driver::exec_run`].
    pub audience: Audience,
    /// Whether a session that does not run is brought back; none leaves that to the configuration.
    pub resume: Option<bool>,
    /// Hears of that before it happens.
    pub report: Report,
    /// What [`Driver::exec_run`] does not keep waiting: when it begins, the command goes on without who waits for it.
    pub shutdown: Shutdown,
}

/// A command that runs. Dropping it does not end it.
pub struct Live {
    /// Its id.
    pub id: String,
    /// Its streams.
    pub io: ExecIo,
    /// What is needed to follow and to end it.
    pub handle: Handle,
    /// Whether it ran before, and is followed.
    pub followed: bool,
    /// Whether it goes on without anybody who follows it.
    pub detached: bool,
    /// Where its two outputs begin.
    pub from: (u64, u64),
    /// When its time runs out.
    pub deadline: Option<Instant>,
    /// One line for the user on what was started.
    pub note: Option<String>,
}

/// Why a command was not launched.
struct NotLaunched {
    failure: Failure,
    /// Whether it may run all the same.
    may_run: bool,
    /// Whether the session was found not to run, so that it was not even asked for.
    asleep: bool,
}

impl From<Failure> for NotLaunched {
    fn from(failure: Failure) -> Self {
        Self { failure, may_run: false, asleep: false }
    }
}

impl Driver {
    /// Starts a command, in a session that is brought back for it. Where an operation that is under way keeps the sandbox
    /// from taking one, it is waited for.
    ///
    /// # Errors
    /// `session_not_found`, `wrong_state`, `busy`, `invalid_params`, the kinds of a resume and the engine's. That there is
    /// no such program is no error here: it is the command's end.
    pub async fn exec(&self, request: ExecRequest) -> Result<Live, Failure> {
        named::command(&request)?;
        let session = self.session(&request.session)?;
        let id = session.id.clone();
        let session = self.awake(session, request.resume, &request.report).await?;
        match self.exec_in(session, &request).await {
            // It was stopped meanwhile, or was not what its row said.
            Err(NotLaunched { failure, asleep: true, .. }) => {
                let session = self.0.store.session_by_id(&id).ok_or(failure)?;
                let session = self.awake(session, request.resume, &request.report).await?;
                self.exec_in(session, &request).await
            }
            started => started,
        }
        .map_err(|refused| refused.failure)
    }

    /// Starts a command in a session that runs, by its row.
    async fn exec_in(&self, session: Arc<Session>, request: &ExecRequest) -> Result<Live, NotLaunched> {
        let by = if request.attach { Busy::Client } else { Busy::Exec };
        let in_use = self.0.usage.begin(&session.id, by);
        let id = uuid::Uuid::now_v7().to_string();
        self.begin_exec(&session, request, &id, &listed(request)).await?;
        fault::point("exec.noted").await;
        let (spec, mut io, running, session) = match self.launch(Arc::clone(&session), request, &id).await {
            Ok(launched) => launched,
            Err(refused) => return Err(self.not_launched(&session, request, &id, refused).await),
        };
        fault::point("exec.started").await;
        // Whoever takes over may ask for more of an output that has ended.
        io.output = io.output.fuse().boxed();
        let handle = Handle {
            driver: self.clone(),
            session,
            exec_id: spec.exec_id.clone(),
            running: Arc::new(running),
            command: spec.argv.first().cloned().unwrap_or_default(),
            started: Instant::now(),
            owed: Arc::default(),
            _in_use: in_use,
        };
        let (detached, deadline) = (request.detached || request.attach, deadline(request.timeout));
        Ok(Live {
            id: spec.exec_id,
            io,
            handle,
            followed: false,
            detached,
            from: (0, 0),
            deadline,
            note: None,
        })
    }

    async fn launch(
        &self,
        session: Arc<Session>,
        request: &ExecRequest,
        id: &str,
    ) -> Result<(ExecSpec, ExecIo, Running, Arc<Session>), NotLaunched> {
        let first = spec(&session, request, id, self.caller(&session));
        // An attach is left and goes on.
        let (detached, terminal) = (request.detached || request.attach, request.terminal.as_deref());
        let refused = match self.launch_once(&session, &first, detached, terminal).await {
            Ok((io, running)) => return Ok((first, io, running, session)),
            Err(error) => error,
        };
        let about = |error: EngineError| Failure::from(error).about(session.name.as_str());
        let mut may_run = refused.asked;
        if !matches!(refused.error, EngineError::Conflict { .. } | EngineError::NoSandbox { .. }) {
            return Err(NotLaunched { may_run, ..about(refused.error).into() });
        }
        // The sandbox is frozen or being ended by an operation, or it is not what its row says.
        let settled = self.settled(&session).await;
        let session = settled.map_err(|failure| {
            let asleep = failure.kind == Kind::WrongState && !may_run;
            NotLaunched { failure, may_run, asleep }
        })?;
        let again = spec(&session, request, id, self.caller(&session));
        match self.launch_once(&session, &again, detached, terminal).await {
            Ok((io, running)) => Ok((again, io, running, session)),
            Err(refused) => {
                may_run |= refused.asked;
                Err(NotLaunched { may_run, ..about(refused.error).into() })
            }
        }
    }

    /// What is told of a command that was not launched. One that may run all the same keeps its row, which says that it
    /// was given up: nobody can take back what was asked.
    async fn not_launched(
        &self,
        session: &Session,
        request: &ExecRequest,
        id: &str,
        refused: NotLaunched,
    ) -> NotLaunched {
        if refused.may_run {
            self.judge_exec(id, Verdict::Abandoned).await;
            self.0.guests.give_up(session, id);
        } else {
            self.forget_exec(&session.id, id, request.attach).await;
        }
        refused
    }

    async fn launch_once(
        &self,
        session: &Arc<Session>,
        spec: &ExecSpec,
        detached: bool,
        terminal: Option<&str>,
    ) -> Result<(ExecIo, Running), NotStarted> {
        let _launching = self.0.launches.begin(&session.id).await;
        let mut spec = std::borrow::Cow::Borrowed(spec);
        if session.runtime == Runtime::Init {
            match self.0.guests.start(session, &spec, detached, terminal).await? {
                Started::Here(io, command) => return Ok((io, Running::Guest(command))),
                Started::ByEngine { user } if spec.user.is_none() => spec.to_mut().user = user,
                Started::ByEngine { .. } => {}
            }
        }
        let sandbox = session.sandbox_id.as_deref().unwrap_or_default();
        let io = self.0.engine.exec(sandbox, &spec).await?;
        let launched = self.0.launches.launched(&session.id, &io.engine_id);
        Ok((io, Running::Engine { launched, user: spec.user.clone() }))
    }

    /// Who commands run as in a session that works on a directory of the host, where neither user nor template says
    /// otherwise: whoever runs this daemon, so that files made there are theirs. None where the engine sees to that, and
    /// for root, whose files are root's anyway.
    pub(in crate::daemon) fn caller(&self, session: &Session) -> Option<String> {
        let workspace = session.spec.workspace.as_ref().filter(|workspace| !workspace.is_volume());
        let uid = nix::unistd::geteuid();
        let is_mapped = self.engine_state().about.is_some_and(|about| about.maps_users);
        if workspace.is_none() || session.runtime != Runtime::Init || uid.is_root() || is_mapped {
            return None;
        }
        Some(format!("{uid}:{}", nix::unistd::getegid()))
    }

    /// Freezes the sandbox, when none of its commands is between its start and its process.
    pub(super) async fn freeze(&self, session: &Session) -> Result<(), EngineError> {
        let still = timeout(PROCESS_LIMIT, self.0.launches.still(&session.id)).await;
        let settled = async {
            for engine_id in self.0.launches.under_way(&session.id) {
                while matches!(self.0.engine.exec_state(&engine_id).await, Ok(ExecState::Starting)) {
                    sleep(PROCESS_POLL).await;
                }
            }
        };
        if still.is_err() || timeout(PROCESS_LIMIT, settled).await.is_err() {
            tracing::warn!(session = %session.name, "a command of a session that is being frozen has no process yet");
        }
        self.0.engine.pause(session.sandbox_id.as_deref().unwrap_or_default()).await
    }

    /// Waits for the operation that is under way, if one is, and gives the row as it is then: it must still be one that
    /// runs commands.
    async fn settled(&self, session: &Session) -> Result<Arc<Session>, Failure> {
        let name = session.name.as_str();
        // An engine that went away meanwhile shows in the next attempt.
        if timeout(BUSY_LIMIT, self.compare_one(&session.id, false)).await.is_err() {
            let text = format!("session '{name}': another operation on it has not ended yet");
            return Err(Failure::new(Kind::Busy, text).about(name));
        }
        runnable(self.0.store.session_by_id(&session.id).ok_or_else(|| Failure::no_session(name))?)
    }

    /// Waits, for a bounded time, until no operation on the session is under way.
    pub(super) async fn quiet(&self, id: &SessionId) {
        // Past the limit it is as busy as before, and whoever asked goes on without.
        let _ = timeout(BUSY_LIMIT, self.hold_id(id)).await;
    }
}

/// The session, if it takes commands.
///
/// # Errors
/// `wrong_state`, `busy` and `sandbox_lost` where it does not.
pub(super) fn runnable(session: Arc<Session>) -> Result<Arc<Session>, Failure> {
    match plan(&session, Verb::Exec) {
        Ok(_) => Ok(session),
        Err(refusal) => Err(Failure::refused(&session, refusal)),
    }
}

/// The session's shell: bash where there is one, as a login shell.
const SHELL: [&str; 3] =
    ["/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"];

/// What a shell that nobody asked for by name is listed as: a login shell calls itself so (login(1)).
const SHELL_NAME: &str = "-sh";

/// What a command is listed as.
fn listed(request: &ExecRequest) -> Vec<String> {
    if request.cmd.is_empty() { vec![SHELL_NAME.to_owned()] } else { request.cmd.clone() }
}

/// Program and arguments: those asked for, else the session's shell.
fn argv(request: &ExecRequest) -> Vec<String> {
    if request.cmd.is_empty() { SHELL.map(str::to_owned).to_vec() } else { request.cmd.clone() }
}

fn spec(session: &Session, request: &ExecRequest, id: &str, caller: Option<String>) -> ExecSpec {
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
    ExecSpec {
        exec_id: id.to_owned(),
        argv: argv(request),
        env: env.into_iter().collect(),
        cwd: request.cwd.clone().or_else(|| session.spec.workspace.as_ref().map(|w| w.target.clone())),
        user: request.user.clone().or_else(|| session.spec.user.clone()).or(caller),
        tty: request.tty.map(window),
        stdin: request.stdin,
    }
}

fn window(size: Size) -> WindowSize {
    WindowSize { cols: size.cols, rows: size.rows }
}
