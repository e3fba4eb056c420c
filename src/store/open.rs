//! Opens the table: refuses what it must not touch, sets aside what is damaged, makes what is missing.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::Options;
use super::error::{StoreError, explain, explain_io};
use super::files::{self, Found, beside};
use super::reader;
use super::schema::{self, FORMAT, MIGRATIONS};
use super::view::Draft;

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
    let kept = files::set_aside(&path, &now(&path)?)?;
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
        Found::Nothing => create(path, options)?,
        Found::Database { format, .. } if format > FORMAT => return Err(newer(path, format).into()),
        Found::Database { interrupted: true, .. } => {
            examine(path, &connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?)?;
        }
        Found::Database { .. } => examine(path, &connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?)?,
    }
    files::make_private(path).map_err(|error| explain_io(path, &error))?;
    let sqlite = |error: rusqlite::Error| judge(path, &error);
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    // A file that turns out to be damaged is set aside with its log, as it was found.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    let wal = choose_journal(&conn).map_err(sqlite)?;
    schema::configure_writer(&conn, wal).map_err(sqlite)?;
    schema::migrate(&mut conn, MIGRATIONS).map_err(sqlite)?;
    let draft = reader::load(&connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?).map_err(sqlite)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sqlite)?;
    let notices = if wal { Vec::new() } else { vec![NO_WAL.to_owned()] };
    Ok(Ready { conn, path: path.to_owned(), draft, set_aside: None, notices })
}

const NO_WAL: &str = "the file system of the session table has no shared memory: the table uses a rollback journal, \
                      which is as safe but slower";

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

/// Makes a new table under another name and then gives it its own, so that a database at `path` always has a format: an
/// empty file there is one that lost its contents.
fn create(path: &Path, options: &Options) -> Result<(), Trouble> {
    let system = |error: std::io::Error| explain_io(path, &error);
    let new = beside(path, ".new");
    files::create_private(&new).map_err(system)?;
    let mut conn = connect(&new, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    let made = schema::migrate(&mut conn, MIGRATIONS).and_then(|()| conn.close().map_err(|(_, error)| error));
    made.map_err(|error| explain(path, &error))?;
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
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if verdict != "ok" {
        return Err(Trouble::Damaged(verdict));
    }
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sqlite)?;
    if found == 0 && tables > 0 {
        return Err(Trouble::Damaged("it is another program's database".to_owned()));
    }
    Ok(())
}

/// Takes the write-ahead log, and says whether it could be had.
///
/// A file system without shared memory says no to the pragma, or fails at the first read after it.
fn choose_journal(conn: &Connection) -> rusqlite::Result<bool> {
    let ask = |mode: &str| {
        conn.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get::<_, String>(0))
    };
    let works = ask("WAL").and_then(|mode| {
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(mode.eq_ignore_ascii_case("wal"))
    });
    match works {
        Ok(true) => return Ok(true),
        Ok(false) => {}
        Err(error) if lacks_shared_memory(&error) => {}
        Err(error) => return Err(error),
    }
    ask("DELETE")?;
    Ok(false)
}

fn lacks_shared_memory(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|cause| {
        matches!(
            cause.extended_code,
            ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMMAP | ffi::SQLITE_IOERR_SHMLOCK
        )
    })
}

fn newer(path: &Path, found: u32) -> StoreError {
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

/// The present time in UTC as part of a file's name. SQLite has the only calendar here.
fn now(path: &Path) -> Result<String, StoreError> {
    let clock = Connection::open_in_memory();
    clock
        .and_then(|conn| conn.query_row("SELECT strftime('%Y%m%dT%H%M%SZ', 'now')", [], |row| row.get(0)))
        .map_err(|error| explain(path, &error))
}
