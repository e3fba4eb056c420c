//! Commands, as methods tell of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::files::Encoding;

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
    /// Input, as text; none if absent. On a terminal its end-of-file character follows.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Kill it after this many milliseconds; the exit code is then 124.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// Run it on a terminal; output then comes in `stdout` alone.
    #[serde(default)]
    pub tty: bool,
    /// Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
    /// default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
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
    pub encoding: Encoding,
    /// Whether output was cut.
    pub truncated: bool,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// A command to start and leave running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecStartParams {
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
    /// Input, as text, after which its input ends; none if absent.
    #[serde(default)]
    pub stdin: Option<String>,
    /// End it after this many milliseconds; the exit code is then 124.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// A name of the caller's choice: asking again with the same one gives the command that the first asking started.
    #[serde(default)]
    pub key: Option<String>,
    /// Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
    /// default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
}

/// Whose commands to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecListParams {
    /// The session, by name or sandbox name; all if absent.
    #[serde(default)]
    pub session: Option<String>,
}

/// A command as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecInfo {
    /// Its id, a UUIDv7.
    pub id: String,
    /// The session's name.
    pub session: String,
    /// What its caller named it by.
    pub key: Option<String>,
    /// Program and arguments.
    pub cmd: Vec<String>,
    /// The name of its terminal, if that has one.
    pub terminal: Option<String>,
    /// Whether it runs on a terminal.
    pub tty: bool,
    /// Whether it goes on without anybody who waits for it.
    pub detached: bool,
    /// `running` or `exited`.
    pub status: String,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// RFC 3339, UTC, milliseconds; null while it runs.
    pub ended_at: Option<String>,
    /// Its code: its own, 124, 126, 127 or 128+n; null while it runs.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// One line, when it did not end by itself.
    pub reason: Option<String>,
}

/// Which part of a command's output to give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecLogsParams {
    /// Its id, or a beginning of it that no other has.
    pub id: String,
    /// Bytes of standard output to leave out, as counted from its beginning.
    #[serde(default)]
    pub stdout_from: u64,
    /// The same of standard error.
    #[serde(default)]
    pub stderr_from: u64,
}

/// Output of a command, as far as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecLogsResult {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// `utf-8`, or `base64` if either stream is not UTF-8.
    pub encoding: Encoding,
    /// Where `stdout` begins: more than was asked for when what is between is no longer kept.
    pub stdout_from: u64,
    /// Where `stderr` begins.
    pub stderr_from: u64,
    /// Where to ask on.
    pub stdout_next: u64,
    /// Where to ask on.
    pub stderr_next: u64,
    /// How many bytes of `stdout` the command had written when it was asked: past `stdout_next` where that is more than
    /// one answer holds.
    #[serde(default)]
    pub stdout_end: u64,
    /// The same of `stderr`.
    #[serde(default)]
    pub stderr_end: u64,
    /// Bytes that are no longer kept, of both streams.
    pub dropped_bytes: u64,
    /// Whether the command has ended and this is all.
    pub ended: bool,
}

/// A signal for a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecKillParams {
    /// Its id, or a beginning of it that no other has.
    pub id: String,
    /// The signal's number; 15 (TERM), and 9 (KILL) five seconds later to what is left, if absent.
    #[serde(default)]
    pub signal: Option<i32>,
}

/// How long to wait for a command's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecWaitParams {
    /// Its id, or a beginning of it that no other has.
    pub id: String,
    /// Give up after this many milliseconds, and tell how it stands; never if absent.
    #[serde(default)]
    pub timeout: Option<u64>,
}
