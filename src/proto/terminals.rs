//! Terminals, as methods and notifications tell of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::errors::WireError;
use super::files::Encoding;
use super::stream::{AgentStart, Size};

/// Most bytes that one `terminal.write` types: a page of text. Whoever has more goes on when it is taken.
pub const MAX_WRITE_BYTES: usize = 64 * 1024;

/// The method that a terminal's notifications are of.
pub const TERMINAL_NOTIFICATION: &str = "terminal";

/// A terminal that a session has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalInfo {
    /// The session's name.
    pub session: String,
    /// Its name in the session.
    pub terminal: String,
    /// The id of the command on it.
    pub exec: String,
    /// That command's program and arguments.
    pub cmd: Vec<String>,
    /// Its size.
    pub size: Option<Size>,
    /// How many are attached to it.
    pub clients: u32,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
}

/// A terminal of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Its name; `main` if absent.
    #[serde(default = "main_terminal")]
    pub terminal: String,
}

/// Which screen to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalPeekParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Its name; `main` if absent.
    #[serde(default = "main_terminal")]
    pub terminal: String,
    /// Lines of scrollback above the screen: at most the 1,000 that are kept, and what fits into 128 KiB.
    #[serde(default)]
    pub scrollback: u32,
}

/// What a terminal shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalScreen {
    /// Its lines without blanks at their ends; those of the scrollback come first.
    pub lines: Vec<String>,
    /// How many of them are scrollback.
    pub scrollback: u32,
    /// Its size.
    pub size: Size,
    /// Where the cursor is, from 0, on the screen.
    pub cursor: Cursor,
    /// Whether a program has the alternate screen.
    pub alternate: bool,
    /// The title that the program set.
    pub title: String,
}

/// A cursor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cursor {
    /// From 0.
    pub column: u16,
    /// From 0.
    pub row: u16,
    /// Whether it is shown.
    pub visible: bool,
}

/// A terminal to open: it is followed if it is there, else started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalOpenParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Its name; `main` if absent.
    #[serde(default = "main_terminal")]
    pub terminal: String,
    /// Program and arguments, to start it with; the session's shell if empty. A terminal that runs another command already
    /// refuses.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// Added to the session's environment where it is started.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The workspace, else the image's working directory, if absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// User name or id, optionally `:group`.
    #[serde(default)]
    pub user: Option<String>,
    /// This client's size; if absent, that which the terminal has, and 80 by 24 for one that is started.
    #[serde(default)]
    pub size: Option<Size>,
    /// This client only looks: its size does not count, and what it writes counts as somebody else's.
    #[serde(default)]
    pub read_only: bool,
    /// Lines of scrollback to paint above the screen: at most the 1,000 that are kept.
    #[serde(default)]
    pub scrollback: u32,
    /// Start the session's agent in place of `cmd`.
    #[serde(default)]
    pub agent: Option<AgentStart>,
    /// Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
    /// default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
}

/// A terminal that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalOpened {
    /// The subscription's id.
    pub subscription: u64,
    /// The id of the command on it.
    pub exec: String,
    /// Whether it was there already: then what comes first paints its screen.
    pub followed: bool,
    /// One line for the user on what was started.
    pub note: Option<String>,
}

/// What a notification of method `terminal` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalNotification {
    /// Which subscription.
    pub subscription: u64,
    /// What there is to tell.
    pub result: TerminalNews,
}

/// What a subscription of a terminal tells. A client passes over kinds that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TerminalNews {
    /// It wrote, or its screen is painted anew.
    Output {
        /// The bytes.
        data: String,
        /// `utf-8`, or `base64` where they are not UTF-8. No character is cut in two.
        encoding: Encoding,
    },
    /// Its program has ended, and the subscription with it.
    Ended {
        /// The code: its own, 124, 126, 127 or 128+n.
        exit_code: i32,
        /// One line for the user when it did not end by itself.
        reason: Option<String>,
    },
    /// It cannot be followed any more, and the subscription is over.
    Error {
        /// Why.
        error: WireError,
    },
}

/// What to type into a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalWriteParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Its name; `main` if absent.
    #[serde(default = "main_terminal")]
    pub terminal: String,
    /// The keys, at most 64 KiB of them.
    pub data: String,
    /// How they stand in `data`; `utf-8` if absent.
    #[serde(default)]
    pub encoding: Encoding,
}

/// A terminal's new size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TerminalResizeParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// Its name; `main` if absent.
    #[serde(default = "main_terminal")]
    pub terminal: String,
    /// The size.
    pub size: Size,
}

/// The name of the terminal that is meant when none is named.
pub const MAIN_TERMINAL: &str = "main";

fn main_terminal() -> String {
    MAIN_TERMINAL.to_owned()
}
