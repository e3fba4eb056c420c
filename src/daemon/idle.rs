//! Sessions in which nothing is used: looks at their sandboxes, the warning, and what is done to them in the end.
//!
//! When to do what is `model::idle`'s. A sandbox is looked at only while its session has an idle time and nothing else keeps
//! it, and then a few times in all: a daemon with nothing to do does nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clock;
use super::driver::{DEFAULT_GRACE, Driver, Held};
use super::failure::Failure;
use super::progress::Report;
use super::usage::{Look, Standing};
use super::verbs::save::Naming;
use crate::engine::EngineError;
use crate::model::event::{EventKind, Fact, Told};
use crate::model::id::{SessionId, Timestamp};
use crate::model::idle::{Busy, Countdown, IdleAction, Next};
use crate::model::session::{EngineKind, Reason, Runtime, Session, Status};
use crate::proto::errors::Kind;

/// What a snapshot is called that was taken because a session was idle.
const NOTE: &str = "idle";

/// How far the row may be behind the last use before it is brought up to it: what a restart may forget of a countdown.
const BEHIND: Duration = Duration::from_secs(1);

/// Time until the next look where one failed: nothing is done to a session meanwhile, whose engine would not do it anyway.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Sessions that are being looked at.
#[derive(Debug, Default)]
pub(super) struct Looking(Mutex<HashSet<SessionId>>);

/// How a session stands with its idle time, as clients see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idleness {
    /// Why it does not count.
    pub busy: Vec<Busy>,
    /// From when on it counts.
    pub since: Option<Timestamp>,
    /// When something will be done.
    pub due: Option<Timestamp>,
}

impl Driver {
    /// How a session stands with its idle time; none for one that has none, or whose time does not count.
    pub fn idleness(&self, session: &Session) -> Option<Idleness> {
        let idle = limit(session).filter(|_| !self.is_away(session))?;
        let Standing { mut busy, since } = self.0.usage.standing(&session.id, unused(session));
        if !busy.contains(&Busy::Exec) && self.has_commands(session) {
            busy.insert(0, Busy::Exec);
        }
        let since = since.filter(|_| busy.is_empty());
        Some(Idleness {
            busy,
            since: since.map(clock::wall),
            due: since.map(|since| clock::wall(since + idle)),
        })
    }

    /// Does what is due about a session's idle time, and gives when to come back.
    pub(super) fn tend(&self, session: &Arc<Session>) -> Option<Instant> {
        let countdown = self.countdown(session)?;
        let usage = &self.0.usage;
        match countdown.next(usage.time(Instant::now())) {
            Next::Wait(until) => Some(usage.instant(until)),
            Next::Look => {
                self.look(session);
                None
            }
            Next::Warn => {
                usage.warned(&session.id);
                self.warn(session, usage.instant(countdown.due()));
                // At once: what is overdue is only told of first.
                Some(Instant::now())
            }
            Next::Act => {
                tracing::debug!(session = %session.name, "its idle time has run out");
                Some(usage.instant(countdown.due()))
            }
        }
    }

    /// Whether a session's idle time has run out by now.
    pub(super) fn is_idle(&self, session: &Session) -> bool {
        let now = self.0.usage.time(Instant::now());
        self.countdown(session).is_some_and(|countdown| countdown.next(now) == Next::Act)
    }

    fn countdown(&self, session: &Session) -> Option<Countdown> {
        let idle = limit(session).filter(|_| !self.is_away(session))?;
        let countdown = self.0.usage.countdown(&session.id, unused(session), idle)?;
        if session.status == Status::Paused {
            // What is frozen is quiet without a look.
            let now = self.0.usage.time(Instant::now());
            return Some(Countdown { looked: Some((now, true)), ..countdown });
        }
        Some(countdown)
    }

    /// Looks at a sandbox, on a task of its own.
    fn look(&self, session: &Arc<Session>) {
        let (this, session) = (self.clone(), Arc::clone(session));
        if !this.0.looking.begin(&session.id) {
            return;
        }
        tokio::spawn(async move {
            let at = Instant::now();
            match this.found(&session).await {
                Ok(look) => this.0.usage.looked(&session.id, at, look),
                Err(error) => {
                    tracing::debug!(%error, session = %session.name, "cannot tell what runs; looking again later");
                    sleep(LOOK_AGAIN).await;
                }
            }
            this.bring_up_to_date(&session).await;
            this.0.looking.end(&session.id);
            this.0.deadlines.notify_one();
        });
    }

    async fn found(&self, session: &Session) -> Result<Look, EngineError> {
        let works = self.works_unseen(session).await?;
        let Some(sandbox) = session.sandbox_id.as_deref().filter(|_| !works) else {
            return Ok(Look { works, cpu: None });
        };
        match self.0.engine.cpu_time(sandbox).await {
            Ok(cpu) => Ok(Look { works, cpu: Some(cpu) }),
            // One that has no such sandbox does not say that it is quiet.
            Err(
                error @ (EngineError::Unavailable { .. }
                | EngineError::Timeout { .. }
                | EngineError::NoSandbox { .. }),
            ) => Err(error),
            Err(error) => {
                // An engine without accounts of CPU time: what else is known has to do.
                tracing::debug!(%error, session = %session.name, "the engine does not tell what CPU time is used");
                Ok(Look { works, cpu: None })
            }
        }
    }

    /// Whether something may be at work in a session that this daemon did not start: a command or a terminal from before
    /// its own start. Those it did start it follows itself.
    async fn works_unseen(&self, session: &Session) -> Result<bool, EngineError> {
        if session.runtime == Runtime::Init {
            return Ok(self.has_commands(session));
        }
        let Some(sandbox) = &session.sandbox_id else { return Ok(false) };
        if self.0.usage.is_followed(&session.id) {
            return Ok(false);
        }
        Ok(self.0.engine.excluded(sandbox).await?.iter().any(|e| e.kind == "process"))
    }

    /// Whether commands run, as the table has it, which has those of before, too. A terminal is used when it writes.
    fn has_commands(&self, session: &Session) -> bool {
        let commands = || self.0.store.execs(&session.id);
        session.runtime == Runtime::Init
            && commands().iter().any(|exec| exec.ended.is_none() && exec.terminal.is_none())
    }

    /// Brings the row up to the last use, so that a countdown goes on where it was after a restart.
    async fn bring_up_to_date(&self, session: &Session) {
        let Some(since) = self.0.usage.standing(&session.id, unused(session)).since else { return };
        let used = clock::wall(since);
        let behind = i64::try_from(BEHIND.as_millis()).unwrap_or(i64::MAX);
        if used.0.saturating_sub(session.last_active.0) <= behind {
            return;
        }
        let noted = self.0.store.update(&session.id, move |s| s.last_active = s.last_active.max(used)).await;
        if let Err(error) = noted {
            tracing::debug!(%error, session = %session.name, "a restart would not know of its last use");
        }
    }

    /// As [`Driver::bring_up_to_date`], for all whose countdowns go on after this daemon's end.
    pub(super) async fn note_last_uses(&self) {
        for session in self.sessions().iter().filter(|session| limit(session).is_some()) {
            self.bring_up_to_date(session).await;
        }
    }

    /// Tells that a session is about to be stopped, paused or saved.
    fn warn(&self, session: &Session, due: Instant) {
        let (this, id) = (self.clone(), session.id.clone());
        let at = clock::rfc3339(clock::wall(due));
        let data = vec![
            ("action", Fact::Text(session.idle_action.as_str().to_owned())),
            ("idle_at", Fact::Text(at)),
        ];
        tokio::spawn(async move {
            let noted = this.0.store.write(move |tx| {
                tx.note_of(&id, Told { kind: EventKind::SessionIdle, data });
                Ok(())
            });
            if let Err(error) = noted.await {
                tracing::warn!(%error, "cannot tell that a session is about to end");
            }
        });
    }

    /// Does what is wanted to a session that was idle for long enough.
    pub(super) async fn put_to_rest(&self, held: &mut Held) -> Result<(), Failure> {
        match held.session.idle_action {
            IdleAction::Stop => self.stop_held(held, DEFAULT_GRACE, Reason::Idle).await,
            IdleAction::Pause => self.pause_held(held, Some(Reason::Idle)).await,
            IdleAction::Save => {
                let naming =
                    Naming { note: Some(NOTE.to_owned()), reason: Some(Reason::Idle), ..Naming::default() };
                match self.save_held(held, naming, false, &Report::default()).await {
                    // There is no room for a snapshot: the container keeps the files.
                    Err(failure) if failure.kind == Kind::Limit => {
                        tracing::warn!(%failure, session = %held.session.name, "stopped, for it cannot be saved");
                        self.stop_held(held, DEFAULT_GRACE, Reason::Idle).await
                    }
                    saved => saved.map(drop),
                }
            }
        }
    }
}

impl Looking {
    fn begin(&self, id: &SessionId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone())
    }

    fn end(&self, id: &SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// How long a session may be idle; none where that does not count: it does not run, or rests already.
pub(super) fn limit(session: &Session) -> Option<Duration> {
    let counts = match session.status {
        Status::Running => true,
        Status::Paused => session.idle_action != IdleAction::Pause,
        _ => false,
    };
    let ours = session.engine != EngineKind::External && session.operation.is_none();
    session.idle_ms.filter(|_| counts && ours).map(Duration::from_millis)
}

/// How long a session has not been used, by the wall clock and the table.
fn unused(session: &Session) -> Duration {
    Duration::from_millis(u64::try_from(clock::now().0.saturating_sub(session.last_active.0)).unwrap_or(0))
}
