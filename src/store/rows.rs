//! A row's way into the table: which statement writes which fields.

use rusqlite::{Connection, params};

use crate::model::id::{ExecId, SessionId, SessionName, SnapshotId};
use crate::model::session::{Mount, Session, Snapshot, SnapshotState};

const INSERT_SESSION: &str = "INSERT INTO sessions (
    id, name, sandbox, status, operation, reason, last_active, last_connected, expires_at, exec_count, oom_events,
    revision, sandbox_id, engine, agent, template, image, image_id, created_at, timeout_ms, idle_ms, cpu_millis,
    memory_bytes, pids, network, profile, run_as, external_origin, external_status, external_extra, runtime,
    keep, idle_action, on_boot
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
    ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)";

const UPDATE_STATE: &str = "UPDATE sessions SET
    status = ?2, operation = ?3, reason = ?4, last_active = ?5, last_connected = ?6, expires_at = ?7, exec_count = ?8,
    oom_events = ?9, revision = ?10
WHERE id = ?1";

const UPDATE_ATTENTION: &str = "UPDATE sessions SET
    attention = ?2, attention_source = ?3, attention_note = ?4, attention_exec = ?5, attention_at = ?6, main_over = ?7
WHERE id = ?1";

const UPDATE_SANDBOX_ENGINE: &str = "UPDATE sessions SET sandbox_engine = ?2 WHERE id = ?1";

const UPDATE_NAMES: &str = "UPDATE sessions SET name = ?2, sandbox = ?3 WHERE id = ?1";

const UPDATE_MAKE: &str = "UPDATE sessions SET
    sandbox_id = ?2, engine = ?3, agent = ?4, template = ?5, image = ?6, image_id = ?7, created_at = ?8,
    timeout_ms = ?9, idle_ms = ?10, cpu_millis = ?11, memory_bytes = ?12, pids = ?13, network = ?14, profile = ?15,
    run_as = ?16, external_origin = ?17, external_status = ?18, external_extra = ?19, runtime = ?20, keep = ?21,
    idle_action = ?22, on_boot = ?23
WHERE id = ?1";

const PUT_SNAPSHOT: &str = "INSERT INTO snapshots (
    id, name, session, session_name, image_id, created_at, note, parent, size_bytes, state, creator, creator_pid,
    own_bytes
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, session = excluded.session, session_name = excluded.session_name,
    image_id = excluded.image_id, created_at = excluded.created_at, note = excluded.note, parent = excluded.parent,
    size_bytes = excluded.size_bytes, state = excluded.state, creator = excluded.creator,
    creator_pid = excluded.creator_pid, own_bytes = excluded.own_bytes";

/// Writes a new session with everything that hangs on it.
pub(super) fn insert_session(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let (spec, external) = (&s.spec, s.external.as_ref());
    conn.prepare_cached(INSERT_SESSION)?.execute(params![
        s.id.as_str(),
        s.name.as_str(),
        s.sandbox,
        s.status.as_str(),
        s.operation.map(|o| o.as_str()),
        s.reason.map(|r| r.as_str()),
        s.last_active.0,
        s.last_connected.map(|t| t.0),
        s.expires_at.map(|t| t.0),
        int(s.exec_count),
        int(s.oom_events),
        int(s.revision),
        s.sandbox_id,
        s.engine.as_str(),
        s.agent,
        s.template,
        s.image,
        s.image_id,
        s.created_at.0,
        s.timeout_ms.map(int),
        s.idle_ms.map(int),
        spec.limits.cpu_millis.map(int),
        spec.limits.memory_bytes.map(int),
        spec.limits.pids,
        spec.network.as_str(),
        spec.profile.as_str(),
        spec.user,
        external.map(|e| e.origin.as_str()),
        external.and_then(|e| e.status.as_deref()),
        external.map(|e| e.extra.reveal()),
        s.runtime.as_str(),
        s.keep,
        s.idle_action.as_str(),
        s.on_boot.map(|word| word.as_str()),
    ])?;
    update_attention(conn, s)?;
    update_sandbox_engine(conn, s)?;
    insert_env(conn, s)?;
    insert_metadata(conn, s)?;
    insert_mounts(conn, s)?;
    insert_ports(conn, s)
}

/// Writes what differs between two rows of one session.
///
/// Names and the ways the sandbox is made are written only where they changed: most changes then touch no index, and an
/// engine, network or profile that a newer abx wrote and this one does not know stays as it is.
pub(super) fn update_session(conn: &Connection, old: &Session, new: &Session) -> rusqlite::Result<()> {
    update_state(conn, new)?;
    if (&old.attention, old.main_over) != (&new.attention, new.main_over) {
        update_attention(conn, new)?;
    }
    if old.sandbox_engine != new.sandbox_engine {
        update_sandbox_engine(conn, new)?;
    }
    if old.name != new.name || old.sandbox != new.sandbox {
        conn.prepare_cached(UPDATE_NAMES)?.execute(params![
            new.id.as_str(),
            new.name.as_str(),
            new.sandbox
        ])?;
    }
    if !same_make(old, new) {
        update_make(conn, new)?;
    }
    if old.spec.env != new.spec.env {
        clear(conn, "DELETE FROM session_env WHERE session = ?1", &new.id)?;
        insert_env(conn, new)?;
    }
    if old.metadata != new.metadata {
        clear(conn, "DELETE FROM session_metadata WHERE session = ?1", &new.id)?;
        insert_metadata(conn, new)?;
    }
    if old.spec.workspace != new.spec.workspace || old.spec.mounts != new.spec.mounts {
        clear(conn, "DELETE FROM session_mounts WHERE session = ?1", &new.id)?;
        insert_mounts(conn, new)?;
    }
    if old.spec.ports != new.spec.ports {
        clear(conn, "DELETE FROM session_ports WHERE session = ?1", &new.id)?;
        insert_ports(conn, new)?;
    }
    Ok(())
}

/// Writes only that a session changed, for fields that follow from its snapshots.
pub(super) fn update_revision(conn: &Connection, session: &Session) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE sessions SET revision = ?2 WHERE id = ?1")?
        .execute(params![session.id.as_str(), int(session.revision)])
        .map(drop)
}

/// Removes a session; what hangs on it goes along, and all that its snapshots still say of it is the name that it had last.
pub(super) fn delete_session(conn: &Connection, id: &SessionId, name: &SessionName) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE snapshots SET session_name = ?2 WHERE session = ?1")?
        .execute([id.as_str(), name.as_str()])?;
    clear(conn, "DELETE FROM sessions WHERE id = ?1", id)
}

/// Writes a snapshot in place of the one of its id, if there is one.
pub(super) fn put_snapshot(conn: &Connection, s: &Snapshot) -> rusqlite::Result<()> {
    conn.prepare_cached(PUT_SNAPSHOT)?.execute(params![
        s.id.as_str(),
        s.name,
        s.session.as_ref().map(SessionId::as_str),
        s.session_name,
        s.image_id,
        s.created_at.0,
        s.note,
        s.parent,
        int(s.size_bytes),
        state_word(s.state),
        s.creator.as_ref().map(|by| by.client.as_str()),
        s.creator.as_ref().and_then(|by| by.pid),
        s.own_bytes.map(int),
    ])?;
    conn.prepare_cached("DELETE FROM snapshot_excluded WHERE snapshot = ?1")?.execute([s.id.as_str()])?;
    let mut insert = conn.prepare_cached("INSERT INTO snapshot_excluded VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (position, excluded) in (0i64..).zip(&s.excluded) {
        insert.execute(params![s.id.as_str(), position, excluded.kind, excluded.target, excluded.mark])?;
    }
    Ok(())
}

/// Removes a snapshot.
pub(super) fn delete_snapshot(conn: &Connection, id: &SnapshotId) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM snapshots WHERE id = ?1")?.execute([id.as_str()]).map(drop)
}

/// Writes a value of the daemon's own.
pub(super) fn set_meta(conn: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?
    .execute([key, value])
    .map(drop)
}

/// Drops a value of the daemon's own.
pub(super) fn delete_meta(conn: &Connection, key: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM meta WHERE key = ?1")?.execute([key]).map(drop)
}

/// The word for a snapshot's state.
pub(super) const fn state_word(state: SnapshotState) -> &'static str {
    match state {
        SnapshotState::Creating => "creating",
        SnapshotState::Ready => "ready",
        SnapshotState::Deleting => "deleting",
    }
}

/// The largest number that the table holds.
pub(super) const MOST: u64 = i64::MAX as u64;

/// A session as the table can hold it: numbers over [`MOST`] become it.
pub(super) fn fitting(mut s: Session) -> Session {
    let limits = &mut s.spec.limits;
    let may_be = [&mut s.timeout_ms, &mut s.idle_ms, &mut limits.cpu_millis, &mut limits.memory_bytes];
    for number in may_be.into_iter().flatten() {
        *number = (*number).min(MOST);
    }
    for number in [&mut s.exec_count, &mut s.oom_events, &mut s.revision] {
        *number = (*number).min(MOST);
    }
    s
}

fn update_state(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    conn.prepare_cached(UPDATE_STATE)?
        .execute(params![
            s.id.as_str(),
            s.status.as_str(),
            s.operation.map(|o| o.as_str()),
            s.reason.map(|r| r.as_str()),
            s.last_active.0,
            s.last_connected.map(|t| t.0),
            s.expires_at.map(|t| t.0),
            int(s.exec_count),
            int(s.oom_events),
            int(s.revision),
        ])
        .map(drop)
}

fn update_attention(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let noted = s.attention.as_ref();
    conn.prepare_cached(UPDATE_ATTENTION)?
        .execute(params![
            s.id.as_str(),
            noted.map(|n| n.state.as_str()),
            noted.map(|n| n.source.as_str()),
            noted.and_then(|n| n.note.as_deref()),
            noted.and_then(|n| n.exec.as_ref()).map(ExecId::as_str),
            noted.map(|n| n.at.0),
            s.main_over,
        ])
        .map(drop)
}

fn update_sandbox_engine(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    conn.prepare_cached(UPDATE_SANDBOX_ENGINE)?.execute(params![s.id.as_str(), s.sandbox_engine]).map(drop)
}

/// Whether two rows agree in every field that [`UPDATE_MAKE`] writes.
fn same_make(a: &Session, b: &Session) -> bool {
    (&a.sandbox_id, a.engine, a.runtime, &a.agent, &a.template, &a.image, &a.image_id)
        == (&b.sandbox_id, b.engine, b.runtime, &b.agent, &b.template, &b.image, &b.image_id)
        && (a.created_at, a.timeout_ms, a.idle_ms, a.idle_action, a.on_boot, a.keep, &a.external)
            == (b.created_at, b.timeout_ms, b.idle_ms, b.idle_action, b.on_boot, b.keep, &b.external)
        && (&a.spec.limits, a.spec.network, a.spec.profile, &a.spec.user)
            == (&b.spec.limits, b.spec.network, b.spec.profile, &b.spec.user)
}

fn update_make(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let (spec, external) = (&s.spec, s.external.as_ref());
    conn.prepare_cached(UPDATE_MAKE)?
        .execute(params![
            s.id.as_str(),
            s.sandbox_id,
            s.engine.as_str(),
            s.agent,
            s.template,
            s.image,
            s.image_id,
            s.created_at.0,
            s.timeout_ms.map(int),
            s.idle_ms.map(int),
            spec.limits.cpu_millis.map(int),
            spec.limits.memory_bytes.map(int),
            spec.limits.pids,
            spec.network.as_str(),
            spec.profile.as_str(),
            spec.user,
            external.map(|e| e.origin.as_str()),
            external.and_then(|e| e.status.as_deref()),
            external.map(|e| e.extra.reveal()),
            s.runtime.as_str(),
            s.keep,
            s.idle_action.as_str(),
            s.on_boot.map(|word| word.as_str()),
        ])
        .map(drop)
}

fn insert_env(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO session_env VALUES (?1, ?2, ?3)")?;
    for (name, value) in &s.spec.env {
        insert.execute([s.id.as_str(), name, value.reveal()])?;
    }
    Ok(())
}

fn insert_metadata(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO session_metadata VALUES (?1, ?2, ?3)")?;
    for (name, value) in &s.metadata {
        insert.execute([s.id.as_str(), name, value])?;
    }
    Ok(())
}

fn insert_mounts(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO session_mounts VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let mut one = |workspace: bool, position: i64, m: &Mount| {
        insert.execute(params![s.id.as_str(), workspace, position, m.source, m.target, m.read_only]).map(drop)
    };
    if let Some(workspace) = &s.spec.workspace {
        one(true, 0, workspace)?;
    }
    (0i64..).zip(&s.spec.mounts).try_for_each(|(position, mount)| one(false, position, mount))
}

fn insert_ports(conn: &Connection, s: &Session) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO session_ports VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (position, p) in (0i64..).zip(&s.spec.ports) {
        insert.execute(params![s.id.as_str(), position, p.container, p.host, p.fixed, p.protocol])?;
    }
    Ok(())
}

fn clear(conn: &Connection, sql: &str, id: &SessionId) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([id.as_str()]).map(drop)
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
