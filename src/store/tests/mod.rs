//! Tests of the table as a whole.

mod backup;
mod crash;
mod damage;
mod events;
mod execs;
mod full;
mod group;
mod kept;
pub(crate) mod noting;
mod open;
mod rows;
mod synced;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::files::beside;
use super::*;
use crate::model::id::{SessionName, SnapshotId, Timestamp};
use crate::model::session::{EngineKind, SnapshotState, Spec, Status};

/// Keeps a test's paused clock where it is while the writer has work: of a thread that is not its own the runtime does not
/// know, takes itself for idle and runs ahead to the next timer. It does know of its blocking ones.
pub(super) fn hold_clock() -> Option<std::sync::mpsc::Sender<()>> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    if runtime.runtime_flavor() != tokio::runtime::RuntimeFlavor::CurrentThread {
        return None;
    }
    let (held, ended) = std::sync::mpsc::channel();
    runtime.spawn_blocking(move || ended.recv());
    Some(held)
}

/// A directory for one table.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sessions.db")
    }

    fn open(&self) -> Store {
        let opened = Store::open(&self.path()).expect("open");
        assert_eq!(opened.set_aside, None, "nothing was damaged");
        assert_eq!(opened.notices, Vec::<String>::new());
        opened.store
    }

    /// The names of the files there.
    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Bends the closed table with plain SQL, as another program would.
    fn sql(&self, sql: &str) {
        let conn = rusqlite::Connection::open(self.path()).expect("open");
        conn.execute_batch(sql).expect("statements");
    }
}

fn id(n: usize) -> SessionId {
    SessionId::new(format!("01920000-0000-7000-8000-{n:012}"))
}

/// A plain row; `n` gives its id, name, sandbox and age.
fn session(n: usize) -> Session {
    let name = SessionName::parse(&format!("s{n}")).expect("a good name");
    let created_at = Timestamp(1_000_000 + i64::try_from(n).expect("small"));
    Session {
        sandbox: format!("session-s{n}"),
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image: Some("debian:stable-slim".to_owned()),
        last_active: Timestamp(1_000_000),
        revision: 1,
        ..Session::new(id(n), name, created_at)
    }
}

/// A snapshot of session `of`; `n` gives its id, name and age.
fn snapshot(n: usize, of: usize) -> Snapshot {
    Snapshot {
        id: SnapshotId::new(format!("01930000-0000-7000-8000-{n:012}")),
        name: format!("snap-{n}"),
        session: Some(id(of)),
        session_name: format!("s{of}"),
        image_id: format!("sha256:{n}"),
        created_at: Timestamp(2_000_000 + i64::try_from(n).expect("small")),
        creator: None,
        note: None,
        parent: None,
        size_bytes: 1 << 20,
        own_bytes: None,
        excluded: Vec::new(),
        state: SnapshotState::Ready,
    }
}

/// Everything that a store holds.
fn contents(store: &Store) -> (Vec<Arc<Session>>, Vec<Arc<Snapshot>>) {
    (store.sessions(), store.snapshots(None))
}

/// Copies the database and its log, as a loss of power at this instant would leave them.
fn copy_as_is(from: &Path, to: &Path) {
    fs::copy(from, to).expect("copy the database");
    if beside(from, "-wal").exists() {
        fs::copy(beside(from, "-wal"), beside(to, "-wal")).expect("copy the log");
    }
}
