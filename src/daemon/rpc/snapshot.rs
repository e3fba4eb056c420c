//! `snapshot.*`.

use std::sync::Arc;

use super::{Module, convert, later, now, report};
use crate::daemon::verbs::diff::Differs;
use crate::model::session::Snapshot;
use crate::proto::methods::{
    SnapshotDelete, SnapshotDiff, SnapshotExport, SnapshotImport, SnapshotList, SnapshotPrune,
};
use crate::proto::snapshots::{
    MAX_DIFFERENCES, PathChange, PathDifference, SnapshotDiffResult, SnapshotExportResult,
    SnapshotImportResult, SnapshotPruneResult,
};

pub(super) fn register(module: &mut Module) {
    now::<SnapshotList, _>(module, |asked, app| {
        let snapshots = app.driver.snapshots(asked.name.as_deref())?;
        Ok(snapshots.iter().map(|s| convert::snapshot(s, app.driver.session_of(s))).collect::<Vec<_>>())
    });
    later::<SnapshotDelete, _, _>(module, |asked, app, _| async move {
        app.driver.delete_snapshots(asked.snapshots).await
    });
    later::<SnapshotDiff, _, _>(module, |asked, app, _| async move {
        let all = app.driver.diff(&asked.from, asked.to.as_deref()).await?;
        let truncated = all.len() > MAX_DIFFERENCES;
        let wire = |(path, differs)| PathDifference { change: change(differs), path };
        let differences = all.into_iter().take(MAX_DIFFERENCES).map(wire).collect();
        Ok(SnapshotDiffResult { differences, truncated })
    });
    later::<SnapshotExport, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, None, asked.op.clone(), &extensions)?;
        let (snapshot, path) = (asked.snapshot.clone(), asked.path.clone());
        let size_bytes = app.driver.export_snapshot(asked, report).await?;
        Ok(SnapshotExportResult { snapshot, path, size_bytes })
    });
    later::<SnapshotImport, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, None, asked.op.clone(), &extensions)?;
        let imported = app.driver.import_file(asked, report).await?;
        let snapshot = convert::snapshot(&imported.snapshot, app.driver.session_of(&imported.snapshot));
        Ok(SnapshotImportResult {
            snapshot,
            session: imported
                .session
                .as_deref()
                .map(|session| convert::session(session, app.driver.idleness(session))),
        })
    });
    later::<SnapshotPrune, _, _>(module, |asked, app, _| async move {
        let dry_run = asked.dry_run;
        let pruned = app.driver.prune(asked).await?;
        let wire = |s: &Arc<Snapshot>| convert::snapshot(s, app.driver.session_of(s));
        let snapshots = pruned.snapshots.iter().map(wire).collect();
        let (freed_bytes, skipped) = (pruned.freed_bytes, pruned.skipped);
        Ok(SnapshotPruneResult { snapshots, freed_bytes, dry_run, skipped })
    });
}

fn change(differs: Differs) -> PathChange {
    match differs {
        Differs::Added => PathChange::Added,
        Differs::Changed => PathChange::Changed,
        Differs::Deleted => PathChange::Deleted,
    }
}
