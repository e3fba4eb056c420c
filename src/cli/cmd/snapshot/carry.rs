//! `abx snapshot export|import`. The daemon reads and writes the file; what comes through a pipe is in a file meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::cli::cmd::session::quoted;
use crate::cli::context::{Context, operation_id};
use crate::cli::failure::Failure;
use crate::cli::output::{clean, raw_stdout};
use crate::config;
use crate::proto::methods::{SnapshotExport, SnapshotImport};
use crate::proto::snapshots::{SnapshotExportParams, SnapshotImportParams, SnapshotImportResult};

/// What stands for standard output and input.
const PIPE: &str = "-";

/// Writes a snapshot to a file.
pub(super) fn export(context: &Context, snapshot: String, file: &Path) -> Result<(), Failure> {
    let piped = file.as_os_str() == PIPE;
    let between = piped.then(tempfile::tempdir).transpose().map_err(|error| broken("make", &error))?;
    let at = between.as_ref().map_or_else(|| file.to_owned(), |directory| directory.path().join("snapshot"));
    let params = SnapshotExportParams { snapshot, path: absolute(&at)?, op: operation_id() };
    let raw = context.call::<SnapshotExport>(&params)?;
    if piped {
        let copied = File::open(&at).and_then(|mut from| io::copy(&mut from, &mut raw_stdout()?));
        return copied.map(drop).map_err(|error| broken("pass on", &error));
    }
    context.deliver::<SnapshotExport>(
        &raw,
        |done| clean(&done.path),
        |done| {
            let size = config::size(done.size_bytes);
            format!("Snapshot '{}' exported to {} ({size}).", clean(&done.snapshot), clean(&done.path))
        },
    )
}

/// Takes a snapshot over from a file.
pub(super) fn import(context: &Context, file: &Path, session: Option<String>) -> Result<(), Failure> {
    let mut between = None;
    if file.as_os_str() == PIPE {
        let mut kept = tempfile::NamedTempFile::new().map_err(|error| broken("make", &error))?;
        io::copy(&mut io::stdin().lock(), &mut kept).map_err(|error| broken("read", &error))?;
        between = Some(kept);
    }
    let at = between.as_ref().map_or(file, tempfile::NamedTempFile::path);
    let called = between.is_some().then(|| "the standard input".to_owned());
    let params = SnapshotImportParams { path: absolute(at)?, called, session, op: operation_id() };
    let raw = context.call::<SnapshotImport>(&params)?;
    context.deliver::<SnapshotImport>(&raw, |done| clean(&done.snapshot.name), imported)
}

fn imported(done: &SnapshotImportResult) -> String {
    let name = clean(&done.snapshot.name);
    match &done.session {
        Some(session) => format!(
            "Snapshot '{name}' imported as session '{}'.\nResume with: abx resume {}",
            clean(&session.name),
            quoted(&session.name)
        ),
        None => format!("Snapshot '{name}' imported."),
    }
}

fn absolute(file: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(file).map_err(|error| broken("find", &error))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| Failure::usage("the file's path must be UTF-8".to_owned()))
}

fn broken(what: &str, error: &io::Error) -> Failure {
    Failure::refused(format!("cannot {what} the file: {error}"))
}
