//! Opens the table: refuses what it must not touch, sets aside what is damaged, makes what is missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::Options;
use super::error::{StoreError, explain, explain_io};
use super::files::{self, Found, beside};
use super::schema::{self, FORMAT, MIGRATIONS};
use super::view::Draft;
use super::{backup, reader, rows};

/// A table that is ready for its writer.
pub(super) struct Ready {
    /// The only connection that writes.
    pub(super) conn: Connection,
    /// The file, without links.
    pub(super) path: PathBuf,
    /// What it holds.
    pub(super) draft: Draft,
    /// Where a damaged file is now.
    pub(super) set_aside: Option<PathBuf>,
    /// What the user should know, one sentence each.
    pub(super) notices: Vec<String>,
}

/// Opens the table at `path`, or begins a new one.
///
/// # Errors
/// `Newer` with the file untouched; `Busy`, `Full` or `Io`, none of which is damage.
pub(super) fn open(path: &Path, options: &Options) -> Result<Ready, StoreError> {
    let path = files::resolve(path)?;
    let damage = match attempt(&path, options) {
        Ok(ready) => return Ok(ready),
        Err(Trouble::Store(error)) => return Err(error),
        Err(Trouble::Damaged(what)) => what,
    };
    let time = now("%Y%m%dT%H%M%SZ").map_err(|error| explain(&path, &error))?;
    let kept = files::set_aside(&path, &time)?;
    tracing::error!(?path, ?kept, damage, "set a damaged table aside");
    match attempt(&path, options) {
        Ok(ready) => Ok(Ready { set_aside: Some(kept), ..ready }),
        Err(Trouble::Store(error)) => Err(error),
        Err(Trouble::Damaged(text)) => Err(StoreError::Io { path, text }),
    }
}

/// Why an attempt to open ended.
enum Trouble {
    /// The file cannot be trusted, for this reason.
    Damaged(String),
    /// The file may be good.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn attempt(path: &Path, options: &Options) -> Result<Ready, Trouble> {
    match files::look(path)? {
        Found::Damaged(what) => return Err(Trouble::Damaged(what.to_owned())),
        Found::Nothing => begin(path, options)?,
        Found::Database { format, .. } if format > FORMAT => return Err(newer(path, format).into()),
        Found::Database { interrupted, .. } => examine(path, &look_in(path, interrupted, options)?)?,
    }
    files::make_private(path).map_err(|error| explain_io(path, &error))?;
    let sqlite = |error: rusqlite::Error| judge(path, &error);
    let (mut conn, wal) = open_writer(path, options)?;
    schema::configure_writer(&conn, wal).map_err(sqlite)?;
    let mut notices = Vec::new();
    if !wal {
        notices.push(NO_WAL.to_owned());
    }
    if let Err(error) = copy_before_migration(&conn, path, options) {
        tracing::warn!(%error, "there is no copy of the table from before its migration");
        notices.push(format!(
            "the session table has a newer format now, and none of the old one is kept: {error}"
        ));
    }
    schema::migrate(&mut conn, MIGRATIONS).map_err(sqlite)?;
    let draft = reader::load(&connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?).map_err(sqlite)?;
    keep_log(&conn, false).map_err(sqlite)?;
    Ok(Ready { conn, path: path.to_owned(), draft, set_aside: None, notices })
}

const NO_WAL: &str = "the file system of the session table has no shared memory: the table uses a rollback journal, \
                      which is as safe but slower; a home on a local disk (ABX_HOME) has none of this";

/// Opens a connection. `flags` says whether it may write; none makes a file.
fn connect(path: &Path, flags: OpenFlags, options: &Options) -> Result<Connection, Trouble> {
    // A connection stays with one thread at a time, and a path is never taken for a URI.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = match options.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    }
    .map_err(|error| judge(path, &error))?;
    schema::configure(&conn, options.wait).map_err(|error| judge(path, &error))?;
    Ok(conn)
}

/// Opens a connection that reads beside the writer.
///
/// # Errors
/// `Busy` or `Io`.
pub(super) fn connect_to_read(path: &Path, options: &Options) -> Result<Connection, StoreError> {
    match connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options) {
        Ok(conn) => Ok(conn),
        Err(Trouble::Store(error)) => Err(error),
        Err(Trouble::Damaged(text)) => Err(StoreError::Io { path: path.to_owned(), text }),
    }
}

fn copy_before_migration(conn: &Connection, path: &Path, options: &Options) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| explain(path, &error);
    let found = schema::format(conn).map_err(sqlite)?;
    match &options.backups {
        Some(dir) if (1..FORMAT).contains(&found) => {
            backup::take(conn, dir, &now("%Y%m%d-%H%M%S").map_err(sqlite)?).map(drop)
        }
        _ => Ok(()),
    }
}

/// Makes a table where there is none: from the newest copy that is whole, else a new one.
fn begin(path: &Path, options: &Options) -> Result<(), Trouble> {
    let copies = options.backups.as_deref().map(backup::newest_first).unwrap_or_default();
    for copy in copies {
        match create(path, options, Some(&copy.path)) {
            Ok(()) => {
                tracing::warn!(copy = ?copy.path, "a copy of the table took its place");
                return Ok(());
            }
            Err(Trouble::Store(error @ StoreError::Full { .. })) => return Err(error.into()),
            Err(Trouble::Store(error)) => {
                tracing::warn!(%error, copy = ?copy.path, "passed over a copy of the table")
            }
            Err(Trouble::Damaged(what)) => {
                tracing::warn!(what, copy = ?copy.path, "passed over a copy of the table")
            }
        }
    }
    create(path, options, None)
}

/// Makes a table under another name, from a copy or anew, and then gives it its own, so that a database at `path` always
/// has a format: an empty file there is one that lost its contents.
fn create(path: &Path, options: &Options, copy: Option<&Path>) -> Result<(), Trouble> {
    let system = |error: std::io::Error| explain_io(path, &error);
    let new = beside(path, ".new");
    files::create_private(&new).map_err(system)?;
    if let Some(copy) = copy {
        fs::copy(copy, &new).map_err(system)?;
        files::make_private(&new).map_err(system)?;
    }
    let mut conn = connect(&new, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    if copy.is_some() {
        examine(path, &conn)?;
    }
    // Until it has its name, nobody minds if it is lost: one sync at the end is enough.
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        .and_then(|()| schema::migrate(&mut conn, MIGRATIONS))
        .map_err(|error| judge(path, &error))?;
    if let Some(name) = copy.and_then(Path::file_name) {
        rows::set_meta(&conn, backup::RESTORED_KEY, &name.to_string_lossy())
            // What cannot be read is found out here, while there may be another copy.
            .and_then(|()| reader::load(&conn))
            .map_err(|error| judge(path, &error))?;
    }
    conn.close().map_err(|(_, error)| explain(path, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(system)?;
    fs::rename(&new, path).map_err(system)?;
    Ok(files::sync_directory(path).map_err(system)?)
}

/// Finds out whether a database is one of ours, whole, and not from the future.
fn examine(path: &Path, conn: &Connection) -> Result<(), Trouble> {
    let sqlite = |error: rusqlite::Error| judge(path, &error);
    // The log may hold a later format than the first page of the file.
    let found = schema::format(conn).map_err(sqlite)?;
    if found > FORMAT {
        return Err(newer(path, found).into());
    }
    if let Some(what) = damage(conn).map_err(sqlite)? {
        return Err(Trouble::Damaged(what));
    }
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sqlite)?;
    if found == 0 && tables > 0 {
        return Err(Trouble::Damaged("it is another program's database".to_owned()));
    }
    Ok(())
}

/// What is wrong in a database, if anything is: in its pages or its indexes. A log of another table, which SQLite takes for
/// the database's own, may leave each page whole and show in the indexes alone.
pub(super) fn damage(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let verdict: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}

/// Opens a connection to look at a database with, which changes nothing in it: one that only reads, where that will do.
fn look_in(path: &Path, interrupted: bool, options: &Options) -> Result<Connection, Trouble> {
    if !interrupted {
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?;
        match first_read(&conn) {
            Err(error) if lacks_shared_memory(&error) => {}
            // Whatever else is wrong shows again, and is judged there.
            _ => return Ok(conn),
        }
    }
    connect_alone(path, options)
}

/// Opens the writing connection with the best journal there is, and says whether that is the write-ahead log.
///
/// A file system without shared memory says no to it, or fails at the first read after it.
fn open_writer(path: &Path, options: &Options) -> Result<(Connection, bool), Trouble> {
    let sqlite = |error: rusqlite::Error| judge(path, &error);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    keep_log(&conn, true).map_err(sqlite)?;
    match journal(&conn, "WAL").and_then(|mode| first_read(&conn).map(|()| mode)) {
        Ok(mode) => return Ok((conn, mode.eq_ignore_ascii_case("wal"))),
        Err(error) if lacks_shared_memory(&error) => drop(conn),
        Err(error) => return Err(sqlite(error)),
    }
    let conn = connect_alone(path, options)?;
    journal(&conn, "DELETE").map_err(sqlite)?;
    conn.pragma_update(None, "locking_mode", "NORMAL").map_err(sqlite)?;
    // The lock goes with the next read.
    first_read(&conn).map_err(sqlite)?;
    Ok((conn, false))
}

/// Opens a connection that may write and keeps the whole database to itself: it needs no shared memory to read a
/// write-ahead log.
fn connect_alone(path: &Path, options: &Options) -> Result<Connection, Trouble> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    keep_log(&conn, true)
        .and_then(|()| conn.pragma_update(None, "locking_mode", "EXCLUSIVE"))
        .map_err(|error| judge(path, &error))?;
    Ok(conn)
}

/// Says whether closing a connection leaves the log as it is. A file that turns out to be damaged, or newer, is then
/// kept as it was found.
fn keep_log(conn: &Connection, keep: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

fn journal(conn: &Connection, mode: &str) -> rusqlite::Result<String> {
    conn.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))
}

fn first_read(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Whether the log's index cannot be mapped. SQLite's own word for it, where its way to the file system has no shared
/// memory at all, is that it cannot open the file.
fn lacks_shared_memory(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|cause| {
        matches!(
            cause.extended_code,
            ffi::SQLITE_CANTOPEN
                | ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMMAP
                | ffi::SQLITE_IOERR_SHMLOCK
        )
    })
}

pub(super) fn newer(path: &Path, found: u32) -> StoreError {
    StoreError::Newer { path: path.to_owned(), found, known: FORMAT }
}

/// Tells damage from what may pass: a lock, a full disk, missing rights.
fn judge(path: &Path, error: &rusqlite::Error) -> Trouble {
    let damaged = match error.sqlite_error() {
        // `Unknown` is SQLite's plain error: of our fixed statements, a missing table or column.
        Some(cause) => matches!(
            cause.code,
            ErrorCode::NotADatabase
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::Unknown
                | ErrorCode::ConstraintViolation
        ),
        // A column of another type.
        None => true,
    };
    if damaged { Trouble::Damaged(error.to_string()) } else { Trouble::Store(explain(path, error)) }
}

/// The present time in UTC, as part of a file's name. SQLite has the only calendar here.
fn now(form: &str) -> rusqlite::Result<String> {
    Connection::open_in_memory()?.query_row("SELECT strftime(?1, 'now')", [form], |row| row.get(0))
}
