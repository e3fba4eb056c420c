//! Whether a session needs its user: what its agent is doing, as far as that shows from outside.
//!
//! Two kinds of signals are told apart. What is *said* (a notification, a bell, `abx notify`) holds against mere *output*
//! that follows it: agents draw their prompt or a spinner again right after they rang. What holds how long is in
//! [`hear`].

mod keys;
mod note;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::keys::is_typed;
pub use self::note::note;
use super::id::{ExecId, Timestamp};
use super::session::words;

/// How long nothing must be written for an agent that worked to be idle. Long enough for one that waits for a tool
/// without a spinner, short enough that a user need not wonder.
pub const QUIET: Duration = Duration::from_secs(10);

/// How long output must go on after a bell, or after `idle` or `done` was said, before it counts: the agent has gone on
/// by itself then.
pub const SUSTAINED: Duration = Duration::from_secs(10);

/// Longest pause within output that goes on. It is told of once a second.
const PAUSE: Duration = Duration::from_secs(3);

/// How long after a key a bell answers that key, as a shell's does that cannot complete a word.
const ANSWERS: Duration = Duration::from_secs(1);

words! {
    /// What an agent is doing.
    Attention {
        /// It is at work.
        Working = "working",
        /// It waits for its user.
        Waiting = "waiting",
        /// It has stopped to work.
        Idle = "idle",
        /// Its program has ended, or it says that it has finished.
        Done = "done",
    }
}

words! {
    /// What told so.
    Source {
        /// It wrote something.
        Output = "output",
        /// It has written nothing for a while.
        Quiet = "quiet",
        /// It rang the bell.
        Bell = "bell",
        /// It sent a notification as iTerm2 has them.
        Osc9 = "osc9",
        /// It sent a notification as kitty has them.
        Osc99 = "osc99",
        /// It sent a notification as rxvt-unicode has them.
        Osc777 = "osc777",
        /// It showed progress.
        Progress = "progress",
        /// Someone said so: `abx notify`, in the sandbox or outside, or `session.notify`.
        Notify = "notify",
        /// Its program ended.
        Ended = "ended",
    }
}

/// What is known of a session's attention. Its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// What the agent is doing.
    pub state: Attention,
    /// What told so.
    pub source: Source,
    /// One line that came with it.
    pub note: Option<String>,
    /// The command that it is of.
    pub exec: Option<ExecId>,
    /// Since when.
    pub at: Timestamp,
}

/// What is heard of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A terminal wrote something.
    Output(ExecId),
    /// A user typed into a terminal.
    Typed(ExecId),
    /// Something rang or said what it is doing.
    Said(Said),
    /// Progress is shown on a terminal, or no longer is.
    Progress(ExecId, bool),
    /// Time has passed.
    Time,
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What the agent is doing.
    pub state: Attention,
    /// What said so.
    pub source: Source,
    /// One line.
    pub note: Option<String>,
    /// The command that said it; none outside of one.
    pub exec: Option<ExecId>,
}

impl Said {
    /// What the row has from then on.
    pub fn at(self, at: Timestamp) -> Noted {
        let Self { state, source, note, exec } = self;
        Noted { state, source, note, exec, at }
    }

    /// Whether it is news where this is known already. One that says nothing does not take an earlier line away.
    pub fn is_news(&self, known: Option<&Noted>) -> bool {
        let Some(known) = known else { return true };
        let says_more = self.note.is_some() && self.note != known.note;
        // Who says that it works is not taken to be idle when it is quiet.
        let holds_longer = self.state == Attention::Working && self.source != known.source;
        let ends = self.source == Source::Ended && known.source != Source::Ended;
        self.state != known.state || says_more || holds_longer || ends
    }
}

/// What counts for a session's attention and is in no row. Times are from any fixed moment on, which all share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Which row the rest is about: what it said, and when.
    about: Option<(Attention, Timestamp)>,
    /// Since when it says that.
    since: Duration,
    last_output: Duration,
    /// When output began that goes on.
    output_since: Option<Duration>,
    typed: Option<Duration>,
    /// Whether a user has typed since the row says what it says.
    answered: bool,
    progress: bool,
}

impl Memory {
    /// Begins anew where the row says something else than before.
    pub fn look_at(&mut self, known: Option<&Noted>, now: Duration) {
        let about = known.map(|known| (known.state, known.at));
        if self.about != about {
            let works = known.is_some_and(|known| known.state == Attention::Working);
            self.about = about;
            self.since = now;
            self.output_since = None;
            self.answered = false;
            self.progress &= works;
        }
    }

    /// When an agent that works is idle, if it stays quiet.
    pub fn quiet_at(&self, known: Option<&Noted>) -> Option<Duration> {
        let known = known.filter(|known| known.state == Attention::Working)?;
        let holds = self.progress || known.source == Source::Notify;
        (!holds).then(|| self.last_output.max(self.since) + QUIET)
    }

    fn wrote(&mut self, now: Duration) {
        if self.output_since.is_none() || now > self.last_output + PAUSE {
            self.output_since = Some(now);
        }
        self.last_output = now;
    }

    fn goes_on(&self, now: Duration) -> bool {
        self.output_since.is_some_and(|since| now >= since + SUSTAINED)
    }

    /// Whether output makes it work again.
    fn output_counts(&self, known: Option<&Noted>, exec: &ExecId, now: Duration) -> bool {
        let Some(known) = known else { return true };
        let others = known.exec.as_ref().is_some_and(|of| of != exec);
        match (known.state, known.source) {
            (Attention::Working, _) => false,
            // What another program writes answers nothing.
            (Attention::Waiting, _) if others => false,
            _ if self.answered => true,
            (Attention::Idle, Source::Quiet) | (Attention::Done, Source::Ended) => true,
            (Attention::Waiting, Source::Bell) | (Attention::Idle | Attention::Done, _) => self.goes_on(now),
            // What waits in words waits until somebody answers.
            (Attention::Waiting, _) => false,
        }
    }
}

/// What a session's attention becomes; none where it stays what it is.
///
/// | heard | becomes | unless |
/// | --- | --- | --- |
/// | output | working | it waits, and nobody typed since; but after a bell, and after `idle` or `done` were said, also without a key once output goes on for [`SUSTAINED`] |
/// | a bell | waiting | it waits already, or the bell answers a key |
/// | a notification, `abx notify` | what it says | it says nothing new |
/// | progress begins | working | |
/// | [`QUIET`] without output | idle | it does not work, shows progress, or said itself that it works |
pub fn hear(known: Option<&Noted>, memory: &mut Memory, heard: &Heard, now: Duration) -> Option<Said> {
    memory.look_at(known, now);
    let state = known.map(|known| known.state);
    let works = |source, exec: &ExecId| {
        let exec = Some(exec.clone());
        Some(Said { state: Attention::Working, source, note: None, exec })
    };
    match heard {
        Heard::Output(exec) => {
            memory.wrote(now);
            memory.output_counts(known, exec, now).then(|| works(Source::Output, exec)).flatten()
        }
        Heard::Typed(exec) => {
            if known.and_then(|known| known.exec.as_ref()).is_none_or(|of| of == exec) {
                memory.typed = Some(now);
                memory.answered = true;
            }
            None
        }
        Heard::Said(said) if said.source == Source::Bell => {
            let answers = memory.typed.is_some_and(|typed| now <= typed + ANSWERS);
            (!answers && state != Some(Attention::Waiting)).then(|| said.clone())
        }
        Heard::Said(said) => said.is_news(known).then(|| said.clone()),
        Heard::Progress(exec, shown) => {
            let begins = *shown && !memory.progress;
            memory.wrote(now);
            memory.progress = *shown;
            (begins && state != Some(Attention::Working)).then(|| works(Source::Progress, exec)).flatten()
        }
        Heard::Time => {
            let quiet = memory.quiet_at(known).is_some_and(|at| at <= now);
            let exec = known.and_then(|known| known.exec.clone());
            quiet.then_some(Said { state: Attention::Idle, source: Source::Quiet, note: None, exec })
        }
    }
}

/// What the end of a command makes of it: of the one on the main terminal, and of one that was at work as far as was
/// heard. What another said stands when it has ended: it may have been a hook, which does nothing else.
pub fn ended(known: Option<&Noted>, exec: &ExecId, on_main: bool, why: Option<String>) -> Option<Said> {
    let worked = known.is_some_and(|k| k.exec.as_ref() == Some(exec) && k.state == Attention::Working);
    // What it said when it was done.
    let last_words =
        known.filter(|known| known.state == Attention::Done).and_then(|known| known.note.clone());
    let (note, exec) = (why.or(last_words), Some(exec.clone()));
    let said = Said { state: Attention::Done, source: Source::Ended, note, exec };
    (on_main || worked).then_some(said)
}
