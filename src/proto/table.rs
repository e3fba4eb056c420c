//! The whole session table in one document, as `table.export` gives it and `table.import` takes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::types::{Session, Snapshot};

/// The form of the document. One with a higher number is refused.
pub const TABLE_FORM: u32 = 1;

/// What to export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableExportParams {
    /// With the values of environments, and what other programs stored with their rows.
    #[serde(default)]
    pub with_secrets: bool,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableDocument {
    /// The form of this document: 1.
    pub abx_table: u32,
    /// The version of abx that wrote it.
    #[serde(default)]
    pub version: String,
    /// RFC 3339, UTC, milliseconds.
    #[serde(default)]
    pub exported_at: String,
    /// The home that it is of.
    #[serde(default)]
    pub home: String,
    /// Sessions, oldest first.
    pub sessions: Vec<TableSession>,
    /// Snapshots, oldest first; also those that were kept when their session was deleted. Of each the row alone: its files
    /// are an image of the engine.
    #[serde(default)]
    pub snapshots: Vec<TableSnapshot>,
}

/// A session, with what `session.get` does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableSession {
    /// As `session.get` gives it.
    pub session: Session,
    /// The user that commands run as; the image's own if absent.
    #[serde(default)]
    pub user: Option<String>,
    /// Those of its ports (`80/tcp`) whose port on the host was asked for.
    #[serde(default)]
    pub fixed_ports: Vec<String>,
    /// Values of its environment; null where they were left out.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// Of a row that another program wrote: where it came from.
    #[serde(default)]
    pub external: Option<TableExternal>,
}

/// Where a row of another program came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableExternal {
    /// `store`, `store:NAMESPACE`, `agentkernel`, `agent-sandbox` or `adopted`.
    pub origin: String,
    /// The other program's word for the state.
    #[serde(default)]
    pub status: Option<String>,
    /// What else it stored; null where it was left out.
    #[serde(default)]
    pub extra: Option<Map<String, Value>>,
}

/// A snapshot, with its ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableSnapshot {
    /// UUIDv7.
    pub id: String,
    /// The id of the session whose timeline it is in; null where that was deleted.
    #[serde(default)]
    pub session_id: Option<String>,
    /// As `snapshot.list` gives it.
    pub snapshot: Snapshot,
}

/// A table, or a part of one, to take over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableImportParams {
    /// What was exported. A request has at most 8 MiB: of a larger one, send its sessions in parts, each with its snapshots.
    pub document: TableDocument,
    /// Give a session whose name is taken another, `NAME-2` and so on, rather than refuse it.
    #[serde(default)]
    pub rename: bool,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}
