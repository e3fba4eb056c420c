//! What the table knows of commands: noted before they start and when they end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::deadline::TRY_AGAIN;
use super::{ExecRequest, by, deadline};
use crate::daemon::agents::{self, Mark};
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::text::shown;
use crate::daemon::{attention, clock, named};
use crate::model::exec::signal::{KILL, TERM};
use crate::model::exec::{End, Exec, Verdict};
use crate::model::id::{ExecId, SessionId};
use crate::model::session::{Runtime, Session, Status};
use crate::proto::errors::Kind;
use crate::store::Tx;
use crate::store::error::StoreError;

/// Fewest characters of an id that stand for it.
const SHORT_ID_CHARS: usize = 4;

/// Time between them for a command that a user ends.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Between two tries to note what has ended, in a table that cannot be written: a full disk has to be cleared by someone.
pub(in crate::daemon) const NOTE_AGAIN: Duration = Duration::from_secs(2);

/// A command in its sandbox.
struct Target {
    exec: String,
    session: Arc<Session>,
}

/// Notes an end of a command that was seen, and all that follows from it. Gives the row, with the end that stands; none
/// when it was forgotten.
///
/// # Errors
/// The store's.
pub(in crate::daemon) fn settle(
    tx: &mut Tx<'_>,
    id: &ExecId,
    seen: End,
) -> Result<Option<Arc<Exec>>, StoreError> {
    let ran = tx.exec(id).is_some_and(|exec| exec.ended.is_none());
    let Some(exec) = tx.settle_exec(id, None, Some(seen))? else { return Ok(None) };
    if let Some(end) = &exec.ended {
        agents::ended(tx, &exec, end.code)?;
        if ran {
            attention::ended(tx, &exec, end)?;
        }
    }
    Ok(Some(exec))
}

impl Driver {
    /// The commands of one session, or of all, oldest first.
    ///
    /// # Errors
    /// `session_not_found`.
    pub fn execs(&self, session: Option<&str>) -> Result<Vec<Arc<Exec>>, Failure> {
        let sessions = match session {
            Some(name) => vec![self.session(name)?],
            None => self.sessions(),
        };
        let mut all: Vec<Arc<Exec>> = sessions.iter().flat_map(|s| self.0.store.execs(&s.id)).collect();
        all.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
        Ok(all)
    }

    /// A command by its id, or by a beginning of it that no other has.
    ///
    /// # Errors
    /// `exec_not_found`, and `invalid_params` where it is longer than any.
    pub fn find_exec(&self, id: &str) -> Result<Arc<Exec>, Failure> {
        named::exec_id("id", id)?;
        if let Some(exec) = self.0.store.exec(&ExecId::new(id)) {
            return Ok(exec);
        }
        let mut found: Vec<Arc<Exec>> = Vec::new();
        if id.len() >= SHORT_ID_CHARS {
            found.extend(self.execs(None)?.into_iter().filter(|exec| exec.id.as_str().starts_with(id)));
        }
        match &found[..] {
            [exec] => Ok(Arc::clone(exec)),
            [] => {
                Err(Failure::new(Kind::ExecNotFound, format!("no command {}", shown(id)))
                    .hint("abx exec list"))
            }
            several => {
                let text = format!("{} commands have an id that begins with {id}", several.len());
                Err(Failure::new(Kind::ExecNotFound, text).hint("give more of the id: abx exec list"))
            }
        }
    }

    /// Waits until a command has ended, or for `limit`, and gives how it stands then.
    ///
    /// # Errors
    /// `exec_not_found`.
    ///
    /// # Cancel safety
    /// Nothing but the waiting is lost.
    pub async fn wait_exec(&self, id: &str, limit: Option<Duration>) -> Result<Arc<Exec>, Failure> {
        let exec = self.find_exec(id)?;
        let seen = by(deadline(limit), self.0.store.ended(&exec)).await;
        Ok(seen.or_else(|| self.0.store.exec(&exec.id)).unwrap_or(exec))
    }

    /// Sends a signal to a command and all that it started; without one, TERM, and KILL to what is left after a grace.
    /// One that has ended is fine.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn kill_exec(&self, id: &str, signal: Option<i32>) -> Result<Arc<Exec>, Failure> {
        let exec = self.find_exec(id)?;
        let session = self.0.store.session_by_id(&exec.session);
        let (None, Some(session)) = (&exec.ended, session) else { return Ok(exec) };
        let target = Target { exec: exec.id.to_string(), session };
        self.signal_exec(&target, signal.unwrap_or(TERM)).await?;
        if signal.is_none() {
            let (this, id) = (self.clone(), exec.id.to_string());
            tokio::spawn(async move {
                // Also where it ends at once: what it started may need the grace, and may be left.
                sleep(KILL_GRACE).await;
                while let Err(failure) = this.kill_rest(&target).await {
                    if !this.is_frozen(&target.session.id) {
                        tracing::warn!(%failure, exec = id, "cannot end a command");
                        break;
                    }
                    let _ = timeout(TRY_AGAIN, this.0.thawed.notified()).await;
                }
            });
        }
        self.find_exec(exec.id.as_str())
    }

    async fn kill_rest(&self, target: &Target) -> Result<(), Failure> {
        // One that the table does not have any more has ended, among many others.
        let runs = self.0.store.exec(&ExecId::new(&target.exec)).is_some_and(|exec| exec.ended.is_none());
        if runs {
            return self.signal_exec(target, KILL).await;
        }
        // Where the sandbox has ended too, nothing is left.
        let session = self.0.store.session_by_id(&target.session.id);
        let running = session.is_some_and(|session| session.status == Status::Running);
        if running && target.session.runtime == Runtime::Init {
            self.0.guests.signal(&target.session, &target.exec, KILL).await?;
        } else if running {
            self.signal_exec(target, KILL).await?;
        }
        Ok(())
    }

    async fn signal_exec(&self, target: &Target, signal: i32) -> Result<(), Failure> {
        if target.session.runtime == Runtime::Init
            && self.0.guests.signal(&target.session, &target.exec, signal).await?
        {
            return Ok(());
        }
        let sandbox = target.session.sandbox_id.as_deref().unwrap_or_default();
        // As root: whoever it runs as may have changed its user since.
        Ok(self.0.engine.exec_signal(sandbox, &target.exec, Some("0"), signal).await?)
    }

    /// Notes a command that is about to be started, and counts it. A table that cannot be written (a full disk) keeps
    /// no command from running that somebody waits for. One that has a key, or goes on by itself, is known by its row alone.
    ///
    /// # Errors
    /// The store's, for a command with a key, and one that goes on by itself.
    pub(super) async fn begin_exec(
        &self,
        session: &Session,
        request: &ExecRequest,
        id: &str,
        argv: &[String],
    ) -> Result<(), Failure> {
        let now = clock::now();
        let exec = Exec {
            id: ExecId::new(id),
            session: session.id.clone(),
            key: request.key.clone(),
            argv: argv.to_vec(),
            terminal: request.terminal.clone(),
            tty: request.tty.is_some(),
            detached: request.detached || request.terminal.is_some(),
            started_at: now,
            deadline: request.deadline_at(now),
            verdict: None,
            ended: None,
        };
        let (attach, needs_row) = (request.attach, request.key.is_some() || request.detached);
        let mark = request.agent.map(|_| Mark::of(&exec));
        let noted = self.0.store.write(move |tx| {
            tx.put_exec(&exec)?;
            if let Some(mark) = mark {
                mark.keep(tx, &exec.session)?;
            }
            tx.change_session(&exec.session, |s| {
                s.last_active = exec.started_at;
                attention::begins(s, &exec);
                if attach {
                    s.last_connected = Some(exec.started_at);
                } else {
                    s.exec_count = s.exec_count.saturating_add(1);
                }
            })
        });
        match noted.await {
            Err(error) if needs_row => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, session = %session.name, "a command is started without a note of it");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Takes back what [`Driver::begin_exec`] noted of a command that was not started.
    pub(super) async fn forget_exec(&self, session: &SessionId, id: &str, attach: bool) {
        let (session, id) = (session.clone(), ExecId::new(id));
        let forgotten = self.0.store.write(move |tx| {
            agents::take_back(tx, &session, &id)?;
            tx.delete_exec(&id)?;
            tx.change_session(&session, |s| {
                if !attach {
                    s.exec_count = s.exec_count.saturating_sub(1);
                }
            })
        });
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "cannot take back the note of a command that was not started");
        }
    }

    /// Decides about a command before it is ended.
    pub(super) async fn judge_exec(&self, id: &str, verdict: Verdict) {
        let id = ExecId::new(id);
        let noted = self.0.store.write(move |tx| tx.settle_exec(&id, Some(verdict), None).map(drop));
        if let Err(error) = noted.await {
            tracing::warn!(%error, "cannot note why a command is ended");
        }
    }

    /// Notes an end of a command that was seen, and gives the one that stands: that in its row, if it has one.
    pub(in crate::daemon) async fn end_exec(&self, id: &str, seen: End) -> End {
        let id = ExecId::new(id);
        let noted = self.write_end(&id, seen.clone());
        noted
            .await
            .unwrap_or_else(|error| {
                tracing::warn!(%error, exec = %id, "cannot note the end of a command");
                if !error.is_final() {
                    tokio::spawn(self.clone().end_later(id, seen.clone()));
                }
                None
            })
            .unwrap_or(seen)
    }

    /// Notes an end once the table can be written again.
    async fn end_later(self, id: ExecId, seen: End) {
        while let Err(error) = self.write_end(&id, seen.clone()).await {
            if error.is_final() {
                return;
            }
            sleep(NOTE_AGAIN).await;
        }
    }

    /// Gives the end that stands; none where the command was forgotten.
    async fn write_end(&self, id: &ExecId, seen: End) -> Result<Option<End>, StoreError> {
        let id = id.clone();
        let noted = self.0.store.write(move |tx| {
            let at = seen.at;
            let Some(exec) = settle(tx, &id, seen)? else { return Ok(None) };
            tx.change_session(&exec.session, |s| s.last_active = at)?;
            Ok(exec.ended.clone())
        });
        noted.await
    }
}
