//! What the table can answer instead of keeping a change.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

/// Why a change was not kept, or the table not opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The name, or the sandbox's name, is taken.
    #[error("a session named {name:?} exists already")]
    Exists {
        /// The name asked for.
        name: String,
    },
    /// Another command of the session has the key.
    #[error("another command has the key {key:?}")]
    KeyTaken {
        /// The key asked for.
        key: String,
    },
    /// The snapshot's name is taken.
    #[error("a snapshot named {name:?} exists already")]
    SnapshotExists {
        /// The name asked for.
        name: String,
    },
    /// The row is gone.
    #[error("the row {id} is gone")]
    Gone {
        /// Its id.
        id: String,
    },
    /// Another process holds the database.
    #[error("another process holds the database {path:?}")]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("the disk that holds {path:?} is full")]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// Written by a newer version; left untouched.
    #[error("the table at {path:?} has format {found}, this abx knows up to {known}")]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The directory or file cannot be used.
    #[error("failed to use the table at {path:?}: {text}")]
    Io {
        /// The database.
        path: PathBuf,
        /// The system's or SQLite's words.
        text: String,
    },
    /// The writer has stopped.
    #[error("the table is closed")]
    Closed,
}

impl StoreError {
    /// Whether the same change would be refused later, too: the row that it is of is gone, or the table is closed.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Closed)
    }
}

/// Puts an error of SQLite in our words; `path` is the database.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let Some(cause) = error.sqlite_error() else { return StoreError::Io { path, text: error.to_string() } };
    match cause.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            StoreError::Busy { path }
        }
        ErrorCode::DiskFull => StoreError::Full { path },
        ErrorCode::SystemIoFailure if may_be_space(cause.extended_code) && no_space_beside(&path) => {
            StoreError::Full { path }
        }
        _ => StoreError::Io { path, text: error.to_string() },
    }
}

/// Puts an error of the system in our words; `path` is the database.
pub(super) fn explain_io(path: &Path, error: &io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
        _ => StoreError::Io { path, text: error.to_string() },
    }
}

/// Whether SQLite gives this code also when there is no space: it names ENOSPC for plain writes alone, and neither a
/// quota nor the shared-memory file.
fn may_be_space(extended_code: i32) -> bool {
    matches!(
        extended_code,
        ffi::SQLITE_IOERR_WRITE
            | ffi::SQLITE_IOERR_FSYNC
            | ffi::SQLITE_IOERR_DIR_FSYNC
            | ffi::SQLITE_IOERR_TRUNCATE
            | ffi::SQLITE_IOERR_SHMSIZE
            | ffi::SQLITE_IOERR_SHMOPEN
            | ffi::SQLITE_IOERR_SHMMAP
    )
}

/// Bytes written to find out whether there is space: a region of the shared-memory file, the largest thing that SQLite
/// writes at once.
const PROBE_BYTES: usize = 32 << 10;

fn no_space_beside(path: &Path) -> bool {
    let probe = super::files::beside(path, ".probe");
    let tried =
        OpenOptions::new().create(true).truncate(true).write(true).open(&probe).and_then(|mut file| {
            file.write_all(&[0; PROBE_BYTES])?;
            file.sync_all()
        });
    // Nothing depends on its going: the next probe overwrites it.
    let _ = std::fs::remove_file(&probe);
    tried.is_err_and(|error| matches!(explain_io(path, &error), StoreError::Full { .. }))
}
