//! Containers that cannot say whose they are: those that were taken over carry no label, or not a sandbox's name. What their
//! labels would say is kept in files beside the table, so that a table that was lost comes back with them.
//!
//! A record says what the row does as long as there is one, and goes when the session is deleted. It holds no value of an
//! environment.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::driver::Driver;
use crate::engine::{EngineError, Observed, labels};
use crate::model::id::{SANDBOX_PREFIX, SessionId, SessionName};
use crate::model::session::{EngineKind, External, Operation, Secret, Session};

/// The directory of the records, in the home.
const DIR: &str = "adopted";

/// Longest record that is read, in bytes: several times what the labels of a session may have.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// What is kept of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The engine's full id.
    container: String,
    /// Where the row came from, if it is not abx's own.
    origin: Option<String>,
    /// What the labels of the container would say of the session.
    labels: BTreeMap<String, String>,
}

/// All records, by session.
#[derive(Debug)]
pub(super) struct Adopted {
    dir: PathBuf,
    known: Mutex<HashMap<SessionId, Record>>,
}

impl Adopted {
    /// Reads the records of a home. One that cannot be read is passed over: nothing else depends on it.
    pub(super) fn open(home: &Path) -> Self {
        let dir = home.join(DIR);
        let mut known = HashMap::new();
        for path in fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else {
                continue;
            };
            match read(&path) {
                Ok(record) => drop(known.insert(SessionId::new(id), record)),
                Err(error) => tracing::warn!(%error, ?path, "passed over the record of a container"),
            }
        }
        Self { dir, known: Mutex::new(known) }
    }

    /// Whether a container was taken over.
    fn knows(&self, container: &str) -> bool {
        self.known().values().any(|record| record.container == container)
    }

    /// What the engine saw, with what the container cannot say itself.
    fn told(&self, seen: Observed) -> Observed {
        let known = self.known();
        let Some(record) = known.values().find(|record| record.container == seen.id) else { return seen };
        let mut seen = seen;
        seen.labels.extend(record.labels.clone());
        seen
    }

    /// Lets the record of a session be this one, or none.
    fn put(&self, id: &SessionId, record: Option<Record>) {
        let mut known = self.known();
        if known.get(id) == record.as_ref() {
            return;
        }
        let path = self.dir.join(format!("{id}.json"));
        let done = match &record {
            Some(record) => write(&self.dir, &path, record),
            None => removed(&path),
        };
        match (done, record) {
            (Ok(()), Some(record)) => drop(known.insert(id.clone(), record)),
            (Ok(()), None) => drop(known.remove(id)),
            // It is tried again at the next change, and at the next comparison.
            (Err(error), _) => tracing::warn!(%error, ?path, "the record of a container is out of date"),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Record>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> io::Result<Record> {
    if fs::metadata(path)?.len() > MAX_RECORD_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Removes a file, if it is there.
fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write(dir: &Path, path: &Path, record: &Record) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}

/// Whether the container of a session cannot say that it is that.
fn is_mute(session: &Session) -> bool {
    session.engine == EngineKind::Docker
        && (session.external.is_some() || !session.sandbox.starts_with(SANDBOX_PREFIX))
}

impl Driver {
    /// Lets the record of a session's container say what the row does. One that is being deleted has its record until the
    /// container is gone.
    pub(super) fn follow_adopted(&self, session: &Session) {
        if matches!(session.operation, Some(Operation::Delete | Operation::DeleteKeep)) {
            return;
        }
        let container = session.sandbox_id.as_ref().filter(|_| is_mute(session));
        let record = container.map(|container| Record {
            container: container.clone(),
            origin: session.external.as_ref().map(|external| external.origin.clone()),
            labels: labels::of_session(&self.create_spec(session, "")),
        });
        self.0.adopted.put(&session.id, record);
    }

    /// Drops the record of a session that is being deleted.
    pub(super) fn forget_adopted(&self, id: &SessionId) {
        self.0.adopted.put(id, None);
    }

    /// All containers of this home: those that say so, and those that were taken over.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn own_containers(&self) -> Result<Vec<Observed>, EngineError> {
        let mut all = self.0.engine.list(&self.label()).await?;
        let adopted: Vec<String> =
            self.0.adopted.known().values().map(|record| record.container.clone()).collect();
        for id in adopted {
            if !all.iter().any(|seen| seen.id == id)
                && let Some(seen) = self.0.engine.inspect(&id).await?
            {
                all.push(seen);
            }
        }
        Ok(all.into_iter().map(|seen| self.0.adopted.told(seen)).collect())
    }

    /// Looks at a container, with what it cannot say itself; none if it is gone.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn look_at(&self, id: &str) -> Result<Option<Observed>, EngineError> {
        Ok(self.0.engine.inspect(id).await?.map(|seen| self.0.adopted.told(seen)))
    }

    /// Whether a container was taken over.
    pub(super) fn is_adopted(&self, container: &Observed) -> bool {
        self.0.adopted.knows(&container.id)
    }

    /// Whether a container with the labels of a session is its sandbox. The labels alone do not tell: an image that a user
    /// commits from a sandbox hands them on to whatever runs it.
    pub(super) fn is_sandbox(&self, container: &Observed) -> bool {
        container.name.starts_with(SANDBOX_PREFIX) || self.is_adopted(container)
    }

    /// The row of a container, made again: one that was taken over has the name that its session had, whatever its own is.
    pub(super) fn row_again(&self, container: &Observed) -> Option<Session> {
        let row = labels::rebuild(container)?;
        let known = self.0.adopted.known();
        let Some(record) = known.get(&row.id).filter(|record| record.container == container.id) else {
            return Some(row);
        };
        let name = record.labels.get(labels::SESSION_NAME).and_then(|name| SessionName::parse(name).ok());
        let external =
            record.origin.clone().map(|origin| External { origin, status: None, extra: Secret::new("{}") });
        Some(Session { name: name.unwrap_or(row.name.clone()), external, ..row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_somebody_removed_is_forgotten_as_any_other() {
        let home = tempfile::tempdir().expect("temporary directory");
        let adopted = Adopted::open(home.path());
        let id = SessionId::new("one");
        let record = Record { container: "c".to_owned(), origin: None, labels: BTreeMap::new() };
        adopted.put(&id, Some(record));
        fs::remove_file(home.path().join(DIR).join("one.json")).expect("it is there");
        adopted.put(&id, None);
        assert!(!adopted.knows("c"));
    }
}
