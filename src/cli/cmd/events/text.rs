//! Events as lines for people.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::cli::output::clean;
use crate::cli::table::{Column, aligned, pad};
use crate::proto::events::{By, Event};

/// Longest text about an event, in characters.
const MOST_CHARS: usize = 80;

/// Longest command before its end, in characters: how it ended is what is looked for.
const MOST_CMD_CHARS: usize = 50;

/// All of them, one a line.
pub(super) fn lines(events: &[Event]) -> String {
    if events.is_empty() {
        return "No events found.".to_owned();
    }
    let mut commands = Commands::default();
    events.iter().map(|event| line(event, &mut commands)).collect::<Vec<_>>().join("\n")
}

/// Most commands whose starts are remembered, as many as the daemon keeps events: an end that comes later than so many
/// others began is shown with its id.
const MOST_COMMANDS: usize = 10_000;

/// What runs, by its id: an end tells its command's id alone.
#[derive(Default)]
pub(super) struct Commands {
    lines: HashMap<String, String>,
    /// Ids in the order in which they began, the ended ones too.
    begun: VecDeque<String>,
}

impl Commands {
    /// Takes note of a start, and gives the command line of a start or an end; where the start was not seen, the id.
    fn line(&mut self, event: &Event) -> String {
        let Some(exec) = event.data["exec"].as_str() else { return String::new() };
        if event.kind.ends_with(".ended") {
            return self.lines.remove(exec).unwrap_or_else(|| clean(exec));
        }
        let cmd = text(event, "cmd");
        self.lines.insert(exec.to_owned(), cmd.clone());
        self.begun.push_back(exec.to_owned());
        if self.begun.len() > MOST_COMMANDS
            && let Some(oldest) = self.begun.pop_front()
        {
            self.lines.remove(&oldest);
        }
        cmd
    }
}

/// One event.
pub(super) fn line(event: &Event, commands: &mut Commands) -> String {
    let session = event.session.as_deref().map(clean).unwrap_or_default();
    let mut line = format!(
        "{} {} {} {} {}",
        pad(&event.seq.to_string(), 6),
        local(&event.at),
        pad(&session, 20),
        pad(&clean(&event.kind), 18),
        details(event, commands)
    );
    if let Some(by) = &event.by {
        line.push_str(&format!("  by {}", who(by)));
    }
    line.trim_end().to_owned()
}

/// What was done with a session: each thing once, with its end.
pub(super) fn history(events: &[Event], most: usize) -> String {
    let mut callers: HashMap<&str, &By> = HashMap::new();
    let mut ends: HashMap<&str, &Event> = HashMap::new();
    for event in events {
        let Some(exec) = event.data["exec"].as_str() else { continue };
        if let Some(by) = &event.by {
            callers.entry(exec).or_insert(by);
        }
        if event.kind.ends_with(".ended") {
            ends.insert(exec, event);
        }
    }
    let mut rows = Vec::new();
    let mut commands = Commands::default();
    for event in events {
        let exec = event.data["exec"].as_str();
        let begins = matches!(event.kind.as_str(), "exec.started" | "terminal.opened");
        let has_ended = exec.is_some_and(|exec| ends.contains_key(exec));
        let is_noise = match event.kind.as_str() {
            "session.changed" => true,
            "session.operation" => event.data["operation"].is_null(),
            _ => begins && has_ended,
        };
        let details = details(event, &mut commands);
        if is_noise {
            continue;
        }
        let by = event.by.as_ref().or_else(|| exec.and_then(|exec| callers.get(exec).copied()));
        let what = event.kind.strip_prefix("session.").unwrap_or(&event.kind);
        rows.push([local(&event.at), clean(what), details, by.map_or_else(|| "abxd".to_owned(), who)]);
    }
    let left_out = rows.len().saturating_sub(most);
    let columns = [
        Column::left("WHEN", 19),
        Column::left("WHAT", 16),
        Column::left("DETAILS", 30),
        Column::left("BY", 0),
    ];
    aligned(columns, rows.into_iter().skip(left_out))
}

fn who(by: &By) -> String {
    let name = clean(&by.client);
    by.pid.map_or_else(|| name.clone(), |pid| format!("{name} ({pid})"))
}

/// The time of day here.
fn local(at: &str) -> String {
    match at.parse::<jiff::Timestamp>() {
        Ok(at) => {
            at.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => clean(at),
    }
}

fn text(event: &Event, key: &str) -> String {
    match &event.data[key] {
        Value::Null => String::new(),
        Value::String(text) => clean(text),
        Value::Array(all) => clean(&all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        other => other.to_string(),
    }
}

fn details(event: &Event, commands: &mut Commands) -> String {
    let text = |key: &str| text(event, key);
    let full = match event.kind.as_str() {
        "session.status" => {
            let reason = text("reason");
            let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
            format!("{} -> {}{reason}", text("from"), text("to"))
        }
        "session.attention" => {
            let to = text("to");
            let note = text("note");
            let to = if to.is_empty() { "nothing known".to_owned() } else { to };
            if note.is_empty() { to } else { format!("{to}: {note}") }
        }
        "session.renamed" => format!("{} -> {}", text("from"), text("to")),
        "session.operation" if event.data["operation"].is_null() => format!("{} ended", text("ended")),
        "session.operation" => text("operation"),
        "session.changed" => text("fields"),
        "session.deleted" => String::new(),
        "session.created" => format!("{}, {}", text("agent"), text("image")),
        "snapshot.created" | "snapshot.deleted" => text("snapshot"),
        "exec.started" | "terminal.opened" => command(&text("terminal"), &commands.line(event)),
        "exec.ended" | "terminal.ended" => {
            let what = short(&command(&text("terminal"), &commands.line(event)), MOST_CMD_CHARS);
            match event.data["duration_ms"].as_u64() {
                Some(took) => format!("{what}: {} after {}", text("exit_code"), seconds(took)),
                None => format!("{what}: {}", text("reason")),
            }
        }
        _ => match event.data.as_object() {
            Some(object) if !object.is_empty() => {
                object.keys().map(|key| format!("{key}={}", text(key))).collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        },
    };
    short(&full, MOST_CHARS)
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn command(terminal: &str, cmd: &str) -> String {
    if terminal.is_empty() { cmd.to_owned() } else { format!("{terminal}: {cmd}") }
}

fn seconds(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => format!("{}m {}s", ms / 60_000, ms % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, exec: usize) -> Event {
        let data = json!({"exec": format!("e{exec}"), "cmd": ["make", exec.to_string()]});
        let event =
            json!({"seq": 1, "at": "", "kind": kind, "session": null, "revision": null, "data": data});
        serde_json::from_value(event).expect("an event")
    }

    #[test]
    fn of_commands_that_began_long_ago_the_id_is_shown() {
        let mut commands = Commands::default();
        for exec in 0..=MOST_COMMANDS {
            commands.line(&event("exec.started", exec));
        }
        assert_eq!((commands.lines.len(), commands.begun.len()), (MOST_COMMANDS, MOST_COMMANDS));
        assert_eq!(commands.line(&event("exec.ended", 0)), "e0");
        assert_eq!(commands.line(&event("exec.ended", 1)), "make 1");
    }
}
