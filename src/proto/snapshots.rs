//! What is asked of snapshots. A snapshot itself is in `types`.

use serde::{Deserialize, Serialize};

use super::types::{Session, Snapshot, wire_enum};

/// Whose snapshots to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotListParams {
    /// This session's; all if absent.
    #[serde(default)]
    pub name: Option<String>,
}

/// Which snapshots to delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotDeleteParams {
    /// Their names. All are checked before the first is deleted.
    pub snapshots: Vec<String>,
}

/// Which snapshots are too many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotPruneParams {
    /// Of these sessions; of all if empty. Snapshots that outlived their session are found by its name.
    #[serde(default)]
    pub names: Vec<String>,
    /// The newest of each session that stay. One of this and `older_ms` must be given; with both, what goes is older and
    /// beyond the newest.
    #[serde(default)]
    pub keep: Option<u32>,
    /// Only those taken longer ago than this, in milliseconds.
    #[serde(default)]
    pub older_ms: Option<u64>,
    /// Tell what would be deleted, and delete nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was deleted, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotPruneResult {
    /// The snapshots, as they were.
    pub snapshots: Vec<Snapshot>,
    /// What that gives back on the engine's disk, as far as it is known: a layer on which another snapshot or a container
    /// stands goes only with the last of those.
    pub freed_bytes: u64,
    /// Whether nothing was deleted.
    pub dry_run: bool,
    /// Where all sessions were meant, the names of those that were passed over: they are on another engine than the one that
    /// answers.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// Most paths in the answer to `snapshot.diff`.
pub const MAX_DIFFERENCES: usize = 10_000;

/// What to compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotDiffParams {
    /// A snapshot.
    pub from: String,
    /// Another one; the session of the first as it is now if absent.
    #[serde(default)]
    pub to: Option<String>,
}

/// In what two states of files differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotDiffResult {
    /// By path; at most 10,000.
    pub differences: Vec<PathDifference>,
    /// Whether there are more.
    pub truncated: bool,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathDifference {
    /// How.
    pub change: PathChange,
    /// An absolute path. What is no UTF-8 of it is replaced.
    pub path: String,
}

wire_enum! {
    /// How a path differs.
    PathChange {
        /// Only the later state has it.
        Added = "added",
        /// Both have it, and it is not the same.
        Changed = "changed",
        /// Only the earlier state has it, with all that is below it.
        Deleted = "deleted",
    }
}

/// What to export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotExportParams {
    /// The snapshot.
    pub snapshot: String,
    /// An absolute path on the daemon's machine at which nothing is. The file gets its name when it is whole.
    pub path: String,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotExportResult {
    /// The snapshot's name.
    pub snapshot: String,
    /// The file.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
}

/// What to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotImportParams {
    /// An absolute path on the daemon's machine.
    pub path: String,
    /// What messages call the file, where it stands in for something else; its path if absent.
    #[serde(default)]
    pub called: Option<String>,
    /// Make a saved session of this name, to be resumed. Without it the snapshot is in nobody's timeline.
    #[serde(default)]
    pub session: Option<String>,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// What was imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotImportResult {
    /// The snapshot. Its name is the one in the file, with a number behind it where that is taken.
    pub snapshot: Snapshot,
    /// The session that was made, if one was asked for.
    #[serde(default)]
    pub session: Option<Session>,
}
