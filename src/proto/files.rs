//! Files of a sandbox as values of JSON: `file.read`, `file.write` and `file.list`.

use serde::{Deserialize, Serialize};

/// Most bytes of a file that one `file.read` gives, and how many it gives if not told otherwise.
pub const MAX_READ_BYTES: u64 = 1024 * 1024;

/// Most entries of one `file.list`.
pub const MAX_ENTRIES: usize = 10_000;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Bytes.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket, or something that this version does not know.
    #[serde(other)]
    Other,
}

/// How bytes stand in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Encoding {
    /// As they are: they are UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// In base64, with padding.
    #[serde(rename = "base64")]
    Base64,
}

/// What to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileReadParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// The file; a relative path counts from the directory in which commands run. Symbolic links are followed, and never
    /// out of the sandbox.
    pub path: String,
    /// Bytes to pass over; 0 if absent.
    #[serde(default)]
    pub offset: Option<u64>,
    /// Most bytes to give; 1 MiB if absent, and never more.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
    /// container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileContent {
    /// The bytes. A character that the end of a part would cut is left to the next part.
    pub content: String,
    /// `utf-8`, or `base64` if the part is not UTF-8.
    pub encoding: Encoding,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// Whether the file goes on after this part.
    pub truncated: bool,
}

/// What to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileWriteParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// The file; a relative path counts from the directory in which commands run. A symbolic link is followed.
    pub path: String,
    /// All of its bytes.
    pub content: String,
    /// How they are written in `content`; `utf-8` if absent.
    #[serde(default)]
    pub encoding: Encoding,
    /// Permission bits, as a number up to 4095 (420 is 0o644); those of the file that is there, else 0o644, if absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Make the directories above it that are missing.
    #[serde(default)]
    pub create_dirs: bool,
    /// Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
    /// container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileWriteResult {
    /// The absolute path, links followed.
    pub path: String,
    /// Size of the file.
    pub size_bytes: u64,
}

/// What to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileListParams {
    /// The session, by name or sandbox name.
    pub session: String,
    /// The directory; a relative path counts from the directory in which commands run, which it is itself if absent.
    #[serde(default)]
    pub path: Option<String>,
    /// Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
    /// container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
    #[serde(default)]
    pub resume: Option<bool>,
}

/// What is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileListResult {
    /// The absolute path, links followed.
    pub path: String,
    /// By name.
    pub entries: Vec<FileEntry>,
    /// Whether there are more than these.
    pub truncated: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileEntry {
    /// Its name; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes; 0 of what is not a file.
    pub size_bytes: u64,
    /// Permission bits, as a number.
    pub mode: u32,
    /// RFC 3339, UTC, milliseconds.
    pub modified_at: String,
    /// Where a symbolic link leads, as it is written in it.
    pub link_target: Option<String>,
}
