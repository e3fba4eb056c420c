//! `snapshot.*`.

use super::{Module, convert, later, now};
use crate::proto::methods::{SnapshotDelete, SnapshotList};

pub(super) fn register(module: &mut Module) {
    now::<SnapshotList, _>(module, |asked, app| {
        let snapshots = app.driver.snapshots(asked.name.as_deref())?;
        Ok(snapshots.iter().map(|s| convert::snapshot(s, app.driver.session_of(s))).collect::<Vec<_>>())
    });
    later::<SnapshotDelete, _, _>(module, |asked, app, _| async move {
        app.driver.delete_snapshots(asked.snapshots).await
    });
}
