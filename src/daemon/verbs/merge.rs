//! Taking over the rows of an exported table. A document is somebody's text: it says what a session was, and the engine
//! alone says what is there of it.

use std::collections::HashMap;

use super::stored::parse_time;
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::daemon::progress::Report;
use crate::daemon::{rebuild, resolve};
use crate::engine::{EngineError, Image, Observed, labels};
use crate::model::id::{SessionId, SessionName, SnapshotId, sandbox_name};
use crate::model::idle::IdleAction;
use crate::model::reconcile::OnBoot;
use crate::model::session::{
    EngineKind, Excluded, External, Limits, Mount, Network, Port, Profile, Reason, Runtime, Secret, Session,
    Snapshot, SnapshotState, Spec, Status,
};
use crate::proto::sessions::ImportOutcome;
use crate::proto::table::{TABLE_FORM, TableImportParams, TableSession, TableSnapshot};
use crate::proto::types;
use crate::store::error::StoreError;

type Images = HashMap<String, Image>;

impl Driver {
    /// Merges an exported table into this one, and says what became of each row: one of a session that is there already
    /// changes nothing but for values that it has and the session has not.
    ///
    /// # Errors
    /// When the document is of a later form, or the engine or the table fails; rows before that are kept.
    pub async fn import_table(
        &self,
        asked: TableImportParams,
        report: Report,
    ) -> Result<Vec<ImportOutcome>, Failure> {
        let TableImportParams { document, rename, .. } = asked;
        if document.abx_table > TABLE_FORM {
            let hint = "use the abx that wrote it";
            return Err(Failure::field("abx_table", format!("at most {TABLE_FORM}")).hint(hint));
        }
        let this = self.clone();
        self.submit(async move {
            let images = this.0.engine.snapshot_images(&this.label()).await?;
            let id = |image: &Image| image.labels.get(labels::SNAPSHOT_ID).cloned();
            let images: Images = images.into_iter().filter_map(|image| Some((id(&image)?, image))).collect();
            let (of_sessions, kept): (Vec<_>, Vec<_>) =
                document.snapshots.into_iter().partition(|snapshot| snapshot.session_id.is_some());
            let all = document.sessions.len();
            let mut outcomes = Vec::with_capacity(all);
            for (at, entry) in document.sessions.into_iter().enumerate() {
                report.line(format!("importing '{}' ({} of {all})", entry.session.name, at + 1));
                let own = |s: &&TableSnapshot| s.session_id.as_ref() == Some(&entry.session.id);
                let snapshots: Vec<TableSnapshot> = of_sessions.iter().filter(own).cloned().collect();
                outcomes.push(this.merge(&entry, snapshots, rename, &images).await?);
            }
            for snapshot in kept {
                outcomes.push(this.merge_kept(snapshot, &images).await?);
            }
            Ok(outcomes)
        })
        .await
    }

    async fn merge(
        &self,
        entry: &TableSession,
        snapshots: Vec<TableSnapshot>,
        rename: bool,
        images: &Images,
    ) -> Result<ImportOutcome, Failure> {
        let name = entry.session.name.clone();
        let refused = |why: String| outcome(name.clone(), "refused", None, Some(why));
        let mut row = match row(entry) {
            Ok(row) => row,
            Err(failure) => return Ok(refused(failure.message)),
        };
        let id = row.id.clone();
        let turn = self.turn(&id).await;
        if let Some(there) = self.0.store.session_by_id(&id) {
            return self.fill_in(Held::new(there, turn), row).await;
        }
        let container = self.own_container(&row, entry).await?;
        if let Some(container) = &container {
            take(&mut row, container);
        }
        let (snapshots, without) = readable(snapshots, images);
        let written = self.0.store.write(move |tx| {
            if !rename && let Some(other) = tx.session_named(row.name.as_str()) {
                return Err(StoreError::Exists { name: other.name.to_string() });
            }
            rebuild::insert_free(tx, row)?;
            snapshots.into_iter().try_for_each(|snapshot| rebuild::insert_snapshot(tx, snapshot))
        });
        match written.await {
            Ok(()) => {}
            Err(StoreError::Exists { name: taken }) => {
                self.forget(&id);
                let why = format!("a session named '{taken}' exists already");
                return Ok(outcome(name, "conflict", None, Some(why)));
            }
            Err(error) => return Err(error.into()),
        }
        let Some(inserted) = self.0.store.session_by_id(&id) else {
            return Ok(refused("it was deleted".into()));
        };
        let mut held = Held::new(inserted, turn);
        self.settle_held(&mut held).await?;
        if held.session.engine == EngineKind::Docker && held.session.runtime == Runtime::Init {
            self.0.guests.expect(&id);
        }
        let mut why = Vec::new();
        if held.session.name.as_str() != name {
            why.push(format!("it was named '{name}'"));
        }
        if without > 0 {
            why.push(format!("{without} of its snapshots are not on this engine"));
        }
        let why = (!why.is_empty()).then(|| why.join("; "));
        Ok(outcome(held.session.name.to_string(), "imported", Some(&held.session), why))
    }

    /// Gives a session that is there what it lacks of a row's secrets: those of one that was made again from labels, or that
    /// was imported without them, are nowhere else. What it has stays.
    async fn fill_in(&self, mut held: Held, row: Session) -> Result<ImportOutcome, Failure> {
        let there = held.session.clone();
        let name = there.name.to_string();
        let missing: Vec<(String, Secret)> =
            row.spec.env.into_iter().filter(|(key, _)| !there.spec.env.contains_key(key)).collect();
        let stored = row.external.map(|external| external.extra).filter(|extra| {
            there.external.as_ref().is_some_and(|external| is_empty(&external.extra)) && !is_empty(extra)
        });
        let mut filled: Vec<&str> = missing.iter().map(|(key, _)| key.as_str()).collect();
        filled.extend(stored.as_ref().map(|_| "what another program stored"));
        if filled.is_empty() {
            return Ok(outcome(name, "unchanged", Some(&there), None));
        }
        let why = format!("it was there, without values of {}", filled.join(", "));
        self.commit(&mut held, move |s| {
            s.spec.env.extend(missing);
            if let (Some(external), Some(extra)) = (&mut s.external, stored) {
                external.extra = extra;
            }
        })
        .await?;
        Ok(outcome(name, "imported", Some(&held.session), Some(why)))
    }

    /// The container that the document names, if it is this session's, and this home's: what is somebody else's is not
    /// taken over because a text says so.
    async fn own_container(
        &self,
        row: &Session,
        entry: &TableSession,
    ) -> Result<Option<Observed>, EngineError> {
        let Some(id) = entry.session.sandbox_id.as_ref().filter(|_| row.engine == EngineKind::Docker) else {
            return Ok(None);
        };
        let is =
            |seen: &Observed, key: &str, value: &str| seen.labels.get(key).is_some_and(|has| has == value);
        let seen = self.look_at(id).await?;
        Ok(seen.filter(|seen| {
            is(seen, labels::SESSION_ID, row.id.as_str()) && is(seen, labels::SESSION_HOME, &self.label())
        }))
    }

    async fn merge_kept(&self, entry: TableSnapshot, images: &Images) -> Result<ImportOutcome, Failure> {
        let name = entry.snapshot.name.clone();
        if self.0.store.snapshots(None).iter().any(|row| row.id.as_str() == entry.id) {
            return Ok(outcome(name, "unchanged", None, None));
        }
        let Some(row) = snapshot_row(&entry, images) else {
            return Ok(outcome(name, "refused", None, Some("the snapshot is not on this engine".to_owned())));
        };
        self.0.store.write(move |tx| rebuild::insert_snapshot(tx, row)).await?;
        Ok(outcome(name, "imported", None, None))
    }
}

fn outcome(name: String, word: &str, session: Option<&Session>, why: Option<String>) -> ImportOutcome {
    let status = session.map(|session| types::Status::from_word(session.status.as_str()));
    ImportOutcome { name, outcome: word.to_owned(), status, why }
}

fn take(row: &mut Session, container: &Observed) {
    row.sandbox_id = Some(container.id.clone());
    row.image_id = Some(container.image_id.clone());
    row.sandbox.clone_from(&container.name);
    row.runtime = container.runtime();
}

/// Those of which the engine has the image, and how many there are of which it has not.
fn readable(entries: Vec<TableSnapshot>, images: &Images) -> (Vec<Snapshot>, usize) {
    let all = entries.len();
    let rows: Vec<Snapshot> = entries.iter().filter_map(|entry| snapshot_row(entry, images)).collect();
    let without = all - rows.len();
    (rows, without)
}

/// A snapshot's row; none where this home has no image of it.
fn snapshot_row(entry: &TableSnapshot, images: &Images) -> Option<Snapshot> {
    let image = images.get(&entry.id)?;
    let wire = &entry.snapshot;
    let made = labels::rebuild_snapshot(image)?;
    let excluded = wire.excluded.iter();
    Some(Snapshot {
        id: SnapshotId::new(&entry.id),
        name: wire.name.clone(),
        session: entry.session_id.as_deref().map(SessionId::new),
        session_name: wire.session.clone(),
        note: wire.note.clone(),
        parent: wire.parent.clone(),
        // The image tells more of it, if it tells anything.
        excluded: if made.excluded.is_empty() {
            excluded.map(|e| Excluded::new(&e.kind, &e.target)).collect()
        } else {
            made.excluded
        },
        created_at: parse_time("created_at", &wire.created_at).unwrap_or(made.created_at),
        creator: made.creator,
        image_id: image.id.clone(),
        size_bytes: image.size_bytes,
        own_bytes: made.own_bytes,
        state: SnapshotState::Ready,
    })
}

/// The row that a document describes: at rest, and without a container until one was found.
fn row(entry: &TableSession) -> Result<Session, Failure> {
    let wire = &entry.session;
    let name = SessionName::parse(&wire.name)?;
    let id = uuid::Uuid::parse_str(&wire.id).map_err(|_| Failure::field("id", "a UUID"))?;
    let id = SessionId::new(id.to_string());
    let is_external = wire.engine == EngineKind::External.as_str();
    resolve::check_metadata(wire.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let last_connected =
        wire.last_connected.as_deref().map(|text| parse_time("last_connected", text)).transpose()?;
    let base = Session::new(id.clone(), name.clone(), parse_time("created_at", &wire.created_at)?);
    Ok(Session {
        sandbox: if is_external { wire.sandbox.clone() } else { sandbox_name(&name, &id, false) },
        sandbox_id: wire.sandbox_id.clone().filter(|_| is_external),
        engine: if is_external { EngineKind::External } else { EngineKind::Docker },
        agent: wire.agent.clone(),
        template: wire.template.clone(),
        image: wire.image.clone(),
        image_id: wire.image_id.clone(),
        runtime: wire.runtime.as_deref().and_then(Runtime::from_word).unwrap_or(Runtime::Engine),
        status: if is_external { Status::Unknown } else { Status::Stopped },
        reason: (!is_external).then_some(Reason::User),
        last_active: parse_time("last_active", &wire.last_active)?,
        last_connected,
        timeout_ms: wire.timeout_ms,
        idle_ms: wire.idle_ms,
        keep: wire.keep,
        idle_action: wire
            .idle_action
            .as_ref()
            .and_then(|word| IdleAction::from_word(word.as_str()))
            .unwrap_or(IdleAction::Stop),
        on_boot: wire.on_boot.as_ref().and_then(|word| OnBoot::from_word(word.as_str())),
        exec_count: wire.exec_count,
        oom_events: wire.oom_events,
        spec: spec(entry)?,
        metadata: wire.metadata.clone(),
        external: external(entry),
        ..base
    })
}

/// How its sandbox is made. What is mounted is looked at whenever one is made.
fn spec(entry: &TableSession) -> Result<Spec, Failure> {
    let wire = &entry.session;
    let env = entry.env.clone().unwrap_or_default();
    resolve::check_env(env.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let mount = |source: &str, target: &str, read_only| Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    let port = |port: &types::Port| Port {
        container: port.container,
        host: port.host,
        fixed: entry.fixed_ports.contains(&format!("{}/{}", port.container, port.protocol)),
        protocol: port.protocol.clone(),
    };
    Ok(Spec {
        workspace: wire.workspace.as_ref().map(|w| mount(&w.source, &w.target, w.read_only)),
        mounts: wire.mounts.iter().map(|m| mount(&m.source, &m.target, m.read_only)).collect(),
        ports: wire.ports.iter().map(port).collect(),
        limits: Limits {
            cpu_millis: resolve::millis(wire.limits.cpus)?,
            memory_bytes: wire.limits.memory_bytes,
            pids: wire.limits.pids,
        },
        network: Network::from_word(wire.network.as_str())
            .ok_or_else(|| Failure::word("network", Network::ALL.iter().map(|word| word.as_str())))?,
        profile: Profile::from_word(wire.profile.as_str())
            .ok_or_else(|| Failure::word("profile", Profile::ALL.iter().map(|word| word.as_str())))?,
        user: entry.user.clone(),
        env: env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
    })
}

/// Whether nothing is in a JSON object.
fn is_empty(object: &Secret) -> bool {
    object.reveal() == "{}"
}

fn external(entry: &TableSession) -> Option<External> {
    let external = entry.external.as_ref()?;
    let extra = serde_json::Value::Object(external.extra.clone().unwrap_or_default());
    Some(External {
        origin: external.origin.clone(),
        status: external.status.clone(),
        extra: Secret::new(extra.to_string()),
    })
}
