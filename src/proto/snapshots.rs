//! What is asked of snapshots. A snapshot itself is in `types`.

use serde::{Deserialize, Serialize};

use super::types::Snapshot;

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
}
