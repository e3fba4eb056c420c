//! Commands in sandboxes: starting them, following them to their end, ending them.
//!
//! The one interface between the callers (`exec.run`, the raw stream) and whatever runs commands in a sandbox.

mod collect;
mod handle;

use std::collections::BTreeMap;

use tokio::time::Instant;

pub use self::collect::{MAX_OUTPUT_BYTES, Output, start_refusal};
pub use self::handle::{Ended, Handle, TIMED_OUT};
use super::clock;
use super::driver::Driver;
use super::failure::Failure;
use super::resolve;
use crate::engine::{EngineError, ExecIo, ExecSpec, WindowSize};
use crate::model::session::Session;
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;
use crate::proto::stream::Size;

/// Most arguments of a command, and most bytes in all of them: what Linux takes (a quarter of the usual stack limit).
const MAX_ARGV_BYTES: usize = 2 * 1024 * 1024;

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
            command: spec.argv.first().cloned().unwrap_or_default(),
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
