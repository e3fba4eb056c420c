//! What is heard of a sandbox's agents, and which of it the row comes to say.
//!
//! Much is heard, and the table is written for little of it: only where what the agent is doing becomes something else,
//! and not more often than a user could follow.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Guests, Inner, Slot};
use crate::daemon::clock;
use crate::guest::wire::Notice;
use crate::model::attention::{self, Attention, Heard, Memory, Noted, Said, Source, hear, is_typed};
use crate::model::exec::Exec;
use crate::model::id::{ExecId, SessionId};
use crate::model::session::Session;
use crate::proto::terminals::MAIN_TERMINAL;
use crate::store::error::StoreError;

/// What was heard and not looked at yet. Of more than this, the oldest is dropped, but not the last that was heard of a
/// progress: without its end, the agent would be at work for ever.
const MAX_WAITING: usize = 64;

/// Longest id of a command that is taken from a sandbox, in bytes: abxd gave out shorter ones.
const MAX_ID_BYTES: usize = 64;

/// Changes of one row at once. What comes from inside is not trusted: more would push everything else out of the events
/// that are kept.
const BURST: u32 = 12;

/// Time after which one more change is allowed.
const REFILL: Duration = Duration::from_secs(5);

/// What was heard of one sandbox.
#[derive(Debug)]
pub(super) struct Ears {
    /// From when on times are counted.
    began: Instant,
    heard: VecDeque<Came>,
    /// How much has come so far.
    came: u64,
    memory: Memory,
    /// When the changes made so far are paid off.
    paid_at: Duration,
}

/// Something that was heard.
#[derive(Debug)]
struct Came {
    /// Counted from the first.
    number: u64,
    at: Duration,
    heard: Heard,
}

impl Ears {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            heard: VecDeque::new(),
            came: 0,
            memory: Memory::default(),
            paid_at: Duration::ZERO,
        }
    }

    /// Takes something. Of keys in a row the last counts, and of what is too much the newest: how it is now.
    fn take(&mut self, heard: Heard) {
        let now = self.began.elapsed();
        if matches!(heard, Heard::Typed(_)) {
            self.heard.pop_back_if(|last| last.heard == heard);
        }
        if self.heard.len() >= MAX_WAITING {
            let spare = (0..self.heard.len()).find(|at| !self.is_last_progress(*at, &heard));
            self.heard.remove(spare.unwrap_or_default());
        }
        self.heard.push_back(Came { number: self.came, at: now, heard });
        self.came += 1;
    }

    /// Whether this one says how the progress of a command stands, also after what is about to be taken.
    fn is_last_progress(&self, at: usize, next: &Heard) -> bool {
        let Heard::Progress(exec, _) = &self.heard[at].heard else { return false };
        let later = self.heard.range(at + 1..).map(|came| &came.heard).chain([next]);
        !later.into_iter().any(|heard| matches!(heard, Heard::Progress(of, _) if of == exec))
    }

    /// Forgets what came before this number; what came since stays, also where that pushed some of it out.
    fn understood(&mut self, before: u64) {
        while self.heard.pop_front_if(|came| came.number < before).is_some() {}
    }

    /// From when on the row may be changed, if not now.
    fn rests_until(&self) -> Option<Instant> {
        let from = self.paid_at.saturating_sub(REFILL * BURST);
        (from > self.began.elapsed()).then(|| self.began + from)
    }

    fn changed(&mut self) {
        self.paid_at = self.paid_at.max(self.began.elapsed()) + REFILL;
    }
}

/// Hears what is typed into a terminal.
pub(super) struct Keys {
    slot: Option<Arc<Slot>>,
    exec: ExecId,
}

impl Keys {
    /// Hears what a client sends there.
    pub(super) fn hear(&self, bytes: &[u8]) {
        if let Some(slot) = &self.slot
            && is_typed(bytes)
        {
            // Nothing follows from it but what the terminal writes next.
            slot.ears().take(Heard::Typed(self.exec.clone()));
        }
    }
}

impl Guests {
    /// What hears the keys that go to a command.
    pub(super) fn keys(&self, session: &SessionId, exec: &str) -> Keys {
        Keys { slot: self.slots().get(session).cloned(), exec: ExecId::new(exec) }
    }
}

impl Slot {
    /// A terminal wrote something.
    pub(super) fn wrote(&self, exec: String) {
        if exec.len() <= MAX_ID_BYTES {
            self.hear(Heard::Output(ExecId::new(exec)));
        }
    }

    /// A command says something. What makes no sense is not heard.
    pub(super) fn said(&self, notice: Notice) {
        if notice.exec.len() > MAX_ID_BYTES {
            return;
        }
        let exec = Some(notice.exec).filter(|exec| !exec.is_empty()).map(ExecId::new);
        let source = match (notice.source, exec) {
            (Notice::PROGRESS, Some(exec)) => {
                return self.hear(Heard::Progress(exec, notice.state == Notice::WORKING));
            }
            (Notice::BELL, exec) => (Source::Bell, exec),
            (Notice::OSC9, exec) => (Source::Osc9, exec),
            (Notice::OSC99, exec) => (Source::Osc99, exec),
            (Notice::OSC777, exec) => (Source::Osc777, exec),
            (Notice::COMMAND, exec) => (Source::Notify, exec),
            _ => return,
        };
        let state = match notice.state {
            Notice::WORKING => Attention::Working,
            Notice::WAITING => Attention::Waiting,
            Notice::IDLE => Attention::Idle,
            Notice::DONE => Attention::Done,
            _ => return,
        };
        let (source, exec) = source;
        let note = attention::note(&notice.title, &notice.body);
        self.hear(Heard::Said(Said { state, source, note, exec }));
    }

    fn hear(&self, heard: Heard) {
        self.ears().take(heard);
        self.has_news.notify_one();
    }

    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Brings the row up to what was heard; gives when it is to be looked at again, whatever is heard until then.
    pub(super) async fn note_heard(&self, slot: &Slot) -> Option<Instant> {
        loop {
            if let Some(until) = slot.ears().rests_until() {
                return Some(until);
            }
            let row = self.store.session_by_id(&slot.session)?;
            let (before, memory, noted) = self.understand(&row, slot);
            let changes = noted != row.attention && row.status.has_processes();
            if changes && !self.change(&row, noted.clone()).await {
                // Somebody else changed it meanwhile.
                continue;
            }
            let mut ears = slot.ears();
            ears.understood(before);
            ears.memory = memory;
            if changes {
                ears.changed();
            }
            let quiet = ears.memory.quiet_at(noted.as_ref()).map(|at| ears.began + at);
            if ears.heard.is_empty() {
                return quiet;
            }
        }
    }

    /// How much has come, what is to be remembered of it, and what the row is to say.
    fn understand(&self, row: &Session, slot: &Slot) -> (u64, Memory, Option<Noted>) {
        let ears = slot.ears();
        let (mut memory, mut noted) = (ears.memory.clone(), row.attention.clone());
        let time = (ears.began.elapsed(), &Heard::Time);
        let at = clock::now();
        for (now, heard) in ears.heard.iter().map(|came| (came.at, &came.heard)).chain([time]) {
            let Some(heard) = self.counts(heard, noted.as_ref()) else { continue };
            if let Some(said) = hear(self.of_running(noted.clone()).as_ref(), &mut memory, &heard, now) {
                noted = Some(said.at(at));
                memory.look_at(noted.as_ref(), now);
            }
        }
        (ears.came, memory, noted)
    }

    /// The same, without the command that it is of where that has ended: whoever goes on may answer for it.
    fn of_running(&self, noted: Option<Noted>) -> Option<Noted> {
        let mut noted = noted?;
        noted.exec = noted.exec.filter(|id| self.store.exec(id).is_some_and(|exec| exec.ended.is_none()));
        Some(noted)
    }

    /// What counts of it: of terminals what the main one writes, and the one that was heard of last; nothing of what has
    /// ended, but for its last words.
    fn counts(&self, heard: &Heard, noted: Option<&Noted>) -> Option<Heard> {
        match heard {
            Heard::Output(id) | Heard::Progress(id, _) => {
                let exec = self.store.exec(id).filter(|exec| exec.ended.is_none())?;
                let heard_last = noted.is_some_and(|noted| noted.exec.as_ref() == Some(id));
                let speaks = matches!(heard, Heard::Progress(..));
                (on_main(&exec) || heard_last || speaks).then(|| heard.clone())
            }
            Heard::Said(said) => {
                let exec = said.exec.as_ref().and_then(|id| self.store.exec(id));
                Some(match exec {
                    Some(exec) if exec.ended.is_none() => heard.clone(),
                    Some(exec) => Heard::Said(last_words(said, on_main(&exec))?),
                    None => Heard::Said(Said { exec: None, ..said.clone() }),
                })
            }
            Heard::Typed(_) | Heard::Time => Some(heard.clone()),
        }
    }

    /// Changes the row, unless it says something else by then than it did.
    async fn change(&self, row: &Session, noted: Option<Noted>) -> bool {
        let (id, before) = (row.id.clone(), row.attention.clone());
        let changed = self.store.write(move |tx| {
            let Some(row) = tx.session(&id) else { return Err(StoreError::Gone { id: id.to_string() }) };
            let same = row.attention == before;
            if same && row.status.has_processes() {
                tx.put_session(&Session { attention: noted, ..row })?;
            }
            Ok(same)
        });
        changed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, session = %row.name, "cannot note what an agent is doing");
            true
        })
    }
}

fn on_main(exec: &Exec) -> bool {
    exec.terminal.as_deref() == Some(MAIN_TERMINAL)
}

/// What stands of what a command said that has ended meanwhile: of the one on the main terminal how it ended, of another
/// what it said on purpose, but not that it works.
fn last_words(said: &Said, on_main: bool) -> Option<Said> {
    match (on_main, said.state) {
        (true, Attention::Done) => Some(Said { source: Source::Ended, ..said.clone() }),
        (true, _) | (false, Attention::Working) => None,
        (false, _) if said.source != Source::Notify => None,
        (false, _) => Some(Said { exec: None, ..said.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(exec: &str) -> Heard {
        Heard::Output(ExecId::new(exec))
    }

    fn progress(exec: &str, shown: bool) -> Heard {
        Heard::Progress(ExecId::new(exec), shown)
    }

    fn left(ears: &Ears) -> Vec<Heard> {
        ears.heard.iter().map(|came| came.heard.clone()).collect()
    }

    #[test]
    fn what_comes_while_the_row_is_written_is_looked_at_although_it_pushes_others_out() {
        let mut ears = Ears::new();
        (0..MAX_WAITING).for_each(|_| ears.take(wrote("before")));
        let before = ears.came;
        (0..3).for_each(|n| ears.take(wrote(&format!("{n}"))));
        assert_eq!(ears.heard.len(), MAX_WAITING);
        ears.understood(before);
        assert_eq!(left(&ears), [wrote("0"), wrote("1"), wrote("2")]);
        ears.take(Heard::Typed(ExecId::new("e")));
        let before = ears.came;
        ears.take(Heard::Typed(ExecId::new("e")));
        ears.understood(before);
        assert_eq!(left(&ears), [Heard::Typed(ExecId::new("e"))], "the key that came since");
    }

    #[test]
    fn a_flood_does_not_push_out_how_the_progress_of_a_command_stands() {
        let mut ears = Ears::new();
        for heard in [progress("a", true), progress("b", false), progress("a", false), progress("c", true)] {
            ears.take(heard);
        }
        (0..10 * MAX_WAITING).for_each(|_| ears.take(wrote("e")));
        assert_eq!(ears.heard.len(), MAX_WAITING);
        assert_eq!(left(&ears)[..3], [progress("b", false), progress("a", false), progress("c", true)]);
        ears.take(progress("c", false));
        assert_eq!(left(&ears)[..3], [progress("b", false), progress("a", false), wrote("e")]);
        (0..10 * MAX_WAITING).for_each(|n| ears.take(progress(&format!("{n}"), n % 2 == 0)));
        assert_eq!(ears.heard.len(), MAX_WAITING, "bounded also where nothing else comes");
    }
}
