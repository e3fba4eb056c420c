//! `abx export`: the whole session table as one document.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::args::ExportArgs;
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::TableExport;
use crate::proto::table::{TableDocument, TableExportParams};

/// Exports to a file, for this user alone, or to standard output.
pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<u8, Failure> {
    let raw = context.call::<TableExport>(&TableExportParams { with_secrets: args.with_secrets })?;
    if args.file.as_os_str() == "-" {
        context.output.data(raw.get());
        return Ok(0);
    }
    write(&args.file, &raw)?;
    let document = understand::<TableExport>(&raw)?;
    say(context, args, &document);
    Ok(0)
}

/// Puts the document in the file's place when all of it is there. A temporary file is for its user alone.
fn write(path: &Path, raw: &RawValue) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(dir).and_then(|mut file| {
        file.write_all(raw.get().as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    });
    let failed = |error| Failure::local(format!("failed to write {}", path.display()), &error);
    written.map(drop).map_err(failed)
}

fn say(context: &Context, args: &ExportArgs, document: &TableDocument) {
    let (sessions, snapshots) = (document.sessions.len(), document.snapshots.len());
    let file = clean(&args.file.display().to_string());
    if context.output.json {
        let told = json!({
            "file": args.file.display().to_string(),
            "sessions": sessions,
            "snapshots": snapshots,
            "with_secrets": args.with_secrets,
        });
        context.output.data(&told.to_string());
    } else if context.output.quiet {
        context.output.data(&file);
    } else {
        context.output.data(&format!("Exported {sessions} sessions and {snapshots} snapshots to {file}."));
        let note = if args.with_secrets {
            "It holds the values of environments: keep it as you keep them."
        } else {
            "Values of environments are not in it; to have them, add --with-secrets."
        };
        context.output.note(note);
    }
}
