//! The daemon, as its methods tell of it.

use serde::{Deserialize, Serialize};

use super::types::EngineInfo;

/// Who speaks, and in which version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HelloParams {
    /// The client's name, for the log.
    pub client: String,
    /// The client's version.
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
}

/// Who answers, and in which version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HelloResult {
    /// Always `abxd`.
    pub server: String,
    /// The daemon's version.
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
    /// Its process id.
    pub pid: u32,
    /// Its home directory.
    pub home: String,
    /// RFC 3339, UTC, milliseconds: with the process id, which daemon this is. A daemon that handed over keeps its process.
    #[serde(default)]
    pub started_at: String,
    /// One line that the user should see once, such as old session files that could be imported.
    #[serde(default)]
    pub notice: Option<String>,
}

impl HelloResult {
    /// Whether the same daemon answered, and not one that went on in its place.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.pid, &self.started_at) == (other.pid, &other.started_at)
    }
}

/// Which program goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartParams {
    /// The program, by its absolute path; by default the file that the daemon was started from.
    #[serde(default)]
    pub program: Option<String>,
}

/// What goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartResult {
    /// The process, which stays.
    pub pid: u32,
    /// The version that answered.
    pub from: String,
    /// The version that goes on.
    pub to: String,
}

/// The daemon's account of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonInfoResult {
    /// The daemon's version.
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
    /// Its process id.
    pub pid: u32,
    /// Its home directory.
    pub home: String,
    /// The socket it listens on.
    pub socket: String,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// Number of sessions.
    pub sessions: u64,
    /// Each engine's address, version and health.
    pub engines: Vec<EngineInfo>,
    /// Settings and where each came from.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Things the user should know, such as a table that had to be rebuilt.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// What this home has on the engine, beside what its sessions explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonCheckResult {
    /// Containers that are no session's.
    pub containers: Vec<OrphanContainer>,
    /// Tags of snapshots' images that have no row.
    pub images: Vec<String>,
    /// How many layers each session's sandbox stands on.
    pub layers: Vec<SessionLayers>,
    /// What of this home takes space on the engine, and how much there is; null from a daemon that does not tell.
    #[serde(default)]
    pub space: Option<SpaceUse>,
}

/// What sandboxes and snapshots take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpaceUse {
    /// Bytes that sandboxes have written to files of their own.
    pub sandboxes_bytes: u64,
    /// Bytes of snapshots that no image below them has.
    pub snapshots_bytes: u64,
    /// Bytes that snapshots may take; null without a limit.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
    /// The engine's disk; null where it is not this machine's.
    #[serde(default)]
    pub disk: Option<EngineDisk>,
}

/// The disk on which the engine keeps its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineDisk {
    /// The engine's directory there.
    pub path: String,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// A container of this home that is no session's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrphanContainer {
    /// The engine's full id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `created`, `running`, `paused` or `exited`.
    pub state: String,
    /// A free name under which `session.adopt` takes it; null where the session that it is of has another container.
    pub session: Option<String>,
}

/// How deep a session stands on snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionLayers {
    /// The session's name.
    pub name: String,
    /// Layers of the image that its sandbox is made from.
    pub layers: u64,
}

/// One setting and where its value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    /// Its name in `config.toml`.
    pub name: String,
    /// Its value; secrets are masked.
    pub value: String,
    /// `flag NAME`, `environment NAME`, a file's path, or `default`.
    pub source: String,
}
