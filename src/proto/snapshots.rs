//! What is asked of snapshots. A snapshot itself is in `types`.

use serde::{Deserialize, Serialize};

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
