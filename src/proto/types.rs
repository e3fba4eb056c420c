//! The objects that methods take and give.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::events::By;

/// A string-valued enum of the wire that keeps values this version does not know.
macro_rules! wire_enum {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $vdoc:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[doc = $vdoc])+ #[serde(rename = $text)] $variant,)+
            /// A value of a newer daemon.
            #[serde(untagged)]
            Other(String),
        }

        // What is no string is told as such, and where it stands: a derived one knows neither.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from).map(|word| Self::from_word(&word))
            }
        }

        impl $name {
            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $text,)+ Self::Other(text) => text }
            }

            /// The value of a word.
            pub fn from_word(word: &str) -> Self {
                match word { $($text => Self::$variant,)+ other => Self::Other(other.to_owned()) }
            }
        }
    };
}

mod rest;

pub use rest::{Busy, IdleAction, OnBoot};
pub(super) use wire_enum;

wire_enum! {
    /// What state a session is in.
    Status {
        /// Being created for the first time.
        Starting = "starting",
        /// Its sandbox runs.
        Running = "running",
        /// Its sandbox is frozen, memory kept.
        Paused = "paused",
        /// Its sandbox is stopped; container and files are kept.
        Stopped = "stopped",
        /// Stopped, and a snapshot holds its files.
        Saved = "saved",
        /// Its container is gone and no snapshot can bring it back.
        Lost = "lost",
        /// The row names a sandbox that this daemon does not run.
        Unknown = "unknown",
    }
}

wire_enum! {
    /// What a session's agent is doing.
    Attention {
        /// It is at work.
        Working = "working",
        /// It waits for its user.
        Waiting = "waiting",
        /// It has stopped to work.
        Idle = "idle",
        /// Its program has ended, or it says that it has finished.
        Done = "done",
    }
}

wire_enum! {
    /// Why a session does not run.
    Reason {
        /// Someone stopped it.
        User = "user",
        /// Its main program ended by itself.
        Exited = "exited",
        /// The kernel ended it for want of memory.
        OomKilled = "oom_killed",
        /// Its `timeout` ran out.
        Timeout = "timeout",
        /// Nothing used it for as long as its `idle` allows.
        Idle = "idle",
        /// The engine stopped or restarted.
        Engine = "engine",
        /// Its container was removed outside abx.
        Removed = "removed",
    }
}

wire_enum! {
    /// How much a sandbox may do.
    Profile {
        /// The engine's defaults, without host namespaces.
        Permissive = "permissive",
        /// No new privileges, no `NET_RAW`, limits on processes and memory. The default.
        Moderate = "moderate",
        /// No capabilities, no network unless asked for, tighter limits.
        Restrictive = "restrictive",
    }
}

wire_enum! {
    /// The sandbox's network.
    Network {
        /// The engine's default bridge.
        Bridge = "bridge",
        /// No network but loopback.
        None = "none",
    }
}

wire_enum! {
    /// What is waited for.
    WaitFor {
        /// Its agent works.
        Working = "working",
        /// Its agent waits for its user.
        Waiting = "waiting",
        /// Its agent has stopped to work.
        Idle = "idle",
        /// Its agent has finished.
        Done = "done",
        /// Somebody should look: its agent waits or has finished.
        Attention = "attention",
        /// Its agent's program has ended, or its sandbox has.
        Exit = "exit",
        /// Its sandbox runs.
        Running = "running",
        /// Its sandbox is frozen.
        Paused = "paused",
        /// Its sandbox is stopped.
        Stopped = "stopped",
        /// It is saved.
        Saved = "saved",
        /// It is gone.
        Deleted = "deleted",
    }
}

/// A directory of the host inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mount {
    /// An absolute path of the host, or the name of a volume of the engine.
    pub source: String,
    /// An absolute path in the sandbox.
    pub target: String,
    /// Whether the sandbox may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// A port of the sandbox that the host forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Port {
    /// The port in the sandbox.
    pub container: u16,
    /// The port on the host's loopback; null or 0 asks for a free one. Filled in once the sandbox runs.
    #[serde(default)]
    pub host: Option<u16>,
    /// `tcp` or `udp`.
    #[serde(default = "tcp")]
    pub protocol: String,
}

fn tcp() -> String {
    "tcp".to_owned()
}

/// Resource limits; null is no limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// CPUs, fractions allowed.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Memory, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    #[serde(default)]
    pub pids: Option<u32>,
}

/// A session, as `session.get` and `--json` give it. Absent values are null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// UUIDv7.
    pub id: String,
    /// The name given by the user; unique.
    pub name: String,
    /// The sandbox's name: the container's name.
    pub sandbox: String,
    /// The engine's full id of the container.
    pub sandbox_id: Option<String>,
    /// `docker`, or `external` for a sandbox this daemon does not run.
    pub engine: String,
    /// The agent's label.
    pub agent: String,
    /// The template it was started from.
    pub template: String,
    /// The image it was started from, as asked for.
    pub image: Option<String>,
    /// The immutable id of the image that the sandbox runs on.
    pub image_id: Option<String>,
    /// What runs its commands: `init` (abx-init, in the sandbox) or `engine`; null where this daemon runs none.
    #[serde(default)]
    pub runtime: Option<String>,
    /// What state it is in.
    pub status: Status,
    /// What is being done right now, else null.
    pub operation: Option<String>,
    /// Why it does not run, else null.
    pub reason: Option<Reason>,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    /// When it was last used.
    pub last_active: String,
    /// When a client last connected or attached.
    pub last_connected: Option<String>,
    /// When its timeout will stop it.
    pub expires_at: Option<String>,
    /// Timeout since start or resume, in milliseconds; null is never.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Idle time after which something is done to it, in milliseconds; null is never.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// How many snapshots stay when it is saved: the oldest beyond that and without a note are deleted. Null for all.
    #[serde(default)]
    pub keep: Option<u32>,
    /// What that is.
    #[serde(default)]
    pub idle_action: Option<IdleAction>,
    /// What becomes of it after its engine went, if that is another than the configuration says.
    #[serde(default)]
    pub on_boot: Option<OnBoot>,
    /// Since when its idle time counts; null while it does not.
    #[serde(default)]
    pub idle_since: Option<String>,
    /// When something will be done, if nothing is used until then.
    #[serde(default)]
    pub idle_at: Option<String>,
    /// Why its idle time does not count; empty where it counts, and where it has none.
    #[serde(default)]
    pub busy: Vec<Busy>,
    /// Commands run in it so far.
    pub exec_count: u64,
    /// How often the kernel ended something in it for want of memory.
    pub oom_events: u64,
    /// What its agent is doing; null until something of it was heard since the sandbox came up.
    #[serde(default)]
    pub attention: Option<Attention>,
    /// One line that came with it, from inside the sandbox.
    #[serde(default)]
    pub attention_note: Option<String>,
    /// Since when.
    #[serde(default)]
    pub attention_at: Option<String>,
    /// The newest snapshot's name.
    pub snapshot: Option<String>,
    /// Number of snapshots.
    pub snapshots: u64,
    /// The host directory that it works on.
    pub workspace: Option<Workspace>,
    /// Further mounts.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Forwarded ports.
    pub ports: Vec<Port>,
    /// Resource limits.
    pub limits: Limits,
    /// The sandbox's network.
    pub network: Network,
    /// How much the sandbox may do.
    #[serde(default = "moderate")]
    pub profile: Profile,
    /// Names of the session's environment variables; their values are masked as `***`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The user's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Raised by one at every change.
    pub revision: u64,
    /// In what it is not as its snapshot was saved: a mount that is another, a volume that is new. In the answers to
    /// `session.resume`, `session.connect` and `session.fork` alone, where they made a sandbox from a snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

fn moderate() -> Profile {
    Profile::Moderate
}

/// The host directory that a session works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Workspace {
    /// Absolute path on the host, links resolved.
    pub source: String,
    /// Absolute path in the sandbox.
    pub target: String,
    /// Whether the sandbox may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// Something in the sandbox that a snapshot does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Excluded {
    /// `bind`, `volume`, `tmpfs` or `process`.
    pub kind: String,
    /// The path, or the process's name.
    pub target: String,
}

/// A saved state of a session's file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Unique among all snapshots.
    pub name: String,
    /// The session's name; kept when the session is deleted and its snapshots are not.
    pub session: String,
    /// Immutable; what resume uses.
    pub image_id: String,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    /// Who asked for it: a client as events name it, or `abxd` for one that it took by itself. Null for one from before
    /// that was noted.
    #[serde(default)]
    pub creator: Option<By>,
    /// The user's words.
    pub note: Option<String>,
    /// The snapshot that the files came from.
    pub parent: Option<String>,
    /// Size of the whole image.
    pub size_bytes: u64,
    /// What of that is its own: its layer. The rest is shared with the image below it. Null where that is not known.
    #[serde(default)]
    pub own_bytes: Option<u64>,
    /// What it does not hold.
    pub excluded: Vec<Excluded>,
}

/// An engine as `daemon.info` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineInfo {
    /// `docker`.
    pub name: String,
    /// The address in use, or the one that was chosen last.
    pub address: Option<String>,
    /// Where the address came from, for people: `flag --engine`, a file's path, `environment DOCKER_HOST`,
    /// `context "NAME", ` and who chose it, `default sockets`, or that the sessions are there.
    pub source: Option<String>,
    /// The engine's own version.
    pub version: Option<String>,
    /// The API version agreed on.
    pub api_version: Option<String>,
    /// `ok`, `unavailable`, or `checking` in the first moments of the daemon's life.
    pub health: String,
    /// Why it is unavailable: each address tried and what it answered.
    #[serde(default)]
    pub problem: Option<String>,
    /// The engine's clock minus ours, in milliseconds, when it was last compared.
    #[serde(default)]
    pub clock_skew_ms: Option<i64>,
}

/// A row of the store that maps a name to a sandbox which this daemon does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreRow {
    /// The session's name.
    pub name: String,
    /// Which store the row is in, such as the path of a directory. Names are unique in each; absent for the one that also
    /// holds what was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The sandbox's id in the other program.
    #[serde(default, alias = "sandboxId")]
    pub sandbox_id: Option<String>,
    /// The template's name.
    #[serde(default)]
    pub template: Option<String>,
    /// The other program's word for the state; abx shows `unknown`.
    #[serde(default)]
    pub status: Option<String>,
    /// RFC 3339; now if absent.
    #[serde(default, alias = "createdAt")]
    pub created_at: Option<String>,
    /// RFC 3339.
    #[serde(default, alias = "lastConnected")]
    pub last_connected: Option<String>,
    /// String to string.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Everything else the program stored (address, token, configuration), kept as it came. Given back by
    /// `store.load` alone, never in lists or logs.
    #[serde(default, flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// A row of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreNameParams {
    /// The session's name.
    pub name: String,
    /// Which store it is in, as it was saved.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// A store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreListParams {
    /// Which one, as its rows were saved.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// Whether a row was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreDeleteResult {
    /// True if it was there and is gone now.
    pub deleted: bool,
}
