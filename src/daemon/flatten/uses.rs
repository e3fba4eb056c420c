//! Who uses the image of a snapshot: while anybody does, it is neither moved to another image nor, where it is of no
//! session whose turn would tell, deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::model::id::SnapshotId;

/// The snapshots that are used.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Uses(Mutex<HashMap<SnapshotId, Arc<RwLock<()>>>>);

/// Keeps the images of snapshots where they are until it is dropped.
#[must_use = "what is dropped at once keeps nothing"]
#[derive(Debug)]
pub(in crate::daemon) struct InUse {
    _each: Vec<OwnedRwLockReadGuard<()>>,
}

/// Keeps everybody else from a snapshot until it is dropped.
#[must_use = "what is dropped at once keeps nobody away"]
#[derive(Debug)]
pub(in crate::daemon) struct Alone {
    _all: OwnedRwLockWriteGuard<()>,
}

impl Uses {
    /// Uses some snapshots, as soon as nobody moves or deletes one of them.
    pub(in crate::daemon) async fn of<'a>(&self, ids: impl IntoIterator<Item = &'a SnapshotId>) -> InUse {
        // Each once and all in one order, so that no two wait for each other.
        let ids: BTreeSet<&SnapshotId> = ids.into_iter().collect();
        let mut each = Vec::new();
        for id in ids {
            each.push(self.lock(id).read_owned().await);
        }
        InUse { _each: each }
    }

    /// Has a snapshot alone, once nobody uses it any more.
    pub(in crate::daemon) async fn alone(&self, id: &SnapshotId) -> Alone {
        Alone { _all: self.lock(id).write_owned().await }
    }

    /// As [`Uses::alone`], but none where somebody uses it now.
    pub(in crate::daemon) fn try_alone(&self, id: &SnapshotId) -> Option<Alone> {
        Some(Alone { _all: self.lock(id).try_write_owned().ok()? })
    }

    fn lock(&self, id: &SnapshotId) -> Arc<RwLock<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(all.entry(id.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_use_a_snapshot_and_one_has_it_alone() {
        let uses = Uses::default();
        let (a, b) = (SnapshotId::new("a"), SnapshotId::new("b"));
        let both = uses.of([&b, &a, &b]).await;
        let again = uses.of([&a]).await;
        assert!(uses.try_alone(&a).is_none());
        drop(both);
        assert!(uses.try_alone(&a).is_none(), "one of them still does");
        assert!(uses.try_alone(&b).is_some());
        drop(again);
        let alone = uses.alone(&a).await;
        let waiting = uses.of([&a]);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(alone);
        drop(waiting.await);
        drop(uses.lock(&b));
        assert_eq!(uses.0.lock().expect("no panic").len(), 1, "what nobody uses is not remembered");
    }
}
