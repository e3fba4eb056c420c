//! Images, and what they are made from.

use std::time::Duration;

use crate::model::event::By;
use crate::model::id::{SessionId, SnapshotId};
use crate::model::session::Excluded;

/// An image as the engine knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The immutable id.
    pub id: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What its layers hold, the lowest first, each by its digest.
    pub layers: Vec<String>,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
}

impl Image {
    /// Whether it is that image, or was made from it.
    pub fn stands_on(&self, below: &Self) -> bool {
        self.layers.starts_with(&below.layers)
    }
}

/// How to name a new snapshot.
#[derive(Debug, Clone)]
pub struct CommitSpec {
    /// The container.
    pub sandbox_id: String,
    /// The snapshot's id: a label and the tag.
    pub snapshot: SnapshotId,
    /// The snapshot's name, for the label.
    pub name: String,
    /// The session, for the labels.
    pub session: SessionId,
    /// The session's name, for the label.
    pub session_name: String,
    /// The home that owns it, for the label.
    pub home: String,
    /// The user's words, for the label.
    pub note: Option<String>,
    /// Who asked for it, for the labels.
    pub creator: Option<By>,
    /// The snapshot that the files came from, for the label.
    pub parent: Option<String>,
    /// What it will not hold, for the label.
    pub excluded: Vec<Excluded>,
    /// Whether the session is saved to it, and its container rests.
    pub saves: bool,
    /// How long the engine may take. What it makes after that is nobody's.
    pub patience: Duration,
}

/// A path at which a sandbox differs from its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// Where, from the root on.
    pub path: String,
}

/// How a path differs from the image's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is another, or something below it changed.
    Modified,
    /// The image does not have it.
    Added,
    /// Only the image has it.
    Deleted,
}
