//! `abx snapshot list|delete`.

use crate::cli::args_session::SnapshotCommand;
use crate::cli::context::{Context, can_ask};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::table;
use crate::proto::methods::{SnapshotDelete, SnapshotList};
use crate::proto::snapshots::{SnapshotDeleteParams, SnapshotListParams};

/// Runs a snapshot verb.
pub(crate) fn run(context: &Context, verb: SnapshotCommand) -> Result<u8, Failure> {
    match verb {
        SnapshotCommand::List { name } => {
            let raw = context.call::<SnapshotList>(&SnapshotListParams { name })?;
            context.deliver::<SnapshotList>(
                &raw,
                |list| lines(list.iter().map(|s| s.name.as_str())),
                |list| table::snapshots(list),
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
    }
    Ok(0)
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
