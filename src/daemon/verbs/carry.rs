//! Carrying a snapshot to another machine: out into a file, and in from one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use nix::fcntl::OFlag;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::start::check_free;
use crate::daemon::bundle::{self, Index, Origin, Stamp};
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::{Failure, quoted};
use crate::daemon::files::give::{Sink, give};
use crate::daemon::files::unpack::Refusal;
use crate::daemon::progress::Report;
use crate::daemon::rebuild;
use crate::daemon::rpc::convert;
use crate::engine::{CommitSpec, EngineError, labels};
use crate::fault;
use crate::model::event::By;
use crate::model::id::{SessionId, SessionName, SnapshotId};
use crate::model::session::{Excluded, Session, Snapshot, SnapshotState, Status};
use crate::proto::errors::Kind;
use crate::proto::sessions::StartParams;
use crate::proto::snapshots::{SnapshotExportParams, SnapshotImportParams};
use crate::proto::types;
use crate::store;

/// Chunks between the engine and the file; past them the engine waits.
const QUEUE_CHUNKS: usize = 4;
/// What a file is called until it is whole, after its own name.
const PARTIAL: &str = ".abx-partial";
/// Longest note that is taken from a file, in characters.
const MAX_NOTE_CHARS: usize = 1024;
/// Most things that a file may say its snapshot does not hold, and the longest of them, in characters.
const MAX_EXCLUDED: (usize, usize) = (256, 4096);
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
            let name = asked.session.as_deref().map(SessionName::parse).transpose()?;
            if let Some(taken) = name.as_ref().filter(|name| this.session(name.as_str()).is_ok()) {
                let error = store::error::StoreError::Exists { name: taken.to_string() };
                return Err(Failure::from(error).hint("choose another name"));
            }
            let by = store::actor().unwrap_or_else(By::daemon);
            let rows = this.load(&path, name, by, &report).await?;
            fault::point("import.loaded").await;
            this.keep_imported(rows).await
        })
        .await
    }

    /// Gives the engine what is in a file.
    async fn load(
        &self,
        path: &Path,
        name: Option<SessionName>,
        by: By,
        report: &Report,
    ) -> Result<Rows, Failure> {
        let (this, from) = (self.clone(), path.to_owned());
        let write = move |to: Sink| -> Result<Rows, Refusal> {
            let file = File::open(&from)?;
            bundle::pass(file, to, |index| Ok(this.decide(index, name, by)?))
        };
        let (report, text) = (report.clone(), format!("importing {}", path.display()));
        match give(&*self.0.engine, move |done| report.bytes(&text, done), write).await {
            Ok(rows) => Ok(rows),
            Err(Refusal::Said(failure)) => Err(*failure),
            Err(Refusal::Garbled(error)) => {
                Err(Failure::params(format!("cannot import {}: {error}", path.display())))
            }
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
            patience: self.config().save_timeout.value,
        };
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        if let Some(session) = &session {
            all.extend(labels::session(&self.create_spec(session, "")));
        }
        all.extend(labels::snapshot(&spec, None));
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
        let written = self
            .0
            .store
            .write(move |tx| {
                if let Some(session) = session {
                    check_free(tx, &session)?;
                    tx.insert_session(&Session { image_id: Some(image.id), ..session })?;
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
        metadata: wire.metadata,
        env: wire.env.into_keys().collect(),
    }
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
            .map(|e| Excluded { kind: short(e.kind, MAX_USER_CHARS), target: short(e.target, longest) })
            .collect(),
        state: SnapshotState::Ready,
    })
}

/// A file until it is whole. One that is dropped before goes.
struct Partial {
    file: Option<File>,
    at: PathBuf,
    path: PathBuf,
    whole: bool,
}

impl Partial {
    fn create(path: PathBuf) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::params(format!("{} is there already", path.display()))
                .hint(format!("choose another name, or: rm {}", quoted(&path.display().to_string()))));
        }
        let mut at = path.clone().into_os_string();
        at.push(PARTIAL);
        let at = PathBuf::from(at);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).custom_flags(OFlag::O_NOFOLLOW.bits()).mode(0o600);
        let file = options.open(&at).map_err(|error| unwritten(&at, &error))?;
        // What a daemon left that was killed is nobody's.
        file.try_lock().map_err(|_| Failure::params(format!("{} is being written", path.display())))?;
        file.set_len(0).map_err(|error| unwritten(&at, &error))?;
        Ok(Self { file: Some(file), at, path, whole: false })
    }

    /// Writes all that comes. What comes must end with nothing, or it was cut off.
    fn fill(mut self, head: &[u8], mut queue: mpsc::Receiver<Option<Bytes>>) -> io::Result<u64> {
        let Some(mut file) = self.file.take() else { return Ok(0) };
        file.write_all(head)?;
        let mut written = head.len() as u64;
        loop {
            match queue.blocking_recv() {
                Some(Some(bytes)) => {
                    file.write_all(&bytes)?;
                    written += bytes.len() as u64;
                }
                Some(None) => break,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        file.sync_all()?;
        fs::rename(&self.at, &self.path)?;
        self.whole = true;
        Ok(written)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.whole
            && let Err(error) = fs::remove_file(&self.at)
        {
            tracing::warn!(%error, file = %self.at.display(), "a part of an export stays");
        }
    }
}

fn absolute(path: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(path);
    if path.is_absolute() { Ok(path) } else { Err(Failure::field("path", "an absolute path")) }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::params(format!("cannot write {}: {error}", path.display()))
}

fn internal() -> Failure {
    Failure::new(Kind::Internal, "moving the snapshot failed inside abxd").hint("abx daemon logs")
}
