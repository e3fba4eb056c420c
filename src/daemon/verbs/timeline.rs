//! The timeline: deleting snapshots, by name or because they are too many.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::daemon::clock;
use crate::daemon::driver::{Driver, Held, composed};
use crate::daemon::failure::{Failure, quoted};
use crate::daemon::orphans;
use crate::engine::{EngineError, Image, labels};
use crate::fault;
use crate::model::prune::Rule;
use crate::model::session::{Snapshot, SnapshotState, Status};
use crate::proto::errors::Kind;
use crate::proto::snapshots::SnapshotPruneParams;

/// What was pruned, or would be.
#[derive(Debug)]
pub struct Pruned {
    /// The snapshots, as they were.
    pub snapshots: Vec<Arc<Snapshot>>,
    /// Bytes that nothing needs any more.
    pub freed_bytes: u64,
    /// Names of sessions that were passed over: they are on another engine than the one that answers.
    pub skipped: Vec<String>,
}

impl Driver {
    /// Deletes snapshots. All names are checked before the first is deleted.
    ///
    /// # Errors
    /// As documented for `snapshot.delete`.
    pub async fn delete_snapshots(&self, names: Vec<String>) -> Result<Vec<String>, Failure> {
        let this = self.clone();
        self.submit(async move {
            for name in &names {
                this.ready_snapshot(name)?;
            }
            let mut deleted = Vec::new();
            for name in names {
                let snapshot = this.ready_snapshot(&name)?;
                // One that was kept when its session was deleted has no turn that would tell who uses it.
                let (held, _alone) = match &snapshot.session {
                    Some(id) => (this.hold_id(id).await, None),
                    None => (None, Some(this.0.deep.uses.alone(&snapshot.id).await)),
                };
                let snapshot = this.ready_snapshot(&name)?;
                if let Some(held) = &held {
                    this.refuse_last(held, &snapshot).await?;
                }
                this.remove_snapshot(&snapshot).await?;
                if let Some(mut held) = held {
                    this.refresh(&mut held);
                    this.unsave(&mut held).await?;
                }
                deleted.push(name);
            }
            Ok(deleted)
        })
        .await
    }

    /// A saved session whose own snapshot was deleted is a stopped one, as long as its container has the files.
    async fn unsave(&self, held: &mut Held) -> Result<(), Failure> {
        if held.session.status == Status::Saved
            && self.is_unsaved(&held.session).await?
            && self.observe(&held.session).await?.is_some()
        {
            self.commit(held, |s| s.status = Status::Stopped).await?;
        }
        Ok(())
    }

    pub(super) fn ready_snapshot(&self, name: &str) -> Result<Arc<Snapshot>, Failure> {
        let found = self.0.store.snapshot(&composed(name)).filter(|s| s.state == SnapshotState::Ready);
        found.ok_or_else(|| Failure::no_snapshot(name))
    }

    /// The only thing that still holds a session's files is not deleted on its own.
    async fn refuse_last(&self, held: &Held, snapshot: &Snapshot) -> Result<(), Failure> {
        let newest = self.newest_snapshot(&held.session);
        let last = held.session.snapshots == 1 && newest.is_some_and(|s| s.id == snapshot.id);
        if !last || self.observe(&held.session).await?.is_some() {
            return Ok(());
        }
        let name = held.session.name.as_str();
        let text = format!("snapshot '{}' is all that is left of session '{name}'", snapshot.name);
        Err(Failure::new(Kind::WrongState, text)
            .hint(format!("abx session delete {}", quoted(name)))
            .about(name))
    }

    /// Removes a snapshot's image, then its row, with the intent committed first.
    pub(in crate::daemon) async fn remove_snapshot(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.require_snapshot_here(snapshot).await?;
        let (id, gone) = (snapshot.id.clone(), snapshot.clone());
        let marked = Snapshot { state: SnapshotState::Deleting, ..snapshot.clone() };
        self.0.store.write(move |tx| tx.put_snapshot(&marked)).await?;
        fault::point("snapshot.remove.before").await;
        self.0.engine.remove_snapshot(&id).await?;
        fault::point("snapshot.remove.after").await;
        Ok(self.0.store.write(move |tx| orphans::drop_snapshot(tx, &gone)).await?)
    }

    /// Deletes what is too much of timelines, or only tells it. Of all of them, those on another engine are passed over.
    ///
    /// # Errors
    /// As documented for `snapshot.prune`. What was deleted by then is gone.
    pub async fn prune(&self, asked: SnapshotPruneParams) -> Result<Pruned, Failure> {
        let rule = rule(&asked)?;
        let this = self.clone();
        self.submit(async move {
            let names = this.timelines(&asked.names)?;
            let images = this.0.engine.snapshot_images(&this.label()).await?;
            let (mut snapshots, mut skipped) = (Vec::new(), Vec::new());
            for name in names {
                let held = match this.session(&name) {
                    Ok(session) => this.hold_id(&session.id).await,
                    Err(_) => None,
                };
                // One that was deleted while others had their turn has no timeline left.
                let timeline = this.snapshots(Some(&name)).unwrap_or_default();
                let elsewhere = || this.session(&name).is_ok_and(|session| this.is_elsewhere(&session));
                match this.prune_timeline(held, &timeline, rule, asked.dry_run, &mut snapshots).await {
                    Err(failure) if asked.names.is_empty() && elsewhere() => {
                        tracing::info!(%failure, session = name, "its snapshots stay");
                        skipped.push(name);
                    }
                    pruned => pruned?,
                }
            }
            let freed_bytes = this.freed(&images, &snapshots).await?;
            Ok(Pruned { snapshots, freed_bytes, skipped })
        })
        .await
    }

    /// After a save: the oldest beyond what the session keeps go. Gives their names.
    pub(super) async fn keep_newest(&self, held: &mut Held) -> Vec<String> {
        let Some(keep) = held.session.keep else { return Vec::new() };
        let rule = Rule { keep: keep as usize, spare_noted: true, ..Rule::default() };
        let mut timeline = self.0.store.snapshots(Some(&held.session.id));
        timeline.retain(|s| s.state == SnapshotState::Ready);
        let gone = match self.too_many(Some(held), &timeline, rule).await {
            Ok(gone) => gone,
            Err(failure) => {
                tracing::warn!(%failure, session = %held.session.name, "older snapshots stay until the next save");
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for snapshot in gone {
            match self.remove_snapshot(&snapshot).await {
                Ok(()) => names.push(snapshot.name.clone()),
                Err(failure) => {
                    tracing::warn!(%failure, snapshot = snapshot.name, "an older snapshot stays for now");
                }
            }
        }
        self.refresh(held);
        names
    }

    async fn prune_timeline(
        &self,
        held: Option<Held>,
        timeline: &[Arc<Snapshot>],
        rule: Rule,
        dry_run: bool,
        gone: &mut Vec<Arc<Snapshot>>,
    ) -> Result<(), Failure> {
        // What was cut off may still need any of them.
        if held.as_ref().is_some_and(|held| held.session.operation.is_some()) {
            return Ok(());
        }
        let mut go = self.too_many(held.as_ref(), timeline, rule).await?;
        let mut alone = Vec::new();
        if held.is_none() {
            // What is used is no candidate: nobody's turn says so here.
            alone = go.iter().map(|s| self.0.deep.uses.try_alone(&s.id)).collect();
            let mut free = alone.iter().map(Option::is_some);
            go.retain(|_| free.next().unwrap_or_default());
        }
        for snapshot in go {
            if !dry_run {
                self.remove_snapshot(&snapshot).await?;
            }
            gone.push(snapshot);
        }
        drop(alone);
        Ok(())
    }

    /// Those that go by a rule, but for what the session may still come back from.
    async fn too_many(
        &self,
        held: Option<&Held>,
        timeline: &[Arc<Snapshot>],
        rule: Rule,
    ) -> Result<Vec<Arc<Snapshot>>, Failure> {
        let mut gone = rule.beyond(timeline);
        let Some(held) = held.filter(|_| !gone.is_empty()) else { return Ok(gone) };
        let base = self.base(&held.session).await?;
        let seen = self.observe(&held.session).await?;
        let last = match &seen {
            Some(_) => None,
            None => self.newest_snapshot(&held.session),
        };
        // What its container was made from, what that was saved to last, and what it would be made from.
        let made_from = seen.as_ref().and_then(labels::made_from);
        gone.retain(|s| {
            Some(&s.image_id) != held.session.image_id.as_ref()
                && Some(&s.id) != made_from.as_ref()
                && Some(&s.name) != base.as_ref()
                && last.as_ref().is_none_or(|last| last.id != s.id)
        });
        Ok(gone)
    }

    /// The names of these timelines, or of all, each once.
    fn timelines(&self, names: &[String]) -> Result<BTreeSet<String>, Failure> {
        if names.is_empty() {
            return Ok(self.snapshots(None)?.iter().map(|s| self.session_of(s)).collect());
        }
        let own = |name: &String| {
            self.snapshots(Some(name))?;
            Ok(self.session(name).map_or_else(|_| composed(name).into_owned(), |s| s.name.to_string()))
        };
        names.iter().map(own).collect()
    }

    /// What the layers of these snapshots take that none of the other images, and no container, stands on.
    async fn freed(&self, images: &[Image], gone: &[Arc<Snapshot>]) -> Result<u64, EngineError> {
        let gone: HashSet<&str> = gone.iter().map(|s| s.image_id.as_str()).collect();
        let mut stay: Vec<Image> = images.iter().filter(|i| !gone.contains(i.id.as_str())).cloned().collect();
        let containers = self.own_containers().await?;
        let used: BTreeSet<String> = containers.into_iter().map(|seen| seen.image_id).collect();
        for id in used {
            stay.extend(self.0.engine.image(&id).await?);
        }
        let free =
            |image: &&Image| gone.contains(image.id.as_str()) && !stay.iter().any(|s| s.stands_on(image));
        Ok(images.iter().filter(free).filter_map(labels::own_bytes).sum())
    }
}

fn rule(asked: &SnapshotPruneParams) -> Result<Rule, Failure> {
    if asked.keep.is_none() && asked.older_ms.is_none() {
        return Err(Failure::params("give keep, older_ms or both: how much of a timeline stays"));
    }
    let ago = |ms: u64| clock::now().minus_ms(ms);
    let keep = asked.keep.unwrap_or_default() as usize;
    Ok(Rule { keep, before: asked.older_ms.map(ago), spare_noted: false })
}
