//! The method table: one marker type per method, with its params, result, errors and one sentence of documentation. The
//! types of params and results are with what they are about.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::daemon::{
    DaemonCheckResult, DaemonInfoResult, HelloParams, HelloResult, RestartParams, RestartResult,
};
use super::errors::Kind;
use super::events::{EVENT_NOTIFICATION, Event, EventListParams, SubscribeParams, UnsubscribeParams};
use super::execs::{
    ExecInfo, ExecKillParams, ExecListParams, ExecLogsParams, ExecLogsResult, ExecResult, ExecRunParams,
    ExecStartParams, ExecWaitParams,
};
use super::files::{
    FileContent, FileListParams, FileListResult, FileReadParams, FileWriteParams, FileWriteResult,
};
use super::sessions::{
    AdoptParams, ConnectParams, DeleteParams, DeleteResult, ForkParams, ImportOutcome, ImportParams,
    ListParams, NameParams, NotifyParams, RenameParams, ResumeParams, SaveParams, SaveResult, StartParams,
    StopParams, UpdateParams, WaitParams, WaitResult,
};
use super::snapshots::{
    SnapshotDeleteParams, SnapshotDiffParams, SnapshotDiffResult, SnapshotExportParams, SnapshotExportResult,
    SnapshotImportParams, SnapshotImportResult, SnapshotListParams, SnapshotPruneParams, SnapshotPruneResult,
};
use super::table::{TableDocument, TableExportParams, TableImportParams};
use super::terminals::{
    TERMINAL_NOTIFICATION, TerminalInfo, TerminalOpenParams, TerminalOpened, TerminalParams,
    TerminalPeekParams, TerminalResizeParams, TerminalScreen, TerminalWriteParams,
};
use super::types::{Session, Snapshot, StoreDeleteResult, StoreListParams, StoreNameParams, StoreRow};

/// The protocol document, as it stands in the tree: what `rpc.discover` answers.
pub const OPENRPC: &str = include_str!("../../proto-docs/openrpc.json");

/// One method of the socket.
pub trait Method {
    /// The name on the wire, `noun.verb`.
    const NAME: &'static str;
    /// What it does, for the protocol document.
    const DOC: &'static str;
    /// The kinds that it may fail with, beside `invalid_params`, `shutting_down` and `internal`.
    const ERRORS: &'static [Kind];
    /// Whether it begins a subscription, of which the connection of the call is told until that ends.
    const SUBSCRIBES: bool;
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
    /// Whether it begins a subscription.
    pub subscribes: bool,
    /// Schema of the params.
    #[cfg(feature = "schema")]
    pub params: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    /// Schema of the result.
    #[cfg(feature = "schema")]
    pub result: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

macro_rules! methods {
    (@subscribes) => { false };
    (@subscribes subscribes) => { true };
    ($($marker:ident = $name:literal ($params:ty) -> $result:ty, $($fact:ident,)? [$($kind:ident),*], $doc:literal;)+) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy)]
            pub struct $marker;

            impl Method for $marker {
                const NAME: &'static str = $name;
                const DOC: &'static str = $doc;
                const ERRORS: &'static [Kind] = &[$(Kind::$kind),*];
                const SUBSCRIBES: bool = methods!(@subscribes $($fact)?);
                type Params = $params;
                type Result = $result;
            }
        )+

        /// Every method, in the order of the document.
        pub const ALL: &[MethodDoc] = &[$(MethodDoc {
            name: $name,
            doc: $doc,
            errors: &[$(Kind::$kind),*],
            subscribes: $marker::SUBSCRIBES,
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
    DaemonRestart = "daemon.restart" (RestartParams) -> RestartResult, [WrongState],
        "Has another abxd, or the same program anew, go on in this process with this socket: nobody who connects meanwhile is refused, and commands, terminals and sandboxes go on. The program says first whether it would start. Connections that stay open are closed between two answers.";
    DaemonCheck = "daemon.check" (Empty) -> DaemonCheckResult, [EngineUnavailable, EngineTimeout, EngineError],
        "Asks the engine what this home has there that no session explains, and how many layers sessions stand on.";
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
        "Brings a session back: the same container if it still exists, else one made from the newest snapshot. `snapshot` goes back to that one, after saving what it replaces, unless that is to be discarded.";
    SessionDelete = "session.delete" (DeleteParams) -> DeleteResult,
        [SessionNotFound, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Removes the container and the row, and the snapshots unless they are to be kept.";
    SessionConnect = "session.connect" (ConnectParams) -> Session,
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
        "Changes timeout, idle time, the number of kept snapshots, or metadata. One call makes one change: all of it or none.";
    SessionNotify = "session.notify" (NotifyParams) -> Session,
        [SessionNotFound, WrongState, Busy, SandboxLost, StoreFull, StoreBusy],
        "Says what the session's agent is doing. What is said holds against what the agent writes next.";
    SessionWait = "session.wait" (WaitParams) -> WaitResult, [SessionNotFound],
        "Waits until a session or its agent is as wanted.";
    SessionImport = "session.import" (ImportParams) -> Vec<ImportOutcome>,
        [StoreFull, StoreBusy],
        "Takes over rows of the older tools. Adopts a container that still exists; never overwrites a row.";
    SessionAdopt = "session.adopt" (AdoptParams) -> Session,
        [SessionExists, InvalidName, WrongState, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Makes a container that abx did not make, or that lost its row, a session. Refuses one that another session or another home has.";
    SnapshotList = "snapshot.list" (SnapshotListParams) -> Vec<Snapshot>, [SessionNotFound],
        "Lists snapshots, newest first: of one session, or all.";
    SnapshotDelete = "snapshot.delete" (SnapshotDeleteParams) -> Vec<String>,
        [SnapshotNotFound, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Deletes snapshots by name and gives the names of those deleted.";
    SnapshotDiff = "snapshot.diff" (SnapshotDiffParams) -> SnapshotDiffResult,
        [SnapshotNotFound, WrongState, SandboxLost, Limit, EngineUnavailable, EngineTimeout, EngineError],
        "Tells in what a snapshot differs from another, or from its session as it is now. A file that was only touched is the same.";
    SnapshotExport = "snapshot.export" (SnapshotExportParams) -> SnapshotExportResult,
        [SnapshotNotFound, Busy, FileNotFound, FileDenied, EngineUnavailable, EngineTimeout, EngineError, StoreFull],
        "Writes a snapshot to a new file, for `snapshot.import` on another machine. No value of a variable and no path of the host is in what abx adds to its files.";
    SnapshotImport = "snapshot.import" (SnapshotImportParams) -> SnapshotImportResult,
        [SessionExists, InvalidName, FileNotFound, FileDenied, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Takes a snapshot over from a file that `snapshot.export` wrote; with `session`, as a saved session of that name.";
    SnapshotPrune = "snapshot.prune" (SnapshotPruneParams) -> SnapshotPruneResult,
        [SessionNotFound, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Deletes the older snapshots of sessions. Never the one that a session's container came from, nor the newest of a session without a container.";
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
    TerminalOpen = "terminal.open" (TerminalOpenParams) -> TerminalOpened, subscribes,
        [SessionNotFound, WrongState, Busy, SandboxLost, Limit, EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Opens a terminal: comes back to the one of this name, or starts it. What it shows comes as notifications of method `terminal`, after the answer. Ending the subscription detaches; the program goes on.";
    TerminalUnsubscribe = "terminal.unsubscribe" (UnsubscribeParams) -> Done, [],
        "Ends a subscription of this connection, and so detaches from its terminal. One that has ended is fine.";
    TerminalWrite = "terminal.write" (TerminalWriteParams) -> Done,
        [SessionNotFound, ExecNotFound, WrongState, Busy, Limit, EngineUnavailable, EngineTimeout, EngineError],
        "Types into a terminal, whoever has it open, and answers when that was taken.";
    TerminalResize = "terminal.resize" (TerminalResizeParams) -> Done,
        [SessionNotFound, ExecNotFound, WrongState, Limit, EngineUnavailable, EngineTimeout, EngineError],
        "Sets a terminal's size. Where this connection has it open, that is its size there from now on; it holds until another who has it open does something.";
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
    EventSubscribe = "event.subscribe" (SubscribeParams) -> u64, subscribes, [SessionNotFound, Limit],
        "Begins to send events as notifications of method `event`, and gives the subscription's id. The first has kind `subscribed` and tells from which number on. One that falls too far behind gets a last one of kind `lagged`.";
    EventUnsubscribe = "event.unsubscribe" (UnsubscribeParams) -> Done, [],
        "Ends a subscription of this connection. One that has ended is fine.";
    EventList = "event.list" (EventListParams) -> Vec<Event>, [],
        "Gives events, oldest first, of the last 10,000.";
    StoreSave = "store.save" (StoreRow) -> StoreRow, [SessionExists, InvalidName, StoreFull, StoreBusy],
        "Keeps a row for a sandbox that this daemon does not run. Overwrites only rows of its own kind.";
    StoreLoad = "store.load" (StoreNameParams) -> Option<StoreRow>, [],
        "Gives such a row with everything that was stored, or null.";
    StoreListAll = "store.list_all" (StoreListParams) -> Vec<StoreRow>, [],
        "Lists such rows of one store, without their other values.";
    StoreDelete = "store.delete" (StoreNameParams) -> StoreDeleteResult,
        [StoreFull, StoreBusy],
        "Deletes such a row, if it is there.";
    TableExport = "table.export" (TableExportParams) -> TableDocument, [],
        "Gives the whole session table as one document, without values of environments unless asked for.";
    TableImport = "table.import" (TableImportParams) -> Vec<ImportOutcome>,
        [EngineUnavailable, EngineTimeout, EngineError, StoreFull, StoreBusy],
        "Merges an exported table into this one. A session that is there already stays as it is, but for secrets of the document that it lacks; what a session has on this engine decides its state.";
}

/// Whether the method of this name begins a subscription.
pub fn subscribes(name: &str) -> bool {
    ALL.iter().any(|method| method.subscribes && method.name == name)
}

/// What the protocol document needs of a kind of notification.
#[derive(Debug, Clone, Copy)]
pub struct NotificationDoc {
    /// The method that it is of.
    pub name: &'static str,
    /// What it tells.
    pub doc: &'static str,
    /// Schema of the params.
    #[cfg(feature = "schema")]
    pub params: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

macro_rules! notifications {
    ($($name:expr => $params:ty, $doc:literal;)+) => {
        /// Every kind of notification that the daemon sends.
        pub const NOTIFICATIONS: &[NotificationDoc] = &[$(NotificationDoc {
            name: $name,
            doc: $doc,
            #[cfg(feature = "schema")]
            params: |generator| generator.subschema_for::<$params>(),
        }),+];
    };
}

notifications! {
    EVENT_NOTIFICATION => Event,
        "What happened, for the subscriptions of `event.subscribe`; and progress of a call that has an `op`.";
    TERMINAL_NOTIFICATION => super::terminals::TerminalNotification,
        "What a terminal shows, and last how it ended, for the subscriptions of `terminal.open`.";
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
    fn whether_a_method_subscribes_is_a_fact_of_the_method() {
        let all: Vec<_> = ALL.iter().filter(|method| method.subscribes).map(|method| method.name).collect();
        assert_eq!(all, [TerminalOpen::NAME, EventSubscribe::NAME]);
        assert!(all.into_iter().all(subscribes) && !subscribes(EventList::NAME) && !subscribes("a.b"));
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let params: NameParams = serde_json::from_str(r#"{"name":"a","new_thing":1}"#).expect("parses");
        assert_eq!(params.name, "a");
    }
}
