//! The session files of the two older tools, as rows for the daemon. Pure: bytes and a file's time in, a row and what
//! had to be bent out.
//!
//! Whatever a file says that abx has no field for is kept with the row; nothing of it is printed, since it may be a
//! token.

use jiff::civil::DateTime;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value};

use crate::proto::sessions::ImportRow;
use crate::proto::types::StoreRow;

/// Which tool wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The Rust command line.
    Agentkernel,
    /// The Python SDK.
    AgentSandbox,
}

impl Origin {
    /// The tool of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Agentkernel, Self::AgentSandbox].into_iter().find(|origin| origin.name() == name)
    }

    /// The tool's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agentkernel => "agentkernel",
            Self::AgentSandbox => "agent-sandbox",
        }
    }

    /// Only agentkernel's files have these.
    fn of(object: &Map<String, Value>) -> Self {
        let theirs = ["exec_count", "last_active", "agent", "sandbox", "snapshot"];
        if theirs.iter().any(|key| object.contains_key(*key)) {
            Self::Agentkernel
        } else {
            Self::AgentSandbox
        }
    }
}

/// A file that can be imported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Legacy {
    /// The row.
    pub(crate) row: ImportRow,
    /// What had to be bent, for people.
    pub(crate) notes: Vec<String>,
}

/// Reads one file. `origin` is decided by its keys where it is not given; `written` stands in for times that cannot be
/// read.
///
/// # Errors
/// Why the file holds no session.
pub(crate) fn read(bytes: &[u8], origin: Option<Origin>, written: Timestamp) -> Result<Legacy, String> {
    let object = object(bytes)?;
    let origin = origin.unwrap_or_else(|| Origin::of(&object));
    let mut fields = Fields { object, written, notes: Vec::new() };
    let name = match fields.object.remove("name") {
        None | Some(Value::Null) => return Err("it has no name".to_owned()),
        Some(Value::String(name)) => name,
        Some(_) => return Err("its name is not text".to_owned()),
    };
    let row = match origin {
        Origin::Agentkernel => fields.agentkernel(name),
        Origin::AgentSandbox => fields.agent_sandbox(name),
    };
    Ok(Legacy { row, notes: fields.notes })
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".to_owned());
    }
    if bytes.iter().all(|b| *b == 0) {
        return Err("it holds nothing but null bytes".to_owned());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 (at byte {})", error.valid_up_to()))?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Array(_)) => Err("it holds a list, not a session".to_owned()),
        Ok(_) => Err("it holds a single value, not a session".to_owned()),
        // The parser's text quotes no values, but for unexpected types, which a `Value` cannot have.
        Err(error) if error.is_eof() => {
            Err(format!("it is cut off at line {}, column {}", error.line(), error.column()))
        }
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

struct Fields {
    object: Map<String, Value>,
    written: Timestamp,
    notes: Vec<String>,
}

impl Fields {
    fn agentkernel(&mut self, name: String) -> ImportRow {
        let agent = self.text(&["agent"]);
        let sandbox = self.text(&["sandbox"]);
        let snapshot = self.text(&["snapshot"]);
        let exec_count = self.count("exec_count");
        let last_active = self.time(&["last_active"]);
        let row = StoreRow {
            name,
            namespace: None,
            sandbox_id: None,
            template: None,
            status: self.text(&["status"]),
            created_at: Some(self.time(&["created_at", "createdAt"]).unwrap_or_else(|| stamp(self.written))),
            last_connected: None,
            metadata: Default::default(),
            extra: Map::new(),
        };
        let origin = Origin::Agentkernel.name().to_owned();
        let row = StoreRow { extra: self.rest(), ..row };
        ImportRow { origin, row, agent, sandbox, last_active, exec_count, snapshot }
    }

    fn agent_sandbox(&mut self, name: String) -> ImportRow {
        let row = StoreRow {
            name,
            namespace: None,
            sandbox_id: self.text(&["sandboxId", "sandbox_id"]).filter(|id| !id.is_empty()),
            template: self.text(&["template"]),
            status: self.text(&["status"]),
            created_at: Some(self.time(&["createdAt", "created_at"]).unwrap_or_else(|| stamp(self.written))),
            last_connected: self.time(&["lastConnected", "last_connected"]),
            metadata: self.metadata(),
            extra: Map::new(),
        };
        let origin = Origin::AgentSandbox.name().to_owned();
        let row = StoreRow { extra: self.rest(), ..row };
        ImportRow {
            origin,
            row,
            agent: None,
            sandbox: None,
            last_active: None,
            exec_count: 0,
            snapshot: None,
        }
    }

    /// Takes the first of these that is there; the others go, so that they cannot come back as unknown fields.
    fn take(&mut self, keys: &[&str]) -> Value {
        let found: Vec<Value> = keys.iter().filter_map(|key| self.object.remove(*key)).collect();
        if found.len() > 1 {
            self.notes.push(format!("it has {}; the first is used", keys.join(" and ")));
        }
        found.into_iter().next().unwrap_or_default()
    }

    fn text(&mut self, keys: &[&str]) -> Option<String> {
        match self.take(keys) {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => {
                self.notes.push(format!("{} is not text; its JSON text is kept", keys[0]));
                Some(other.to_string())
            }
        }
    }

    /// None when the field is absent; the file's own time when it cannot be read.
    fn time(&mut self, keys: &[&str]) -> Option<String> {
        let text = match self.take(keys) {
            Value::Null => return None,
            Value::String(text) => text,
            other => other.to_string(),
        };
        if let Some(time) = parse_time(&text) {
            return Some(stamp(time));
        }
        let instead = stamp(self.written);
        self.notes.push(format!("{} is no time; the file's own, {instead}, is used", keys[0]));
        Some(instead)
    }

    fn count(&mut self, key: &str) -> u64 {
        const MOST: u64 = i64::MAX as u64;
        let value = self.take(&[key]);
        if let Some(count) = value.as_u64().filter(|count| *count <= MOST) {
            return count;
        }
        let number = value.as_f64();
        let (count, why) = match number {
            _ if value.is_null() => return 0,
            None => (0, "is not a number"),
            Some(number) if number < 0.0 => (0, "is negative"),
            #[expect(clippy::cast_precision_loss, reason = "only compared")]
            Some(number) if number >= MOST as f64 => (MOST, "is too large"),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to lie in range"
            )]
            Some(number) => (number as u64, "is not whole"),
        };
        self.notes.push(format!("{key} {why}; {count} is used"));
        count
    }

    fn metadata(&mut self) -> std::collections::BTreeMap<String, String> {
        match self.take(&["metadata"]) {
            Value::Object(object) => object
                .into_iter()
                .map(|(key, value)| match value {
                    Value::String(text) => (key, text),
                    other => {
                        self.notes.push(format!("metadata {key:?} is not text; its JSON text is kept"));
                        (key, other.to_string())
                    }
                })
                .collect(),
            Value::Null => Default::default(),
            other => {
                self.notes.push("metadata is not an object; it is kept aside".to_owned());
                self.object.insert("metadata_as_stored".to_owned(), other);
                Default::default()
            }
        }
    }

    /// What is left, without what would pass for a field of the row.
    fn rest(&mut self) -> Map<String, Value> {
        let mut rest = std::mem::take(&mut self.object);
        for key in [
            "namespace",
            "sandbox_id",
            "sandboxId",
            "template",
            "created_at",
            "createdAt",
            "last_connected",
            "lastConnected",
            "metadata",
        ] {
            if let Some(value) = rest.remove(key) {
                rest.insert(format!("{key}_as_stored"), value);
            }
        }
        rest
    }
}

/// A time with a zone, or one without, which is UTC's.
fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()
}

/// RFC 3339, UTC, milliseconds.
fn stamp(time: Timestamp) -> String {
    let time = Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests;
