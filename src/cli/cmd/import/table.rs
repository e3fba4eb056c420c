//! `abx import FILE`: hands an exported table to the daemon, in parts that fit into a request.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{BATCH_BYTES, Report, tell};
use crate::cli::context::{Context, operation_id, understand};
use crate::cli::failure::{Failure, chain};
use crate::proto::methods::TableImport;
use crate::proto::table::{TableDocument, TableImportParams, TableSession, TableSnapshot};

/// Largest document that is read, in bytes: a hundred thousand sessions.
const MAX_DOCUMENT_BYTES: u64 = 256 * 1024 * 1024;

/// Whether this names a document rather than a directory.
pub(super) fn is_document(path: &Path) -> bool {
    path.as_os_str() == "-" || path.is_file()
}

/// Imports, and exits with 1 if a row was not taken over.
pub(super) fn run(context: &Context, path: &Path, rename: bool) -> Result<u8, Failure> {
    let document = read(path)?;
    let mut client = context.connect()?;
    let mut reports = Vec::new();
    for part in parts(document) {
        let params = TableImportParams { document: part, rename, op: operation_id() };
        let raw = context.call_on::<TableImport>(&mut client, &params)?;
        reports.extend(understand::<TableImport>(&raw)?.into_iter().map(|row| Report {
            file: path.display().to_string(),
            name: Some(row.name),
            outcome: if row.outcome == "refused" { "not imported".to_owned() } else { row.outcome },
            status: row.status.map(|status| status.as_str().to_owned()),
            why: row.why,
            notes: Vec::new(),
        }));
    }
    Ok(tell(context, &reports))
}

fn read(path: &Path) -> Result<TableDocument, Failure> {
    let source: io::Result<Box<dyn Read>> = if path.as_os_str() == "-" {
        Ok(Box::new(io::stdin()))
    } else {
        File::open(path).map(|file| -> Box<dyn Read> { Box::new(file) })
    };
    let mut bytes = Vec::new();
    let read = source.and_then(|source| source.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::local(format!("failed to read {}", path.display()), &error))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        let text = format!("{} is larger than {MAX_DOCUMENT_BYTES} bytes", path.display());
        return Err(Failure::refused(text));
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::refused(format!("{} is no table that abx exported", path.display()))
            .caused_by(chain(&error))
            .with_hint("abx export FILE writes one; for session files of older tools, name their directory")
    })
}

/// The document in parts, each session with its snapshots; those without a session come last.
fn parts(document: TableDocument) -> Vec<TableDocument> {
    let TableDocument { sessions, snapshots, .. } = &document;
    let empty = TableDocument { sessions: Vec::new(), snapshots: Vec::new(), ..document.clone() };
    let mut parts = vec![empty.clone()];
    let mut room = BATCH_BYTES;
    let mut add = |session: Option<&TableSession>, own: Vec<TableSnapshot>| {
        let size = serde_json::to_vec(&(session, &own)).map_or(0, |bytes| bytes.len());
        if size > room {
            parts.push(empty.clone());
            room = BATCH_BYTES;
        }
        room = room.saturating_sub(size);
        if let Some(part) = parts.last_mut() {
            part.sessions.extend(session.cloned());
            part.snapshots.extend(own);
        }
    };
    for session in sessions {
        let own = snapshots.iter().filter(|s| s.session_id.as_ref() == Some(&session.session.id));
        add(Some(session), own.cloned().collect());
    }
    for kept in snapshots.iter().filter(|s| s.session_id.is_none()) {
        add(None, vec![kept.clone()]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_goes_in_parts_that_keep_sessions_and_snapshots_together() {
        let session = |n: usize| {
            let mut session: TableSession = serde_json::from_str(SESSION).expect("a session");
            session.session.id = n.to_string();
            session.session.metadata.insert("big".to_owned(), "x".repeat(1 << 20));
            session
        };
        let snapshot = |of: Option<usize>| {
            let mut snapshot: TableSnapshot = serde_json::from_str(SNAPSHOT).expect("a snapshot");
            snapshot.session_id = of.map(|n| n.to_string());
            snapshot
        };
        let document = TableDocument {
            abx_table: 1,
            version: String::new(),
            exported_at: String::new(),
            home: String::new(),
            sessions: (0..9).map(session).collect(),
            snapshots: vec![snapshot(Some(8)), snapshot(None)],
        };
        let parts = parts(document);
        assert_eq!(parts.iter().map(|part| part.sessions.len()).collect::<Vec<_>>(), [3, 3, 3]);
        assert_eq!(parts.iter().map(|part| part.snapshots.len()).collect::<Vec<_>>(), [0, 0, 2]);
    }

    const SESSION: &str = r#"{"session": {"id": "", "name": "a", "sandbox": "session-a", "engine": "docker",
        "agent": "claude", "template": "base", "status": "running", "created_at": "", "last_active": "",
        "exec_count": 0, "oom_events": 0, "snapshots": 0, "ports": [], "limits": {}, "network": "bridge",
        "metadata": {}, "revision": 1}}"#;

    const SNAPSHOT: &str = r#"{"id": "s", "snapshot": {"name": "s", "session": "a", "image_id": "i", "created_at": "",
        "size_bytes": 1, "excluded": []}}"#;
}
