//! What the table can answer instead of keeping a change.

use std::path::PathBuf;

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
