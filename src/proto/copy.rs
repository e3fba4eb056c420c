//! Copies: what the opening of a raw stream says where it carries files, and what is answered.
//!
//! The bytes are those of a tar stream. Of the name of each entry the first part is what was copied, `.` or nothing
//! where it is the content of a directory alone: who writes the files gives it the name that they are to have.

use serde::{Deserialize, Serialize};

use super::files::FileKind;

/// Which way files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Into the sandbox.
    In,
    /// Out of it.
    Out,
}

/// What to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopyOpen {
    /// Which way.
    pub direction: Direction,
    /// The path in the sandbox; one that is relative counts from the directory in which commands run. Ends in `/.` for the
    /// content of a directory alone.
    pub path: String,
    /// Out: where the path is a symbolic link, copy what it leads to. In, links are always followed.
    #[serde(default)]
    pub follow: bool,
    /// Id for the progress that subscribers hear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
}

/// The end of a copy that is in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopyPlace {
    /// The absolute path.
    pub path: String,
    /// What is there; null if nothing is.
    pub kind: Option<FileKind>,
    /// Its size in bytes, where it is a file.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// In: the directory that files go into. Out: null.
    #[serde(default)]
    pub directory: Option<String>,
    /// In: what stands in front of the name of each entry, and of what hard links name: the way from where the tar stream
    /// is unpacked to that directory. Empty, or ends in a slash. Out: empty.
    #[serde(default)]
    pub prefix: String,
    /// Out: the name of what is copied; null if it has none, as the content of a directory. In: the name that it has to
    /// have; null where it goes into a directory, under its own.
    pub name: Option<String>,
    /// In: the user that commands run as, to whom the files should belong. Out: null.
    #[serde(default)]
    pub owner: Option<Owner>,
}

/// A user of a sandbox, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
}
