//! The table of tools: which method each one is, and what its user should know of it.

/// One tool.
pub(super) struct Tool {
    /// Its name.
    pub(super) name: &'static str,
    /// Its name for people.
    pub(super) title: &'static str,
    /// The method that it is; what that one does, takes and gives, the protocol document says.
    pub(super) method: &'static str,
    /// What the document does not say.
    pub(super) more: &'static str,
    /// Those of the method's params that it has.
    pub(super) params: &'static [&'static str],
    /// What it does to the world.
    pub(super) effect: Effect,
    /// Whether it reaches beyond the sandboxes of this machine.
    pub(super) open_world: bool,
    /// What it gives.
    pub(super) shape: Shape,
}

/// What a tool does to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Reads,
    /// Adds something each time.
    Adds,
    /// Adds something; once more changes nothing.
    AddsOnce,
    /// Ends or replaces something each time.
    Destroys,
    /// Ends or replaces something; once more changes nothing.
    DestroysOnce,
}

/// What becomes of a method's result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// It is the tool's result.
    Whole,
    /// It is a list: the tool's result has it in this field.
    List {
        /// The field.
        field: &'static str,
        /// What each entry keeps; empty for everything.
        keep: &'static [&'static str],
        /// Whether it is turned round, so that what is left out of a long one is the oldest.
        turn: bool,
    },
    /// The method is not called: the command runs on a raw stream, which ends it when its caller leaves.
    Run,
}

/// Longest that `exec_run` lets a command run where its caller names no time, in milliseconds.
pub(super) const RUN_TIMEOUT_MS: u64 = 120_000;

/// How long `exec_wait` waits where its caller names no time, and longest, in milliseconds.
pub(super) const WAIT_TIMEOUTS_MS: (u64, u64) = (60_000, 600_000);

/// Most bytes of a file at once: about eight thousand words of a model's attention.
pub(super) const READ_BYTES: u64 = 32 * 1024;

/// What a list tells of each session.
const SESSION: &[&str] = &[
    "name",
    "status",
    "operation",
    "reason",
    "attention",
    "attention_note",
    "agent",
    "template",
    "image",
    "created_at",
    "last_active",
    "expires_at",
    "exec_count",
    "snapshot",
    "snapshots",
    "workspace",
    "metadata",
];

/// What a list tells of each command.
const EXEC: &[&str] = &[
    "id",
    "session",
    "cmd",
    "terminal",
    "status",
    "started_at",
    "ended_at",
    "exit_code",
    "signal",
    "reason",
];

/// Every tool.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "session_list",
        title: "List sandbox sessions",
        method: "session.list",
        more: "session_get has everything about one.",
        params: &["status", "agent"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "sessions", keep: SESSION, turn: false },
    },
    Tool {
        name: "session_get",
        title: "Show a session",
        method: "session.get",
        more: "",
        params: &["name"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_start",
        title: "Start a new session",
        method: "session.start",
        more: "The image is pulled if it is not there yet, which may take minutes.",
        params: &[
            "name",
            "agent",
            "template",
            "image",
            "timeout_ms",
            "idle_ms",
            "env",
            "metadata",
            "workspace",
            "ports",
            "limits",
            "network",
            "profile",
            "reuse",
        ],
        effect: Effect::Adds,
        open_world: true,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_stop",
        title: "Stop a session",
        method: "session.stop",
        more: "Programs that run in it end; session_resume brings it back with its files.",
        params: &["name", "grace_ms"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_save",
        title: "Save a session as a snapshot",
        method: "session.save",
        more: "Without keep_running the programs that run in it end, and it is `saved` afterwards.",
        params: &["name", "snapshot", "note", "keep_running"],
        effect: Effect::Destroys,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_resume",
        title: "Resume a session",
        method: "session.resume",
        more: "A session that runs is left as it is.",
        params: &["name", "snapshot"],
        effect: Effect::AddsOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_fork",
        title: "Fork a session",
        method: "session.fork",
        more: "The one that is forked goes on as it is.",
        params: &["name", "new_name", "snapshot"],
        effect: Effect::Adds,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_delete",
        title: "Delete a session with its files",
        method: "session.delete",
        more: "This cannot be undone.",
        params: &["name", "keep_snapshots"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_run",
        title: "Run a command in a session",
        method: "exec.run",
        more: "For a line of shell: [\"sh\", \"-c\", LINE]. Of long output the beginning and the end are kept. \
               Killed after 120000 ms unless `timeout` says otherwise (0 is never); for what runs on, use \
               exec_start.",
        params: &["session", "cmd", "env", "cwd", "user", "stdin", "timeout"],
        effect: Effect::Destroys,
        open_world: true,
        shape: Shape::Run,
    },
    Tool {
        name: "exec_start",
        title: "Start a command in the background",
        method: "exec.start",
        more: "exec_logs gives its output, exec_wait waits for its end, exec_kill ends it.",
        params: &["session", "cmd", "env", "cwd", "user", "timeout", "key"],
        effect: Effect::Destroys,
        open_world: true,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_list",
        title: "List commands",
        method: "exec.list",
        more: "Here: newest first.",
        params: &["session"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "execs", keep: EXEC, turn: true },
    },
    Tool {
        name: "exec_logs",
        title: "Read a command's output",
        method: "exec.logs",
        more: "Here: at most 24 KiB per stream. While `ended` is false there is or will be more: ask on with \
               stdout_from = stdout_next and stderr_from = stderr_next.",
        params: &["id", "stdout_from", "stderr_from"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_wait",
        title: "Wait for a command's end",
        method: "exec.wait",
        more: "At most 60000 ms unless `timeout` says otherwise, and never over 600000; then `status` still is \
               `running`.",
        params: &["id", "timeout"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_kill",
        title: "End a command",
        method: "exec.kill",
        more: "",
        params: &["id", "signal"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "file_read",
        title: "Read a file of a session",
        method: "file.read",
        more: "Here: at most 32768 bytes at once. While `truncated` is true, go on at `offset` plus the bytes \
               that came.",
        params: &["session", "path", "offset", "limit"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "file_write",
        title: "Write a file into a session",
        method: "file.write",
        more: "",
        params: &["session", "path", "content", "encoding", "mode", "create_dirs"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "file_list",
        title: "List a directory of a session",
        method: "file.list",
        more: "",
        params: &["session", "path"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "snapshot_list",
        title: "List snapshots",
        method: "snapshot.list",
        more: "",
        params: &["name"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "snapshots", keep: &[], turn: false },
    },
    Tool {
        name: "snapshot_delete",
        title: "Delete snapshots",
        method: "snapshot.delete",
        more: "A snapshot may be the only copy of a session's files. This cannot be undone.",
        params: &["snapshots"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::List { field: "deleted", keep: &[], turn: false },
    },
];
