//! Stop, resume, connect, pause and unpause.

use std::sync::Arc;
use std::time::Duration;

use crate::daemon::awake::{self, Use};
use crate::daemon::clock;
use crate::daemon::driver::{Driver, Held, MAX_GRACE};
use crate::daemon::failure::Failure;
use crate::daemon::progress::Report;
use crate::fault;
use crate::model::session::{Reason, Session, Status};
use crate::model::step::{Plan, Step, Verb, plan};
use crate::proto::errors::Kind;

/// How a session is brought back.
#[derive(Debug, Clone)]
pub enum Way {
    /// As it was left.
    AsItWas,
    /// With the files of a snapshot.
    BackTo {
        /// Its name.
        snapshot: String,
        /// What that replaces is not saved.
        discard: bool,
    },
}

impl Driver {
    /// Stops a session and says why. One that does not run is left as it is.
    ///
    /// # Errors
    /// As documented for `session.stop`.
    ///
    /// # Cancel safety
    /// The stop goes on when the caller is dropped.
    pub async fn stop(&self, name: &str, grace: Duration, reason: Reason) -> Result<Arc<Session>, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let mut held = this.hold_alone(&name, Verb::Stop).await?;
            this.stop_held(&mut held, grace.min(MAX_GRACE), reason).await?;
            Ok(held.session)
        })
        .await
    }

    /// Stops a session whose turn it is.
    pub(in crate::daemon) async fn stop_held(
        &self,
        held: &mut Held,
        grace: Duration,
        reason: Reason,
    ) -> Result<(), Failure> {
        let plan = self.plan_true(held, Verb::Stop).await?;
        let Some(operation) = plan.operation else { return Ok(()) };
        self.intend(held, operation).await?;
        let done = self.stop_sandbox(held, grace).await;
        self.or_settle(held, done, "stop").await?;
        self.now_stopped(held, Status::Stopped, Some(reason)).await
    }

    /// Brings a session back, or goes back to one of its snapshots.
    ///
    /// # Errors
    /// As documented for `session.resume`. A failed resume leaves row, container and snapshots.
    pub async fn resume(&self, name: &str, way: Way, report: Report) -> Result<Arc<Session>, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let mut held = this.hold(&name).await?;
            match way {
                Way::BackTo { snapshot, discard } => {
                    this.roll_back(&mut held, &snapshot, discard, &report).await?;
                }
                Way::AsItWas => {
                    let plan = this.plan_true(&mut held, Verb::Resume).await?;
                    this.carry_to_running(&mut held, &plan, true, &report).await?;
                }
            }
            held.warnings.drain(..).for_each(|warning| report.warn(warning));
            Ok(held.session)
        })
        .await
    }

    /// Brings a session back whose turn it is, and says so before.
    pub(in crate::daemon) async fn resume_held(
        &self,
        held: &mut Held,
        report: &Report,
    ) -> Result<(), Failure> {
        let plan = self.plan_true(held, Verb::Resume).await?;
        if plan.operation.is_some() {
            report.line(awake::line(&held.session));
        }
        self.carry_to_running(held, &plan, true, report).await
    }

    /// Carries out a plan that ends in running. A resume counts the timeout anew, a mere thaw does not.
    async fn carry_to_running(
        &self,
        held: &mut Held,
        plan: &Plan,
        anew: bool,
        report: &Report,
    ) -> Result<(), Failure> {
        let Some(operation) = plan.operation else { return Ok(()) };
        let seen = self.observe(&held.session).await?;
        self.intend(held, operation).await?;
        let done = if plan.steps == [Step::Unpause] {
            self.thaw(held, anew).await
        } else {
            self.bring(held, seen.as_ref(), report).await
        };
        self.or_settle(held, done, "resume").await
    }

    async fn thaw(&self, held: &mut Held, anew: bool) -> Result<(), Failure> {
        let id = held.session.sandbox_id.clone().unwrap_or_default();
        fault::point("unpause.before").await;
        self.0.engine.unpause(&id).await?;
        fault::point("unpause.after").await;
        let now = clock::now();
        self.0.usage.touch(&held.session.id);
        self.commit(held, move |s| {
            s.status = Status::Running;
            s.operation = None;
            s.reason = None;
            if anew {
                s.expires_at = s.timeout_ms.map(|ms| now.plus_ms(ms));
            }
        })
        .await
    }

    /// Resumes a session if it does not run, and stamps it as connected to.
    ///
    /// # Errors
    /// As documented for `session.connect`.
    pub async fn connect(&self, wanted: impl Into<Use>) -> Result<Arc<Session>, Failure> {
        let (this, wanted) = (self.clone(), wanted.into());
        self.submit(async move { this.connect_now(&wanted).await }).await
    }

    /// As [`Driver::connect`], inside an operation that is counted already.
    pub(super) async fn connect_now(&self, wanted: &Use) -> Result<Arc<Session>, Failure> {
        let mut held = self.hold(&wanted.session).await?;
        if self.brings_back(wanted.resume) {
            self.resume_held(&mut held, &wanted.report).await?;
            held.warnings.drain(..).for_each(|warning| wanted.report.warn(warning));
        } else {
            self.plan_true(&mut held, Verb::Exec).await?;
        }
        let now = clock::now();
        self.0.usage.touch(&held.session.id);
        self.commit(&mut held, move |s| {
            s.last_connected = Some(now);
            s.last_active = now;
        })
        .await?;
        Ok(held.session)
    }

    /// Freezes a session.
    ///
    /// # Errors
    /// As documented for `session.pause`.
    pub async fn pause(&self, name: &str) -> Result<Arc<Session>, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let mut held = this.hold_alone(&name, Verb::Pause).await?;
            this.pause_held(&mut held, None).await?;
            Ok(held.session)
        })
        .await
    }

    /// Freezes a session whose turn it is, and says why where nobody asked for it.
    pub(in crate::daemon) async fn pause_held(
        &self,
        held: &mut Held,
        reason: Option<Reason>,
    ) -> Result<(), Failure> {
        let plan = self.plan_true(held, Verb::Pause).await?;
        let Some(operation) = plan.operation else { return Ok(()) };
        self.intend(held, operation).await?;
        self.0.late.forget(&held.session.id);
        fault::point("pause.before").await;
        let done = self.freeze(&held.session).await.map_err(Failure::from);
        fault::point("pause.after").await;
        self.or_settle(held, done, "pause").await?;
        self.commit(held, move |s| {
            s.status = Status::Paused;
            s.operation = None;
            s.reason = reason;
        })
        .await
    }

    /// Thaws a session.
    ///
    /// # Errors
    /// As documented for `session.unpause`.
    pub async fn unpause(&self, name: &str) -> Result<Arc<Session>, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let mut held = this.hold(&name).await?;
            let plan = this.plan_true(&mut held, Verb::Unpause).await?;
            this.carry_to_running(&mut held, &plan, false, &Report::default()).await?;
            Ok(held.session)
        })
        .await
    }

    /// Plans a verb on what is true now: the row is first compared with its container. Where the engine does not
    /// answer, a verb that would change nothing still succeeds; where another engine has the container, none does.
    pub(in crate::daemon) async fn plan_true(&self, held: &mut Held, verb: Verb) -> Result<Plan, Failure> {
        self.end_copies(&held.session, verb).await;
        let compared = self.settle_held(held).await;
        let planned = plan(&held.session, verb).map_err(|refusal| Failure::refused(&held.session, refusal));
        match (compared, planned) {
            (Ok(()), planned) => planned,
            (Err(_), Ok(plan))
                if plan.operation.is_none()
                    && held.session.operation.is_none()
                    && !self.is_elsewhere(&held.session) =>
            {
                Ok(plan)
            }
            (Err(_), Err(refused)) if refused.kind == Kind::WrongState => Err(refused),
            (Err(failure), _) => Err(failure.about(held.session.name.as_str())),
        }
    }

    /// After a step that failed: lets the row say what is seen, so that no operation hangs on it, and gives the
    /// failure back.
    pub(in crate::daemon) async fn or_settle<T>(
        &self,
        held: &mut Held,
        done: Result<T, Failure>,
        verb: &str,
    ) -> Result<T, Failure> {
        let failure = match done {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if let Err(error) = self.recover_held(held).await {
            tracing::warn!(%error, session = %held.session.name, verb, "will compare again when the engine answers");
            self.0.compare.notify_one();
        }
        let name = held.session.name.as_str();
        let doing = format!("cannot {verb} session '{name}'");
        let failure = failure.about(name);
        Err(if failure.message.starts_with(&doing) { failure } else { failure.while_doing(doing) })
    }
}
