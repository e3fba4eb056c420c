//! The table's format: migrations that only append, and what is asked of a connection before it is used.

use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

/// Pages of 4 KiB after which the log is moved into the table: half a MiB, so that on a small disk the log alone does not
/// take what the table would need. (SQLite's own default is 1,000.)
const LOG_PAGES: u32 = 128;

/// The format that this abx writes.
pub(super) const FORMAT: u32 = MIGRATIONS.len() as u32;

/// Each brings a table of format `index` to `index + 1`, in one transaction. An entry that was released never
/// changes: tables out there were made by it.
pub(super) const MIGRATIONS: &[&str] = &[
    V1,
    V2,
    V3,
    V4,
    V5,
    V6,
    SNAPSHOT_CREATOR,
    SESSION_KEEP,
    IDLE_ACTION,
    ON_BOOT,
    MAIN_OVER,
    SANDBOX_ENGINE,
    EXCLUDED_MARK,
];

/// How long a connection waits for another process's lock before it answers `Busy`. Only a stray SQLite shell can
/// hold one, and such a statement is short.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Prepared statements kept per connection: more than this module has.
const STATEMENTS: usize = 64;

/// Size, in bytes, to which the write-ahead log is cut when it starts again. SQLite checkpoints at 4 MB, so a larger
/// log is the trace of one huge change.
const LOG_BYTES: u32 = 8 << 20;

const V1: &str = "
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sandbox TEXT NOT NULL UNIQUE,
    sandbox_id TEXT,
    engine TEXT NOT NULL,
    agent TEXT NOT NULL,
    template TEXT NOT NULL,
    image TEXT,
    image_id TEXT,
    status TEXT NOT NULL,
    operation TEXT,
    reason TEXT,
    created_at INTEGER NOT NULL,
    last_active INTEGER NOT NULL,
    last_connected INTEGER,
    expires_at INTEGER,
    timeout_ms INTEGER,
    idle_ms INTEGER,
    exec_count INTEGER NOT NULL,
    oom_events INTEGER NOT NULL,
    cpu_millis INTEGER,
    memory_bytes INTEGER,
    pids INTEGER,
    network TEXT NOT NULL,
    profile TEXT NOT NULL,
    run_as TEXT,
    external_origin TEXT,
    external_status TEXT,
    external_extra TEXT,
    revision INTEGER NOT NULL
) STRICT;
CREATE TABLE session_env (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_metadata (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_mounts (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    workspace INTEGER NOT NULL CHECK (workspace IN (0, 1)),
    position INTEGER NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    read_only INTEGER NOT NULL CHECK (read_only IN (0, 1)),
    PRIMARY KEY (session, workspace, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_ports (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    container INTEGER NOT NULL,
    host INTEGER,
    fixed INTEGER NOT NULL CHECK (fixed IN (0, 1)),
    protocol TEXT NOT NULL,
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE snapshots (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    session TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    session_name TEXT NOT NULL,
    image_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    note TEXT,
    parent TEXT,
    size_bytes INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_by_session ON snapshots (session);
CREATE TABLE snapshot_excluded (
    snapshot TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (snapshot, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Sandboxes from before have no abx-init.
const V2: &str = "ALTER TABLE sessions ADD COLUMN runtime TEXT NOT NULL DEFAULT 'engine';";

/// Commands. `argv` holds program and arguments with a zero byte between them, which none of them may have.
const V3: &str = "
CREATE TABLE execs (
    id TEXT NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    key TEXT,
    argv BLOB NOT NULL,
    terminal TEXT,
    tty INTEGER NOT NULL CHECK (tty IN (0, 1)),
    detached INTEGER NOT NULL CHECK (detached IN (0, 1)),
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    exit_code INTEGER,
    signal INTEGER,
    reason TEXT,
    UNIQUE (session, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX execs_by_session ON execs (session, started_at);
";

/// When a command's time runs out, and what was decided about it before it ended.
const V4: &str = "
ALTER TABLE execs ADD COLUMN deadline_at INTEGER;
ALTER TABLE execs ADD COLUMN verdict TEXT;
";

/// What happened. `data` is a JSON object.
const V5: &str = "
CREATE TABLE events (
    seq INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    session TEXT,
    name TEXT,
    revision INTEGER,
    client TEXT,
    pid INTEGER,
    data TEXT NOT NULL
) STRICT;
";

/// What a session's agent is doing, what told so, and the command that it is of.
const V6: &str = "
ALTER TABLE sessions ADD COLUMN attention TEXT;
ALTER TABLE sessions ADD COLUMN attention_source TEXT;
ALTER TABLE sessions ADD COLUMN attention_note TEXT;
ALTER TABLE sessions ADD COLUMN attention_exec TEXT;
ALTER TABLE sessions ADD COLUMN attention_at INTEGER;
";

/// Who asked for a snapshot, and what only it holds.
const SNAPSHOT_CREATOR: &str = "
ALTER TABLE snapshots ADD COLUMN creator TEXT;
ALTER TABLE snapshots ADD COLUMN creator_pid INTEGER;
ALTER TABLE snapshots ADD COLUMN own_bytes INTEGER;
";

/// How many snapshots stay when a session is saved.
const SESSION_KEEP: &str = "ALTER TABLE sessions ADD COLUMN keep INTEGER;";

/// What is done to a session that was idle for long enough.
const IDLE_ACTION: &str = "ALTER TABLE sessions ADD COLUMN idle_action TEXT NOT NULL DEFAULT 'stop';";

/// What becomes of a session after its engine went.
const ON_BOOT: &str = "ALTER TABLE sessions ADD COLUMN on_boot TEXT;";

/// Whether a program has ended on the agent's terminal in the sandbox's present life.
const MAIN_OVER: &str = "
ALTER TABLE sessions ADD COLUMN main_over INTEGER NOT NULL DEFAULT 0 CHECK (main_over IN (0, 1));
UPDATE sessions SET main_over = 1 WHERE attention_source = 'ended';
";

/// Which engine a session's sandbox is on.
const SANDBOX_ENGINE: &str = "ALTER TABLE sessions ADD COLUMN sandbox_engine TEXT;";

/// Which of its kind it was that a snapshot does not hold.
const EXCLUDED_MARK: &str = "ALTER TABLE snapshot_excluded ADD COLUMN mark TEXT;";

/// Sets what every connection needs, whether it reads or writes: `wait` is its patience with locks. Touches no file.
pub(super) fn configure(conn: &Connection, wait: Duration) -> rusqlite::Result<()> {
    conn.busy_timeout(wait)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "foreign_keys", true)?;
    // What a damaged or foreign file declares must not run.
    conn.pragma_update(None, "trusted_schema", false)
}

/// Sets what the writing connection needs: an acknowledged change survives the loss of power, and a deleted secret
/// does not stay in free pages. `wal` says which journal it has.
pub(super) fn configure_writer(conn: &Connection, wal: bool) -> rusqlite::Result<()> {
    // With a rollback journal, only EXTRA also syncs the directory after the journal is gone.
    conn.pragma_update(None, "synchronous", if wal { "FULL" } else { "EXTRA" })?;
    conn.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    if cfg!(target_os = "macos") {
        // There, a plain fsync leaves the data in the disk's own cache.
        conn.pragma_update(None, "fullfsync", true)?;
        conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    conn.pragma_update(None, "secure_delete", true)?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES)
}

/// Reads which format a table has; 0 is none yet.
pub(super) fn format(conn: &Connection) -> rusqlite::Result<u32> {
    let stored: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    // A negative number is no format that abx ever wrote: as unknown as one from the future.
    Ok(u32::try_from(stored).unwrap_or(u32::MAX))
}

/// Brings a table to the format that `migrations` ends in, each step in a transaction of its own.
///
/// # Errors
/// SQLite's; the table then has the format of the last step that was committed.
pub(super) fn migrate(conn: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    let first = usize::try_from(format(conn)?).unwrap_or(usize::MAX);
    for (format, step) in (1u32..).zip(migrations).skip(first) {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", format)?;
        tx.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["CREATE TABLE a (x INTEGER) STRICT", "ALTER TABLE a ADD COLUMN y TEXT"];

    #[test]
    fn only_the_missing_steps_run() {
        let mut conn = Connection::open_in_memory().expect("open");
        migrate(&mut conn, &TWO[..1]).expect("first");
        conn.execute("INSERT INTO a VALUES (1)", []).expect("insert");
        migrate(&mut conn, TWO).expect("second");
        migrate(&mut conn, TWO).expect("nothing left to do");
        assert_eq!(format(&conn).expect("format"), 2);
        let kept: i64 = conn.query_row("SELECT x FROM a WHERE y IS NULL", [], |r| r.get(0)).expect("row");
        assert_eq!(kept, 1);
    }

    #[test]
    fn a_failing_step_leaves_the_format_before_it_whole() {
        let mut conn = Connection::open_in_memory().expect("open");
        let steps = [TWO[0], "ALTER TABLE a ADD COLUMN y TEXT; CREATE TABLE a (x INTEGER)"];
        migrate(&mut conn, &steps).expect_err("the second step fails");
        assert_eq!(format(&conn).expect("format"), 1);
        conn.execute("SELECT y FROM a", []).expect_err("the column went with its transaction");
        migrate(&mut conn, TWO).expect("a mended step");
        assert_eq!(format(&conn).expect("format"), 2);
    }

    #[test]
    fn the_writer_syncs_every_commit() {
        let conn = Connection::open_in_memory().expect("open");
        let level = |conn: &Connection| -> i64 {
            conn.query_row("PRAGMA synchronous", [], |row| row.get(0)).expect("pragma")
        };
        configure_writer(&conn, true).expect("configure");
        assert_eq!(level(&conn), 2, "FULL");
        configure_writer(&conn, false).expect("configure");
        assert_eq!(level(&conn), 3, "EXTRA");
    }
}
