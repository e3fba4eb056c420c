//! Commands and terminals that run already: coming back to them, and looking at them.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::deadline::remaining;
use super::running::Running;
use super::{ExecRequest, Handle, Live, runnable, window};
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::guests::{Act, Followed, Kept, Wanted};
use crate::daemon::named;
use crate::guest::wire::{Entry, Screen};
use crate::model::exec::Exec;
use crate::model::exec::signal::HUP;
use crate::model::id::ExecId;
use crate::model::idle::Busy;
use crate::model::session::{Runtime, Session, Status};
use crate::proto::errors::Kind;
use crate::proto::stream::{AgentStart, Size};

/// How often a terminal is looked for that another client opens or ends in the same moment.
const ATTACH_TRIES: u32 = 3;

/// How many sandboxes are asked for their terminals at once.
const ASKED_AT_ONCE: usize = 16;

/// A terminal, and the session that it is of.
pub struct TerminalOf {
    /// The session.
    pub session: Arc<Session>,
    /// What runs in it, as its command is listed.
    pub cmd: Vec<String>,
    /// What abx-init says of it.
    pub entry: Entry,
}

impl Driver {
    /// Does what the opening of a raw stream asks for: follows the command of this id, or that of the request's key;
    /// comes back to a terminal; or starts a command.
    ///
    /// # Errors
    /// As for [`Driver::follow_exec`], [`Driver::attach_terminal`] and [`Driver::exec`].
    pub async fn open_exec(
        &self,
        mut request: ExecRequest,
        follow: Option<&str>,
        wanted: &Wanted,
    ) -> Result<Live, Failure> {
        if let Some(id) = follow {
            named::exec_id("follow", id)?;
            return self.follow_exec(id, wanted).await;
        }
        request.terminal = request.terminal.as_deref().map(named::terminal).transpose()?;
        let session = self.session(&request.session)?;
        let _turn = self.turn_of_key(&session, &request).await;
        if let Some((_, followed)) = self.keyed(&session, &request, wanted).await {
            return followed;
        }
        let session = self.awake(session, request.resume, &request.report).await?;
        let mut note = None;
        let running = request.terminal.as_deref().and_then(|name| self.terminal_exec(&session, name));
        if request.agent == Some(AgentStart::Usual) && running.is_some() {
            request.agent = None;
        }
        if let Some(start) = request.agent {
            if !request.cmd.is_empty() {
                return Err(Failure::params("an opening has either a command or the session's agent"));
            }
            let chosen = self.agent_command(&session, start).await?;
            (request.cmd, note) = (chosen.argv, chosen.note);
        }
        let mut live = if request.terminal.is_some() && session.runtime == Runtime::Init {
            self.attach_terminal(&request, wanted).await?
        } else {
            // The engine's terminals have no names to come back to.
            request.terminal = None;
            self.exec(request).await?
        };
        live.note = note.filter(|_| !live.followed);
        Ok(live)
    }

    /// Follows a command that was started before.
    ///
    /// # Errors
    /// `exec_not_found`, `wrong_state` when the session does not run or the engine runs its commands, and the engine's
    /// kinds.
    pub async fn follow_exec(&self, id: &str, wanted: &Wanted) -> Result<Live, Failure> {
        let exec = self.find_exec(id)?;
        let session = self.followable(&exec)?;
        match self.0.guests.follow(&session, exec.id.as_str(), wanted).await? {
            Some(followed) => Ok(self.live(session, &exec, followed)),
            None => Err(forgotten(&exec)),
        }
    }

    /// Comes back to a terminal of a session, or starts one where none of this name runs.
    ///
    /// # Errors
    /// As for [`Driver::exec`]; `wrong_state` when a command is given and the terminal runs another already.
    pub async fn attach_terminal(&self, request: &ExecRequest, wanted: &Wanted) -> Result<Live, Failure> {
        let name = request.terminal.as_deref().unwrap_or_default();
        let session = runnable(self.session(&request.session)?)?;
        let mut last = None;
        for _ in 0..ATTACH_TRIES {
            if let Some(exec) = self.terminal_exec(&session, name) {
                if !suits(request, &exec) {
                    return Err(occupied(&session, &exec, name));
                }
                match self.0.guests.follow(&session, exec.id.as_str(), wanted).await? {
                    Some(followed) => {
                        self.stamp_connected(&session).await;
                        return Ok(self.live(session, &exec, followed));
                    }
                    // It ended, and the news of it is on its way.
                    None => self.0.guests.refresh(&session).await,
                }
            }
            match self.exec(request.clone()).await {
                Ok(live) => return Ok(live),
                // Another client was faster.
                Err(failure) if self.terminal_exec(&session, name).is_some() => last = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::new(Kind::Busy, format!("terminal '{name}' comes and goes"))))
    }

    /// What is kept of a command's output.
    ///
    /// # Errors
    /// As for [`Driver::follow_exec`].
    pub async fn exec_output(&self, id: &str, from: (u64, u64)) -> Result<Kept, Failure> {
        let exec = self.find_exec(id)?;
        let session = self.followable(&exec)?;
        let kept = self.0.guests.output(&session, exec.id.as_str(), from).await?;
        kept.ok_or_else(|| forgotten(&exec))
    }

    /// The terminals of one session, or of all that run.
    ///
    /// # Errors
    /// `session_not_found`; for one session, the engine's kinds.
    pub async fn terminals(&self, session: Option<&str>) -> Result<Vec<TerminalOf>, Failure> {
        let one = session.map(|name| self.session(name)).transpose()?;
        let all = one.as_ref().map_or_else(|| self.sessions(), |session| vec![Arc::clone(session)]);
        let asked = all
            .into_iter()
            .filter(|session| session.runtime == Runtime::Init && session.status == Status::Running)
            .map(|session| async move { (self.0.guests.entries(&session).await, session) });
        // One that does not answer holds up no other; each comes in its place.
        let mut answers = stream::iter(asked).buffered(ASKED_AT_ONCE);
        let mut found = Vec::new();
        while let Some((answer, session)) = answers.next().await {
            match answer {
                Ok(entries) => {
                    let terminals = entries
                        .into_iter()
                        .filter(|entry| !entry.terminal.is_empty() && entry.ended.is_none());
                    found.extend(terminals.map(|entry| self.terminal_of(&session, entry)));
                }
                Err(error) if one.is_some() => return Err(error.into()),
                Err(error) => tracing::warn!(%error, session = %session.name, "cannot list its terminals"),
            }
        }
        Ok(found)
    }

    fn terminal_of(&self, session: &Arc<Session>, entry: Entry) -> TerminalOf {
        let noted = self.0.store.exec(&ExecId::new(&entry.id)).map(|exec| exec.argv.clone());
        let words = || entry.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        TerminalOf { session: Arc::clone(session), cmd: noted.unwrap_or_else(words), entry }
    }

    /// What a terminal shows.
    ///
    /// # Errors
    /// `exec_not_found`, `wrong_state`, and the engine's kinds.
    pub async fn peek(&self, session: &str, terminal: &str, scrollback: u32) -> Result<Screen, Failure> {
        let session = self.runnable(session)?;
        let exec = self.open_terminal(&session, terminal)?;
        let seen = self.0.guests.peek(&session, exec.id.as_str(), scrollback).await?;
        seen.ok_or_else(|| no_terminal(&session, terminal))
    }

    /// Types into a terminal, for somebody who does not see it.
    ///
    /// # Errors
    /// As for [`Driver::peek`], and `limit` when much waits for what runs there already.
    pub async fn type_into(&self, session: &Session, terminal: &str, keys: &[u8]) -> Result<(), Failure> {
        self.act(session, terminal, Act::Type(keys)).await
    }

    /// Sets a terminal's size, for somebody who does not see it.
    ///
    /// # Errors
    /// As for [`Driver::type_into`].
    pub async fn resize_terminal(
        &self,
        session: &Session,
        terminal: &str,
        size: Size,
    ) -> Result<(), Failure> {
        self.act(session, terminal, Act::Resize(window(size))).await
    }

    async fn act(&self, session: &Session, terminal: &str, act: Act<'_>) -> Result<(), Failure> {
        let exec = self.open_terminal(session, terminal)?;
        self.0.usage.touch(&session.id);
        let done = self.0.guests.act(session, exec.id.as_str(), act).await?;
        done.then_some(()).ok_or_else(|| no_terminal(session, terminal))
    }

    /// A session whose terminals somebody wants to do something at.
    ///
    /// # Errors
    /// `session_not_found` and `wrong_state`.
    pub fn runnable(&self, session: &str) -> Result<Arc<Session>, Failure> {
        runnable(self.session(session)?)
    }

    /// Ends what runs on a terminal.
    ///
    /// # Errors
    /// `exec_not_found`, `wrong_state`, and the engine's kinds.
    pub async fn close_terminal(&self, session: &str, terminal: &str) -> Result<(), Failure> {
        let session = self.runnable(session)?;
        let exec = self.open_terminal(&session, terminal)?;
        // As when a window is closed: a shell ignores TERM.
        self.0.guests.signal(&session, exec.id.as_str(), HUP).await?;
        self.kill_exec(exec.id.as_str(), None).await.map(drop)
    }

    fn live(&self, session: Arc<Session>, exec: &Exec, followed: Followed) -> Live {
        let Followed { mut io, command, stdout_from, stderr_from } = followed;
        io.output = io.output.fuse().boxed();
        let by = if exec.terminal.is_some() { Busy::Client } else { Busy::Exec };
        let handle = Handle {
            driver: self.clone(),
            exec_id: exec.id.to_string(),
            running: Arc::new(Running::Guest(command)),
            command: exec.argv.first().cloned().unwrap_or_default(),
            started: Instant::now(),
            owed: Arc::default(),
            _in_use: self.0.usage.begin(&session.id, by),
            session,
        };
        let from = (stdout_from, stderr_from);
        Live {
            id: exec.id.to_string(),
            io,
            handle,
            followed: true,
            detached: exec.detached,
            from,
            deadline: remaining(exec),
            note: None,
        }
    }

    /// The session of a command whose output can be had.
    fn followable(&self, exec: &Exec) -> Result<Arc<Session>, Failure> {
        let session = self.0.store.session_by_id(&exec.session).ok_or_else(|| forgotten(exec))?;
        if session.runtime != Runtime::Init {
            let text = "the engine runs the commands of this session, and keeps no output";
            return Err(Failure::new(Kind::WrongState, text).about(session.name.as_str()));
        }
        if !matches!(session.status, Status::Running | Status::Paused) {
            let name = session.name.as_str();
            let text = format!(
                "the output of command {} is kept in its sandbox, which does not run: it is gone",
                exec.id
            );
            return Err(Failure::new(Kind::WrongState, text)
                .about(name)
                .hint(format!("abx exec wait {} tells how it ended", exec.id)));
        }
        Ok(session)
    }

    fn terminal_exec(&self, session: &Session, name: &str) -> Option<Arc<Exec>> {
        let mut open = self.0.store.execs(&session.id).into_iter().rev();
        open.find(|exec| exec.ended.is_none() && exec.terminal.as_deref() == Some(name))
    }

    fn open_terminal(&self, session: &Session, name: &str) -> Result<Arc<Exec>, Failure> {
        let name = named::terminal(name)?;
        self.terminal_exec(session, &name).ok_or_else(|| no_terminal(session, &name))
    }

    async fn stamp_connected(&self, session: &Session) {
        let now = clock::now();
        let stamped = self.0.store.update(&session.id, move |s| {
            s.last_active = now;
            s.last_connected = Some(now);
        });
        if let Err(error) = stamped.await {
            tracing::warn!(%error, session = %session.name, "cannot note that somebody attached");
        }
    }
}

/// Whether what runs on a terminal is what was asked for. An agent is the same with whatever arguments it was started.
fn suits(request: &ExecRequest, exec: &Exec) -> bool {
    match request.agent {
        None => request.cmd.is_empty() || request.cmd == exec.argv,
        // The usual agent gives way to what runs; here it is another client that was faster.
        Some(AgentStart::Usual) => true,
        Some(AgentStart::Resume) => request.cmd.first() == exec.argv.first(),
        Some(AgentStart::Fresh) => false,
    }
}

fn forgotten(exec: &Exec) -> Failure {
    Failure::new(Kind::ExecNotFound, format!("nothing is kept of command {} any more", exec.id))
}

/// The session has no terminal of this name.
pub fn no_terminal(session: &Session, name: &str) -> Failure {
    let text = format!("session '{}' has no terminal '{name}'", session.name);
    Failure::new(Kind::ExecNotFound, text).hint(format!("abx attach {} --terminal {name}", session.name))
}

fn occupied(session: &Session, exec: &Exec, name: &str) -> Failure {
    let running = exec.argv.first().map(String::as_str).unwrap_or_default();
    let text = format!("terminal '{name}' of session '{}' runs {running} already", session.name);
    Failure::new(Kind::WrongState, text)
        .hint(format!("abx attach {} comes back to it; --terminal NAME opens another", session.name))
}
