//! Copies of the whole table in a directory of their own, from which one that is gone or damaged is made again.
//!
//! A copy is made by SQLite itself, on a connection that only reads, under another name until it is whole. Its name has the
//! time and the format: `sessions-20260201-093000-v7.db`.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error::{StoreError, explain, explain_io};
use super::{files, open, schema};
use crate::model::id::Timestamp;

/// Copies that are kept: a week of them, one a day.
const KEPT: usize = 7;

/// The key under which a table that was made from a copy has that copy's name, until somebody has compared it with what
/// happened since.
pub const RESTORED_KEY: &str = "store.restored";

/// A copy, as its name says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copy {
    /// When it was made, in UTC: `20260201-093000`.
    stamp: String,
    pub(super) path: PathBuf,
}

/// Copies what `from` reads into `dir`, and drops the oldest copies there beyond those that are kept.
///
/// # Errors
/// `Full`, `Busy` or `Io`; there is then no new copy, and none of the old ones is gone.
pub(super) fn take(from: &Connection, dir: &Path, stamp: &str) -> Result<PathBuf, StoreError> {
    let new = dir.join("sessions.new");
    let fail = |error: io::Error| explain_io(&new, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    let format = schema::format(from).map_err(|error| explain(&new, &error))?;
    files::create_private(&new).map_err(fail)?;
    let path = dir.join(format!("sessions-{stamp}-v{format}.db"));
    let made = copy(from, &new)
        .and_then(|()| File::open(&new).and_then(|file| file.sync_all()).map_err(fail))
        .and_then(|()| fs::rename(&new, &path).map_err(fail));
    if let Err(error) = made {
        // What is left of it takes space that is missing; the next one begins anew whether or not it goes.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    files::sync_directory(&path).map_err(fail)?;
    prune(dir, stamp);
    Ok(path)
}

fn copy(from: &Connection, new: &Path) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| explain(new, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut to = Connection::open_with_flags(new, flags).map_err(sqlite)?;
    // Until it has its name, nobody minds if it is lost.
    to.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF").map_err(sqlite)?;
    // All of it at once: what is read is of one moment, and under a write-ahead log nobody waits for it.
    let step = Backup::new(from, &mut to).and_then(|backup| backup.step(-1)).map_err(sqlite)?;
    if step != StepResult::Done {
        return Err(StoreError::Busy { path: new.to_owned() });
    }
    // The table's own journal is a log beside it. A copy is one file.
    to.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(sqlite)?;
    to.close().map_err(|(_, error)| sqlite(error))
}

/// The copies in a directory, newest first.
pub(super) fn newest_first(dir: &Path) -> Vec<Copy> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut copies: Vec<Copy> = entries.flatten().filter_map(|entry| named(&entry.path())).collect();
    copies.sort_by(|a, b| b.cmp(a));
    copies
}

/// Length of `20260201-093000`.
const STAMP_CHARS: usize = 15;

fn named(path: &Path) -> Option<Copy> {
    let name = path.file_name()?.to_str()?;
    let (stamp, rest) = name.strip_prefix("sessions-")?.split_at_checked(STAMP_CHARS)?;
    let format = rest.strip_prefix("-v")?.strip_suffix(".db")?;
    let is_stamp =
        stamp.bytes().enumerate().all(|(at, b)| if at == 8 { b == b'-' } else { b.is_ascii_digit() });
    let is_ours = is_stamp && !format.is_empty() && format.bytes().all(|b| b.is_ascii_digit());
    is_ours.then(|| Copy { stamp: stamp.to_owned(), path: path.to_owned() })
}

/// Drops the oldest copies. One that nothing can come back from, and one from the future, of a clock that was wrong, count as
/// older than all others: else a few of them would leave no room for those to come.
fn prune(dir: &Path, now: &str) {
    let mut copies = newest_first(dir);
    copies.sort_by_cached_key(|copy| (whole(&copy.path).is_none(), copy.stamp.as_str() > now));
    for copy in copies.iter().skip(KEPT) {
        if let Err(error) = fs::remove_file(&copy.path) {
            tracing::warn!(%error, path = ?copy.path, "an old copy of the table stays");
        }
    }
}

/// Whether no copy of this format is of the day that ends now. Those from the future do not count: the clock was wrong then,
/// or is now. Nor do those that are damaged, whatever they are called.
pub(super) fn is_due(dir: &Path, now: Timestamp) -> rusqlite::Result<bool> {
    let (today, yesterday) = (stamp(now)?, stamp(Timestamp(now.0.saturating_sub(DAY_MS)))?);
    let counts = |copy: &Copy| {
        copy.stamp > yesterday && copy.stamp <= today && whole(&copy.path) == Some(schema::FORMAT)
    };
    Ok(!newest_first(dir).iter().any(counts))
}

/// The format of a copy, if it is whole.
fn whole(path: &Path) -> Option<u32> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).ok()?;
    let format = schema::format(&conn).ok().filter(|format| (1..=schema::FORMAT).contains(format))?;
    matches!(open::damage(&conn), Ok(None)).then_some(format)
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A time in UTC as part of a file's name. SQLite has the only calendar here.
pub(super) fn stamp(at: Timestamp) -> rusqlite::Result<String> {
    let clock = Connection::open_in_memory()?;
    clock.query_row("SELECT strftime('%Y%m%d-%H%M%S', ?1, 'unixepoch')", [at.0 / 1000], |row| row.get(0))
}
