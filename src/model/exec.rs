//! A command that was run in a sandbox, as the table keeps it, and how it is decided how it ended.

use super::id::{ExecId, SessionId, Timestamp};
use super::session::{Operation, Reason, Session, Status};

/// Codes that a command is given where it has none of its own.
pub mod code {
    /// Its time ran out (as in coreutils' `timeout`).
    pub const TIMED_OUT: i32 = 124;
    /// Nobody saw its end.
    pub const UNSEEN: i32 = 125;
    /// It cannot be run.
    pub const NOT_EXECUTABLE: i32 = 126;
    /// There is no such program.
    pub const NOT_FOUND: i32 = 127;
    /// It was killed.
    pub const KILLED: i32 = of_signal(super::signal::KILL);

    /// The code of a command that a signal ended.
    pub const fn of_signal(signal: i32) -> i32 {
        128 + signal
    }
}

/// Numbers of the signals that abx sends of its own accord.
pub mod signal {
    /// To what runs on a terminal that is gone.
    pub const HUP: i32 = 1;
    /// To what is to stop what it does.
    pub const INT: i32 = 2;
    /// To what did not end by itself.
    pub const KILL: i32 = 9;
    /// To what is to end.
    pub const TERM: i32 = 15;

    /// The signal that a code tells of, for an engine that tells of it in no other way.
    pub fn of_code(code: i32) -> Option<u8> {
        u8::try_from(code - 128).ok().filter(|signal| (1..=64).contains(signal))
    }
}

/// A row of the table of commands. Its output is not here: that is kept, within bounds, where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// UUIDv7.
    pub id: ExecId,
    /// Whose sandbox it runs in.
    pub session: SessionId,
    /// What its caller named it by, so that asking twice starts one; unique in the session.
    pub key: Option<String>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The name of the terminal that it has, if that has one.
    pub terminal: Option<String>,
    /// Whether it runs on a terminal.
    pub tty: bool,
    /// Whether it goes on without anybody who waits for it.
    pub detached: bool,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// When its time runs out.
    pub deadline: Option<Timestamp>,
    /// What was decided about it before it ended.
    pub verdict: Option<Verdict>,
    /// How it ended, once it did.
    pub ended: Option<End>,
}

/// What is decided about a command's end before it comes, or by what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its time ran out.
    TimedOut,
    /// Whoever waited for it went away.
    Abandoned,
    /// Whoever waited for it cancelled the call.
    Cancelled,
    /// Its sandbox ended.
    WithSandbox,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Its exit code: its own, 124, 126, 127 or 128+n.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// One line, when it did not end by itself.
    pub reason: Option<String>,
}

impl Verdict {
    /// Every one, by the word that the table has for it.
    const WORDS: [(Self, &str); 4] = [
        (Self::TimedOut, "timed_out"),
        (Self::Abandoned, "abandoned"),
        (Self::Cancelled, "cancelled"),
        (Self::WithSandbox, "with_sandbox"),
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(verdict, _)| *verdict == self).map_or("", |(_, word)| word)
    }

    /// The one of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, own)| *own == word).map(|(verdict, _)| *verdict)
    }

    /// Whether nobody waits for the command any more.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::Abandoned | Self::Cancelled)
    }

    /// Whether what it is passed on is ended for it.
    pub fn ends(self) -> bool {
        self == Self::TimedOut || self.gives_up()
    }

    /// The end that stands where this one is seen. Whoever gave a command up ended it, and it ended as it did; what nobody
    /// saw was killed.
    pub fn end(self, seen: End) -> End {
        let because = |reason: &str| Some(reason.to_owned());
        let seen = if self.gives_up() && seen == End::unseen(seen.at) { End::killed(seen.at) } else { seen };
        match self {
            Self::TimedOut => {
                End { code: code::TIMED_OUT, signal: None, reason: because("its time ran out"), ..seen }
            }
            Self::Abandoned => End { reason: because("its client went away"), ..seen },
            Self::Cancelled => End { reason: because("its call was cancelled"), ..seen },
            Self::WithSandbox => seen,
        }
    }
}

impl Exec {
    /// Whether it is to be ended and was not seen to have ended.
    pub fn is_owed_its_end(&self) -> bool {
        self.ended.is_none() && self.verdict.is_some_and(Verdict::ends)
    }

    /// As it is once this was decided about it. The first verdict stands, and none is passed on what has ended.
    pub fn judged(&self, verdict: Verdict) -> Self {
        let verdict = if self.ended.is_some() { self.verdict } else { self.verdict.or(Some(verdict)) };
        Self { verdict, ..self.clone() }
    }

    /// As it is once this end of it was seen. The first end stands; what was decided before it counts more than what is
    /// seen. Where it ended with its sandbox, whoever sees more of that says why.
    pub fn ended(&self, seen: End) -> Self {
        let end = match (&self.ended, self.verdict) {
            (None, Some(verdict)) => verdict.end(seen),
            (None, None) => seen,
            (Some(end), Some(Verdict::WithSandbox)) if seen.reason.is_some() => {
                End { reason: seen.reason, ..end.clone() }
            }
            (Some(end), _) => end.clone(),
        };
        Self { ended: Some(end), ..self.clone() }
    }
}

impl End {
    /// An end that was seen, in a session that is as its row says, or deleted.
    pub fn seen(
        at: Timestamp,
        (code, signal): (i32, Option<u8>),
        out_of_memory: bool,
        name: &str,
        row: Option<&Session>,
    ) -> Self {
        let reason = match (code, row) {
            (0, _) => None,
            (_, row) if out_of_memory => Some(memory(row)),
            (_, Some(row)) => why_sandbox_ended(row, at),
            (_, None) => Some(format!("session '{name}' was deleted")),
        };
        Self { at, code, signal, reason }
    }

    /// The end of what ran in a sandbox that has ended.
    pub fn with_sandbox(at: Timestamp, row: &Session) -> Self {
        let reason = why_sandbox_ended(row, at).unwrap_or_else(|| "its sandbox ended".to_owned());
        Self { reason: Some(reason), ..Self::killed(at) }
    }

    /// The end of what was killed.
    fn killed(at: Timestamp) -> Self {
        Self { at, code: code::KILLED, signal: u8::try_from(signal::KILL).ok(), reason: None }
    }

    /// The end of what ended unseen.
    pub fn unseen(at: Timestamp) -> Self {
        let reason = Some("abxd was restarted and did not see its end".to_owned());
        Self { at, code: code::UNSEEN, signal: None, reason }
    }
}

fn memory(row: Option<&Session>) -> String {
    let limit = row.and_then(|row| row.spec.limits.memory_bytes);
    let limit = limit.map(|bytes| format!(", which is limited to {} MiB", bytes >> 20)).unwrap_or_default();
    format!("killed: the sandbox ran out of memory{limit}")
}

/// Why a session's sandbox ended, or is about to; none where it runs on.
fn why_sandbox_ended(row: &Session, at: Timestamp) -> Option<String> {
    let expired = row.expires_at.is_some_and(|expiry| expiry <= at);
    let text = match (row.operation, row.status, row.reason) {
        (Some(Operation::Delete | Operation::DeleteKeep), ..) => "is being deleted",
        (Some(Operation::Save), ..) => "is being saved",
        (Some(Operation::Stop), ..) if expired => "is being stopped: its timeout ran out",
        // One that is idle has nobody inside.
        (Some(Operation::Stop), ..) => "is being stopped by its user",
        (_, Status::Running | Status::Paused | Status::Starting, _) => return None,
        (_, _, Some(Reason::Timeout)) => "was stopped: its timeout ran out",
        (_, _, Some(Reason::Idle)) => "was stopped: it was idle",
        (_, _, Some(Reason::OomKilled)) => "ran out of memory",
        (_, _, Some(Reason::Engine)) => "was stopped: the engine stopped",
        (_, _, Some(Reason::Removed)) => "was removed outside abx",
        (_, _, Some(Reason::Exited)) => "ended: its main program exited",
        (_, Status::Saved, _) => "was saved",
        (_, _, Some(Reason::User)) => "was stopped by its user",
        _ => "was stopped",
    };
    Some(format!("session '{}' {text}", row.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec() -> Exec {
        Exec {
            id: ExecId::new("e"),
            session: SessionId::new("s"),
            key: None,
            argv: vec!["sleep".to_owned()],
            terminal: None,
            tty: false,
            detached: false,
            started_at: Timestamp(1),
            deadline: None,
            verdict: None,
            ended: None,
        }
    }

    fn end(code: i32, reason: Option<&str>) -> End {
        End { at: Timestamp(9), code, signal: signal::of_code(code), reason: reason.map(str::to_owned) }
    }

    fn told(exec: &Exec) -> (i32, Option<u8>, Option<&str>) {
        let end = exec.ended.as_ref().expect("ended");
        (end.code, end.signal, end.reason.as_deref())
    }

    #[test]
    fn the_first_end_stands_whoever_tells_of_the_second() {
        let ended = exec().ended(end(3, None));
        assert_eq!(told(&ended.ended(end(143, Some("later")))), (3, None, None));
        assert_eq!(ended.judged(Verdict::TimedOut).verdict, None);
    }

    #[test]
    fn what_was_decided_before_the_end_counts_more_than_what_is_seen() {
        let timed_out = exec().judged(Verdict::TimedOut).judged(Verdict::Abandoned);
        assert_eq!(told(&timed_out.ended(end(143, None))), (124, None, Some("its time ran out")));
        let given_up =
            [(Verdict::Abandoned, "its client went away"), (Verdict::Cancelled, "its call was cancelled")];
        for (verdict, reason) in given_up {
            let given_up = exec().judged(verdict);
            assert_eq!(told(&given_up.ended(end(143, None))), (143, Some(15), Some(reason)));
            assert_eq!(told(&given_up.ended(end(3, Some("more")))), (3, None, Some(reason)), "its own code");
            assert_eq!(told(&given_up.ended(End::unseen(Timestamp(9)))), (137, Some(9), Some(reason)));
        }
    }

    #[test]
    fn why_a_command_ended_with_its_sandbox_may_come_later_and_its_code_not() {
        let ended = exec().judged(Verdict::WithSandbox).ended(end(137, Some("was stopped")));
        let more = ended.ended(end(143, Some("was removed")));
        assert_eq!(told(&more), (137, Some(9), Some("was removed")));
        assert_eq!(told(&more.ended(end(0, None))), (137, Some(9), Some("was removed")));
    }

    #[test]
    fn every_verdict_has_a_word_of_its_own() {
        for (verdict, word) in Verdict::WORDS {
            assert_eq!((verdict.as_str(), Verdict::from_word(word)), (word, Some(verdict)));
        }
        assert_eq!(Verdict::from_word("of tomorrow"), None);
    }

    #[test]
    fn codes_beyond_128_are_signals_up_to_the_last() {
        assert_eq!(
            [0, 128, 129, 192, 193, 255].map(signal::of_code),
            [None, None, Some(1), Some(64), None, None]
        );
    }
}
