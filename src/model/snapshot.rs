//! A snapshot, as the table keeps it.

use super::event::By;
use super::id::{SessionId, SnapshotId, Timestamp};

/// Whether a snapshot is there or still being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// Intent committed; the engine may or may not have made the image. Not listed.
    Creating,
    /// The image is there.
    Ready,
    /// Intent to delete committed. Not listed.
    Deleting,
}

/// Something that a snapshot does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    /// `bind`, `volume`, `tmpfs` or `process`.
    pub kind: String,
    /// The path, or the process's name.
    pub target: String,
    /// Which one was there, in words that mean something to this machine alone; none where that is not known.
    pub mark: Option<String>,
}

impl Excluded {
    /// One of which nobody knows which it was.
    pub fn new(kind: impl Into<String>, target: impl Into<String>) -> Self {
        Self { kind: kind.into(), target: target.into(), mark: None }
    }
}

/// A row of the snapshot table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// UUIDv7.
    pub id: SnapshotId,
    /// Unique.
    pub name: String,
    /// Whose timeline it is in; none when that session was deleted and the snapshot kept.
    pub session: Option<SessionId>,
    /// That session's name when it was taken.
    pub session_name: String,
    /// The immutable image; empty while it is being made.
    pub image_id: String,
    /// When it was taken.
    pub created_at: Timestamp,
    /// Who asked for it; none where that was not noted yet.
    pub creator: Option<By>,
    /// The user's words.
    pub note: Option<String>,
    /// The name of the snapshot that the files came from.
    pub parent: Option<String>,
    /// Size of the whole image.
    pub size_bytes: u64,
    /// What of that no other image below it has: its own layer; none where that is not known.
    pub own_bytes: Option<u64>,
    /// What it does not hold.
    pub excluded: Vec<Excluded>,
    /// Whether it is there.
    pub state: SnapshotState,
}
