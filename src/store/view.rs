//! The rows in memory, found by id, name and sandbox, in the order in which they are listed.
//!
//! There are two: the writer's own, which sees changes before they are committed, and the published one, which readers
//! share. Rows are shared between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::events::{About, Events};
use super::execs::Execs;
use crate::model::event::{Dropped, Event, Told, of_exec, of_session, of_snapshot};
use crate::model::exec::Exec;
use crate::model::id::{ExecId, SessionId, SnapshotId, Timestamp};
use crate::model::session::{Session, Snapshot, SnapshotState};

/// Newest first; of the same instant, the higher id first.
type Place = (Reverse<Timestamp>, Reverse<SessionId>);

/// The rows of both tables.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    places: HashMap<SessionId, Place>,
    sessions: BTreeMap<Place, Arc<Session>>,
    names: HashMap<String, SessionId>,
    sandboxes: HashMap<String, SessionId>,
    snapshots: HashMap<SnapshotId, Arc<Snapshot>>,
    snapshot_names: HashMap<String, SnapshotId>,
    timelines: HashMap<SessionId, BTreeSet<(Timestamp, SnapshotId)>>,
    execs: Execs,
    events: Events,
}

impl View {
    /// Finds a session by id.
    pub(super) fn session(&self, id: &SessionId) -> Option<&Arc<Session>> {
        self.sessions.get(self.places.get(id)?)
    }

    /// Finds a session by its name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Session>> {
        self.session(self.names.get(name)?)
    }

    /// Finds a session by its sandbox's name.
    pub(super) fn in_sandbox(&self, sandbox: &str) -> Option<&Arc<Session>> {
        self.session(self.sandboxes.get(sandbox)?)
    }

    /// All sessions, newest first.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.values().cloned().collect()
    }

    /// How many sessions there are.
    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Finds a snapshot by id.
    pub(super) fn snapshot(&self, id: &SnapshotId) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(id)
    }

    /// Finds a snapshot by name.
    pub(super) fn snapshot_named(&self, name: &str) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(self.snapshot_names.get(name)?)
    }

    /// The snapshots of all sessions and of none, newest first.
    pub(super) fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        let mut all: Vec<_> = self.snapshots.values().cloned().collect();
        all.sort_unstable_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        all
    }

    /// The snapshots of one session, newest first.
    pub(super) fn timeline(&self, session: &SessionId) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.timelines.get(session).into_iter().flatten().rev().filter_map(|(_, id)| self.snapshots.get(id))
    }

    /// What a session's snapshots say about it: the newest one's name and how many are there.
    pub(super) fn saved(&self, session: &SessionId) -> (Option<String>, u64) {
        let mut ready = self.timeline(session).filter(|s| s.state == SnapshotState::Ready);
        let newest = ready.next().map(|s| s.name.clone());
        let count = u64::from(newest.is_some()) + ready.count() as u64;
        (newest, count)
    }

    /// The commands.
    pub(super) fn execs(&self) -> &Execs {
        &self.execs
    }

    /// The commands, to change.
    pub(super) fn execs_mut(&mut self) -> &mut Execs {
        &mut self.execs
    }

    /// The last events.
    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// The last events, to change.
    pub(super) fn events_mut(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Puts a session's row in place, or takes it away, and returns the one before.
    ///
    /// Rows may come in any order, so a name is given up only by the row that has it: another may have taken it over.
    pub(super) fn set_session(&mut self, id: &SessionId, row: Option<Arc<Session>>) -> Option<Arc<Session>> {
        let slot = self.places.get(id).and_then(|place| self.sessions.get_mut(place));
        if let (Some(slot), Some(row)) = (slot, &row)
            && (slot.created_at, &slot.name, &slot.sandbox) == (row.created_at, &row.name, &row.sandbox)
        {
            return Some(std::mem::replace(slot, row.clone()));
        }
        let old = self.places.remove(id).and_then(|place| self.sessions.remove(&place));
        if let Some(old) = &old {
            release(&mut self.names, old.name.as_str(), id);
            release(&mut self.sandboxes, &old.sandbox, id);
        }
        if let Some(row) = row {
            let place = (Reverse(row.created_at), Reverse(id.clone()));
            self.names.insert(row.name.as_str().to_owned(), id.clone());
            self.sandboxes.insert(row.sandbox.clone(), id.clone());
            self.places.insert(id.clone(), place.clone());
            self.sessions.insert(place, row);
        }
        old
    }

    /// Puts a snapshot's row in place, or takes it away, and returns the one before.
    pub(super) fn set_snapshot(
        &mut self,
        id: &SnapshotId,
        row: Option<Arc<Snapshot>>,
    ) -> Option<Arc<Snapshot>> {
        let old = self.snapshots.remove(id);
        if let Some(old) = &old {
            release(&mut self.snapshot_names, &old.name, id);
            self.leave_timeline(old);
        }
        if let Some(row) = row {
            self.snapshot_names.insert(row.name.clone(), id.clone());
            if let Some(session) = &row.session {
                let timeline = self.timelines.entry(session.clone()).or_default();
                timeline.insert((row.created_at, id.clone()));
            }
            self.snapshots.insert(id.clone(), row);
        }
        old
    }

    fn leave_timeline(&mut self, old: &Snapshot) {
        let Some(session) = &old.session else { return };
        if let Some(timeline) = self.timelines.get_mut(session) {
            timeline.remove(&(old.created_at, old.id.clone()));
            if timeline.is_empty() {
                self.timelines.remove(session);
            }
        }
    }
}

fn release<I: PartialEq>(names: &mut HashMap<String, I>, name: &str, id: &I) {
    if names.get(name) == Some(id) {
        names.remove(name);
    }
}

/// The writer's own rows, which can go back to any earlier mark until they are published.
#[derive(Debug, Default)]
pub(super) struct Draft {
    view: View,
    meta: HashMap<String, String>,
    undo: Vec<Undo>,
    /// Events that are written and not published.
    told: Vec<Arc<Event>>,
}

/// What there is to hear of changes that were published.
#[derive(Debug)]
pub(super) struct Published {
    /// Whether there are events of them.
    pub(super) told: bool,
    /// Whether a command has an end, or no row any more.
    pub(super) ended: bool,
}

/// What was there before a change.
#[derive(Debug)]
enum Undo {
    Session(SessionId, Option<Arc<Session>>),
    Snapshot(SnapshotId, Option<Arc<Snapshot>>),
    Exec(ExecId, Option<Arc<Exec>>),
    Meta(String, Option<String>),
    /// Something that no row tells, of this session if it is about one.
    Note(Option<SessionId>, Told),
    /// An event was written.
    Told,
}

impl Draft {
    /// Begins with what the table holds.
    pub(super) fn new(view: View, meta: HashMap<String, String>) -> Self {
        Self { view, meta, undo: Vec::new(), told: Vec::new() }
    }

    /// The rows as changed so far.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// A value of the daemon's own.
    pub(super) fn meta(&self, key: &str) -> Option<&String> {
        self.meta.get(key)
    }

    /// The keys of the daemon's own values that begin so.
    pub(super) fn meta_keys<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a String> {
        self.meta.keys().filter(move |key| key.starts_with(prefix))
    }

    /// Changes a session's row.
    pub(super) fn set_session(&mut self, id: &SessionId, row: Option<Arc<Session>>) {
        let old = self.view.set_session(id, row);
        self.undo.push(Undo::Session(id.clone(), old));
    }

    /// Changes a snapshot's row.
    pub(super) fn set_snapshot(&mut self, id: &SnapshotId, row: Option<Arc<Snapshot>>) {
        let old = self.view.set_snapshot(id, row);
        self.undo.push(Undo::Snapshot(id.clone(), old));
    }

    /// Changes a command's row.
    pub(super) fn set_exec(&mut self, id: &ExecId, row: Option<Arc<Exec>>) {
        let old = self.view.execs.set(id, row);
        self.undo.push(Undo::Exec(id.clone(), old));
    }

    /// Changes a value of the daemon's own.
    pub(super) fn set_meta(&mut self, key: &str, value: &str) {
        let old = self.meta.insert(key.to_owned(), value.to_owned());
        self.undo.push(Undo::Meta(key.to_owned(), old));
    }

    /// Drops a value of the daemon's own.
    pub(super) fn delete_meta(&mut self, key: &str) {
        if let Some(old) = self.meta.remove(key) {
            self.undo.push(Undo::Meta(key.to_owned(), Some(old)));
        }
    }

    /// Notes what no row tells, of a session if it is about one.
    pub(super) fn note(&mut self, session: Option<&SessionId>, told: Told) {
        self.undo.push(Undo::Note(session.cloned(), told));
    }

    /// What the changes since `mark` tell, in their order. Of a row that changed several times, the sum.
    pub(super) fn tells(&self, mark: usize) -> Vec<(About, Told)> {
        let (mut sessions, mut snapshots, mut execs) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut all = Vec::new();
        let mut add = |about: About, told: Vec<Told>| {
            all.extend(told.into_iter().map(|told| (about.clone(), told)));
        };
        for step in &self.undo[mark..] {
            match step {
                Undo::Session(id, old) if sessions.insert(id) => {
                    let new = self.view.session(id).map(Arc::as_ref);
                    let told = of_session(old.as_deref(), new);
                    add(new.or(old.as_deref()).map(About::session).unwrap_or_default(), told);
                }
                Undo::Snapshot(id, old) if snapshots.insert(id) => {
                    let new = self.view.snapshot(id).map(Arc::as_ref);
                    let told = of_snapshot(old.as_deref(), new);
                    let about = new.or(old.as_deref()).map(|row| self.about_snapshot(row));
                    add(about.unwrap_or_default(), told);
                }
                Undo::Exec(id, old) if execs.insert(id) => {
                    let new = self.view.execs.get(id).map(Arc::as_ref);
                    let owner = new.or(old.as_deref()).map(|exec| &exec.session);
                    let session = owner.and_then(|id| self.view.session(id));
                    let dropped = if session.is_some() { Dropped::NotStarted } else { Dropped::WithSession };
                    let session = session.or_else(|| self.deleted(mark, owner?));
                    let about = session.map(|row| About::session(row)).unwrap_or_default();
                    add(about, of_exec(old.as_deref(), new, dropped));
                }
                Undo::Note(session, told) => {
                    let row = session.as_ref().and_then(|id| self.view.session(id));
                    let about = row.map(|row| About::session(row)).unwrap_or_default();
                    // There is nothing to say of a session that is gone.
                    if session.is_none() || row.is_some() {
                        add(about, vec![told.clone()]);
                    }
                }
                Undo::Session(..) | Undo::Snapshot(..) | Undo::Exec(..) | Undo::Meta(..) | Undo::Told => {}
            }
        }
        all
    }

    /// The row of a session that was deleted since `mark`, as it was then.
    fn deleted(&self, mark: usize, session: &SessionId) -> Option<&Arc<Session>> {
        self.undo[mark..].iter().find_map(|step| match step {
            Undo::Session(id, Some(old)) if id == session => Some(old),
            _ => None,
        })
    }

    fn about_snapshot(&self, row: &Snapshot) -> About {
        let session = row.session.as_ref().and_then(|id| self.view.session(id));
        let kept = || About { name: Some(row.session_name.clone()), ..About::default() };
        session.map_or_else(kept, |session| About::session(session))
    }

    /// The number of the event that is written next.
    pub(super) fn next_seq(&self) -> u64 {
        self.view.events.last() + self.told.len() as u64 + 1
    }

    /// Adds an event that was written.
    pub(super) fn tell(&mut self, event: Event) {
        self.told.push(Arc::new(event));
        self.undo.push(Undo::Told);
    }

    /// The present point, to go back to.
    pub(super) fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Takes back everything since `mark`.
    pub(super) fn undo_to(&mut self, mark: usize) {
        for step in self.undo.drain(mark..).rev() {
            match step {
                Undo::Session(id, old) => drop(self.view.set_session(&id, old)),
                Undo::Snapshot(id, old) => drop(self.view.set_snapshot(&id, old)),
                Undo::Exec(id, old) => drop(self.view.execs.set(&id, old)),
                Undo::Meta(key, Some(old)) => drop(self.meta.insert(key, old)),
                Undo::Meta(key, None) => drop(self.meta.remove(&key)),
                Undo::Note(..) => {}
                Undo::Told => drop(self.told.pop()),
            }
        }
    }

    /// Brings a published view up to this one, and gives what others are to hear of it. Nothing before this can be taken
    /// back.
    pub(super) fn publish(&mut self, published: &mut View) -> Published {
        let mut ended = false;
        for step in self.undo.drain(..) {
            match step {
                Undo::Session(id, _) => drop(published.set_session(&id, self.view.session(&id).cloned())),
                Undo::Snapshot(id, _) => drop(published.set_snapshot(&id, self.view.snapshot(&id).cloned())),
                Undo::Exec(id, _) => {
                    let row = self.view.execs.get(&id).cloned();
                    ended |= row.as_ref().is_none_or(|exec| exec.ended.is_some());
                    drop(published.execs.set(&id, row));
                }
                Undo::Meta(..) | Undo::Note(..) | Undo::Told => {}
            }
        }
        let told = !self.told.is_empty();
        for event in self.told.drain(..) {
            self.view.events.push(Arc::clone(&event));
            published.events.push(event);
        }
        Published { told, ended }
    }
}
