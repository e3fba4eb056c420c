//! What a session can be waited for.

use super::attention::Attention;
use super::session::{Session, Status, words};

words! {
    /// What is waited for.
    Until {
        /// Its agent works.
        Working = "working",
        /// Its agent waits for its user.
        Waiting = "waiting",
        /// Its agent has stopped to work.
        Idle = "idle",
        /// Its agent has finished.
        Done = "done",
        /// Somebody should look: its agent waits or has finished.
        Attention = "attention",
        /// Its agent's program has ended, or its sandbox has.
        Exit = "exit",
        /// Its sandbox runs.
        Running = "running",
        /// Its sandbox is frozen.
        Paused = "paused",
        /// Its sandbox is stopped.
        Stopped = "stopped",
        /// It is saved.
        Saved = "saved",
        /// It is gone.
        Deleted = "deleted",
    }
}

impl Until {
    /// Whether a session is so; none is one that was deleted. `replaced` says whether another program runs in the place of
    /// its agent's; it is asked only where that matters.
    pub fn holds(self, row: Option<&Session>, replaced: impl FnOnce() -> bool) -> bool {
        let Some(row) = row else { return matches!(self, Self::Exit | Self::Deleted) };
        let noted = row.attention.as_ref();
        let does = |states: &[Attention]| noted.is_some_and(|noted| states.contains(&noted.state));
        match self {
            Self::Working => does(&[Attention::Working]),
            Self::Waiting => does(&[Attention::Waiting]),
            Self::Idle => does(&[Attention::Idle]),
            Self::Done => does(&[Attention::Done]),
            Self::Attention => does(&[Attention::Waiting, Attention::Done]),
            Self::Exit => !row.status.has_processes() || row.main_over && !replaced(),
            Self::Running => row.status == Status::Running,
            Self::Paused => row.status == Status::Paused,
            Self::Stopped => row.status == Status::Stopped,
            Self::Saved => row.status == Status::Saved,
            Self::Deleted => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attention::{Noted, Source};
    use crate::model::id::Timestamp;
    use crate::model::session::tests::sample;

    fn holding(row: Option<&Session>) -> Vec<&'static str> {
        Until::ALL
            .iter()
            .filter(|until| until.holds(row, || unreachable!("no program has ended")))
            .map(|until| until.as_str())
            .collect()
    }

    #[test]
    fn each_state_is_what_it_is_waited_for_as() {
        let noted = |state, source| Noted { state, source, note: None, exec: None, at: Timestamp(1) };
        let row = |status, attention| Session { status, attention, ..sample("a") };
        let runs = |state, source| holding(Some(&row(Status::Running, Some(noted(state, source)))));
        assert_eq!(runs(Attention::Working, Source::Output), ["working", "running"]);
        assert_eq!(runs(Attention::Waiting, Source::Bell), ["waiting", "attention", "running"]);
        assert_eq!(runs(Attention::Idle, Source::Quiet), ["idle", "running"]);
        assert_eq!(runs(Attention::Done, Source::Notify), ["done", "attention", "running"]);
        assert_eq!(runs(Attention::Done, Source::Ended), ["done", "attention", "running"]);
        let running = row(Status::Running, Some(noted(Attention::Working, Source::Output)));
        let over = Session { main_over: true, ..running };
        assert!(Until::Exit.holds(Some(&over), || false), "whatever was said last");
        assert!(!Until::Exit.holds(Some(&over), || true), "another runs there");
        assert_eq!(holding(Some(&row(Status::Paused, None))), ["paused"]);
        assert_eq!(holding(Some(&row(Status::Stopped, None))), ["exit", "stopped"]);
        assert_eq!(holding(Some(&row(Status::Saved, None))), ["exit", "saved"]);
        assert_eq!(holding(Some(&row(Status::Lost, None))), ["exit"]);
        assert_eq!(holding(None), ["exit", "deleted"]);
    }
}
