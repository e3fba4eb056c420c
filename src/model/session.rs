//! The session, as the table keeps it.

use std::collections::BTreeMap;
use std::fmt;

use super::attention::Noted;
use super::id::{SessionId, SessionName, Timestamp, sandbox_name};
use super::idle::IdleAction;
use super::reconcile::OnBoot;
pub use super::snapshot::{Excluded, Snapshot, SnapshotState};

macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $vdoc:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[doc = $vdoc])+ $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in the table and on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value of this word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub(super) use words;

words! {
    /// What state a session is in.
    Status {
        /// Being created for the first time.
        Starting = "starting",
        /// Its sandbox runs.
        Running = "running",
        /// Its sandbox is frozen.
        Paused = "paused",
        /// Its sandbox is stopped; its container is there.
        Stopped = "stopped",
        /// A snapshot holds its files; its container may be gone.
        Saved = "saved",
        /// Its container is gone and no snapshot can bring it back.
        Lost = "lost",
        /// Names a sandbox that this daemon does not run.
        Unknown = "unknown",
    }
}

impl Status {
    /// Whether there may be processes in the sandbox.
    pub const fn has_processes(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Paused)
    }
}

words! {
    /// What is being done to a session right now.
    Operation {
        /// Creating it.
        Start = "start",
        /// Stopping it.
        Stop = "stop",
        /// Taking a snapshot, with the sandbox stopped first.
        Save = "save",
        /// Taking a snapshot under a pause; the sandbox ran before.
        SaveRunning = "save_running",
        /// Bringing it back.
        Resume = "resume",
        /// Removing it.
        Delete = "delete",
        /// Removing it, but not its snapshots.
        DeleteKeep = "delete_keep",
        /// Freezing it.
        Pause = "pause",
        /// Thawing it.
        Unpause = "unpause",
    }
}

impl Operation {
    /// The verb that the user knows: variants that only recovery tells apart share one.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::SaveRunning => "save",
            Self::DeleteKeep => "delete",
            other => other.as_str(),
        }
    }
}

words! {
    /// Why a session does not run.
    Reason {
        /// Someone stopped it.
        User = "user",
        /// Its main program ended.
        Exited = "exited",
        /// The kernel ended it for want of memory.
        OomKilled = "oom_killed",
        /// Its timeout ran out.
        Timeout = "timeout",
        /// Nothing used it for long enough.
        Idle = "idle",
        /// The engine stopped or restarted.
        Engine = "engine",
        /// Its container was removed outside abx.
        Removed = "removed",
    }
}

words! {
    /// What runs the sandbox.
    EngineKind {
        /// A Docker-compatible engine.
        Docker = "docker",
        /// Some other program: this daemon only keeps the row.
        External = "external",
    }
}

words! {
    /// What runs the commands of a sandbox.
    Runtime {
        /// abx-init, the sandbox's first program.
        Init = "init",
        /// The engine: abx-init is not in the sandbox.
        Engine = "engine",
    }
}

words! {
    /// How much a sandbox may do.
    Profile {
        /// The engine's defaults, without host namespaces.
        Permissive = "permissive",
        /// No new privileges, no `NET_RAW`, limits. The default.
        Moderate = "moderate",
        /// No capabilities, no network by default, tighter limits.
        Restrictive = "restrictive",
    }
}

words! {
    /// The sandbox's network.
    Network {
        /// The engine's default bridge.
        Bridge = "bridge",
        /// Loopback only.
        None = "none",
    }
}

/// A value that never shows itself in logs and errors.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Something of the host inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// An absolute path of the host (links resolved), or a volume's name.
    pub source: String,
    /// An absolute path in the sandbox.
    pub target: String,
    /// Whether the sandbox may only read it.
    pub read_only: bool,
}

impl Mount {
    /// Whether the source is a volume of the engine rather than a path of the host.
    pub fn is_volume(&self) -> bool {
        !self.source.starts_with('/')
    }
}

/// A forwarded port, on the host's loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// In the sandbox.
    pub container: u16,
    /// On the host; none until the engine chose one.
    pub host: Option<u16>,
    /// Whether the user asked for this host port, rather than a free one.
    pub fixed: bool,
    /// `tcp` or `udp`.
    pub protocol: String,
}

/// Resource limits; none is no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// How the sandbox is made. Does not change during a session's life, but for ports that the engine chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The host directory to work on.
    pub workspace: Option<Mount>,
    /// Further mounts.
    pub mounts: Vec<Mount>,
    /// Forwarded ports.
    pub ports: Vec<Port>,
    /// Limits.
    pub limits: Limits,
    /// Network.
    pub network: Network,
    /// Rights.
    pub profile: Profile,
    /// The user that commands run as; the image's own if none.
    pub user: Option<String>,
    /// Environment of every command.
    pub env: BTreeMap<String, Secret>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            workspace: None,
            mounts: Vec::new(),
            ports: Vec::new(),
            limits: Limits::default(),
            network: Network::Bridge,
            profile: Profile::Moderate,
            user: None,
            env: BTreeMap::new(),
        }
    }
}

/// Where a row of another program came from, and what else it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// `store`, `agentkernel` or `agent-sandbox`.
    pub origin: String,
    /// The other program's word for the state.
    pub status: Option<String>,
    /// A JSON object of everything that abx has no field for. May hold secrets: never listed, never logged.
    pub extra: Secret,
}

/// A row of the session table.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// UUIDv7.
    pub id: SessionId,
    /// Unique.
    pub name: SessionName,
    /// The container's name; unique.
    pub sandbox: String,
    /// The engine's full id, once there is a container.
    pub sandbox_id: Option<String>,
    /// The engine that its sandbox was last seen on, by that engine's own id; none where none is told.
    pub sandbox_engine: Option<String>,
    /// What runs it.
    pub engine: EngineKind,
    /// Label.
    pub agent: String,
    /// The template's name.
    pub template: String,
    /// The image as asked for; none on rows of other programs.
    pub image: Option<String>,
    /// The immutable image that the container runs on.
    pub image_id: Option<String>,
    /// What runs its commands, as its container was made.
    pub runtime: Runtime,
    /// The state as last known; during an operation, the state before it.
    pub status: Status,
    /// What is being done, committed before the engine is touched.
    pub operation: Option<Operation>,
    /// Why it does not run.
    pub reason: Option<Reason>,
    /// When the row was made.
    pub created_at: Timestamp,
    /// When it was last used.
    pub last_active: Timestamp,
    /// When a client last connected or attached.
    pub last_connected: Option<Timestamp>,
    /// When the timeout stops it.
    pub expires_at: Option<Timestamp>,
    /// Milliseconds from start or resume to the stop.
    pub timeout_ms: Option<u64>,
    /// Milliseconds without use to what is done then.
    pub idle_ms: Option<u64>,
    /// Snapshots of its timeline that stay when it is saved; all if none.
    pub keep: Option<u32>,
    /// What that is.
    pub idle_action: IdleAction,
    /// What becomes of it after its engine went; none leaves that to the configuration.
    pub on_boot: Option<OnBoot>,
    /// Commands run.
    pub exec_count: u64,
    /// Kills for want of memory.
    pub oom_events: u64,
    /// What its agent is doing; none until something of it was heard since the sandbox came up. Dropped by the store with
    /// what ran in the sandbox.
    pub attention: Option<Noted>,
    /// Whether a program has ended on the agent's terminal since the sandbox came up. Dropped by the store likewise.
    pub main_over: bool,
    /// Name of the newest snapshot. Kept by the store from the snapshot rows.
    pub snapshot: Option<String>,
    /// Number of snapshots. Kept by the store from the snapshot rows.
    pub snapshots: u64,
    /// How the sandbox is made.
    pub spec: Spec,
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// For rows of other programs.
    pub external: Option<External>,
    /// Raised by the store at every change.
    pub revision: u64,
}

impl Session {
    /// A row that says no more than who it is: to be run by the engine, and with nothing in its past.
    pub fn new(id: SessionId, name: SessionName, created_at: Timestamp) -> Self {
        Self {
            sandbox: sandbox_name(&name, &id, false),
            id,
            name,
            sandbox_id: None,
            sandbox_engine: None,
            engine: EngineKind::Docker,
            agent: String::new(),
            template: String::new(),
            image: None,
            image_id: None,
            runtime: Runtime::Engine,
            status: Status::Starting,
            operation: None,
            reason: None,
            created_at,
            last_active: created_at,
            last_connected: None,
            expires_at: None,
            timeout_ms: None,
            idle_ms: None,
            keep: None,
            idle_action: IdleAction::Stop,
            on_boot: None,
            exec_count: 0,
            oom_events: 0,
            attention: None,
            main_over: false,
            snapshot: None,
            snapshots: 0,
            spec: Spec::default(),
            metadata: BTreeMap::new(),
            external: None,
            revision: 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A running session with nothing unusual.
    pub(crate) fn sample(name: &str) -> Session {
        let id = SessionId::new(format!("01920000-0000-7000-8000-{:0>12}", name.len()));
        let name = SessionName::parse(name).expect("a good name");
        Session {
            sandbox_id: Some("c0ffee".to_owned()),
            agent: "claude".to_owned(),
            template: "base".to_owned(),
            image: Some("debian:stable-slim".to_owned()),
            status: Status::Running,
            revision: 1,
            ..Session::new(id, name, Timestamp(1_000))
        }
    }

    #[test]
    fn words_round_trip_and_secrets_stay_hidden() {
        for status in Status::ALL {
            assert_eq!(Status::from_word(status.as_str()), Some(*status));
        }
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
        assert_eq!(Operation::SaveRunning.verb(), "save");
    }
}
