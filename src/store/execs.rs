//! Commands: their rows in the table, and the index in memory by id, by session and by their callers' keys.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::model::exec::{End, Exec, Verdict};
use crate::model::id::{ExecId, SessionId, Timestamp};

/// Commands that are remembered of one session after they have ended. The oldest are forgotten first; those that run
/// never are.
pub(super) const KEPT_PER_SESSION: usize = 200;

const PUT: &str = "INSERT INTO execs (
    id, session, key, argv, terminal, tty, detached, started_at, ended_at, exit_code, signal, reason, deadline_at,
    verdict
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (id) DO UPDATE SET
    detached = excluded.detached, verdict = excluded.verdict, ended_at = excluded.ended_at, exit_code = excluded.exit_code,
    signal = excluded.signal, reason = excluded.reason";

/// The columns in the order in which [`read`] takes them.
pub(super) const EXECS: &str = "SELECT
    id, session, key, argv, terminal, tty, detached, started_at, ended_at, exit_code, signal, reason, deadline_at,
    verdict
FROM execs";

/// Writes a command in place of the one of its id, if there is one; of that, what never changes stays.
pub(super) fn put(conn: &Connection, exec: &Exec) -> rusqlite::Result<()> {
    let ended = exec.ended.as_ref();
    conn.prepare_cached(PUT)?
        .execute(params![
            exec.id.as_str(),
            exec.session.as_str(),
            exec.key,
            exec.argv.join("\0").into_bytes(),
            exec.terminal,
            exec.tty,
            exec.detached,
            exec.started_at.0,
            ended.map(|end| end.at.0),
            ended.map(|end| end.code),
            ended.and_then(|end| end.signal),
            ended.and_then(|end| end.reason.as_deref()),
            exec.deadline.map(|at| at.0),
            exec.verdict.map(Verdict::as_str),
        ])
        .map(drop)
}

/// Removes a command.
pub(super) fn delete(conn: &Connection, id: &ExecId) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM execs WHERE id = ?1")?.execute([id.as_str()]).map(drop)
}

/// Reads every command.
pub(super) fn load(conn: &Connection) -> rusqlite::Result<Vec<Exec>> {
    conn.prepare(EXECS)?.query_map([], read)?.collect()
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Exec> {
    let argv: Vec<u8> = row.get(3)?;
    let (at, code): (Option<i64>, Option<i32>) = (row.get(8)?, row.get(9)?);
    let signal = row.get::<_, Option<i64>>(10)?.and_then(|signal| u8::try_from(signal).ok());
    let reason = row.get(11)?;
    let verdict: Option<String> = row.get(13)?;
    Ok(Exec {
        id: ExecId::new(row.get::<_, String>(0)?),
        session: SessionId::new(row.get::<_, String>(1)?),
        key: row.get(2)?,
        argv: String::from_utf8_lossy(&argv).split('\0').map(str::to_owned).collect(),
        terminal: row.get(4)?,
        tty: row.get(5)?,
        detached: row.get(6)?,
        started_at: Timestamp(row.get(7)?),
        deadline: row.get::<_, Option<i64>>(12)?.map(Timestamp),
        verdict: verdict.as_deref().and_then(Verdict::from_word),
        ended: at.map(|at| End { at: Timestamp(at), code: code.unwrap_or_default(), signal, reason }),
    })
}

/// The commands in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Execs {
    rows: HashMap<ExecId, Arc<Exec>>,
    sessions: HashMap<SessionId, Of>,
}

/// What one session has of them.
#[derive(Debug, Clone, Default)]
struct Of {
    order: BTreeSet<(Timestamp, ExecId)>,
    keys: HashMap<String, ExecId>,
}

impl Execs {
    /// Finds a command by id.
    pub(super) fn get(&self, id: &ExecId) -> Option<&Arc<Exec>> {
        self.rows.get(id)
    }

    /// Finds the command that a caller named by this key.
    pub(super) fn keyed(&self, session: &SessionId, key: &str) -> Option<&Arc<Exec>> {
        self.get(self.sessions.get(session)?.keys.get(key)?)
    }

    /// The commands of a session, oldest first.
    pub(super) fn of(&self, session: &SessionId) -> impl DoubleEndedIterator<Item = &Arc<Exec>> {
        self.sessions
            .get(session)
            .into_iter()
            .flat_map(|of| of.order.iter())
            .filter_map(|(_, id)| self.rows.get(id))
    }

    /// Those of a session that are to be forgotten.
    pub(super) fn beyond(&self, session: &SessionId) -> Vec<ExecId> {
        let ended = self.of(session).rev().filter(|exec| exec.ended.is_some());
        ended.skip(KEPT_PER_SESSION).map(|exec| exec.id.clone()).collect()
    }

    /// Puts a command's row in place, or takes it away, and returns the one before.
    pub(super) fn set(&mut self, id: &ExecId, row: Option<Arc<Exec>>) -> Option<Arc<Exec>> {
        let old = self.rows.remove(id);
        if let Some(old) = &old {
            self.leave(old);
        }
        if let Some(row) = row {
            let of = self.sessions.entry(row.session.clone()).or_default();
            of.order.insert((row.started_at, id.clone()));
            if let Some(key) = &row.key {
                of.keys.insert(key.clone(), id.clone());
            }
            self.rows.insert(id.clone(), row);
        }
        old
    }

    fn leave(&mut self, old: &Exec) {
        let Some(of) = self.sessions.get_mut(&old.session) else { return };
        of.order.remove(&(old.started_at, old.id.clone()));
        if let Some(key) = old.key.as_ref().filter(|key| of.keys.get(*key) == Some(&old.id)) {
            of.keys.remove(key);
        }
        if of.order.is_empty() {
            self.sessions.remove(&old.session);
        }
    }
}
