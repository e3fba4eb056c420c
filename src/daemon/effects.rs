//! Steps at the engine, each between two fault points, each safe to run twice.

use std::sync::Arc;
use std::time::Duration;

use super::clock;
use super::driver::{Driver, Held};
use super::failure::{Failure, quoted};
use super::mounts;
use super::progress::Report;
use crate::engine::{CreateSpec, EngineError, Image, Observed, RunState, labels};
use crate::fault;
use crate::model::id::sandbox_name;
use crate::model::limits;
use crate::model::session::{Operation, Reason, Runtime, Session, Snapshot, SnapshotState, Status};
use crate::proto::errors::Kind;

/// How often another name is tried for a container whose name the engine has given to somebody else.
const NAME_TRIES: usize = 2;

impl Driver {
    /// Commits what is about to be done.
    pub(super) async fn intend(&self, held: &mut Held, operation: Operation) -> Result<(), Failure> {
        self.commit(held, move |s| s.operation = Some(operation)).await?;
        fault::point("intent").await;
        Ok(())
    }

    /// Stops the sandbox.
    pub(super) async fn stop_sandbox(&self, held: &Held, grace: Duration) -> Result<(), Failure> {
        if let Some(id) = &held.session.sandbox_id {
            fault::point("stop.before").await;
            if held.session.status == Status::Paused {
                self.0.engine.unpause(id).await?;
            }
            // abx-init asks every program itself.
            let asked = match held.session.runtime {
                Runtime::Init => Ok(grace),
                Runtime::Engine => self.0.engine.farewell(id, grace).await,
            };
            let left = match asked {
                Ok(left) => left,
                // A sandbox that ended meanwhile has nobody left to ask, and the stop finds that out itself.
                Err(EngineError::Unavailable { tried }) => {
                    return Err(EngineError::Unavailable { tried }.into());
                }
                Err(error) => {
                    tracing::debug!(%error, session = %held.session.name, "nobody was asked to end");
                    grace
                }
            };
            self.0.engine.stop(id, left).await?;
            fault::point("stop.after").await;
        }
        Ok(())
    }

    /// Makes a container for the row from `image` and records its id. The container's name gives way if the engine has
    /// it already for somebody else.
    pub(super) async fn create_sandbox(&self, held: &mut Held, image: &str) -> Result<Observed, Failure> {
        self.check_mounts(&held.session).await?;
        if held.session.operation != Some(Operation::Start) {
            self.clear_unstarted(&held.session).await?;
        }
        for attempt in 1..=NAME_TRIES {
            held.asked = true;
            fault::point("create.before").await;
            let guest = self.0.guests.prepare(&held.session.id);
            let spec = CreateSpec { guest, ..self.create_spec(&held.session, image) };
            match self.0.engine.create(&spec).await {
                Ok(made) => {
                    fault::point("create.after").await;
                    let (id, image_id, runtime) = (made.id.clone(), made.image_id.clone(), made.runtime());
                    let here = self.engine_identity();
                    self.commit(held, move |s| {
                        s.sandbox_id = Some(id);
                        s.sandbox_engine = here;
                        s.image_id = Some(image_id);
                        s.runtime = runtime;
                    })
                    .await?;
                    if runtime == Runtime::Engine {
                        if spec.guest.is_some() {
                            tracing::warn!(
                                image,
                                "a sandbox goes without abx-init: its image is of another machine"
                            );
                        }
                        self.0.guests.remove(&held.session.id);
                    }
                    return Ok(made);
                }
                Err(EngineError::Conflict { text, .. }) if attempt < NAME_TRIES => {
                    tracing::info!(
                        sandbox = held.session.sandbox,
                        text,
                        "the engine has a container of this name"
                    );
                    self.commit(held, |s| s.sandbox = sandbox_name(&s.name, &s.id, true)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::new(
            Kind::EngineError,
            format!("the engine has another container named {}", held.session.sandbox),
        ))
    }

    /// Removes what is left of a create that was given up: the engine would give it back, and it may be of another
    /// snapshot. A session that is being started had none.
    async fn clear_unstarted(&self, session: &Session) -> Result<(), EngineError> {
        for left in self.containers_of(session).await? {
            if left.state == RunState::Created && session.sandbox_id.as_ref() != Some(&left.id) {
                self.0.engine.remove(&left.id).await?;
            }
        }
        Ok(())
    }

    async fn check_mounts(&self, session: &Arc<Session>) -> Result<(), Failure> {
        let (this, session) = (self.clone(), Arc::clone(session));
        mounts::in_time(move || {
            let socket = this.engine_socket();
            let all = session.spec.workspace.iter().chain(&session.spec.mounts);
            mounts::check_again(all, &this.guarded(socket.as_deref()))
        })
        .await
    }

    pub(super) fn create_spec(&self, session: &Session, image: &str) -> CreateSpec {
        CreateSpec {
            session: session.clone(),
            sandbox: session.sandbox.clone(),
            image: image.to_owned(),
            rights: limits::rights(session.spec.profile),
            home: self.label(),
            guest: None,
        }
    }

    /// Starts the container and makes sure that it stays up.
    pub(super) async fn start_sandbox(&self, id: &str) -> Result<Observed, Failure> {
        fault::point("start.before").await;
        self.0.engine.start(id).await?;
        fault::point("start.after").await;
        let seen = self.0.engine.inspect(id).await?;
        match seen {
            Some(seen) if matches!(seen.state, RunState::Running | RunState::Paused) => Ok(seen),
            Some(seen) => {
                let code = seen.exit_code.map_or_else(|| "unknown".to_owned(), |c| c.to_string());
                let hint = match seen.runtime() {
                    Runtime::Init => "see what it says: abx daemon logs; try --image debian:stable-slim",
                    Runtime::Engine => {
                        "its image must have a `sleep` command; try --image debian:stable-slim"
                    }
                };
                Err(Failure::new(Kind::EngineError, format!("the sandbox ended at once with code {code}"))
                    .hint(hint))
            }
            None => Err(Failure::new(Kind::EngineError, "the sandbox was removed while it started")),
        }
    }

    /// Brings a session back: the same container if it is there, else one made from the newest snapshot. Never a blank
    /// one.
    pub(super) async fn bring(
        &self,
        held: &mut Held,
        seen: Option<&Observed>,
        report: &Report,
    ) -> Result<(), Failure> {
        let name = held.session.name.as_str().to_owned();
        let id = match seen {
            Some(seen) => {
                self.check_mounts(&held.session).await?;
                if seen.runtime() == Runtime::Init {
                    self.0.guests.prepare(&held.session.id);
                }
                seen.id.clone()
            }
            None => {
                let Some(snapshot) = self.newest_snapshot(&held.session) else {
                    return Err(Failure::refused(&held.session, crate::model::step::Refusal::Lost));
                };
                let foundation = self.foundation(&snapshot, held, report).await?;
                self.remember_base(&held.session, &snapshot.name).await?;
                self.adopt_agent(&held.session, &snapshot).await?;
                held.warnings = removed(&held.session, &snapshot).into_iter().collect();
                held.warnings.extend(self.gaps(&held.session, &snapshot).await);
                self.create_sandbox(held, &foundation.image).await?.id
            }
        };
        let started = self.start_sandbox(&id).await.map_err(|failure| {
            let failure = failure.while_doing(format!("cannot resume session '{name}'"));
            match (&held.session.snapshot, seen) {
                (Some(snapshot), Some(_)) => failure.hint(format!(
                    "abx session resume {} --snapshot {}",
                    quoted(&name),
                    quoted(snapshot)
                )),
                _ => failure,
            }
        })?;
        self.now_running(held, &started).await
    }

    /// Commits that the sandbox runs.
    pub(super) async fn now_running(&self, held: &mut Held, seen: &Observed) -> Result<(), Failure> {
        fault::point("running.before").await;
        let (id, image, ports) = (seen.id.clone(), seen.image_id.clone(), seen.ports.clone());
        let (paused, runtime) = (seen.state == RunState::Paused, seen.runtime());
        let now = clock::now();
        self.0.usage.came_up(&held.session.id);
        self.commit(held, move |s| {
            s.sandbox_id = Some(id);
            s.image_id = Some(image);
            s.runtime = runtime;
            s.status = if paused { Status::Paused } else { Status::Running };
            s.operation = None;
            s.reason = None;
            s.expires_at = s.timeout_ms.map(|ms| now.plus_ms(ms));
            s.last_active = now;
            for port in &mut s.spec.ports {
                let found =
                    ports.iter().find(|p| p.container == port.container && p.protocol == port.protocol);
                port.host = found.and_then(|p| p.host).or(port.host.filter(|_| port.fixed));
            }
        })
        .await?;
        fault::point("running.after").await;
        Ok(())
    }

    /// Commits that the sandbox does not run, and why.
    pub(super) async fn now_stopped(
        &self,
        held: &mut Held,
        status: Status,
        reason: Option<Reason>,
    ) -> Result<(), Failure> {
        fault::point("stopped.before").await;
        self.commit(held, move |s| {
            s.status = status;
            s.operation = None;
            s.reason = reason;
            s.expires_at = None;
        })
        .await
    }

    /// The newest snapshot that is there.
    pub(super) fn newest_snapshot(&self, session: &Session) -> Option<Arc<Snapshot>> {
        self.0.store.snapshots(Some(&session.id)).into_iter().find(|s| s.state == SnapshotState::Ready)
    }

    /// The image of a snapshot, exactly as it was left; or the one that has the snapshot's name, where a flattening was cut
    /// off before the row knew of it.
    pub(super) async fn require_image(&self, snapshot: &Snapshot) -> Result<Image, Failure> {
        for reference in [snapshot.image_id.clone(), labels::snapshot_reference(&snapshot.id)] {
            if let Some(image) = self.0.engine.image(&reference).await? {
                return Ok(image);
            }
        }
        self.require_snapshot_here(snapshot).await?;
        let text =
            format!("snapshot '{}': its image {} is gone from the engine", snapshot.name, snapshot.image_id);
        Err(Failure::new(Kind::SnapshotNotFound, text)
            .hint("abx snapshot list, and resume another with --snapshot"))
    }

    /// The snapshot that the container's files came from or were last saved to.
    pub(super) async fn base(&self, session: &Session) -> Result<Option<String>, Failure> {
        let key = base_key(session);
        Ok(self.0.store.write(move |tx| Ok(tx.meta(&key))).await?)
    }

    /// Remembers which snapshot the container's files came from: the parent of the next one.
    pub(super) async fn remember_base(&self, session: &Session, snapshot: &str) -> Result<(), Failure> {
        let (key, value) = (base_key(session), snapshot.to_owned());
        Ok(self.0.store.write(move |tx| tx.set_meta(&key, &value)).await?)
    }
}

/// What is to be said of a sandbox that is made from a snapshot in place of one that somebody removed.
fn removed(session: &Session, snapshot: &Snapshot) -> Option<String> {
    (session.reason == Some(Reason::Removed)).then(|| {
        format!(
            "its container was removed outside abx: it is made from snapshot '{}' of {}, without what came after",
            snapshot.name,
            clock::rfc3339(snapshot.created_at)
        )
    })
}

/// The key under which the store keeps the snapshot that a session's files came from.
pub(super) fn base_key(session: &Session) -> String {
    format!("base:{}", session.id)
}
