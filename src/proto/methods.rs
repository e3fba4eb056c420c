//! The method table: one marker type per method, with its params, result, errors and one sentence of documentation.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::errors::Kind;
use super::execs::{
    ExecInfo, ExecKillParams, ExecListParams, ExecLogsParams, ExecLogsResult, ExecStartParams,
    ExecWaitParams, TerminalInfo, TerminalParams, TerminalPeekParams, TerminalScreen,
};
use super::files::{
    FileContent, FileListParams, FileListResult, FileReadParams, FileWriteParams, FileWriteResult,
};
use super::types::{EngineInfo, Limits, Mount, Network, Port, Profile, Session, Snapshot, Status, StoreRow};

/// One method of the socket.
pub trait Method {
    /// The name on the wire, `noun.verb`.
    const NAME: &'static str;
    /// What it does, for the protocol document.
    const DOC: &'static str;
    /// The kinds that it may fail with, beside `invalid_params`, `shutting_down` and `internal`.
    const ERRORS: &'static [Kind];
    /// Parameters, by name.
    type Params: Serialize + DeserializeOwned + Send + 'static;
    /// The result.
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// What the protocol document needs of a method.
#[derive(Debug, Clone, Copy)]
pub struct MethodDoc {
    /// The name on the wire.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The kinds it may fail with.
    pub errors: &'static [Kind],
    /// Schema of the params.
    #[cfg(feature = "schema")]
    pub params: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    /// Schema of the result.
    #[cfg(feature = "schema")]
    pub result: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

macro_rules! methods {
    ($($marker:ident = $name:literal ($params:ty) -> $result:ty, [$($kind:ident),*], $doc:literal;)+) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy)]
            pub struct $marker;

            impl Method for $marker {
                const NAME: &'static str = $name;
                const DOC: &'static str = $doc;
                const ERRORS: &'static [Kind] = &[$(Kind::$kind),*];
                type Params = $params;
                type Result = $result;
            }
        )+

        /// Every method, in the order of the document.
        pub const ALL: &[MethodDoc] = &[$(MethodDoc {
            name: $name,
            doc: $doc,
            errors: &[$(Kind::$kind),*],
            #[cfg(feature = "schema")]
            params: |generator| generator.subschema_for::<$params>(),
            #[cfg(feature = "schema")]
            result: |generator| generator.subschema_for::<$result>(),
        }),+];
    };
}

methods! {
    DaemonHello = "daemon.hello" (HelloParams) -> HelloResult, [],
        "Exchanges versions. Clients of abx send it first on each connection; others may leave it out.";
    DaemonInfo = "daemon.info" (Empty) -> DaemonInfoResult, [],
        "Tells version, process, home and the health of each engine, without waiting for an engine.";
    DaemonShutdown = "daemon.shutdown" (Empty) -> Done, [],
        "Asks the daemon to stop: no new work, running operations finish or are recorded. Sandboxes keep running.";
    RpcDiscover = "rpc.discover" (Empty) -> serde_json::Value, [],
        "Gives the OpenRPC document of this daemon.";
    SessionStart = "session.start" (StartParams) -> Session,
        [SessionExists, InvalidName, WorkspaceMissing, Limit, ImageNotFound, SandboxLost, WrongState, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Creates a session: the row first, then its sandbox, then running. On failure both are gone and the name is free.";
    SessionList = "session.list" (ListParams) -> Vec<Session>, [],
        "Lists sessions, newest first. Never waits for an engine.";
    SessionGet = "session.get" (NameParams) -> Session, [SessionNotFound],
        "Gives one session. Never waits for an engine.";
    SessionStop = "session.stop" (StopParams) -> Session,
        [SessionNotFound, WrongState, Busy, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Stops the sandbox: TERM, grace, KILL. Container and files stay. A stopped session is left as it is.";
    SessionSave = "session.save" (SaveParams) -> SaveResult,
        [SessionNotFound, WrongState, Busy, SandboxLost, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Takes a snapshot with the sandbox stopped, or under a pause with `keep_running`.";
    SessionResume = "session.resume" (ResumeParams) -> Session,
        [SessionNotFound, SnapshotNotFound, SandboxLost, WrongState, Busy, WorkspaceMissing, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Brings a session back: the same container if it still exists, else one made from the newest snapshot. `snapshot` goes back to that one, after saving what it replaces.";
    SessionDelete = "session.delete" (DeleteParams) -> DeleteResult,
        [SessionNotFound, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Removes the container and the row, and the snapshots unless they are to be kept.";
    SessionConnect = "session.connect" (NameParams) -> Session,
        [SessionNotFound, SnapshotNotFound, SandboxLost, WrongState, Busy, WorkspaceMissing, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Resumes the session if it does not run, and stamps `last_connected`.";
    SessionPause = "session.pause" (NameParams) -> Session,
        [SessionNotFound, WrongState, Busy, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Freezes the sandbox; its memory is kept.";
    SessionUnpause = "session.unpause" (NameParams) -> Session,
        [SessionNotFound, WrongState, Busy, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Thaws a paused sandbox.";
    SessionFork = "session.fork" (ForkParams) -> Session,
        [SessionNotFound, SessionExists, InvalidName, SnapshotNotFound, SandboxLost, WrongState, Busy, WorkspaceMissing, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Starts a new session from a snapshot of this one, taken now if none is named.";
    SessionRename = "session.rename" (RenameParams) -> Session,
        [SessionNotFound, SessionExists, InvalidName, StoreFull, StoreBusy],
        "Gives the session, and its sandbox, another name.";
    SessionUpdate = "session.update" (UpdateParams) -> Session,
        [SessionNotFound, StoreFull, StoreBusy],
        "Changes timeout, idle time or metadata. One call makes one change: all of it or none.";
    SessionImport = "session.import" (ImportParams) -> Vec<ImportOutcome>,
        [StoreFull, StoreBusy],
        "Takes over rows of the older tools. Adopts a container that still exists; never overwrites a row.";
    SnapshotList = "snapshot.list" (SnapshotListParams) -> Vec<Snapshot>, [SessionNotFound],
        "Lists snapshots, newest first: of one session, or all.";
    SnapshotDelete = "snapshot.delete" (SnapshotDeleteParams) -> Vec<String>,
        [SnapshotNotFound, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Deletes snapshots by name and gives the names of those deleted.";
    ExecRun = "exec.run" (ExecRunParams) -> ExecResult,
        [SessionNotFound, WrongState, Busy, SandboxLost, Limit, CommandNotFound, CommandNotExecutable, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Runs a command to its end and gives its output, cut at 1 MiB per stream. A command's own failure is a result, not an error.";
    ExecStart = "exec.start" (ExecStartParams) -> ExecInfo,
        [SessionNotFound, WrongState, Busy, SandboxLost, Limit, CommandNotFound, CommandNotExecutable, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Starts a command that goes on without its caller, and answers as soon as it runs.";
    ExecList = "exec.list" (ExecListParams) -> Vec<ExecInfo>, [SessionNotFound],
        "Lists commands, oldest first: those that run, and the last 200 of each session that have ended.";
    ExecLogs = "exec.logs" (ExecLogsParams) -> ExecLogsResult,
        [ExecNotFound, WrongState, EngineUnavailable, EngineTimeout, EngineError],
        "Gives output of a command as far as it is kept, at most 1 MiB per stream at once.";
    ExecKill = "exec.kill" (ExecKillParams) -> ExecInfo,
        [ExecNotFound, WrongState, EngineUnavailable, EngineTimeout, EngineError],
        "Sends a signal to a command and all that it started. One that has ended is fine.";
    ExecWait = "exec.wait" (ExecWaitParams) -> ExecInfo, [ExecNotFound],
        "Waits for a command's end.";
    TerminalList = "terminal.list" (ExecListParams) -> Vec<TerminalInfo>,
        [SessionNotFound, EngineUnavailable, EngineTimeout, EngineError],
        "Lists the terminals of running sandboxes.";
    TerminalPeek = "terminal.peek" (TerminalPeekParams) -> TerminalScreen,
        [SessionNotFound, ExecNotFound, WrongState, EngineUnavailable, EngineTimeout, EngineError],
        "Gives what a terminal shows, as text, without attaching to it.";
    TerminalClose = "terminal.close" (TerminalParams) -> Done,
        [SessionNotFound, ExecNotFound, WrongState, EngineUnavailable, EngineTimeout, EngineError],
        "Ends what runs on a terminal, with HUP and TERM, and KILL five seconds later.";
    FileRead = "file.read" (FileReadParams) -> FileContent,
        [SessionNotFound, FileNotFound, WrongState, Busy, SandboxLost, EngineUnavailable, EngineTimeout, EngineError],
        "Gives a part of a file of a sandbox, at most 1 MiB at once. The session may be running, paused, stopped or saved.";
    FileWrite = "file.write" (FileWriteParams) -> FileWriteResult,
        [SessionNotFound, FileNotFound, WrongState, Busy, SandboxLost, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Puts a file into a sandbox, in the place of one that is there: the engine removes that one and writes the new one in one call, so for an instant a program in the sandbox may see none, or a part.";
    FileList = "file.list" (FileListParams) -> FileListResult,
        [SessionNotFound, FileNotFound, WrongState, Busy, SandboxLost, Limit, EngineUnavailable, EngineTimeout, EngineError],
        "Lists what is in a directory of a sandbox, by name, at most 10,000 entries. The engine reads all that is below it: a directory with more than 1 GiB or 200,000 files below it is refused.";
    StoreSave = "store.save" (StoreRow) -> StoreRow, [SessionExists, InvalidName, StoreFull, StoreBusy],
        "Keeps a row for a sandbox that this daemon does not run. Overwrites only rows of its own kind.";
    StoreLoad = "store.load" (NameParams) -> Option<StoreRow>, [],
        "Gives such a row with everything that was stored, or null.";
    StoreListAll = "store.list_all" (Empty) -> Vec<StoreRow>, [],
        "Lists such rows, without their other values.";
    StoreDelete = "store.delete" (NameParams) -> StoreDeleteResult,
        [StoreFull, StoreBusy],
        "Deletes such a row, if it is there.";
}

/// No parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Empty {}

/// A result that says only that it was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Done {
    /// Always true.
    pub done: bool,
}

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
    /// One line that the user should see once, such as old session files that could be imported.
    #[serde(default)]
    pub notice: Option<String>,
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
    /// Id for progress notifications.
    #[serde(default)]
    pub op: Option<String>,
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
    /// Set these keys; null removes a key.
    #[serde(default)]
    pub metadata: BTreeMap<String, Option<String>>,
}

/// Rows of an older tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportParams {
    /// The rows, in the order in which they may claim a name.
    pub rows: Vec<ImportRow>,
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

/// A command to run to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecRunParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Program and arguments.
    pub cmd: Vec<String>,
    /// Added to the session's environment for this run.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The workspace, else the image's working directory, if absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// User name or id, optionally `:group`.
    #[serde(default)]
    pub user: Option<String>,
    /// Input, as text; none if absent.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Kill it after this many milliseconds; the exit code is then 124.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// Run it on a terminal; output then comes in `stdout` alone.
    #[serde(default)]
    pub tty: bool,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecResult {
    /// The exec's id.
    pub id: String,
    /// The command's code; 128+n when a signal ended it, 124 when the timeout did.
    pub exit_code: i32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// `utf-8`, or `base64` if either stream is not UTF-8.
    pub encoding: String,
    /// Whether output was cut.
    pub truncated: bool,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// Whether a row was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreDeleteResult {
    /// True if it was there and is gone now.
    pub deleted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_names_are_distinct_nouns_and_verbs() {
        let mut seen = std::collections::HashSet::new();
        for method in ALL {
            assert!(seen.insert(method.name), "{} twice", method.name);
            assert_eq!(method.name.split('.').count(), 2, "{}", method.name);
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let params: NameParams = serde_json::from_str(r#"{"name":"a","new_thing":1}"#).expect("parses");
        assert_eq!(params.name, "a");
    }
}
