//! Text of sessions and snapshots: tables, details, durations.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use unicode_width::UnicodeWidthStr;

use super::output::clean;
use crate::config::size;
use crate::proto::execs::ExecInfo;
use crate::proto::terminals::TerminalInfo;
use crate::proto::types::{Excluded, IdleAction, Mount, Session, Snapshot};

/// What a line of `list` shows of a session. The rest of it is skipped, not read: for a hundred sessions that is a good
/// part of the whole command.
#[derive(Debug, Deserialize)]
pub(crate) struct Listed<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    created_at: Cow<'a, str>,
    exec_count: u64,
    #[serde(borrow, default)]
    attention: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    attention_note: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    attention_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    idle_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    busy: Vec<Cow<'a, str>>,
}

const NO_SESSIONS: &str = "No sessions found.";

/// The table of `list`. The older command line's, to the letter.
pub(crate) fn sessions(list: &[Listed<'_>], now: Timestamp) -> String {
    if list.is_empty() {
        return NO_SESSIONS.to_owned();
    }
    aligned(columns(), list.iter().map(|session| cells(session, now)))
}

/// The table of `list -o wide`.
pub(crate) fn wide(list: &[Listed<'_>], now: Timestamp) -> String {
    if list.is_empty() {
        return NO_SESSIONS.to_owned();
    }
    let rows = list.iter().map(|session| {
        let [name, agent, status, duration, execs] = cells(session, now);
        let text = |text: &Option<Cow<'_, str>>| text.as_deref().map(clean).unwrap_or_default();
        let since = session.attention_at.as_deref().map(|at| duration_since(at, now)).unwrap_or_default();
        let idle = countdown(session, now);
        let (word, note) = (text(&session.attention), text(&session.attention_note));
        [name, agent, status, duration, execs, idle, word, since, note]
    });
    let [name, agent, status, duration, execs] = columns();
    let attention = [Column::left("ATTENTION", 10), Column::left("SINCE", 8), Column::left("NOTE", 0)];
    let [word, since, note] = attention;
    aligned([name, agent, status, duration, execs, Column::left("IDLE", 10), word, since, note], rows)
}

/// When a session's idle time runs out, or why it does not count.
fn countdown(session: &Listed<'_>, now: Timestamp) -> String {
    if !session.busy.is_empty() {
        return session.busy.iter().map(|why| clean(why)).collect::<Vec<_>>().join(",");
    }
    let at = session.idle_at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    at.map(|at| format!("in {}", short(at.as_second().saturating_sub(now.as_second()).max(0))))
        .unwrap_or_default()
}

fn cells(session: &Listed<'_>, now: Timestamp) -> [String; 5] {
    [
        clean(&session.name),
        clean(&session.agent),
        clean(&session.status),
        duration_since(&session.created_at, now),
        session.exec_count.to_string(),
    ]
}

fn columns() -> [Column; 5] {
    [
        Column::left("NAME", 20),
        Column::left("AGENT", 10),
        Column::left("STATUS", 10),
        Column::left("DURATION", 12),
        Column::right("EXECS", 6),
    ]
}

const NO_SNAPSHOTS: &str = "No snapshots found.";

/// The table of `snapshot list`.
pub(crate) fn snapshots(list: &[Snapshot]) -> String {
    if list.is_empty() {
        return NO_SNAPSHOTS.to_owned();
    }
    let [name, session, created, size] = snapshot_columns();
    let rows = list.iter().map(|snapshot| {
        let [name, session, created, size] = snapshot_cells(snapshot);
        [name, session, created, size, clean(snapshot.note.as_deref().unwrap_or_default())]
    });
    aligned([name, session, created, size, Column::left("NOTE", 0)], rows)
}

/// The table of `snapshot list -o wide`.
pub(crate) fn wide_snapshots(list: &[Snapshot]) -> String {
    if list.is_empty() {
        return NO_SNAPSHOTS.to_owned();
    }
    let [name, session, created, size] = snapshot_columns();
    let rows = list.iter().map(|snapshot| {
        let [name, session, created, size] = snapshot_cells(snapshot);
        let note = clean(snapshot.note.as_deref().unwrap_or_default());
        [name, session, created, size, note, excluded(snapshot)]
    });
    let [note, missing] = [Column::left("NOTE", 20), Column::left("NOT IN IT", 0)];
    aligned([name, session, created, size, note, missing], rows)
}

fn snapshot_cells(snapshot: &Snapshot) -> [String; 4] {
    [
        clean(&snapshot.name),
        clean(&snapshot.session),
        seconds(&snapshot.created_at),
        snapshot.own_bytes.map_or_else(|| "-".to_owned(), size),
    ]
}

fn snapshot_columns() -> [Column; 4] {
    [
        Column::left("NAME", 28),
        Column::left("SESSION", 20),
        Column::left("CREATED", 20),
        Column::right("SIZE", 9),
    ]
}

/// What a snapshot does not hold, as one line.
pub(crate) fn excluded(snapshot: &Snapshot) -> String {
    let one = |e: &Excluded| format!("{} {}", clean(&e.kind), clean(&e.target));
    snapshot.excluded.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The table of `exec list`.
pub(crate) fn execs(list: &[ExecInfo], now: Timestamp) -> String {
    if list.is_empty() {
        return "No commands found.".to_owned();
    }
    let rows = list.iter().map(|exec| {
        [
            clean(&exec.id),
            clean(&exec.session),
            exec.exit_code.map_or_else(|| clean(&exec.status), |code| format!("exited {code}")),
            duration_since(&exec.started_at, now),
            command(&exec.cmd),
        ]
    });
    let columns = [
        Column::left("ID", 36),
        Column::left("SESSION", 20),
        Column::left("STATUS", 10),
        Column::left("STARTED", 10),
        Column::left("COMMAND", 0),
    ];
    aligned(columns, rows)
}

/// The table of `terminal list`.
pub(crate) fn terminals(list: &[TerminalInfo], now: Timestamp) -> String {
    if list.is_empty() {
        return "No terminals found.".to_owned();
    }
    let rows = list.iter().map(|terminal| {
        [
            clean(&terminal.session),
            clean(&terminal.terminal),
            terminal.size.map(|size| format!("{}x{}", size.cols, size.rows)).unwrap_or_default(),
            terminal.clients.to_string(),
            duration_since(&terminal.started_at, now),
            command(&terminal.cmd),
        ]
    });
    let columns = [
        Column::left("SESSION", 20),
        Column::left("TERMINAL", 12),
        Column::left("SIZE", 9),
        Column::right("CLIENTS", 7),
        Column::left("STARTED", 10),
        Column::left("COMMAND", 0),
    ];
    aligned(columns, rows)
}

/// A column: its title, how wide it is at least, and the side on which its blanks are.
pub(crate) struct Column {
    title: &'static str,
    width: usize,
    right: bool,
}

impl Column {
    /// One whose cells stand on the left.
    pub(crate) fn left(title: &'static str, width: usize) -> Self {
        Self { title, width, right: false }
    }

    fn right(title: &'static str, width: usize) -> Self {
        Self { title, width, right: true }
    }
}

/// A table whose columns are as wide as what stands in them, and no less than they say.
pub(crate) fn aligned<const N: usize>(
    mut columns: [Column; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let titles = std::array::from_fn(|at| columns[at].title.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(titles).chain(rows).collect();
    // The last one is as long as it is.
    for (at, column) in columns.iter_mut().enumerate().take(N - 1) {
        let widest = rows.iter().map(|row| row[at].width()).max().unwrap_or_default();
        column.width = column.width.max(widest);
    }
    let mut text = String::new();
    for row in &rows {
        let begin = text.len();
        for (cell, Column { width, right, .. }) in row.iter().zip(&columns) {
            if text.len() > begin {
                text.push(' ');
            }
            let blanks = padding(cell, *width);
            if *right {
                text.extend(blanks);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.extend(blanks);
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text.pop();
    text
}

/// A command as one short line.
fn command(argv: &[String]) -> String {
    const MOST_CHARS: usize = 60;
    let text = clean(&argv.join(" "));
    if text.chars().count() <= MOST_CHARS {
        return text;
    }
    text.chars().take(MOST_CHARS - 1).chain(['…']).collect()
}

/// Everything about a session, as aligned `key: value` lines. What is absent has no line.
pub(crate) fn details(session: &Session, now: Timestamp) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("name", session.name.clone()),
        ("sandbox", session.sandbox.clone()),
        ("status", status(session)),
        ("agent", session.agent.clone()),
        ("template", session.template.clone()),
        ("engine", session.engine.clone()),
    ];
    let mut add = |key, value: Option<String>| rows.extend(value.map(|value| (key, value)));
    add("runtime", session.runtime.clone());
    add("image", session.image.clone());
    add("image id", session.image_id.clone());
    add("container", session.sandbox_id.clone());
    add(
        "created",
        Some(format!("{} ({} ago)", session.created_at, duration_since(&session.created_at, now))),
    );
    add("last active", Some(session.last_active.clone()));
    add("connected", session.last_connected.clone());
    add("attention", session.attention.as_ref().map(|word| word.as_str().to_owned()));
    add("note", session.attention_note.clone());
    add("since", session.attention_at.clone());
    add("timeout", session.timeout_ms.filter(|ms| *ms > 0).map(length));
    add("expires", session.expires_at.clone());
    add("idle", session.idle_ms.filter(|ms| *ms > 0).map(|ms| idle(session, ms)));
    add("on boot", session.on_boot.as_ref().map(|word| word.as_str().to_owned()));
    add("idle since", session.idle_since.clone());
    add("idle at", session.idle_at.clone());
    let busy: Vec<&str> = session.busy.iter().map(|why| why.as_str()).collect();
    add("busy", Some(busy.join(", ")).filter(|text| !text.is_empty()));
    add("keep", session.keep.map(|n| format!("{n} snapshots")));
    add("execs", Some(session.exec_count.to_string()));
    add("oom events", Some(session.oom_events).filter(|n| *n > 0).map(|n| n.to_string()));
    let newest = session.snapshot.as_ref().map(|name| format!(" (newest: {name})")).unwrap_or_default();
    add("snapshots", Some(format!("{}{newest}", session.snapshots)));
    add("workspace", session.workspace.as_ref().map(|w| mapping(&w.source, &w.target, w.read_only)));
    for Mount { source, target, read_only } in &session.mounts {
        add("mount", Some(mapping(source, target, *read_only)));
    }
    for port in &session.ports {
        let host = port.host.map_or_else(|| "a free port".to_owned(), |p| format!("127.0.0.1:{p}"));
        add("port", Some(format!("{host} -> {}/{}", port.container, port.protocol)));
    }
    add("cpus", session.limits.cpus.map(|n| n.to_string()));
    add("memory", session.limits.memory_bytes.map(size));
    add("pids", session.limits.pids.map(|n| n.to_string()));
    add("network", Some(session.network.as_str().to_owned()));
    add("profile", Some(session.profile.as_str().to_owned()));
    for (name, value) in &session.env {
        add("env", Some(format!("{name}={value}")));
    }
    for (name, value) in &session.metadata {
        add("meta", Some(format!("{name}={value}")));
    }
    add("id", Some(session.id.clone()));
    pairs(&rows)
}

/// Aligned `key: value` lines.
pub(crate) fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or_default() + 1;
    let lines: Vec<String> =
        rows.iter().map(|(key, value)| format!("{:<width$} {}", format!("{key}:"), clean(value))).collect();
    lines.join("\n")
}

/// The time since an instant of the wire: `45s`, `12m`, `2h 14m`, `3d`. A clock that was set back gives `0s`.
pub(crate) fn duration_since(instant: &str, now: Timestamp) -> String {
    match instant.parse::<Timestamp>() {
        Ok(instant) => short(now.as_second().saturating_sub(instant.as_second()).max(0)),
        Err(_) => "?".to_owned(),
    }
}

fn short(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A length of time as it would be typed.
fn length(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

fn idle(session: &Session, ms: u64) -> String {
    let action = session.idle_action.as_ref().filter(|action| **action != IdleAction::Stop);
    let then = action.map(|action| format!(", then {}", action.as_str())).unwrap_or_default();
    format!("{}{then}", length(ms))
}

fn status(session: &Session) -> String {
    let mut text = session.status.as_str().to_owned();
    if let Some(reason) = &session.reason {
        text.push_str(&format!(" ({})", reason.as_str()));
    }
    if let Some(operation) = &session.operation {
        text.push_str(&format!(", {operation} under way"));
    }
    text
}

fn mapping(source: &str, target: &str, read_only: bool) -> String {
    format!("{source} -> {target}{}", if read_only { " (read-only)" } else { "" })
}

/// An instant of the wire without its milliseconds.
fn seconds(instant: &str) -> String {
    match instant.parse::<Timestamp>().map(|t| Timestamp::from_second(t.as_second())) {
        Ok(Ok(instant)) => instant.to_string(),
        _ => clean(instant),
    }
}

/// A text with blanks up to this width.
pub(crate) fn pad(text: &str, width: usize) -> String {
    text.chars().chain(padding(text, width)).collect()
}

/// The blanks that bring a text to this width.
fn padding(text: &str, width: usize) -> impl Iterator<Item = char> {
    std::iter::repeat_n(' ', width.saturating_sub(text.width()))
}

#[cfg(test)]
pub(crate) mod tests;
