//! Snapshots: taking one, going back to one.

use std::sync::Arc;
use std::time::Duration;

use crate::daemon::agents;
use crate::daemon::clock;
use crate::daemon::driver::{DEFAULT_GRACE, Driver, Held, composed};
use crate::daemon::effects::base_key;
use crate::daemon::failure::{Failure, quoted};
use crate::daemon::progress::Report;
use crate::daemon::text::shown;
use crate::engine::labels::{self, REPLACED};
use crate::engine::{CommitSpec, Image};
use crate::fault;
use crate::model::event::By;
use crate::model::id::{SessionName, SnapshotId, Timestamp};
use crate::model::session::{Excluded, Operation, Reason, Session, Snapshot, SnapshotState, Status};
use crate::model::step::{Plan, Step, Verb};
use crate::proto::errors::Kind;
use crate::store::error::StoreError;
use crate::store::{self, Tx};

/// How a snapshot is to be called and taken.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    /// Its name; one made of the session's name and the day if none.
    pub name: Option<String>,
    /// The user's words.
    pub note: Option<String>,
    /// Why the session does not run afterwards, where nobody asked for the save.
    pub reason: Option<Reason>,
    /// Whether it is taken on the way to something else, and the note is none of a user's.
    pub automatic: bool,
    /// How long the engine may take over it; what the configuration says if none.
    pub patience: Option<Duration>,
}

/// A snapshot that is being taken.
struct Taking<'a> {
    snapshot: &'a Snapshot,
    patience: Duration,
    /// Whether the session is saved to it, and its container rests.
    saves: bool,
    report: &'a Report,
}

/// What came of a save.
#[derive(Debug)]
pub struct Saved {
    /// The session afterwards.
    pub session: Arc<Session>,
    /// The new snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Names of those that went because the session keeps only so many.
    pub pruned: Vec<String>,
}

impl Driver {
    /// Saves a session. With `keep_running` it is left as it was.
    ///
    /// # Errors
    /// As documented for `session.save`.
    ///
    /// # Cancel safety
    /// The save goes on when the caller is dropped. It is given up when the caller cancels the request.
    pub async fn save(
        &self,
        name: &str,
        naming: Naming,
        keep_running: bool,
        report: Report,
    ) -> Result<Saved, Failure> {
        let (this, name) = (self.clone(), name.to_owned());
        self.submit(async move {
            let mut held = report.unless_cancelled(this.hold(&name)).await?;
            let (snapshot, pruned) = this.save_held(&mut held, naming, keep_running, &report).await?;
            Ok(Saved { session: held.session, snapshot, pruned })
        })
        .await
    }

    /// Saves a session whose turn it is; gives the names of those that went because it keeps only so many, too.
    pub(in crate::daemon) async fn save_held(
        &self,
        held: &mut Held,
        naming: Naming,
        keep_running: bool,
        report: &Report,
    ) -> Result<(Arc<Snapshot>, Vec<String>), Failure> {
        let distinct = naming.name.is_some() || naming.note.is_some();
        let plan = self.plan_true(held, Verb::Save { keep_running, distinct }).await?;
        let snapshot = if plan.operation.is_some() {
            self.take_snapshot(held, &plan, naming, report).await?
        } else {
            let newest = self.newest_snapshot(&held.session);
            newest.ok_or_else(|| Failure::no_snapshot(held.session.name.as_str()))?
        };
        Ok((snapshot, self.keep_newest(held).await))
    }

    /// Carries out a plan that takes a snapshot.
    pub(super) async fn take_snapshot(
        &self,
        held: &mut Held,
        plan: &Plan,
        naming: Naming,
        report: &Report,
    ) -> Result<Arc<Snapshot>, Failure> {
        let reason = naming.reason.unwrap_or(Reason::User);
        let _room = report.unless_cancelled(self.reserve(&held.session)).await?;
        let patience = naming.patience.unwrap_or(self.config().save_timeout.value);
        let snapshot = self.intend_snapshot(held, plan, naming).await?;
        let done = self
            .carry_out(
                held,
                plan,
                Taking { snapshot: &snapshot, patience, saves: plan.ends_in == Status::Saved, report },
            )
            .await;
        if done.is_err() {
            self.give_up(&snapshot).await;
        }
        let (image, excluded) = self.or_settle(held, done, "save").await?;
        let layers = image.layers.len();
        let ready = Snapshot {
            own_bytes: labels::own_bytes(&image),
            image_id: image.id,
            size_bytes: image.size_bytes,
            excluded,
            state: SnapshotState::Ready,
            ..snapshot
        };
        let ends_in = plan.ends_in;
        let name = ready.name.clone();
        fault::point("save.outcome").await;
        let (id, key) = (held.session.id.clone(), base_key(&held.session));
        self.0
            .store
            .write(move |tx| {
                tx.put_snapshot(&ready)?;
                tx.set_meta(&key, &ready.name)?;
                let mut session = tx.session(&id).ok_or(StoreError::Gone { id: id.to_string() })?;
                session.operation = None;
                if session.status != ends_in {
                    session.status = ends_in;
                    session.reason = Some(reason);
                }
                if ends_in != Status::Running {
                    session.expires_at = None;
                }
                tx.put_session(&session)
            })
            .await?;
        self.refresh(held);
        let saved = self.0.store.snapshot(&name).ok_or_else(|| Failure::no_snapshot(&name))?;
        self.0.deep.add(&saved.id, layers);
        Ok(saved)
    }

    /// Has a snapshot go of which the caller hears that there is none, also where its image is there by now.
    async fn give_up(&self, snapshot: &Snapshot) {
        let going = Snapshot { state: SnapshotState::Deleting, ..snapshot.clone() };
        if let Err(error) = self.0.store.write(move |tx| tx.put_snapshot(&going)).await {
            tracing::error!(%error, snapshot = snapshot.name, "cannot record that a save failed");
        }
    }

    /// Commits the operation and the row of a snapshot that is being made.
    async fn intend_snapshot(
        &self,
        held: &mut Held,
        plan: &Plan,
        naming: Naming,
    ) -> Result<Snapshot, Failure> {
        let given = naming.name.as_deref().map(SessionName::parse).transpose()?;
        let operation = plan.operation.unwrap_or(Operation::Save);
        let session = held.session.clone();
        let now = clock::now();
        let draft = Snapshot {
            id: SnapshotId::new(uuid::Uuid::now_v7().to_string()),
            name: String::new(),
            session: Some(session.id.clone()),
            session_name: session.name.to_string(),
            image_id: String::new(),
            created_at: now,
            creator: Some(store::actor().filter(|_| !naming.automatic).unwrap_or_else(By::daemon)),
            note: naming.note,
            parent: None,
            size_bytes: 0,
            own_bytes: None,
            excluded: Vec::new(),
            state: SnapshotState::Creating,
        };
        let key = base_key(&session);
        let made = self
            .0
            .store
            .write(move |tx| {
                let name = given.map_or_else(|| free_name(tx, &session, now), |n| n.as_str().to_owned());
                let parent = tx.meta(&key).filter(|parent| tx.snapshot_named(parent).is_some());
                let snapshot = Snapshot { name, parent, ..draft };
                tx.put_snapshot(&snapshot)?;
                agents::saved(tx, &session.id, &snapshot)?;
                let mut row =
                    tx.session(&session.id).ok_or(StoreError::Gone { id: session.id.to_string() })?;
                row.operation = Some(operation);
                tx.put_session(&row)?;
                Ok(snapshot)
            })
            .await?;
        self.refresh(held);
        fault::point("intent").await;
        Ok(made)
    }

    async fn carry_out(
        &self,
        held: &mut Held,
        plan: &Plan,
        taking: Taking<'_>,
    ) -> Result<(Image, Vec<Excluded>), Failure> {
        let Some(id) = held.session.sandbox_id.clone() else {
            return Err(Failure::new(
                Kind::WrongState,
                "its container is gone, and its newest snapshot holds its files",
            ));
        };
        let mut made = None;
        for step in plan.steps {
            match step {
                Step::Stop => self.stop_sandbox(held, DEFAULT_GRACE).await?,
                Step::Pause => {
                    fault::point("pause.before").await;
                    self.freeze(&held.session).await?;
                    fault::point("pause.after").await;
                }
                Step::Unpause => {
                    fault::point("unpause.before").await;
                    self.0.engine.unpause(&id).await?;
                    fault::point("unpause.after").await;
                }
                Step::Snapshot => made = Some(self.commit_image(held, &taking, &id).await?),
                Step::Bring | Step::Replace | Step::Remove => {}
            }
        }
        made.ok_or_else(|| Failure::new(Kind::Internal, "the plan took no snapshot"))
    }

    /// Has the engine make the image, and says what that does not hold. Whoever gives it up leaves the engine at it: what
    /// comes of it then is removed when it is there, as that of any save that was cut off.
    async fn commit_image(
        &self,
        held: &Held,
        taking: &Taking<'_>,
        sandbox_id: &str,
    ) -> Result<(Image, Vec<Excluded>), Failure> {
        let Taking { snapshot, patience, saves, report } = taking;
        report.line(format!("saving {}", snapshot.name));
        let excluded = self.0.engine.excluded(sandbox_id).await?;
        let excluded = self.marked(&held.session, excluded).await;
        fault::point("commit.before").await;
        let spec = self.commit_spec(held, snapshot, sandbox_id);
        let spec = CommitSpec { patience: *patience, saves: *saves, excluded: excluded.clone(), ..spec };
        let image = report.unless_cancelled(self.0.engine.commit(&spec)).await;
        let image = image.map_err(|failure| late(failure, held.session.name.as_str()))?;
        fault::point("commit.after").await;
        Ok((image, excluded))
    }

    pub(in crate::daemon) fn commit_spec(
        &self,
        held: &Held,
        snapshot: &Snapshot,
        sandbox_id: &str,
    ) -> CommitSpec {
        CommitSpec {
            sandbox_id: sandbox_id.to_owned(),
            snapshot: snapshot.id.clone(),
            name: snapshot.name.clone(),
            session: held.session.id.clone(),
            session_name: held.session.name.to_string(),
            home: self.label(),
            note: snapshot.note.clone(),
            creator: snapshot.creator.clone(),
            parent: snapshot.parent.clone(),
            excluded: Vec::new(),
            saves: false,
            patience: self.config().save_timeout.value,
        }
    }

    /// Goes back to a snapshot: what is there is saved first, unless it is to be discarded; then a new container takes the old one's place.
    pub(super) async fn roll_back(
        &self,
        held: &mut Held,
        name: &str,
        discard: bool,
        report: &Report,
    ) -> Result<(), Failure> {
        let target = self.own_snapshot(&held.session, name)?;
        self.end_copies(&held.session, Verb::Rollback { unsaved: true }).await;
        self.settle_held(held).await?;
        let old = self.observe(&held.session).await?;
        let unsaved = !discard && old.is_some() && self.is_unsaved(&held.session).await?;
        let plan = self.plan_true(held, Verb::Rollback { unsaved }).await?;
        let foundation = self.foundation(&target, held, report).await?;
        if let Some(saving) = saving_part(&plan) {
            let note = Some(format!("before going back to {name}"));
            self.take_snapshot(held, &saving, Naming { note, automatic: true, ..Naming::default() }, report)
                .await?;
        }
        self.intend(held, Operation::Resume).await?;
        if let Some(old) = &old {
            let aside = format!("{}{REPLACED}{}", held.session.sandbox, short(&old.id));
            let moved = self.0.engine.rename(&old.id, &aside).await.map_err(Failure::from);
            self.or_settle(held, moved, "resume").await?;
        }
        fault::point("replace.before").await;
        let made = self.make_from(held, &target, &foundation.image).await;
        if made.is_err() {
            self.put_back(held, old.as_ref().map(|o| o.id.clone())).await;
        }
        self.or_settle(held, made, "resume").await?;
        if let Some(old) = old {
            fault::point("replace.remove").await;
            if let Err(error) = self.0.engine.remove(&old.id).await {
                tracing::warn!(%error, "the replaced container stays until the next comparison");
                self.0.compare.notify_one();
            }
        }
        Ok(())
    }

    /// Whether the container may hold files that no snapshot does: it does unless the session was saved and has not run
    /// since, and what it was saved to is still there.
    pub(super) async fn is_unsaved(&self, session: &Session) -> Result<bool, Failure> {
        let base = self.base(session).await?;
        let there = base.is_some_and(|name| self.own_snapshot(session, &name).is_ok());
        Ok(session.status != Status::Saved || !there)
    }

    async fn make_from(&self, held: &mut Held, target: &Snapshot, image: &str) -> Result<(), Failure> {
        held.warnings = self.gaps(&held.session, target).await;
        let made = self.create_sandbox(held, image).await?;
        self.remember_base(&held.session, &target.name).await?;
        let started = self.start_sandbox(&made.id).await?;
        self.adopt_agent(&held.session, target).await?;
        self.now_running(held, &started).await
    }

    /// After a going-back that failed: the old container is the session's again.
    async fn put_back(&self, held: &mut Held, old: Option<String>) {
        let made = held.session.sandbox_id.clone().filter(|id| Some(id) != old.as_ref());
        if let Some(made) = made
            && let Err(error) = self.0.engine.remove(&made).await
        {
            tracing::warn!(%error, "the new container stays until the next comparison");
        }
        let sandbox = held.session.sandbox.clone();
        if let Some(id) = old.clone()
            && let Err(error) = self.0.engine.rename(&id, &sandbox).await
        {
            tracing::warn!(%error, "the container keeps its temporary name until the next comparison");
        }
        if let Err(error) = self.commit(held, move |s| s.sandbox_id = old).await {
            tracing::error!(%error, "cannot record the old container again");
        }
    }

    /// A snapshot of this session's timeline, by name.
    pub(super) fn own_snapshot(&self, session: &Session, name: &str) -> Result<Arc<Snapshot>, Failure> {
        let found = self.0.store.snapshot(&composed(name)).filter(|s| s.state == SnapshotState::Ready);
        // One that was kept when an earlier session of this name was deleted serves this one too.
        let found = found.filter(|s| match &s.session {
            Some(owner) => *owner == session.id,
            None => s.session_name == session.name.as_str(),
        });
        found.ok_or_else(|| {
            let text = format!("session '{}' has no snapshot named '{}'", session.name, shown(name));
            Failure::new(Kind::SnapshotNotFound, text)
                .hint(format!("abx snapshot list {}", quoted(session.name.as_str())))
                .about(session.name.as_str())
        })
    }

    /// Reads the row again after a change that touched more than the row.
    pub(in crate::daemon) fn refresh(&self, held: &mut Held) {
        if let Some(session) = self.0.store.session_by_id(&held.session.id) {
            held.session = session;
            self.follow_adopted(&held.session);
        }
        self.0.deadlines.notify_one();
    }
}

/// Says what helps where the engine took too long.
fn late(failure: Failure, session: &str) -> Failure {
    if failure.kind != Kind::EngineTimeout {
        return failure;
    }
    failure.hint(format!("abx doctor; where it only needs longer: abx save {} --timeout 2h", quoted(session)))
}

/// The part of a plan that takes a snapshot, as a plan of its own that leaves the session stopped.
fn saving_part(plan: &Plan) -> Option<Plan> {
    let end = plan.steps.iter().position(|step| *step == Step::Snapshot)?;
    Some(Plan { operation: Some(Operation::Save), steps: &plan.steps[..=end], ends_in: Status::Stopped })
}

/// `NAME-YYYYMMDD`, then `-2` and so on.
fn free_name(tx: &Tx<'_>, session: &Session, now: Timestamp) -> String {
    let base = format!("{}-{}", session.name, clock::day(now));
    let mut name = base.clone();
    let mut n = 2_u32;
    while tx.snapshot_named(&name).is_some() {
        name = format!("{base}-{n}");
        n += 1;
    }
    name
}

fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
