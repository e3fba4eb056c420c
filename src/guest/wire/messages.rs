//! The payloads. Those that stand within another (`Size`, `Exited`) never change.

use super::{Field, Malformed, Payload, field};

macro_rules! payloads {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $fdoc:literal])+ $field:ident: $type:ty,)+ })+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[doc = $fdoc])+ pub $field: $type,)+ }

        impl Payload for $name {
            fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $(self.$field.put(&mut out);)+
                out
            }

            fn decode(mut payload: &[u8]) -> Result<Self, Malformed> {
                let from = &mut payload;
                Ok(Self { $($field: field::<$type>(from)?,)+ })
            }
        }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(Self { $($field: <$type as Field>::take(from)?,)+ })
            }
        }
    )+};
}

payloads! {
    /// Who connects.
    Hello {
        /// The oldest version that it speaks.
        oldest: u16,
        /// The newest.
        newest: u16,
        /// The build, as `abx-init --version` prints it.
        build: String,
        /// The user that it runs as.
        uid: u32,
    }

    /// Which version is spoken.
    Welcome {
        /// One of those offered.
        version: u16,
    }

    /// A terminal's size in characters.
    Size {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    }

    /// What to run.
    Run {
        /// The command's id, chosen by `abxd`: a UUIDv7.
        id: String,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Its whole environment, each `NAME=value`. `HOME`, `USER` and `LOGNAME` are filled in where they are missing.
        env: Vec<Vec<u8>>,
        /// Working directory; none is the user's home, or `/`.
        cwd: Option<Vec<u8>>,
        /// `name`, `uid`, `name:group` or `uid:gid`, looked up in the sandbox's own files; none is the guest's own.
        user: Option<String>,
        /// A terminal of this size; none is three pipes.
        tty: Option<Size>,
        /// The terminal's name; empty for commands.
        terminal: String,
        /// Whether there will be input; otherwise it is `/dev/null`.
        stdin: bool,
        /// Whether a command without follower goes on. Without it, one whose connection is lost is held for
        /// `orphan_ms` and then ended.
        detached: bool,
        /// Output that is kept for those who come later, in bytes, of each of the two.
        keep: u32,
        /// Credit for output of this stream. A follower without any waits for the end alone.
        window: u32,
        /// How long a command that is not detached waits for a follower after its connection was lost, in milliseconds.
        orphan_ms: u32,
        /// Lines of scrollback that the terminal keeps.
        scrollback: u32,
    }

    /// It runs.
    Started {
        /// Its process id in the sandbox.
        pid: u32,
    }

    /// It does not run, or was not done.
    Failed {
        /// What kind of failure: one of the constants of [`Failed`].
        why: u8,
        /// A line for the user.
        text: String,
    }

    /// Which command to follow, and from where.
    Follow {
        /// Its id, or the terminal's name.
        id: String,
        /// Bytes of standard output that the follower has already. For terminals it is ignored: they are repainted.
        stdout_from: u64,
        /// Bytes of standard error that the follower has already.
        stderr_from: u64,
        /// Credit for output. A follower without any waits for the end alone.
        window: u32,
        /// Whether its input and its size count. Any number of writers may follow a terminal.
        writes: bool,
        /// The follower's size, for a terminal.
        size: Option<Size>,
        /// Lines of scrollback to paint above the screen.
        scrollback: u32,
    }

    /// It is followed.
    Following {
        /// Its id.
        id: String,
        /// Where standard output begins here; more than was asked for when what is between is no longer kept.
        stdout_from: u64,
        /// The same of standard error.
        stderr_from: u64,
        /// The terminal's size, if it is one.
        size: Option<Size>,
    }

    /// How many more bytes may be sent.
    Credit {
        /// In bytes.
        bytes: u32,
    }

    /// A signal for all that a command started, whatever group or session it is in.
    Signal {
        /// Its id, or the terminal's name.
        id: String,
        /// The signal's number.
        signal: u8,
    }

    /// How a command ended.
    Exited {
        /// Its exit code; 128+n after signal n.
        code: i32,
        /// The signal that ended it, or 0.
        signal: u8,
        /// Whether the kernel ended it for want of memory.
        oom: bool,
        /// Bytes of standard output that it wrote.
        stdout: u64,
        /// Bytes of standard error that it wrote.
        stderr: u64,
    }

    /// A command as it is known.
    Entry {
        /// Its id.
        id: String,
        /// The terminal's name; empty for commands.
        terminal: String,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Its process id in the sandbox.
        pid: u32,
        /// When it started, in milliseconds since 1970-01-01 UTC by the sandbox's clock.
        started_ms: u64,
        /// How it ended, and when.
        ended: Option<Exited>,
        /// In milliseconds as above; 0 while it runs.
        ended_ms: u64,
        /// Bytes of standard output so far.
        stdout: u64,
        /// Bytes of standard error so far.
        stderr: u64,
        /// Bytes of its output that are no longer kept.
        dropped: u64,
        /// How many follow it.
        followers: u32,
        /// The terminal's size, if it is one.
        size: Option<Size>,
    }

    /// Which screen to show.
    Peek {
        /// The terminal's id or name.
        id: String,
        /// Lines of scrollback above the screen.
        scrollback: u32,
    }

    /// A screen as text.
    Screen {
        /// Its lines, without blanks at their ends; those of the scrollback come first.
        lines: Vec<String>,
        /// How many of them are scrollback.
        scrollback: u32,
        /// Its size.
        size: Size,
        /// The cursor's column, from 0.
        column: u16,
        /// The cursor's row on the screen, from 0.
        row: u16,
        /// Whether the cursor is shown.
        cursor_visible: bool,
        /// Whether this is the alternate screen.
        alternate: bool,
        /// The title that the program set.
        title: String,
    }

    /// The kernel killed a process for want of memory.
    Oom {
        /// How many were killed since the last of these.
        kills: u64,
    }

    /// A command says what it is doing, or rings.
    Notice {
        /// The command's id; empty when it is of none.
        exec: String,
        /// How it says so: one of the constants of [`Notice`].
        source: u8,
        /// What it is doing, another of them.
        state: u8,
        /// Title, at most [`Notice::MAX_TEXT_BYTES`].
        title: String,
        /// Text, at most as much.
        body: String,
    }
}

impl Copy for Size {}

impl Notice {
    /// A terminal rang.
    pub const BELL: u8 = 1;
    /// A terminal wrote `OSC 9`.
    pub const OSC9: u8 = 2;
    /// A terminal wrote `OSC 99`.
    pub const OSC99: u8 = 3;
    /// A terminal wrote `OSC 777`.
    pub const OSC777: u8 = 4;
    /// A terminal wrote `OSC 9;4`: working while progress is shown, nothing when it no longer is.
    pub const PROGRESS: u8 = 5;
    /// A program called `abx notify`.
    pub const COMMAND: u8 = 6;

    /// Nothing is said about what it is doing.
    pub const NOTHING: u8 = 0;
    /// It is at work.
    pub const WORKING: u8 = 1;
    /// It waits for its user.
    pub const WAITING: u8 = 2;
    /// It has stopped to work.
    pub const IDLE: u8 = 3;
    /// It has finished.
    pub const DONE: u8 = 4;

    /// Longest title, and longest text, in bytes.
    pub const MAX_TEXT_BYTES: usize = 1024;
}

impl Failed {
    /// Longest text, in bytes. What it quotes may be as long as a request is.
    pub const MAX_TEXT_BYTES: usize = 1024;

    /// One of this kind, with as much of its text as is told.
    pub fn new(why: u8, mut text: String) -> Self {
        if text.len() > Self::MAX_TEXT_BYTES {
            text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
            text.push_str("...");
        }
        Self { why, text }
    }

    /// There is no such program.
    pub const NOT_FOUND: u8 = 1;
    /// The program cannot be run.
    pub const NOT_EXECUTABLE: u8 = 2;
    /// The working directory is not there or may not be entered.
    pub const NO_DIRECTORY: u8 = 3;
    /// There is no such user or group in the sandbox.
    pub const NO_USER: u8 = 4;
    /// The guest may not become that user: the engine can.
    pub const NEEDS_ENGINE: u8 = 5;
    /// No such command or terminal is known.
    pub const UNKNOWN: u8 = 6;
    /// There are too many commands, or the sandbox is out of processes or memory.
    pub const LIMIT: u8 = 7;
    /// It makes no sense in this state: a peek at what is no terminal, a signal to what has ended.
    pub const STATE: u8 = 8;
    /// The sandbox is being stopped.
    pub const STOPPING: u8 = 9;
}
