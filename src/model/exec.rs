//! A command that was run in a sandbox, as the table keeps it.

use super::id::{ExecId, SessionId, Timestamp};

/// A row of the table of commands. Its output is not here: that is kept, within bounds, where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// UUIDv7.
    pub id: ExecId,
    /// Whose sandbox it runs in.
    pub session: SessionId,
    /// What its caller named it by, so that asking twice starts one; unique in the session.
    pub key: Option<String>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The name of the terminal that it has, if that has one.
    pub terminal: Option<String>,
    /// Whether it runs on a terminal.
    pub tty: bool,
    /// Whether it goes on without anybody who waits for it.
    pub detached: bool,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// How it ended, once it did.
    pub ended: Option<End>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Its exit code: its own, 124, 126, 127 or 128+n.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// One line, when it did not end by itself.
    pub reason: Option<String>,
}

impl End {
    /// The end of what ran in a sandbox that has ended.
    pub fn with_sandbox(at: Timestamp) -> Self {
        Self { at, code: 137, signal: Some(9), reason: Some("its sandbox ended".to_owned()) }
    }
}
