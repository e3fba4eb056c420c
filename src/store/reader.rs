//! Reads the whole table into a view, on a connection that cannot write.
//!
//! What a newer abx may have stored and this one does not know (a status, a profile) is read as the most careful value
//! there is, with a warning in the log: one such row must not hide the others.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, Error, Row};

use super::rows::state_word;
use super::view::{Draft, View};
use super::{events, execs};
use crate::model::attention::{Attention, Noted, Source};
use crate::model::event::By;
use crate::model::id::{ExecId, SessionId, SessionName, SnapshotId, Timestamp};
use crate::model::idle::IdleAction;
use crate::model::reconcile::OnBoot;
use crate::model::session::{
    EngineKind, Excluded, External, Limits, Mount, Network, Operation, Port, Profile, Reason, Runtime,
    Secret, Session, Snapshot, SnapshotState, Spec, Status,
};

/// Reads every row.
///
/// # Errors
/// SQLite's, also when a table or a column is missing.
pub(super) fn load(conn: &Connection) -> rusqlite::Result<Draft> {
    // One transaction, so that the rows of all tables are of one moment.
    let _moment = conn.unchecked_transaction()?;
    let mut view = View::default();
    load_sessions(conn, &mut view)?;
    load_snapshots(conn, &mut view)?;
    for exec in execs::load(conn)? {
        if view.session(&exec.session).is_some() {
            view.execs_mut().set(&exec.id.clone(), Some(Arc::new(exec)));
        }
    }
    *view.events_mut() = events::load(conn)?;
    let meta =
        each(conn, "SELECT key, value FROM meta", |c| Ok((c.text()?, c.text()?)))?.into_iter().collect();
    Ok(Draft::new(view, meta))
}

fn load_sessions(conn: &Connection, view: &mut View) -> rusqlite::Result<()> {
    let mut names = HashMap::new();
    let mut sessions = HashMap::new();
    for mut session in each(conn, SESSIONS, |c| read_session(c, &mut names))? {
        session.revision = session.revision.max(1);
        sessions.insert(session.id.as_str().to_owned(), session);
    }
    fill(conn, "SELECT session, name, value FROM session_env", &mut sessions, |s, c| {
        let (name, value) = (c.text()?, Secret::new(c.text()?));
        s.spec.env.insert(name, value);
        Ok(())
    })?;
    fill(conn, "SELECT session, name, value FROM session_metadata", &mut sessions, |s, c| {
        let (name, value) = (c.text()?, c.text()?);
        s.metadata.insert(name, value);
        Ok(())
    })?;
    fill(conn, MOUNTS, &mut sessions, |s, c| {
        let workspace = c.flag()?;
        let mount = Mount { source: c.text()?, target: c.text()?, read_only: c.flag()? };
        if workspace {
            s.spec.workspace = Some(mount);
        } else {
            s.spec.mounts.push(mount);
        }
        Ok(())
    })?;
    fill(conn, PORTS, &mut sessions, |s, c| {
        let (container, host) = (c.int()?, c.maybe_int()?);
        let (fixed, protocol) = (c.flag()?, c.text()?);
        match (u16::try_from(container), host.map(u16::try_from).transpose()) {
            (Ok(container), Ok(host)) => s.spec.ports.push(Port { container, host, fixed, protocol }),
            _ => tracing::warn!(session = %s.id, container, ?host, "left out a port that is none"),
        }
        Ok(())
    })?;
    for session in sessions.into_values() {
        view.set_session(&session.id.clone(), Some(Arc::new(session)));
    }
    Ok(())
}

fn load_snapshots(conn: &Connection, view: &mut View) -> rusqlite::Result<()> {
    let mut snapshots = HashMap::new();
    for mut snapshot in each(conn, SNAPSHOTS, read_snapshot)? {
        snapshot.session = snapshot.session.filter(|id| view.session(id).is_some());
        snapshots.insert(snapshot.id.as_str().to_owned(), snapshot);
    }
    fill(conn, EXCLUDED, &mut snapshots, |s, c| {
        s.excluded.push(Excluded { kind: c.text()?, target: c.text()?, mark: c.maybe_text()? });
        Ok(())
    })?;
    for snapshot in snapshots.into_values() {
        view.set_snapshot(&snapshot.id.clone(), Some(Arc::new(snapshot)));
    }
    for session in view.sessions() {
        let (snapshot, snapshots) = view.saved(&session.id);
        if snapshots > 0 {
            let id = session.id.clone();
            let row = Session { snapshot, snapshots, ..Arc::unwrap_or_clone(session) };
            view.set_session(&id, Some(Arc::new(row)));
        }
    }
    Ok(())
}

const SESSIONS: &str = "SELECT
    id, name, sandbox, sandbox_id, engine, agent, template, image, image_id, status, operation, reason, created_at,
    last_active, last_connected, expires_at, timeout_ms, idle_ms, exec_count, oom_events, cpu_millis, memory_bytes,
    pids, network, profile, run_as, external_origin, external_status, external_extra, revision, runtime, attention,
    attention_source, attention_note, attention_exec, attention_at, keep, idle_action,
    on_boot, main_over, sandbox_engine
FROM sessions ORDER BY created_at, id";

const MOUNTS: &str =
    "SELECT session, workspace, source, target, read_only FROM session_mounts ORDER BY session, position";

const PORTS: &str =
    "SELECT session, container, host, fixed, protocol FROM session_ports ORDER BY session, position";

const SNAPSHOTS: &str = "SELECT
    id, name, session, session_name, image_id, created_at, note, parent, size_bytes, state, creator, creator_pid,
    own_bytes
FROM snapshots";

const EXCLUDED: &str =
    "SELECT snapshot, kind, target, mark FROM snapshot_excluded ORDER BY snapshot, position";

/// The fields stand in the order of [`SESSIONS`]. `names` are those given out so far.
fn read_session(c: &mut Cells<'_>, names: &mut HashMap<String, SessionId>) -> rusqlite::Result<Session> {
    let id = SessionId::new(c.text()?);
    Ok(Session {
        name: stored_name(&c.text()?, &id, names),
        sandbox: c.text()?,
        sandbox_id: c.maybe_text()?,
        engine: known(&id, "engine", &c.text()?, EngineKind::from_word, EngineKind::External),
        agent: c.text()?,
        template: c.text()?,
        image: c.maybe_text()?,
        image_id: c.maybe_text()?,
        status: known(&id, "status", &c.text()?, Status::from_word, Status::Unknown),
        operation: c
            .maybe_text()?
            .and_then(|w| known(&id, "operation", &w, |w| Operation::from_word(w).map(Some), None)),
        reason: c
            .maybe_text()?
            .and_then(|w| known(&id, "reason", &w, |w| Reason::from_word(w).map(Some), None)),
        created_at: Timestamp(c.int()?),
        last_active: Timestamp(c.int()?),
        last_connected: c.maybe_int()?.map(Timestamp),
        expires_at: c.maybe_int()?.map(Timestamp),
        timeout_ms: c.maybe_count()?,
        idle_ms: c.maybe_count()?,
        exec_count: c.count()?,
        oom_events: c.count()?,
        snapshot: None,
        snapshots: 0,
        spec: Spec {
            limits: Limits {
                cpu_millis: c.maybe_count()?,
                memory_bytes: c.maybe_count()?,
                pids: c.maybe_count()?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            },
            network: known(&id, "network", &c.text()?, Network::from_word, Network::None),
            profile: known(&id, "profile", &c.text()?, Profile::from_word, Profile::Restrictive),
            user: c.maybe_text()?,
            ..Spec::default()
        },
        metadata: Default::default(),
        external: read_external(c)?,
        revision: c.count()?,
        // Commands run through the engine in any sandbox.
        runtime: known(&id, "runtime", &c.text()?, Runtime::from_word, Runtime::Engine),
        attention: read_attention(c, &id)?,
        keep: c.maybe_count()?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        idle_action: known(&id, "idle_action", &c.text()?, IdleAction::from_word, IdleAction::Stop),
        on_boot: c
            .maybe_text()?
            .and_then(|w| known(&id, "on_boot", &w, |w| OnBoot::from_word(w).map(Some), None)),
        main_over: c.int()? != 0,
        sandbox_engine: c.maybe_text()?,
        id,
    })
}

/// None where a newer abx wrote what this one does not know: it is heard of again.
fn read_attention(c: &mut Cells<'_>, id: &SessionId) -> rusqlite::Result<Option<Noted>> {
    let (state, source) = (c.maybe_text()?, c.maybe_text()?);
    let (note, exec, at) = (c.maybe_text()?, c.maybe_text()?.map(ExecId::new), c.maybe_int()?);
    let state = state.and_then(|w| known(id, "attention", &w, |w| Attention::from_word(w).map(Some), None));
    let source =
        source.and_then(|w| known(id, "attention_source", &w, |w| Source::from_word(w).map(Some), None));
    let noted = state.zip(source).zip(at);
    Ok(noted.map(|((state, source), at)| Noted { state, source, note, exec, at: Timestamp(at) }))
}

fn read_external(c: &mut Cells<'_>) -> rusqlite::Result<Option<External>> {
    let (origin, status, extra) = (c.maybe_text()?, c.maybe_text()?, c.maybe_text()?);
    Ok(origin.map(|origin| External { origin, status, extra: Secret::new(extra.unwrap_or_default()) }))
}

/// The fields stand in the order of [`SNAPSHOTS`].
fn read_snapshot(c: &mut Cells<'_>) -> rusqlite::Result<Snapshot> {
    let id = SnapshotId::new(c.text()?);
    Ok(Snapshot {
        name: c.text()?,
        session: c.maybe_text()?.map(SessionId::new),
        session_name: c.text()?,
        image_id: c.text()?,
        created_at: Timestamp(c.int()?),
        note: c.maybe_text()?,
        parent: c.maybe_text()?,
        size_bytes: c.count()?,
        excluded: Vec::new(),
        // Of all states this one has nobody remove the image.
        state: known(&id, "state", &c.text()?, state_of, SnapshotState::Ready),
        creator: read_creator(c)?,
        own_bytes: c.maybe_count()?,
        id,
    })
}

fn read_creator(c: &mut Cells<'_>) -> rusqlite::Result<Option<By>> {
    let (client, pid) = (c.maybe_text()?, c.maybe_int()?);
    Ok(client.map(|client| By { client, pid: pid.and_then(|pid| u32::try_from(pid).ok()) }))
}

fn state_of(word: &str) -> Option<SnapshotState> {
    [SnapshotState::Creating, SnapshotState::Ready, SnapshotState::Deleting]
        .into_iter()
        .find(|state| state_word(*state) == word)
}

/// The value of a stored word, or `careful` where this abx does not know the word.
fn known<T>(id: &impl Display, field: &str, word: &str, parse: impl Fn(&str) -> Option<T>, careful: T) -> T {
    parse(word).unwrap_or_else(|| {
        tracing::warn!(row = %id, field, word, "read a word that this abx does not know");
        careful
    })
}

/// The name of a row. One that breaks today's rules, or that today's Unicode finds equal to another, is shown by the
/// row's id instead; the table keeps it.
fn stored_name(text: &str, id: &SessionId, names: &mut HashMap<String, SessionId>) -> SessionName {
    let name = [text.to_owned(), id.to_string()]
        .into_iter()
        .chain((0..).map(|n: u32| format!("row-{n}")))
        .filter_map(|name| SessionName::parse(&name).ok())
        .find(|name| !names.contains_key(name.as_str()))
        .expect("there are more numbers than rows");
    if name.as_str() != text {
        tracing::warn!(row = %id, shown = %name, "read a name that breaks the rules");
    }
    names.insert(name.as_str().to_owned(), id.clone());
    name
}

/// Runs a query and reads each row from its first column on.
fn each<T>(
    conn: &Connection,
    sql: &str,
    mut read: impl FnMut(&mut Cells<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare(sql)?.query_map([], |row| read(&mut Cells { row, next: 0 }))?.collect()
}

/// Runs a query whose first column names an owner, and adds each row to it. A row without an owner is left out.
fn fill<T>(
    conn: &Connection,
    sql: &str,
    owners: &mut HashMap<String, T>,
    mut add: impl FnMut(&mut T, &mut Cells<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut query = conn.prepare(sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let mut cells = Cells { row, next: 0 };
        if let Some(owner) = owners.get_mut(&cells.text()?) {
            add(owner, &mut cells)?;
        }
    }
    Ok(())
}

/// A row, read column by column.
struct Cells<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl Cells<'_> {
    fn maybe_text(&mut self) -> rusqlite::Result<Option<String>> {
        let at = self.advance();
        match self.row.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
            other => Err(Error::InvalidColumnType(at, "text".to_owned(), other.data_type())),
        }
    }

    fn text(&mut self) -> rusqlite::Result<String> {
        let at = self.next;
        self.maybe_text()?.ok_or_else(|| Error::InvalidColumnType(at, "text".to_owned(), Type::Null))
    }

    fn maybe_int(&mut self) -> rusqlite::Result<Option<i64>> {
        let at = self.advance();
        self.row.get(at)
    }

    fn int(&mut self) -> rusqlite::Result<i64> {
        let at = self.advance();
        self.row.get(at)
    }

    fn flag(&mut self) -> rusqlite::Result<bool> {
        Ok(self.int()? != 0)
    }

    fn count(&mut self) -> rusqlite::Result<u64> {
        Ok(self.int()?.max(0).unsigned_abs())
    }

    fn maybe_count(&mut self) -> rusqlite::Result<Option<u64>> {
        Ok(self.maybe_int()?.map(|n| n.max(0).unsigned_abs()))
    }

    fn advance(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}
