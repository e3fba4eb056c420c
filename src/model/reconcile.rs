//! What a row must say once its container has been looked at.
//!
//! Two questions: what to do with a row whose operation was cut off ([`recover`]), and what a row without an operation
//! must say when reality differs ([`settle`]). Neither ever turns a row into nothing: only a start that nobody was
//! told of is undone.

use super::session::{EngineKind, Operation, Reason, Session, Status, words};

words! {
    /// What becomes of a session that ran when its engine went, once that is back.
    OnBoot {
        /// It is brought back.
        Resume = "resume",
        /// It stays stopped.
        Stopped = "stopped",
    }
}

/// What was seen of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Its processes run.
    Running,
    /// They are frozen.
    Paused,
    /// They ended, or never began.
    Stopped {
        /// Whether the kernel ended them for want of memory.
        oom_killed: bool,
    },
    /// There is no such container.
    Gone,
}

/// What the row must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The new state.
    pub status: Status,
    /// Why it does not run.
    pub reason: Option<Reason>,
}

/// What to do about an operation that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Forget the operation and let the row say what is seen.
    Settle(Change),
    /// Thaw the sandbox, which the operation froze, then settle as running.
    Thaw,
    /// Nobody was told of this start: remove what there is of its container, then the row.
    Undo,
    /// Go on deleting.
    FinishDelete {
        /// But leave the snapshots.
        keep_snapshots: bool,
    },
}

/// What a row without an operation must say, or none if it is right. `engine_restarted` is true when the engine was
/// away since the row was last compared, which is then why a container stopped.
pub fn settle(session: &Session, seen: Seen, engine_restarted: bool) -> Option<Change> {
    if session.engine == EngineKind::External {
        return None;
    }
    let change = seen_as(session, seen, engine_restarted);
    (change.status != session.status).then_some(change)
}

fn seen_as(session: &Session, seen: Seen, engine_restarted: bool) -> Change {
    let status = session.status;
    match seen {
        Seen::Running => Change { status: Status::Running, reason: None },
        Seen::Paused => Change { status: Status::Paused, reason: None },
        Seen::Gone if session.snapshots > 0 => {
            let reason = if status == Status::Saved { session.reason } else { Some(Reason::Removed) };
            Change { status: Status::Saved, reason }
        }
        Seen::Gone => Change { status: Status::Lost, reason: Some(Reason::Removed) },
        Seen::Stopped { .. } if matches!(status, Status::Stopped | Status::Saved) => {
            Change { status, reason: session.reason }
        }
        Seen::Stopped { oom_killed } => {
            let reason = match (oom_killed, engine_restarted) {
                (true, _) => Reason::OomKilled,
                (false, true) => Reason::Engine,
                (false, false) => Reason::Exited,
            };
            Change { status: Status::Stopped, reason: Some(reason) }
        }
    }
}

/// What to do about the operation of `session`, given what is seen of its container now.
pub fn recover(session: &Session, seen: Seen) -> Recovery {
    let now = seen_as(session, seen, false);
    let stopped_by_us = Change { status: Status::Stopped, reason: Some(Reason::User) };
    match (session.operation, seen) {
        (Some(Operation::Delete), _) => Recovery::FinishDelete { keep_snapshots: false },
        (Some(Operation::DeleteKeep), _) => Recovery::FinishDelete { keep_snapshots: true },
        (Some(Operation::Start), Seen::Running) => Recovery::Settle(now),
        (Some(Operation::Start), _) => Recovery::Undo,
        (Some(Operation::SaveRunning), Seen::Paused) if session.status == Status::Running => Recovery::Thaw,
        (Some(Operation::Stop | Operation::Save), Seen::Stopped { .. })
            if session.status != Status::Saved =>
        {
            Recovery::Settle(stopped_by_us)
        }
        (Some(Operation::Resume), Seen::Stopped { .. }) => {
            let status = if session.status == Status::Saved { Status::Saved } else { Status::Stopped };
            Recovery::Settle(Change { status, reason: session.reason.or(Some(Reason::User)) })
        }
        _ => Recovery::Settle(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::tests::sample;

    const STOPPED: Seen = Seen::Stopped { oom_killed: false };

    fn row(status: Status, snapshots: u64) -> Session {
        Session { status, snapshots, operation: None, ..sample("a") }
    }

    #[test]
    fn reality_wins_for_a_row_at_rest() {
        let table = [
            (row(Status::Running, 0), Seen::Running, None),
            (row(Status::Running, 0), STOPPED, Some((Status::Stopped, Some(Reason::Exited)))),
            (
                row(Status::Running, 0),
                Seen::Stopped { oom_killed: true },
                Some((Status::Stopped, Some(Reason::OomKilled))),
            ),
            (row(Status::Running, 0), Seen::Paused, Some((Status::Paused, None))),
            (row(Status::Paused, 0), Seen::Running, Some((Status::Running, None))),
            (row(Status::Stopped, 0), Seen::Running, Some((Status::Running, None))),
            (row(Status::Running, 0), Seen::Gone, Some((Status::Lost, Some(Reason::Removed)))),
            (row(Status::Running, 2), Seen::Gone, Some((Status::Saved, Some(Reason::Removed)))),
            (row(Status::Saved, 2), Seen::Gone, None),
            (row(Status::Saved, 2), STOPPED, None),
            (row(Status::Lost, 0), STOPPED, Some((Status::Stopped, Some(Reason::Exited)))),
        ];
        for (row, seen, want) in table {
            let got = settle(&row, seen, false).map(|c| (c.status, c.reason));
            assert_eq!(got, want, "{:?} seen {seen:?}", row.status);
        }
    }

    #[test]
    fn a_container_that_stopped_while_the_engine_was_away_says_engine() {
        let change = settle(&row(Status::Running, 0), STOPPED, true).expect("differs");
        assert_eq!(change, Change { status: Status::Stopped, reason: Some(Reason::Engine) });
    }

    #[test]
    fn a_session_of_another_program_is_left_alone() {
        let row = Session { engine: EngineKind::External, ..row(Status::Unknown, 0) };
        assert_eq!(settle(&row, Seen::Gone, false), None);
    }

    #[test]
    fn each_operation_that_was_cut_off_has_one_way_on() {
        use Operation::{Delete, DeleteKeep, Pause, Resume, Save, SaveRunning, Start, Stop};
        let change = |status, reason| Recovery::Settle(Change { status, reason });
        let user = Some(Reason::User);
        let table = [
            (Start, Status::Starting, Seen::Gone, Recovery::Undo),
            (Start, Status::Starting, STOPPED, Recovery::Undo),
            (Start, Status::Starting, Seen::Running, change(Status::Running, None)),
            (Stop, Status::Running, Seen::Running, change(Status::Running, None)),
            (Stop, Status::Running, STOPPED, change(Status::Stopped, user)),
            (Save, Status::Running, STOPPED, change(Status::Stopped, user)),
            (Save, Status::Running, Seen::Running, change(Status::Running, None)),
            (SaveRunning, Status::Running, Seen::Paused, Recovery::Thaw),
            (Save, Status::Paused, Seen::Paused, change(Status::Paused, None)),
            (Resume, Status::Stopped, STOPPED, change(Status::Stopped, user)),
            (Resume, Status::Stopped, Seen::Running, change(Status::Running, None)),
            (Pause, Status::Running, Seen::Paused, change(Status::Paused, None)),
            (Delete, Status::Running, Seen::Gone, Recovery::FinishDelete { keep_snapshots: false }),
            (DeleteKeep, Status::Saved, STOPPED, Recovery::FinishDelete { keep_snapshots: true }),
        ];
        for (operation, status, seen, want) in table {
            let row = Session { operation: Some(operation), ..row(status, 0) };
            assert_eq!(recover(&row, seen), want, "{operation:?} from {status:?} seen {seen:?}");
        }
    }

    #[test]
    fn recovery_never_leaves_a_row_starting_and_never_drops_one_that_was_acknowledged() {
        for operation in Operation::ALL {
            for status in [Status::Running, Status::Paused, Status::Stopped, Status::Saved, Status::Lost] {
                for seen in [Seen::Running, Seen::Paused, STOPPED, Seen::Gone] {
                    let row = Session { operation: Some(*operation), ..row(status, 0) };
                    match recover(&row, seen) {
                        Recovery::Undo => assert_eq!(*operation, Operation::Start),
                        Recovery::Settle(change) => assert_ne!(change.status, Status::Starting),
                        Recovery::Thaw | Recovery::FinishDelete { .. } => {}
                    }
                }
            }
        }
    }
}
