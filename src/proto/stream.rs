//! The raw stream: bytes of one exec, terminal or copy on a connection of its own.
//!
//! The client opens a connection, writes [`PREFACE`], then one JSON text ([`Open`]) and a newline. The daemon answers
//! with one JSON text and a newline: [`Opened`], or [`Refused`] and the end of the connection. From then on both sides
//! send frames: one byte of type, four bytes of length (big-endian), and the payload.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::copy::{CopyOpen, CopyPlace};
use super::errors::WireError;
use super::version::{PROTOCOL, VERSION};

/// The first bytes of a raw stream; no other framing begins with a lower-case letter.
pub const PREFACE: &[u8] = b"abx-stream/1\n";

/// Longest JSON text of the opening, in bytes.
pub const MAX_OPEN_BYTES: usize = 1024 * 1024;

/// Longest payload of a frame, in bytes. A longer one is a protocol error and ends the connection.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// Bytes before a frame's payload.
pub const HEADER_BYTES: usize = 5;

/// A terminal's size in characters: 1 to 1,000 each; what is beyond is taken as the nearest of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// How the session's agent is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentStart {
    /// Unless the terminal runs something already; then that is followed.
    Usual,
    /// Going on with its last conversation where it has run before.
    Resume,
    /// With a new conversation.
    Fresh,
}

/// What the client wants to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Open {
    /// What the client calls itself, for the history; absent for the name of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The client's version, for the daemon's log.
    #[serde(default)]
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
    /// The session, by name or sandbox name.
    pub session: String,
    /// Program and arguments; with `attach`, empty for the session's shell.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// Added to the session's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// User name or id.
    #[serde(default)]
    pub user: Option<String>,
    /// On a terminal of this size.
    #[serde(default)]
    pub tty: Option<Size>,
    /// Whether the client will send input.
    #[serde(default)]
    pub stdin: bool,
    /// Do not wait for the end: answer once it runs, then close.
    #[serde(default)]
    pub detach: bool,
    /// Whether this is an attach (stamps `last_connected`) rather than an exec (counts).
    #[serde(default)]
    pub attach: bool,
    /// Kill it after this many milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// A name of the caller's choice: opening again with the same one follows the command that the first opening
    /// started.
    #[serde(default)]
    pub key: Option<String>,
    /// Follow this command instead of starting one, by its id.
    #[serde(default)]
    pub follow: Option<String>,
    /// With `follow` or a `key` that is known: bytes of standard output that the caller has already.
    #[serde(default)]
    pub stdout_from: u64,
    /// The same of standard error.
    #[serde(default)]
    pub stderr_from: u64,
    /// The terminal of this name: it is followed if it is there, else `cmd` is started on it. Only with `attach`.
    #[serde(default)]
    pub terminal: Option<String>,
    /// Neither input nor size of this client count. Only with `terminal`.
    #[serde(default)]
    pub read_only: bool,
    /// Lines of scrollback to paint above the screen. Only with `terminal`.
    #[serde(default)]
    pub scrollback: u32,
    /// Start the session's agent in place of `cmd`. Only with `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStart>,
    /// Whether a session that does not run is resumed first; what the daemon's configuration says if absent. Counts for a
    /// copy, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<bool>,
    /// Whether the client takes [`Doing`] before the answer. Counts for a copy, too.
    #[serde(default)]
    pub hears: bool,
    /// Copy files instead of running anything; of the other fields only those above `cmd` count, and those that say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyOpen>,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            client: None,
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            session: String::new(),
            cmd: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            tty: None,
            stdin: false,
            detach: false,
            attach: false,
            timeout_ms: None,
            key: None,
            follow: None,
            stdout_from: 0,
            stderr_from: 0,
            terminal: None,
            read_only: false,
            scrollback: 0,
            agent: None,
            resume: None,
            hears: false,
            copy: None,
        }
    }
}

/// What is done first: a line of its own before the answer, to a client that takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doing {
    /// One line for the user.
    pub doing: String,
}

/// It runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Opened {
    /// The exec's id; empty for a copy.
    pub exec: String,
    /// Whether it was there already, and is followed.
    #[serde(default)]
    pub followed: bool,
    /// Whether it goes on when this client is gone, and can be followed again.
    #[serde(default)]
    pub durable: bool,
    /// Where standard output begins: more than was asked for when what is between is no longer kept.
    #[serde(default)]
    pub stdout_from: u64,
    /// The same of standard error.
    #[serde(default)]
    pub stderr_from: u64,
    /// One line for the user on what was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The daemon's version.
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
    /// What a copy has to know of its end in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyPlace>,
}

impl Default for Opened {
    fn default() -> Self {
        Self {
            exec: String::new(),
            followed: false,
            durable: false,
            stdout_from: 0,
            stderr_from: 0,
            note: None,
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            copy: None,
        }
    }
}

/// It does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Why.
    pub error: WireError,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exit {
    /// The code for the client to end with: the command's own, 124, 126, 127 or 128+n.
    pub exit_code: i32,
    /// One line for the user when it did not end by itself.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Types of frames. Input, resize and signal come from the client, the rest from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytes for the command's input, or of a copy's tar stream; an empty payload ends it.
    Input,
    /// JSON of [`Size`].
    Resize,
    /// One byte: the signal's number, for the command.
    Signal,
    /// Bytes of standard output, or of a copy's tar stream.
    Stdout,
    /// Bytes of standard error.
    Stderr,
    /// JSON of [`Exit`]; the last frame.
    Exit,
    /// JSON of [`WireError`]; the last frame.
    Error,
}

impl FrameKind {
    const TABLE: [(u8, FrameKind); 7] = [
        (1, FrameKind::Input),
        (2, FrameKind::Resize),
        (3, FrameKind::Signal),
        (65, FrameKind::Stdout),
        (66, FrameKind::Stderr),
        (67, FrameKind::Exit),
        (68, FrameKind::Error),
    ];

    fn byte(self) -> u8 {
        Self::TABLE.iter().find(|(_, kind)| *kind == self).map_or(0, |(byte, _)| *byte)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::TABLE.iter().find(|(b, _)| *b == byte).map(|(_, kind)| *kind)
    }
}

/// Encodes a frame's header.
///
/// # Panics
/// When the payload is longer than [`MAX_FRAME_BYTES`]: senders split before.
pub fn header(kind: FrameKind, length: usize) -> [u8; HEADER_BYTES] {
    assert!(length <= MAX_FRAME_BYTES, "a frame of {length} bytes was not split");
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [kind.byte(), length[0], length[1], length[2], length[3]]
}

/// Decodes a frame's header into its type and the payload's length. An unknown type gives `None` with its length, and
/// its payload must be skipped.
///
/// # Errors
/// `InvalidData` when the length is over [`MAX_FRAME_BYTES`].
pub fn parse_header(bytes: [u8; HEADER_BYTES]) -> io::Result<(Option<FrameKind>, usize)> {
    let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
    if length > MAX_FRAME_BYTES {
        let text = format!("frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok((FrameKind::from_byte(bytes[0]), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_for_every_kind() {
        for (_, kind) in FrameKind::TABLE {
            assert_eq!(parse_header(header(kind, 4_660)).expect("short"), (Some(kind), 4_660));
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_read() {
        let error = parse_header([65, 0xff, 0xff, 0xff, 0xff]).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_unknown_type_is_skippable() {
        assert_eq!(parse_header([200, 0, 0, 0, 3]).expect("short"), (None, 3));
    }
}
