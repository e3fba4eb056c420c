//! What is asked of sessions, and what comes of it. A session itself is in `types`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::types::{
    Attention, IdleAction, Limits, Mount, Network, OnBoot, Port, Profile, Session, Snapshot, Status,
    StoreRow, WaitFor,
};

/// A session's name, or its sandbox's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameParams {
    /// The session's name; its sandbox's name is understood too.
    pub name: String,
}

/// How to start a session. Everything but the name has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartParams {
    /// Any printable Unicode without `/`, up to 128 bytes.
    pub name: String,
    /// `claude` if absent.
    #[serde(default)]
    pub agent: Option<String>,
    /// `base` if absent.
    #[serde(default)]
    pub template: Option<String>,
    /// The template's image if absent. Pulled if the engine does not have it.
    #[serde(default)]
    pub image: Option<String>,
    /// `docker` if absent.
    #[serde(default)]
    pub engine: Option<String>,
    /// Stop this long after start and after each resume, in milliseconds; 0 is never.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Stop after this long without use, in milliseconds; 0 is never.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// After each save, delete the oldest snapshots beyond this many that have no note; 0 keeps all.
    #[serde(default)]
    pub keep: Option<u32>,
    /// What to do then instead; the template's if absent.
    #[serde(default)]
    pub idle_action: Option<IdleAction>,
    /// What becomes of it after its engine went; the template's, else the configuration's if absent.
    #[serde(default)]
    pub on_boot: Option<OnBoot>,
    /// Environment of every command of the session. Never written into the container's configuration.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The user's own labels.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The host directory to work on; its `target` may be empty for `/workspace`.
    #[serde(default)]
    pub workspace: Option<Mount>,
    /// Further mounts.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Ports to forward, on the host's loopback only.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Resource limits; those absent come from template and profile.
    #[serde(default)]
    pub limits: Limits,
    /// The template's or the profile's if absent.
    #[serde(default)]
    pub network: Option<Network>,
    /// `moderate` if absent.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// If a session of this name exists, connect to it instead of failing.
    #[serde(default)]
    pub reuse: bool,
    /// Progress is sent as `event` notifications with this id on the same connection (not on plain HTTP).
    #[serde(default)]
    pub op: Option<String>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListParams {
    /// Only these states; all if empty.
    #[serde(default)]
    pub status: Vec<Status>,
    /// Only this agent.
    #[serde(default)]
    pub agent: Option<String>,
}

/// How to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopParams {
    /// The session.
    pub name: String,
    /// Time between TERM and KILL, in milliseconds; 10,000 if absent.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// How to save.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SaveParams {
    /// The session.
    pub name: String,
    /// The snapshot's name; `NAME-YYYYMMDD`, then `-2` and so on, if absent.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// The user's words.
    #[serde(default)]
    pub note: Option<String>,
    /// Take it under a pause and leave the session as it was.
    #[serde(default)]
    pub keep_running: bool,
    /// How long the engine may take over it, in milliseconds, 1,000 to 86,400,000; past it the save is given up with
    /// `engine_timeout`. The setting `save_timeout` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// What a save made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SaveResult {
    /// The session afterwards.
    pub session: Session,
    /// The new snapshot.
    pub snapshot: Snapshot,
    /// Names of those that were deleted because the session keeps only so many.
    #[serde(default)]
    pub pruned: Vec<String>,
}

/// How to resume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumeParams {
    /// The session.
    pub name: String,
    /// Go back to this snapshot.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Do not save first what going back replaces: what no snapshot holds is lost. Only with `snapshot`.
    #[serde(default)]
    pub discard: bool,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// How to connect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectParams {
    /// The session's name; its sandbox's name is understood too.
    pub name: String,
    /// Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
    /// default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
    /// Id for progress notifications: one says that the session is being resumed.
    #[serde(default)]
    pub op: Option<String>,
}

/// What a session's agent is doing, as somebody says who knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotifyParams {
    /// The session, which runs.
    pub name: String,
    /// `waiting` if absent.
    #[serde(default)]
    pub state: Option<Attention>,
    /// One line; what is longer than 512 bytes is cut.
    #[serde(default)]
    pub text: Option<String>,
}

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitParams {
    /// The session, whatever it is renamed to.
    pub name: String,
    /// Until when. What is so already is not waited for.
    #[serde(rename = "for")]
    pub until: WaitFor,
    /// Give up after this many milliseconds; never if absent or 0.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// What came of waiting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitResult {
    /// Whether it is so; false when the time is up.
    pub reached: bool,
    /// The session as it was then; null when it is deleted and that, or its exit, was waited for.
    pub session: Option<Session>,
}

/// What to delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeleteParams {
    /// The session.
    pub name: String,
    /// Leave its snapshots.
    #[serde(default)]
    pub keep_snapshots: bool,
    /// Whether one whose sandbox is on another engine than the one that answers goes too. What is there stays there, and
    /// comes back as a session when that engine is used again.
    #[serde(default)]
    pub forget: bool,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeleteResult {
    /// The session's name.
    pub deleted: String,
    /// Names of the snapshots deleted with it.
    pub snapshots: Vec<String>,
}

/// How to fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkParams {
    /// The session to fork.
    pub name: String,
    /// The new session's name.
    pub new_name: String,
    /// From this snapshot; one is taken now if absent.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// How to rename.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenameParams {
    /// The session.
    pub name: String,
    /// Its new name.
    pub new_name: String,
}

/// What to change; absent fields stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpdateParams {
    /// The session.
    pub name: String,
    /// Counted from now if the session runs; 0 is never.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// 0 is never.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// From the next save on; 0 keeps all.
    #[serde(default)]
    pub keep: Option<u32>,
    /// What to do then.
    #[serde(default)]
    pub idle_action: Option<IdleAction>,
    /// What becomes of it after its engine went.
    #[serde(default)]
    pub on_boot: Option<OnBoot>,
    /// Set these keys; null removes a key.
    #[serde(default)]
    pub metadata: BTreeMap<String, Option<String>>,
}

/// What to adopt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdoptParams {
    /// The session's name.
    pub name: String,
    /// The container, by its name or its full id.
    pub container: String,
    /// `claude` if absent, or what the container's labels say.
    #[serde(default)]
    pub agent: Option<String>,
}

/// Rows of an older tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportParams {
    /// The rows, in the order in which they may claim a name.
    pub rows: Vec<ImportRow>,
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
}

/// One row of an older tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportRow {
    /// `agentkernel` or `agent-sandbox`.
    pub origin: String,
    /// The session, in the terms of the store.
    pub row: StoreRow,
    /// The agent's label.
    #[serde(default)]
    pub agent: Option<String>,
    /// Its sandbox's name in the older tool.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// When it was last used, RFC 3339.
    #[serde(default)]
    pub last_active: Option<String>,
    /// Commands run so far.
    #[serde(default)]
    pub exec_count: u64,
    /// The older tool's snapshot.
    #[serde(default)]
    pub snapshot: Option<String>,
}

/// What became of one imported row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportOutcome {
    /// The session's name.
    pub name: String,
    /// `imported`, `adopted`, `unchanged`, `conflict` or `refused`.
    pub outcome: String,
    /// The state it is listed with, if it is in the table now.
    #[serde(default)]
    pub status: Option<Status>,
    /// Why, for `conflict` and `refused`.
    #[serde(default)]
    pub why: Option<String>,
}
