//! Carrying a snapshot to another machine: out into a file, and in from one.

mod partial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use self::partial::{Partial, unwritten};
use super::start::check_free;
use crate::daemon::bundle::{self, Index, Origin, Stamp};
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::files::give::{Sink, give};
use crate::daemon::files::unpack::Refusal;
use crate::daemon::named;
use crate::daemon::progress::Report;
use crate::daemon::rebuild;
use crate::daemon::rpc::convert;
use crate::engine::{CommitSpec, EngineError, labels};
use crate::fault;
use crate::model::event::By;
use crate::model::id::{SessionId, SessionName, SnapshotId};
use crate::model::session::{Excluded, Port, Session, Snapshot, SnapshotState, Status};
use crate::proto::errors::Kind;
use crate::proto::sessions::StartParams;
use crate::proto::snapshots::{SnapshotExportParams, SnapshotImportParams};
use crate::proto::types;
use crate::store;

/// Chunks between the engine and the file; past them the engine waits.
const QUEUE_CHUNKS: usize = 4;
/// Longest note that is taken from a file, in characters.
const MAX_NOTE_CHARS: usize = 1024;
/// Most things that a file may say its snapshot does not hold, and the longest of them, in characters.
const MAX_EXCLUDED: (usize, usize) = (256, 4096);
/// Most ports that are taken from a file.
const MAX_PORTS: usize = 256;
/// Longest user's name that is taken from a file, in characters.
const MAX_USER_CHARS: usize = 64;

/// What came of an import.
#[derive(Debug)]
pub struct Imported {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The session that was made for it.
    pub session: Option<Arc<Session>>,
}

/// The file of an import.
struct Source {
    path: PathBuf,
    /// What messages call it.
    shown: String,
}

/// The rows that an import makes, but for what the engine says of its image.
struct Rows {
    snapshot: Snapshot,
    session: Option<Session>,
    reference: String,
}

impl Driver {
    /// Writes a snapshot to a file that is not there yet, and gives its length.
    ///
    /// # Errors
    /// As documented for `snapshot.export`. Nothing is left of the file then.
    pub async fn export_snapshot(&self, asked: SnapshotExportParams, report: Report) -> Result<u64, Failure> {
        let path = absolute(&asked.path)?;
        let this = self.clone();
        self.submit(async move {
            let snapshot = this.ready_snapshot(&asked.snapshot)?;
            let _in_use = this.0.deep.uses.of([&snapshot.id]).await;
            let image = this.require_image(&snapshot).await?;
            let head = this.index(&snapshot).head().map_err(|error| unwritten(&path, &error))?;
            let partial = Partial::create(path.clone())?;
            let mut archive = this.0.engine.image_archive(&[&image.id]).await?;
            let (chunks, queue) = mpsc::channel(QUEUE_CHUNKS);
            let writing = spawn_blocking(move || partial.fill(&head, queue));
            let (text, mut done) = (format!("exporting {}", snapshot.name), 0);
            let mut whole = Ok(());
            while let Some(next) = archive.next().await {
                let sent = match next {
                    Ok(bytes) => {
                        done += bytes.len() as u64;
                        report.bytes(&text, done);
                        chunks.send(Some(bytes)).await
                    }
                    Err(error) => {
                        whole = Err(error);
                        break;
                    }
                };
                // What keeps it from being written is the writer's to say.
                if sent.is_err() {
                    break;
                }
            }
            if whole.is_ok() {
                // Without this word it knows that the image is not whole, and removes the file.
                let _ = chunks.send(None).await;
            }
            drop(chunks);
            let written = writing.await.map_err(|_| internal())?;
            whole?;
            written.map_err(|error| unwritten(&path, &error))
        })
        .await
    }

    fn index(&self, snapshot: &Snapshot) -> Index {
        let name = self.session_of(snapshot);
        let origin = match self.session(&name) {
            Ok(session) => origin(&session),
            Err(_) => Origin { name, ..Origin::default() },
        };
        let wire = convert::snapshot(snapshot, origin.name.clone());
        Index {
            format: Index::FORMAT,
            name: wire.name,
            note: wire.note,
            created_at: wire.created_at,
            excluded: wire.excluded,
            session: origin,
        }
    }

    /// Takes a snapshot over from a file; with a session's name, as that session, saved.
    ///
    /// # Errors
    /// As documented for `snapshot.import`. Nothing of it is kept then.
    pub async fn import_file(
        &self,
        asked: SnapshotImportParams,
        report: Report,
    ) -> Result<Imported, Failure> {
        let path = absolute(&asked.path)?;
        let this = self.clone();
        self.submit(async move {
            named::file(asked.called.as_deref())?;
            let name = asked.session.as_deref().map(SessionName::parse).transpose()?;
            if let Some(taken) = name.as_ref().filter(|name| this.session(name.as_str()).is_ok()) {
                let error = store::error::StoreError::Exists { name: taken.to_string() };
                return Err(Failure::from(error).hint("choose another name"));
            }
            let by = store::actor().unwrap_or_else(By::daemon);
            let shown = asked.called.unwrap_or_else(|| path.display().to_string());
            let rows = this.load(Source { path, shown }, name, by, &report).await?;
            fault::point("import.loaded").await;
            this.keep_imported(rows).await
        })
        .await
    }

    /// Gives the engine what is in a file.
    async fn load(
        &self,
        source: Source,
        name: Option<SessionName>,
        by: By,
        report: &Report,
    ) -> Result<Rows, Failure> {
        let (this, Source { path, shown }) = (self.clone(), source);
        let unread = format!("read {shown}");
        let write = move |to: Sink| -> Result<Rows, Refusal> {
            let file = partial::open(&path, &unread)?;
            bundle::pass(file, to, |index| Ok(this.decide(index, name, by)?))
        };
        let (report, text) = (report.clone(), format!("importing {shown}"));
        match give(&*self.0.engine, move |done| report.bytes(&text, done), write).await {
            Ok(rows) => Ok(rows),
            Err(Refusal::Said(failure)) => Err(*failure),
            Err(Refusal::Garbled(error)) => Err(Failure::params(format!("cannot import {shown}: {error}"))
                .hint("it is not what abx snapshot export writes, or damaged: export it again")),
        }
    }

    /// What an index becomes here.
    fn decide(&self, index: Index, name: Option<SessionName>, by: By) -> Result<(Stamp, Rows), Failure> {
        let id = SnapshotId::new(uuid::Uuid::now_v7().to_string());
        let session = name.map(|name| self.session_from(&index.session, name)).transpose()?;
        let snapshot = snapshot_from(index, id.clone(), session.as_ref(), by)?;
        let spec = CommitSpec {
            sandbox_id: String::new(),
            snapshot: id.clone(),
            name: snapshot.name.clone(),
            // Of nobody's session: an empty label is none.
            session: snapshot.session.clone().unwrap_or_else(|| SessionId::new("")),
            session_name: snapshot.session_name.clone(),
            home: self.label(),
            note: snapshot.note.clone(),
            creator: snapshot.creator.clone(),
            parent: None,
            excluded: Vec::new(),
            saves: false,
            patience: self.config().save_timeout.value,
        };
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        if let Some(session) = &session {
            all.extend(labels::session(&self.create_spec(session, "")));
        }
        all.extend(labels::snapshot(&spec, None, None));
        let reference = labels::snapshot_reference(&id);
        let stamp = Stamp { labels: all, reference: reference.clone() };
        Ok((stamp, Rows { snapshot, session, reference }))
    }

    /// A session made of what a file says of one, checked as what a client asks for.
    fn session_from(&self, origin: &Origin, name: SessionName) -> Result<Session, Failure> {
        let template = origin.template.clone().filter(|name| self.config().template(name).is_some());
        let asked = StartParams {
            name: name.to_string(),
            agent: origin.agent.clone(),
            template,
            image: origin.image.clone(),
            metadata: origin.metadata.clone(),
            limits: origin.limits.clone(),
            ports: origin.ports.iter().take(MAX_PORTS).map(|port| self.free_port(port)).collect(),
            timeout_ms: origin.timeout_ms,
            idle_ms: origin.idle_ms,
            idle_action: origin.idle_action.clone(),
            on_boot: origin.on_boot.clone(),
            keep: origin.keep,
            network: origin.network.as_deref().map(types::Network::from_word),
            // A file gives no rights: more than the usual must be asked for here.
            profile: Some(match origin.profile.as_deref() {
                Some("restrictive") => types::Profile::Restrictive,
                _ => types::Profile::Moderate,
            }),
            ..StartParams::default()
        };
        let mut row = self.resolved(&asked)?;
        let plain = |user: &String| {
            user.chars().count() <= MAX_USER_CHARS
                && !user.chars().any(|c| c.is_control() || c.is_whitespace())
        };
        row.spec.user = origin.user.clone().filter(plain).or(row.spec.user);
        row.operation = None;
        row.status = Status::Saved;
        Ok(row)
    }

    /// A port that a file asks for: with one of the host that no session here asks for itself, else with a free one.
    fn free_port(&self, port: &types::Port) -> types::Port {
        let same = |other: &Port| other.fixed && (other.host, &other.protocol) == (port.host, &port.protocol);
        let taken = self.sessions().iter().any(|session| session.spec.ports.iter().any(same));
        types::Port { host: port.host.filter(|_| !taken), ..port.clone() }
    }

    /// Puts in the table what was loaded; of what cannot be kept nothing stays.
    async fn keep_imported(&self, rows: Rows) -> Result<Imported, Failure> {
        let Rows { mut snapshot, session, reference } = rows;
        let Some(image) = self.0.engine.image(&reference).await? else {
            let text = "it took the image and does not have it".to_owned();
            return Err(EngineError::Failed { call: "load_images", text }.into());
        };
        snapshot.image_id.clone_from(&image.id);
        snapshot.size_bytes = image.size_bytes;
        let id = snapshot.id.clone();
        let owner = session.as_ref().map(|session| session.id.clone());
        let here = self.engine_identity();
        let written = self
            .0
            .store
            .write(move |tx| {
                if let Some(session) = session {
                    check_free(tx, &session)?;
                    tx.insert_session(&Session {
                        image_id: Some(image.id),
                        sandbox_engine: here,
                        ..session
                    })?;
                }
                rebuild::insert_snapshot(tx, snapshot)
            })
            .await;
        if let Err(error) = written {
            if let Err(error) = self.0.engine.remove_snapshot(&id).await {
                tracing::warn!(%error, snapshot = %id, "the image of an import that failed stays");
            }
            return Err(error.into());
        }
        let all = self.0.store.snapshots(None);
        let snapshot = all.into_iter().find(|s| s.id == id).ok_or_else(internal)?;
        Ok(Imported { snapshot, session: owner.and_then(|id| self.0.store.session_by_id(&id)) })
    }
}

/// What of a session another machine can have.
fn origin(session: &Session) -> Origin {
    let wire = convert::session(session, None);
    Origin {
        name: wire.name,
        agent: Some(wire.agent),
        template: Some(wire.template),
        image: wire.image,
        user: session.spec.user.clone(),
        network: Some(wire.network.as_str().to_owned()),
        profile: Some(wire.profile.as_str().to_owned()),
        limits: wire.limits,
        ports: wire.ports.into_iter().zip(&session.spec.ports).map(asked_for).collect(),
        timeout_ms: or_never(wire.timeout_ms),
        idle_ms: or_never(wire.idle_ms),
        idle_action: wire.idle_action,
        on_boot: wire.on_boot,
        keep: Some(wire.keep.unwrap_or(0)),
        metadata: wire.metadata,
        env: wire.env.into_keys().collect(),
    }
}

/// A time with a word for never: what is not said would be the template's.
fn or_never(ms: Option<u64>) -> Option<u64> {
    Some(ms.unwrap_or(0))
}

/// A port as it was asked for: one of the host that the engine chose was this machine's.
fn asked_for((wire, port): (types::Port, &Port)) -> types::Port {
    types::Port { host: wire.host.filter(|_| port.fixed), ..wire }
}

fn snapshot_from(
    index: Index,
    id: SnapshotId,
    session: Option<&Session>,
    by: By,
) -> Result<Snapshot, Failure> {
    let now = clock::now();
    let short = |text: String, most: usize| text.chars().take(most).collect::<String>();
    let (most, longest) = MAX_EXCLUDED;
    let excluded = index.excluded.into_iter().take(most);
    let origin = SessionName::parse(&index.session.name)?;
    Ok(Snapshot {
        id,
        name: SessionName::parse(&index.name)?.to_string(),
        session: session.map(|session| session.id.clone()),
        session_name: session.map_or(origin, |session| session.name.clone()).to_string(),
        image_id: String::new(),
        created_at: clock::parse(&index.created_at).filter(|at| *at <= now).unwrap_or(now),
        creator: Some(by),
        note: index.note.map(|note| short(note, MAX_NOTE_CHARS)),
        parent: None,
        size_bytes: 0,
        own_bytes: None,
        excluded: excluded
            .map(|e| Excluded::new(short(e.kind, MAX_USER_CHARS), short(e.target, longest)))
            .collect(),
        state: SnapshotState::Ready,
    })
}

fn absolute(path: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(path);
    if path.is_absolute() { Ok(path) } else { Err(Failure::field("path", "an absolute path")) }
}

fn internal() -> Failure {
    Failure::new(Kind::Internal, "moving the snapshot failed inside abxd").hint("abx daemon logs")
}
