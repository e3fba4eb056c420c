//! `abx snapshot list|delete|diff|prune|export|import`.

mod carry;

use crate::cli::args_session::{PruneArgs, SnapshotCommand};
use crate::cli::context::{Context, can_ask, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::table;
use crate::config::size;
use crate::proto::methods::{SnapshotDelete, SnapshotDiff, SnapshotList, SnapshotPrune};
use crate::proto::snapshots::{
    PathChange, PathDifference, SnapshotDeleteParams, SnapshotDiffParams, SnapshotDiffResult,
    SnapshotListParams, SnapshotPruneParams, SnapshotPruneResult,
};

/// Runs a snapshot verb.
pub(crate) fn run(context: &Context, verb: SnapshotCommand) -> Result<u8, Failure> {
    match verb {
        SnapshotCommand::List { name, output } => {
            let raw = context.call::<SnapshotList>(&SnapshotListParams { name })?;
            context.deliver::<SnapshotList>(
                &raw,
                |list| lines(list.iter().map(|s| s.name.as_str())),
                |list| if output.is_some() { table::wide_snapshots(list) } else { table::snapshots(list) },
            )?;
        }
        SnapshotCommand::Delete { snapshot, yes } => {
            if !yes && can_ask() && !context.agrees(&question(&snapshot)) {
                return Err(Failure::refused("nothing was deleted"));
            }
            let raw = context.call::<SnapshotDelete>(&SnapshotDeleteParams { snapshots: snapshot })?;
            context.deliver::<SnapshotDelete>(
                &raw,
                |names| lines(names.iter().map(String::as_str)),
                |names| {
                    let text = names.iter().map(|n| format!("Snapshot '{}' deleted.", clean(n)));
                    text.collect::<Vec<_>>().join("\n")
                },
            )?;
        }
        SnapshotCommand::Diff { from, to } => {
            let raw = context.call::<SnapshotDiff>(&SnapshotDiffParams { from, to })?;
            let paths =
                |result: &SnapshotDiffResult| lines(result.differences.iter().map(|d| d.path.as_str()));
            context.deliver::<SnapshotDiff>(&raw, paths, differences)?;
            if understand::<SnapshotDiff>(&raw)?.truncated {
                context.output.note("There are more differences than are told.");
            }
        }
        SnapshotCommand::Export { snapshot, file } => carry::export(context, snapshot, &file)?,
        SnapshotCommand::Import { file, session } => carry::import(context, &file, session)?,
        SnapshotCommand::Prune(args) => prune(context, args)?,
    }
    Ok(0)
}

/// As `docker diff` has it.
fn differences(result: &SnapshotDiffResult) -> String {
    let letter = |change: &PathChange| match change {
        PathChange::Added => "A",
        PathChange::Changed => "C",
        PathChange::Deleted => "D",
        PathChange::Other(_) => "?",
    };
    if result.differences.is_empty() {
        return "No differences.".to_owned();
    }
    let line = |d: &PathDifference| format!("{} {}", letter(&d.change), clean(&d.path));
    result.differences.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn prune(context: &Context, args: PruneArgs) -> Result<(), Failure> {
    let PruneArgs { name, keep, older, dry_run, yes } = args;
    let params = SnapshotPruneParams { names: name, keep, older_ms: older, dry_run };
    if !dry_run && !yes && can_ask() {
        let would = SnapshotPruneParams { dry_run: true, ..params.clone() };
        let would = understand::<SnapshotPrune>(&context.call::<SnapshotPrune>(&would)?)?;
        let names: Vec<String> = would.snapshots.into_iter().map(|s| s.name).collect();
        if !names.is_empty() && !context.agrees(&question(&names)) {
            return Err(Failure::refused("nothing was deleted"));
        }
    }
    let raw = context.call::<SnapshotPrune>(&params)?;
    context.deliver::<SnapshotPrune>(
        &raw,
        |result| lines(result.snapshots.iter().map(|s| s.name.as_str())),
        pruned,
    )?;
    let skipped: Vec<String> =
        understand::<SnapshotPrune>(&raw)?.skipped.iter().map(|name| clean(name)).collect();
    if !skipped.is_empty() {
        context.output.note(&format!("Passed over, for they are on another engine: {}", skipped.join(", ")));
    }
    Ok(())
}

fn pruned(result: &SnapshotPruneResult) -> String {
    let done = if result.dry_run { "would be " } else { "" };
    let mut text: Vec<String> =
        result.snapshots.iter().map(|s| format!("Snapshot '{}' {done}deleted.", clean(&s.name))).collect();
    text.push(match result.snapshots.len() {
        0 => "No snapshot is too many.".to_owned(),
        _ => format!("{} {done}freed.", size(result.freed_bytes)),
    });
    text.join("\n")
}

/// A snapshot may be the only copy of a session's files.
fn question(names: &[String]) -> String {
    match names {
        [name] => format!("Delete snapshot '{}'? Nothing brings it back. [y/N] ", clean(name)),
        names => {
            let list = names.iter().map(|n| format!("'{}'", clean(n))).collect::<Vec<_>>().join(", ");
            format!("Delete {} snapshots: {list}? Nothing brings them back. [y/N] ", names.len())
        }
    }
}

fn lines<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(clean).collect::<Vec<_>>().join("\n")
}
