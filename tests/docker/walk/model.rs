//! What sessions are to whoever uses them: a pure function from a state and an act to the next state and the answer. It
//! knows the contract and nothing of how abx keeps it.

use std::collections::{BTreeMap, BTreeSet};

use abx::model::session::{Reason, Status};

/// Names that sessions may have. Four, so that each is met as often there as not.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c d", "ü"];

/// A name that no session can have.
pub(super) const BAD_NAME: &str = "a/b";

/// What is in the one file that the walk writes; 0 where it was never written.
type Files = u64;

/// What somebody does. Names are of sessions; `nth` counts a timeline from its oldest snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Start(&'static str),
    Stop(&'static str),
    Save {
        name: &'static str,
        noted: bool,
        keep_running: bool,
    },
    Resume(&'static str),
    BackTo {
        name: &'static str,
        nth: usize,
        discard: bool,
    },
    Delete {
        name: &'static str,
        keep_snapshots: bool,
    },
    Connect {
        name: &'static str,
        resume: bool,
    },
    Pause(&'static str),
    Unpause(&'static str),
    Rename {
        name: &'static str,
        to: &'static str,
    },
    Fork {
        name: &'static str,
        to: &'static str,
    },
    ForkFrom {
        name: &'static str,
        to: &'static str,
        nth: usize,
    },
    Label {
        name: &'static str,
        label: u64,
    },
    Write {
        name: &'static str,
        files: Files,
    },
    Read(&'static str),
    DeleteSnapshot {
        name: &'static str,
        nth: usize,
    },
    /// Somebody else's hand at the engine. Nothing where the sandbox is not what that hand is for.
    Outside {
        name: &'static str,
        hand: Hand,
    },
    /// The daemon ends, in good order or not, and another is started.
    Restart {
        orderly: bool,
    },
}

/// What others do to a sandbox behind the daemon's back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hand {
    Kill,
    Pause,
    Unpause,
    Remove,
}

/// What whoever acted is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// It is told what is in the file.
    Said(Files),
    /// The kind of the error.
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    id: u64,
    status: Status,
    reason: Option<Reason>,
    /// What is in its container, if it has one.
    container: Option<Files>,
    /// The snapshot that holds what the container does, for as long as it is saved.
    saved_to: Option<u64>,
    execs: u64,
    label: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Snapshot {
    id: u64,
    /// The row; the name of the session that was deleted without it.
    owner: Result<u64, &'static str>,
    files: Files,
}

/// All sessions and snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    rows: BTreeMap<&'static str, Row>,
    /// Oldest first.
    snapshots: Vec<Snapshot>,
    last_id: u64,
}

/// What of a session anybody can look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) has_container: bool,
    pub(super) snapshots: u64,
    pub(super) execs: u64,
    pub(super) label: u64,
}

/// What comes of an act. `picked` is the snapshot that it names, as [`State::nth`] gave it.
pub(super) fn step(state: &State, act: Act, picked: Option<u64>) -> (State, Answer) {
    let mut next = state.clone();
    match next.apply(act, picked) {
        Ok(answer) => (next, answer),
        Err(kind) => (state.clone(), Answer::Refused(kind.to_owned())),
    }
}

impl State {
    /// The snapshot that an act names; none where it names none, or none that is there.
    pub(super) fn nth(&self, act: Act) -> Option<u64> {
        let (Act::BackTo { name, nth, .. }
        | Act::ForkFrom { name, nth, .. }
        | Act::DeleteSnapshot { name, nth }) = act
        else {
            return None;
        };
        self.timeline(name).nth(nth).map(|snapshot| snapshot.id)
    }

    /// The session of this name as everybody sees it.
    pub(super) fn shown(&self, name: &str) -> Option<Shown> {
        self.rows.get(name).map(|row| Shown {
            status: row.status.as_str().to_owned(),
            reason: row.reason.map(|reason| reason.as_str().to_owned()),
            has_container: row.container.is_some(),
            snapshots: u64::try_from(self.own(row.id).count()).expect("few"),
            execs: row.execs,
            label: row.label,
        })
    }

    /// How many snapshots are found by this name; none where the name is of nothing.
    pub(super) fn timeline_length(&self, name: &str) -> Option<usize> {
        let length = self.timeline(name).count();
        (length > 0 || self.rows.contains_key(name)).then_some(length)
    }

    fn own(&self, row: u64) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(move |s| s.owner == Ok(row))
    }

    /// What is found by a name: the session's own, and what is left of those that had its name.
    fn timeline<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Snapshot> {
        let row = self.rows.get(name).map(|row| row.id);
        self.snapshots.iter().filter(move |s| s.owner.map_or_else(|of| of == name, |id| Some(id) == row))
    }

    fn apply(&mut self, act: Act, picked: Option<u64>) -> Result<Answer, &'static str> {
        match act {
            Act::Start(name) => {
                self.free(name)?;
                self.insert(name, 0, 0);
            }
            Act::Stop(name) => {
                let row = self.row(name)?;
                if matches!(row.status, Status::Running | Status::Paused) {
                    row.rest(Status::Stopped, Some(Reason::User));
                }
            }
            Act::Save { name, noted, keep_running } => self.save(name, noted, keep_running)?,
            Act::Resume(name) | Act::Connect { name, resume: true } => drop(self.awake(name)?),
            Act::Connect { name, resume: false } => match self.row(name)?.status {
                Status::Running => {}
                Status::Lost => return Err("sandbox_lost"),
                _ => return Err("wrong_state"),
            },
            Act::BackTo { name, discard, .. } => self.back_to(name, picked, discard)?,
            Act::Delete { name, keep_snapshots } => self.delete(name, keep_snapshots)?,
            Act::Pause(name) | Act::Unpause(name) => {
                let (row, end) = (self.row(name)?, matches!(act, Act::Pause(_)));
                if !matches!(row.status, Status::Running | Status::Paused) {
                    return Err("wrong_state");
                }
                row.rest(if end { Status::Paused } else { Status::Running }, None);
            }
            Act::Rename { name, to } => self.rename(name, to)?,
            Act::Fork { name, to } => {
                self.free(to)?;
                let files = match *self.row(name)? {
                    Row { status: Status::Lost, .. } => return Err("sandbox_lost"),
                    Row { status: Status::Saved, id, .. } => self.newest(id).ok_or("snapshot_not_found")?,
                    _ => self.take(name)?,
                };
                let label = self.row(name)?.label;
                self.insert(to, files, label);
            }
            Act::ForkFrom { name, to, .. } => {
                self.free(to)?;
                let label = self.row(name)?.label;
                let files = self.found(name, picked)?;
                self.insert(to, files, label);
            }
            Act::Label { name, label } => self.row(name)?.label = label,
            Act::Write { name, files } => {
                let row = self.awake(name)?;
                row.execs += 1;
                row.container = Some(files);
            }
            Act::Read(name) => {
                let row = self.awake(name)?;
                row.execs += 1;
                return Ok(Answer::Said(row.container.unwrap_or_default()));
            }
            Act::DeleteSnapshot { .. } => self.delete_snapshot(picked.ok_or("snapshot_not_found")?)?,
            Act::Outside { name, hand } => self.touch(name, hand),
            Act::Restart { .. } => {}
        }
        Ok(Answer::Done)
    }

    fn row(&mut self, name: &str) -> Result<&mut Row, &'static str> {
        self.rows.get_mut(name).ok_or("session_not_found")
    }

    fn free(&self, name: &str) -> Result<(), &'static str> {
        match name {
            BAD_NAME => Err("invalid_name"),
            _ if self.rows.contains_key(name) => Err("session_exists"),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, name: &'static str, files: Files, label: u64) {
        self.last_id += 1;
        let row = Row {
            id: self.last_id,
            status: Status::Running,
            reason: None,
            container: Some(files),
            saved_to: None,
            execs: 0,
            label,
        };
        self.rows.insert(name, row);
    }

    fn newest(&self, row: u64) -> Option<Files> {
        self.own(row).last().map(|s| s.files)
    }

    /// The files of a snapshot that is found by this name.
    fn found(&self, name: &str, picked: Option<u64>) -> Result<Files, &'static str> {
        let found = self.timeline(name).find(|s| Some(s.id) == picked).map(|s| s.files);
        found.ok_or("snapshot_not_found")
    }

    /// Takes a snapshot of what is in the container.
    fn take(&mut self, name: &str) -> Result<Files, &'static str> {
        self.last_id += 1;
        let id = self.last_id;
        let row = self.row(name)?;
        let files = row.container.ok_or("wrong_state")?;
        row.saved_to = Some(id);
        let owner = Ok(row.id);
        self.snapshots.push(Snapshot { id, owner, files });
        Ok(files)
    }

    fn save(&mut self, name: &str, noted: bool, keep_running: bool) -> Result<(), &'static str> {
        let Row { status, id, .. } = *self.row(name)?;
        match status {
            Status::Lost => return Err("sandbox_lost"),
            Status::Saved if !noted => return self.newest(id).map(drop).ok_or("snapshot_not_found"),
            _ => self.take(name)?,
        };
        if !keep_running && status != Status::Saved {
            self.row(name)?.rest(Status::Saved, Some(Reason::User));
        }
        Ok(())
    }

    /// The session, which runs.
    fn awake(&mut self, name: &str) -> Result<&mut Row, &'static str> {
        let id = self.row(name)?.id;
        let newest = self.newest(id);
        let row = self.row(name)?;
        row.container = Some(row.container.or(newest).ok_or("sandbox_lost")?);
        row.rest(Status::Running, None);
        Ok(row)
    }

    fn back_to(&mut self, name: &str, picked: Option<u64>, discard: bool) -> Result<(), &'static str> {
        let Row { status, container, saved_to, .. } = *self.row(name)?;
        let files = self.found(name, picked)?;
        match status {
            Status::Lost => return Err("sandbox_lost"),
            Status::Running => return Err("wrong_state"),
            _ => {}
        }
        let saved = status == Status::Saved && self.snapshots.iter().any(|s| Some(s.id) == saved_to);
        if container.is_some() && !saved && !discard {
            self.take(name)?;
        }
        let row = self.row(name)?;
        row.container = Some(files);
        row.rest(Status::Running, None);
        Ok(())
    }

    fn delete(&mut self, name: &'static str, keep_snapshots: bool) -> Result<(), &'static str> {
        let id = self.row(name)?.id;
        self.rows.remove(name);
        if keep_snapshots {
            self.snapshots.iter_mut().filter(|s| s.owner == Ok(id)).for_each(|s| s.owner = Err(name));
        } else {
            self.snapshots.retain(|s| s.owner != Ok(id));
        }
        Ok(())
    }

    fn rename(&mut self, name: &str, to: &'static str) -> Result<(), &'static str> {
        if to == BAD_NAME {
            return Err("invalid_name");
        }
        self.row(name)?;
        if name != to {
            self.free(to)?;
            let row = self.rows.remove(name).ok_or("session_not_found")?;
            self.rows.insert(to, row);
        }
        Ok(())
    }

    /// All that is left of a session is not deleted; a saved one without what it was saved to is a stopped one.
    fn delete_snapshot(&mut self, id: u64) -> Result<(), &'static str> {
        let at = self.snapshots.iter().position(|s| s.id == id).ok_or("snapshot_not_found")?;
        let owner = self.snapshots[at].owner;
        let last = owner.is_ok_and(|owner| self.own(owner).count() == 1);
        let row = self.rows.values_mut().find(|row| Ok(row.id) == owner);
        if let Some(row) = row {
            if last && row.container.is_none() {
                return Err("wrong_state");
            }
            if row.status == Status::Saved && row.saved_to == Some(id) && row.container.is_some() {
                row.status = Status::Stopped;
            }
        }
        self.snapshots.remove(at);
        Ok(())
    }

    fn touch(&mut self, name: &str, hand: Hand) {
        let saved = self.rows.get(name).is_some_and(|row| self.newest(row.id).is_some());
        let Ok(row) = self.row(name) else { return };
        match (hand, row.status) {
            (Hand::Kill, Status::Running) => row.rest(Status::Stopped, Some(Reason::Exited)),
            (Hand::Pause, Status::Running) => row.rest(Status::Paused, None),
            (Hand::Unpause, Status::Paused) => row.rest(Status::Running, None),
            (Hand::Remove, status) if row.container.is_some() => {
                row.container = None;
                let reason = if status == Status::Saved { row.reason } else { Some(Reason::Removed) };
                row.rest(if saved { Status::Saved } else { Status::Lost }, reason);
            }
            _ => {}
        }
    }
}

impl Row {
    fn rest(&mut self, status: Status, reason: Option<Reason>) {
        (self.status, self.reason) = (status, reason);
    }
}

/// The states that acts lead to which happen side by side, if they happen one after the other, each as it is answered:
/// one for each such order, from each state that may have been.
pub(super) fn serial(states: &[State], acts: &[(Act, Answer)]) -> Vec<State> {
    let mut ends: Vec<State> = Vec::new();
    for state in states {
        let picked: Vec<Option<u64>> = acts.iter().map(|(act, _)| state.nth(*act)).collect();
        let mut open = vec![(state.clone(), BTreeSet::new())];
        while let Some((state, done)) = open.pop() {
            if done.len() == acts.len() && !ends.contains(&state) {
                ends.push(state.clone());
            }
            for (at, (act, answer)) in acts.iter().enumerate().filter(|(at, _)| !done.contains(at)) {
                let (next, told) = step(&state, *act, picked[at]);
                if told == *answer {
                    open.push((next, done.iter().copied().chain([at]).collect()));
                }
            }
        }
    }
    ends
}
