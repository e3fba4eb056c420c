//! What happened: the rows of the last events, and those who wait for the next.
//!
//! An event is written in the transaction of the change that it tells, from the rows before and after. So there is none
//! without its change, no change without it, and their order is that of the changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use serde_json::{Map, Value};

use super::view::Draft;
use crate::fault;
use crate::model::event::{By, Event, EventKind, Fact};
use crate::model::id::{SessionId, Timestamp};
use crate::model::session::Session;

/// Events that are kept. Older ones are forgotten.
pub(super) const KEPT: usize = 10_000;

const INSERT: &str = "INSERT INTO events (seq, at, kind, session, name, revision, client, pid, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const SELECT: &str =
    "SELECT seq, at, kind, session, name, revision, client, pid, data FROM events ORDER BY seq";

/// Some of the events that are kept.
#[derive(Debug)]
pub struct Page {
    /// They, oldest first.
    pub events: Vec<Arc<Event>>,
    /// How many before them are no longer kept.
    pub missed: u64,
    /// The number of the newest that there is; 0 when there never was one.
    pub last: u64,
}

/// The last events, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Events {
    kept: VecDeque<Arc<Event>>,
    last: u64,
}

impl Events {
    /// The number of the newest; 0 when there never was one.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Those after `since`, oldest first.
    pub(super) fn after(&self, since: u64) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.kept.partition_point(|event| event.seq <= since);
        self.kept.range(first..)
    }

    /// The first so many after `since`.
    pub(super) fn page(&self, since: u64, most: usize) -> Page {
        let oldest = self.kept.front().map_or(0, |event| event.seq);
        let missed = oldest.saturating_sub(since.saturating_add(1));
        Page { events: self.after(since).take(most).cloned().collect(), missed, last: self.last }
    }

    /// Adds the newest.
    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.last = event.seq;
        self.kept.push_back(event);
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) session: Option<SessionId>,
    pub(super) name: Option<String>,
    pub(super) revision: Option<u64>,
}

impl About {
    /// A session as its row is now.
    pub(super) fn session(row: &Session) -> Self {
        let (session, name) = (Some(row.id.clone()), Some(row.name.as_str().to_owned()));
        Self { session, name, revision: Some(row.revision) }
    }
}

/// Writes what the changes since `mark` tell.
pub(super) fn write(
    conn: &Connection,
    draft: &mut Draft,
    mark: usize,
    by: Option<&By>,
) -> rusqlite::Result<()> {
    let tells = draft.tells(mark);
    if tells.is_empty() {
        return Ok(());
    }
    let at = now();
    for (about, told) in tells {
        let About { session, name, revision } = about;
        let (seq, kind, by) = (draft.next_seq(), told.kind, by.cloned());
        let event = Event { seq, at, kind, session, name, revision, by, data: json(told.data) };
        insert(conn, &event)?;
        draft.tell(event);
    }
    Ok(())
}

/// Now, by the wall clock: what the table has as a time. A clock before 1970 reads as 1970.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(fault::clock(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

/// Writes an event, and forgets the one that is too old by then.
fn insert(conn: &Connection, event: &Event) -> rusqlite::Result<()> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    conn.prepare_cached(INSERT)?.execute(params![
        number(event.seq),
        event.at.0,
        event.kind.as_str(),
        event.session.as_ref().map(SessionId::as_str),
        event.name,
        event.revision.map(number),
        event.by.as_ref().map(|by| &by.client),
        event.by.as_ref().and_then(|by| by.pid),
        event.data,
    ])?;
    let oldest = number(event.seq.saturating_sub(KEPT as u64));
    conn.prepare_cached("DELETE FROM events WHERE seq <= ?1")?.execute([oldest]).map(drop)
}

/// Reads those that are kept. One of a kind that this abx does not know is left out.
pub(super) fn load(conn: &Connection) -> rusqlite::Result<Events> {
    let mut events = Events::default();
    let mut statement = conn.prepare(SELECT)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        let seq = unsigned(row.get(0)?);
        events.last = seq;
        let Some(kind) = EventKind::from_word(&row.get::<_, String>(2)?) else { continue };
        let client: Option<String> = row.get(6)?;
        let pid: Option<u32> = row.get(7)?;
        events.push(Arc::new(Event {
            seq,
            at: Timestamp(row.get(1)?),
            kind,
            session: row.get::<_, Option<String>>(3)?.map(SessionId::new),
            name: row.get(4)?,
            revision: row.get::<_, Option<i64>>(5)?.map(unsigned),
            by: client.map(|client| By { client, pid }),
            data: row.get(8)?,
        }));
    }
    Ok(events)
}

fn json(data: Vec<(&'static str, Fact)>) -> String {
    let value = |fact| match fact {
        Fact::Nothing => Value::Null,
        Fact::Text(text) => text.into(),
        Fact::Texts(texts) => texts.into(),
        Fact::Number(number) => number.into(),
        Fact::Flag(flag) => flag.into(),
    };
    let object: Map<String, Value> =
        data.into_iter().map(|(name, fact)| (name.to_owned(), value(fact))).collect();
    Value::Object(object).to_string()
}
