//! The table of tools: which method each one is, and what its user should know of it.

/// One tool.
pub(super) struct Tool {
    /// Its name.
    pub(super) name: &'static str,
    /// Its name for people.
    pub(super) title: &'static str,
    /// The method that it is; what that one does, takes and gives, the protocol document says.
    pub(super) method: &'static str,
    /// What it is said to do.
    pub(super) words: Words,
    /// Those of the method's params that it has.
    pub(super) params: &'static [&'static str],
    /// What it does to the world.
    pub(super) effect: Effect,
    /// Whether it reaches beyond the sandboxes of this machine.
    pub(super) open_world: bool,
    /// What it gives.
    pub(super) shape: Shape,
}

impl Tool {
    /// Whether a call lasts as long as a command may.
    pub(super) fn lasts(&self) -> bool {
        matches!(self.name, "exec_run" | "exec_wait")
    }
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

/// What a tool is said to do.
pub(super) enum Words {
    /// What the document says of the method, and this.
    More(&'static str),
    /// This, since the tool does something else than the method.
    Own {
        /// Of the tool.
        tool: &'static str,
        /// Of those of its params that are something else, too.
        params: &'static [(&'static str, &'static str)],
    },
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
    /// It is output of a command: as much of each stream as fits, and where to ask on.
    Logs,
    /// It is a part of a file: as much as fits, and where the next one begins.
    Part,
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
        words: Words::More("session_get has everything about one."),
        params: &["status", "agent"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "sessions", keep: SESSION, turn: false },
    },
    Tool {
        name: "session_get",
        title: "Show a session",
        method: "session.get",
        words: Words::More(""),
        params: &["name"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_start",
        title: "Start a new session",
        method: "session.start",
        words: Words::More("The image is pulled if it is not there yet, which may take minutes."),
        params: &[
            "name",
            "agent",
            "template",
            "image",
            "timeout_ms",
            "idle_ms",
            "idle_action",
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
        words: Words::More("Programs that run in it end; session_resume brings it back with its files."),
        params: &["name", "grace_ms"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_save",
        title: "Save a session as a snapshot",
        method: "session.save",
        words: Words::More(
            "Without keep_running the programs that run in it end, and it is `saved` afterwards.",
        ),
        params: &["name", "snapshot", "note", "keep_running"],
        effect: Effect::Destroys,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_resume",
        title: "Resume a session",
        method: "session.resume",
        words: Words::More("A session that runs is left as it is."),
        params: &["name", "snapshot"],
        effect: Effect::AddsOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_fork",
        title: "Fork a session",
        method: "session.fork",
        words: Words::More("The one that is forked goes on as it is."),
        params: &["name", "new_name", "snapshot"],
        effect: Effect::Adds,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "session_delete",
        title: "Delete a session with its files",
        method: "session.delete",
        words: Words::More("This cannot be undone."),
        params: &["name", "keep_snapshots"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_run",
        title: "Run a command in a session",
        method: "exec.run",
        words: Words::Own {
            tool: "Runs a command to its end and gives its output: of each stream at most 24 KiB of JSON, of a longer one \
                   the beginning and the end. A command's own failure is a result, not an error. For a line of \
                   shell: [\"sh\", \"-c\", LINE]. For what runs on, use exec_start.",
            params: &[(
                "timeout",
                "Kill it after this many milliseconds, 120000 if absent, never if 0; the exit code is then 124.",
            )],
        },
        params: &["session", "cmd", "env", "cwd", "user", "stdin", "timeout"],
        effect: Effect::Destroys,
        open_world: true,
        shape: Shape::Run,
    },
    Tool {
        name: "exec_start",
        title: "Start a command in the background",
        method: "exec.start",
        words: Words::More("exec_logs gives its output, exec_wait waits for its end, exec_kill ends it."),
        params: &["session", "cmd", "env", "cwd", "user", "timeout", "key"],
        effect: Effect::Destroys,
        open_world: true,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_list",
        title: "List commands",
        method: "exec.list",
        words: Words::Own {
            tool: "Lists commands, newest first: those that run, and the last 200 of each session that have ended.",
            params: &[],
        },
        params: &["session"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "execs", keep: EXEC, turn: true },
    },
    Tool {
        name: "exec_logs",
        title: "Read a command's output",
        method: "exec.logs",
        words: Words::Own {
            tool: "Gives output of a command as far as it is kept, at most 24 KiB of JSON per stream at once. While `ended` \
                   is false there is or will be more: ask on with stdout_from = stdout_next and stderr_from = \
                   stderr_next.",
            params: &[],
        },
        params: &["id", "stdout_from", "stderr_from"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Logs,
    },
    Tool {
        name: "exec_wait",
        title: "Wait for a command's end",
        method: "exec.wait",
        words: Words::Own {
            tool: "Waits for a command's end, or for some time: then `status` still is `running`.",
            params: &[(
                "timeout",
                "Give up after this many milliseconds, and tell how it stands; 60000 if absent, and never more than \
                 600000.",
            )],
        },
        params: &["id", "timeout"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "exec_kill",
        title: "End a command",
        method: "exec.kill",
        words: Words::More(""),
        params: &["id", "signal"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "file_read",
        title: "Read a file of a session",
        method: "file.read",
        words: Words::Own {
            tool: "Gives a part of a file of a sandbox, at most 32768 bytes at once, and fewer where JSON has to \
                   write them long. The session may be running, paused, stopped or saved. While `truncated` is \
                   true, go on with offset = offset_next.",
            params: &[("limit", "Most bytes to give; 32768 if absent, and never more.")],
        },
        params: &["session", "path", "offset", "limit"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Part,
    },
    Tool {
        name: "file_write",
        title: "Write a file into a session",
        method: "file.write",
        words: Words::More(""),
        params: &["session", "path", "content", "encoding", "mode", "create_dirs"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "file_list",
        title: "List a directory of a session",
        method: "file.list",
        words: Words::More(""),
        params: &["session", "path"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::Whole,
    },
    Tool {
        name: "snapshot_list",
        title: "List snapshots",
        method: "snapshot.list",
        words: Words::More(""),
        params: &["name"],
        effect: Effect::Reads,
        open_world: false,
        shape: Shape::List { field: "snapshots", keep: &[], turn: false },
    },
    Tool {
        name: "snapshot_delete",
        title: "Delete snapshots",
        method: "snapshot.delete",
        words: Words::More("A snapshot may be the only copy of a session's files. This cannot be undone."),
        params: &["snapshots"],
        effect: Effect::DestroysOnce,
        open_world: false,
        shape: Shape::List { field: "deleted", keep: &[], turn: false },
    },
];
