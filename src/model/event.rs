//! What is told to whoever follows the table: one event for each change that a client can see.
//!
//! Events are derived from rows, before and after, and never written by hand beside a change: none can be forgotten, and
//! none tells what did not happen.

use super::attention::{Attention, Source};
use super::exec::{End, Exec};
use super::id::{SessionId, Timestamp};
use super::session::{Session, Snapshot, SnapshotState, words};

words! {
    /// What happened.
    EventKind {
        /// A session's row was made; its sandbox is still to come.
        SessionCreated = "session.created",
        /// Its state became another.
        SessionStatus = "session.status",
        /// An operation on it began, or the one that ran has ended.
        SessionOperation = "session.operation",
        /// Someone connected or attached to it.
        SessionConnected = "session.connected",
        /// It has another name.
        SessionRenamed = "session.renamed",
        /// Something else about it changed.
        SessionChanged = "session.changed",
        /// The kernel killed something in it for want of memory.
        SessionOom = "session.oom",
        /// It is about to be stopped, paused or saved, as nothing uses it.
        SessionIdle = "session.idle",
        /// Its agent works, waits for its user, is idle or done.
        SessionAttention = "session.attention",
        /// Its row was lost, and made again from what the engine has of it.
        SessionRebuilt = "session.rebuilt",
        /// It is gone.
        SessionDeleted = "session.deleted",
        /// A snapshot is there.
        SnapshotCreated = "snapshot.created",
        /// A snapshot is gone.
        SnapshotDeleted = "snapshot.deleted",
        /// A command was started.
        ExecStarted = "exec.started",
        /// A command has ended.
        ExecEnded = "exec.ended",
        /// A terminal was opened.
        TerminalOpened = "terminal.opened",
        /// The program of a terminal has ended.
        TerminalEnded = "terminal.ended",
        /// An engine answers.
        EngineAvailable = "engine.available",
        /// An engine does not answer.
        EngineUnavailable = "engine.unavailable",
        /// The daemon was started.
        DaemonStarted = "daemon.started",
        /// The session table was damaged or gone, and another took its place.
        TableReplaced = "table.replaced",
    }
}

/// An event, as the table keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number, from 1 on; one higher than the event before it.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// To which session, unless to none.
    pub session: Option<SessionId>,
    /// That session's name then.
    pub name: Option<String>,
    /// That session's revision from then on.
    pub revision: Option<u64>,
    /// Who asked for it; nobody when abxd did it by itself.
    pub by: Option<By>,
    /// A JSON object of what else there is to say.
    pub data: String,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// The name of its program.
    pub client: String,
    /// Its process, where the system tells.
    pub pid: Option<u32>,
}

impl By {
    /// abxd, for what it does by itself.
    pub fn daemon() -> Self {
        Self { client: "abxd".to_owned(), pid: None }
    }

    /// Whether that is who did it.
    pub fn is_daemon(&self) -> bool {
        *self == Self::daemon()
    }
}

/// What there is to say about a change, before it has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub kind: EventKind,
    /// Names and values.
    pub data: Vec<(&'static str, Fact)>,
}

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// None.
    Nothing,
    /// A text.
    Text(String),
    /// Several.
    Texts(Vec<String>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl Fact {
    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn maybe(text: Option<&str>) -> Self {
        text.map_or(Self::Nothing, Self::text)
    }

    fn count(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// What a changed row of a session tells. Counts of use tell nothing by themselves: the command does that they are of.
pub fn of_session(before: Option<&Session>, after: Option<&Session>) -> Vec<Told> {
    match (before, after) {
        (None, Some(new)) => vec![created(new)],
        (Some(old), None) => vec![Told {
            kind: EventKind::SessionDeleted,
            data: vec![("name", Fact::text(old.name.as_str()))],
        }],
        (Some(old), Some(new)) => changed(old, new),
        (None, None) => Vec::new(),
    }
}

fn created(new: &Session) -> Told {
    Told {
        kind: EventKind::SessionCreated,
        data: vec![
            ("status", Fact::text(new.status.as_str())),
            ("agent", Fact::text(&new.agent)),
            ("template", Fact::text(&new.template)),
            ("image", Fact::maybe(new.image.as_deref())),
            ("operation", Fact::maybe(new.operation.map(|o| o.verb()))),
        ],
    }
}

fn changed(old: &Session, new: &Session) -> Vec<Told> {
    let mut all = Vec::new();
    if old.name != new.name {
        let data = vec![("from", Fact::text(old.name.as_str())), ("to", Fact::text(new.name.as_str()))];
        all.push(Told { kind: EventKind::SessionRenamed, data });
    }
    if (old.status, old.reason) != (new.status, new.reason) {
        let data = vec![
            ("from", Fact::text(old.status.as_str())),
            ("to", Fact::text(new.status.as_str())),
            ("reason", Fact::maybe(new.reason.map(|r| r.as_str()))),
        ];
        all.push(Told { kind: EventKind::SessionStatus, data });
    }
    if old.operation != new.operation {
        let data = vec![
            ("operation", Fact::maybe(new.operation.map(|o| o.verb()))),
            ("ended", Fact::maybe(old.operation.map(|o| o.verb()))),
        ];
        all.push(Told { kind: EventKind::SessionOperation, data });
    }
    if old.last_connected != new.last_connected {
        all.push(Told { kind: EventKind::SessionConnected, data: Vec::new() });
    }
    if old.oom_events < new.oom_events {
        let data = vec![("oom_events", Fact::count(new.oom_events))];
        all.push(Told { kind: EventKind::SessionOom, data });
    }
    all.extend(attention(old, new));
    let fields = other_fields(old, new);
    if !fields.is_empty() {
        let data = vec![("fields", Fact::Texts(fields))];
        all.push(Told { kind: EventKind::SessionChanged, data });
    }
    all
}

fn attention(old: &Session, new: &Session) -> Option<Told> {
    let seen =
        |row: &Session| row.attention.as_ref().map(|noted| (noted.state, noted.source, noted.note.clone()));
    let (before, after) = (seen(old), seen(new));
    let word =
        |seen: &Option<(Attention, Source, _)>| Fact::maybe(seen.as_ref().map(|(state, ..)| state.as_str()));
    let data = vec![
        ("from", word(&before)),
        ("to", word(&after)),
        ("note", Fact::maybe(after.as_ref().and_then(|(.., note)| note.as_deref()))),
        ("source", Fact::maybe(after.as_ref().map(|(_, source, _)| source.as_str()))),
    ];
    (before != after).then_some(Told { kind: EventKind::SessionAttention, data })
}

/// The fields that differ and have no event of their own, as the wire names them.
fn other_fields(old: &Session, new: &Session) -> Vec<String> {
    let differs = [
        ("agent", old.agent != new.agent),
        ("template", old.template != new.template),
        ("image", old.image != new.image),
        ("image_id", old.image_id != new.image_id),
        ("sandbox", old.sandbox != new.sandbox),
        ("sandbox_id", old.sandbox_id != new.sandbox_id),
        ("engine", old.engine != new.engine),
        ("runtime", old.runtime != new.runtime),
        ("expires_at", old.expires_at != new.expires_at),
        ("timeout_ms", old.timeout_ms != new.timeout_ms),
        ("idle_ms", old.idle_ms != new.idle_ms),
        ("keep", old.keep != new.keep),
        ("idle_action", old.idle_action != new.idle_action),
        ("on_boot", old.on_boot != new.on_boot),
        ("snapshots", (&old.snapshot, old.snapshots) != (&new.snapshot, new.snapshots)),
        ("ports", old.spec.ports != new.spec.ports),
        ("limits", old.spec.limits != new.spec.limits),
        ("env", old.spec.env != new.spec.env),
        ("metadata", old.metadata != new.metadata),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field.to_owned()).collect()
}

/// What a changed row of a snapshot tells. One that is being made is not there yet.
pub fn of_snapshot(before: Option<&Snapshot>, after: Option<&Snapshot>) -> Vec<Told> {
    let ready = |row: Option<&Snapshot>| row.is_some_and(|row| row.state == SnapshotState::Ready);
    let told = |kind, row: &Snapshot| {
        let data = vec![
            ("snapshot", Fact::text(&row.name)),
            ("image_id", Fact::text(&row.image_id)),
            ("note", Fact::maybe(row.note.as_deref())),
        ];
        vec![Told { kind, data }]
    };
    match (before, after) {
        (old, Some(new)) if ready(after) && !ready(old) => told(EventKind::SnapshotCreated, new),
        (Some(old), new) if ready(before) && !ready(new) => told(EventKind::SnapshotDeleted, old),
        _ => Vec::new(),
    }
}

/// Why the row of a command goes that has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// It was noted before it was to start, and did not start.
    NotStarted,
    /// Its session was deleted.
    WithSession,
}

impl Dropped {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "it was not started",
            Self::WithSession => "its session was deleted",
        }
    }
}

/// What a changed row of a command tells: each start has its end, of a row that is `dropped` without one too.
pub fn of_exec(before: Option<&Exec>, after: Option<&Exec>, dropped: Dropped) -> Vec<Told> {
    let mut all = Vec::new();
    if let (None, Some(new)) = (before, after) {
        all.push(started(new));
    }
    let was_open = before.is_none_or(|old| old.ended.is_none());
    match (before, after) {
        (_, Some(new)) if was_open => {
            let how = |end: &End| {
                vec![
                    ("exit_code", Fact::Number(end.code.into())),
                    ("signal", end.signal.map_or(Fact::Nothing, |signal| Fact::Number(signal.into()))),
                    ("reason", Fact::maybe(end.reason.as_deref())),
                    ("duration_ms", Fact::Number((end.at.0 - new.started_at.0).max(0))),
                ]
            };
            all.extend(new.ended.as_ref().map(|end| ended(new, how(end))));
        }
        (Some(old), None) if was_open => {
            let data = vec![
                ("exit_code", Fact::Nothing),
                ("signal", Fact::Nothing),
                ("reason", Fact::text(dropped.as_str())),
                ("duration_ms", Fact::Nothing),
            ];
            all.push(ended(old, data));
        }
        _ => {}
    }
    all
}

fn started(exec: &Exec) -> Told {
    let is_terminal = exec.terminal.is_some();
    let kind = if is_terminal { EventKind::TerminalOpened } else { EventKind::ExecStarted };
    let mut data = about(exec);
    data.push(("cmd", Fact::Texts(shown(&exec.argv))));
    data.push(("detached", Fact::Flag(exec.detached)));
    Told { kind, data }
}

fn ended(exec: &Exec, how: Vec<(&'static str, Fact)>) -> Told {
    let is_terminal = exec.terminal.is_some();
    let kind = if is_terminal { EventKind::TerminalEnded } else { EventKind::ExecEnded };
    let mut data = about(exec);
    data.extend(how);
    Told { kind, data }
}

fn about(exec: &Exec) -> Vec<(&'static str, Fact)> {
    let mut data = vec![("exec", Fact::text(exec.id.as_str()))];
    data.extend(exec.terminal.as_deref().map(|name| ("terminal", Fact::text(name))));
    data
}

/// Longest command line in an event, in bytes as JSON has it: enough to know it by, ten thousand times in memory. The rest
/// is with the command's row.
const MAX_SHOWN_BYTES: usize = 256;

/// What stands for the rest.
const CUT: &str = "...";

/// Bytes that each argument takes besides its text: quotes and a comma.
const AROUND_BYTES: usize = 3;

fn shown(argv: &[String]) -> Vec<String> {
    // The list's brackets are one byte more than the comma that its last has not.
    let mut left = MAX_SHOWN_BYTES - CUT.len() - AROUND_BYTES - 1;
    let mut shown = Vec::new();
    for argument in argv {
        let Some(mut room) = left.checked_sub(AROUND_BYTES) else {
            shown.push(CUT.to_owned());
            break;
        };
        let fits = |c: &char| match room.checked_sub(encoded_len(*c)) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        let part: String = argument.chars().take_while(fits).collect();
        if part.len() < argument.len() {
            shown.push(part + CUT);
            break;
        }
        left = room;
        shown.push(part);
    }
    shown
}

/// Bytes of a character in a JSON text.
fn encoded_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests;
