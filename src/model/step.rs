//! What a verb does to a session: which steps, or why not.
//!
//! [`plan`] answers from the row alone; the driver carries the steps out one by one and commits their outcome.

use super::session::{EngineKind, Operation, Session, Status};

/// What a user may ask of an existing session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// End its processes, keep its files.
    Stop,
    /// Take a snapshot.
    Save {
        /// Under a pause, and leave the session as it was.
        keep_running: bool,
        /// The user named or annotated it, so that an older snapshot will not do.
        distinct: bool,
    },
    /// Bring it back as it was.
    Resume,
    /// Go back to a snapshot.
    Rollback {
        /// The files are not those of a snapshot, so that one is taken first.
        unsaved: bool,
    },
    /// Remove it.
    Delete {
        /// But not its snapshots.
        keep_snapshots: bool,
    },
    /// Freeze it.
    Pause,
    /// Thaw it.
    Unpause,
    /// Take the snapshot that a fork starts from.
    Fork,
    /// Run something in it.
    Exec,
    /// Read or write its files.
    Files,
}

/// One thing to do at the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// TERM, grace, KILL.
    Stop,
    /// Freeze.
    Pause,
    /// Thaw.
    Unpause,
    /// Commit the files to an image.
    Snapshot,
    /// Start the same container, or make one from the newest snapshot.
    Bring,
    /// Make a new container from the chosen snapshot in the old one's place.
    Replace,
    /// Remove the container.
    Remove,
}

/// What will be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The intent to commit first; none when there is nothing to do.
    pub operation: Option<Operation>,
    /// In this order. Empty when the session is already where the verb leads.
    pub steps: &'static [Step],
    /// The state afterwards.
    pub ends_in: Status,
}

/// Why a verb cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another program runs it.
    #[error("its sandbox is run by another program")]
    External,
    /// Its container is gone and there is no snapshot.
    #[error("its container is gone and no snapshot can bring it back")]
    Lost,
    /// It is not in a state from which the verb leads anywhere.
    #[error("it is {}, not {wanted}", status.as_str())]
    State {
        /// What it is.
        status: Status,
        /// What it would have to be.
        wanted: &'static str,
    },
    /// Its first start has not ended.
    #[error("it is still being started")]
    Starting,
}

/// Decides what `verb` does to `session`. A verb that finds the session already there gives an empty plan.
///
/// # Errors
/// A [`Refusal`] when the verb leads nowhere from this state.
pub fn plan(session: &Session, verb: Verb) -> Result<Plan, Refusal> {
    use Status::{Lost, Paused, Running, Saved, Starting, Stopped, Unknown};
    use Step::{Bring, Remove, Replace, Snapshot, Stop};

    let status = session.status;
    let go =
        |operation, steps: &'static [Step], ends_in| Ok(Plan { operation: Some(operation), steps, ends_in });
    let already = Ok(Plan { operation: None, steps: &[], ends_in: status });
    let state = |wanted| Err(Refusal::State { status, wanted });

    let external = session.engine == EngineKind::External;
    match (verb, status) {
        (Verb::Delete { keep_snapshots }, _) => {
            let operation = if keep_snapshots { Operation::DeleteKeep } else { Operation::Delete };
            go(operation, if external { &[] } else { &[Remove] }, status)
        }
        (_, Unknown) => Err(Refusal::External),
        _ if external => Err(Refusal::External),
        (_, Starting) => Err(Refusal::Starting),

        (Verb::Stop, Running | Paused) => go(Operation::Stop, &[Stop], Stopped),
        (Verb::Stop, _) => already,

        (Verb::Save { keep_running: true, .. } | Verb::Fork, Running) => {
            go(Operation::SaveRunning, &[Step::Pause, Snapshot, Step::Unpause], Running)
        }
        (Verb::Save { keep_running: true, .. } | Verb::Fork, Paused | Stopped) => {
            go(Operation::Save, &[Snapshot], status)
        }
        (Verb::Save { keep_running: false, .. }, Running | Paused) => {
            go(Operation::Save, &[Stop, Snapshot], Saved)
        }
        (Verb::Save { keep_running: false, .. }, Stopped) => go(Operation::Save, &[Snapshot], Saved),
        (Verb::Save { distinct: true, .. }, Saved) => go(Operation::Save, &[Snapshot], Saved),
        (Verb::Save { distinct: false, .. } | Verb::Fork, Saved) => already,

        (Verb::Resume, Stopped | Saved) => go(Operation::Resume, &[Bring], Running),
        (Verb::Resume | Verb::Unpause, Paused) => go(Operation::Unpause, &[Step::Unpause], Running),
        (Verb::Resume | Verb::Unpause, Running) => already,
        (Verb::Rollback { unsaved: true }, Stopped | Saved | Paused) => {
            go(Operation::Resume, &[Stop, Snapshot, Replace], Running)
        }
        (Verb::Rollback { unsaved: false }, Stopped | Saved | Paused) => {
            go(Operation::Resume, &[Replace], Running)
        }
        (Verb::Rollback { .. }, Running) => state("stopped, saved or paused"),

        (Verb::Pause, Running) => go(Operation::Pause, &[Step::Pause], Paused),
        (Verb::Pause, Paused) => already,
        (Verb::Exec, Running) | (Verb::Files, Running | Paused | Stopped | Saved) => already,

        (
            Verb::Save { .. } | Verb::Resume | Verb::Rollback { .. } | Verb::Fork | Verb::Exec | Verb::Files,
            Lost,
        ) => Err(Refusal::Lost),
        (Verb::Unpause, _) => state("paused"),
        (Verb::Pause | Verb::Exec, _) => state("running"),
    }
}

/// Whether a session's sandbox is frozen, or may be any moment: nothing in it answers.
pub fn is_frozen(session: &Session) -> bool {
    let freezing = [Operation::Pause, Operation::Unpause, Operation::SaveRunning];
    session.status == Status::Paused
        || session.operation.is_some_and(|operation| freezing.contains(&operation))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::session::tests::sample;

    fn at(status: Status) -> Session {
        Session { status, ..sample("a") }
    }

    fn ends(status: Status, verb: Verb) -> Result<Status, Refusal> {
        plan(&at(status), verb).map(|p| p.ends_in)
    }

    const SAVE: Verb = Verb::Save { keep_running: false, distinct: false };
    const SAVE_KEEP: Verb = Verb::Save { keep_running: true, distinct: false };

    #[test]
    fn every_verb_ends_where_the_contract_says() {
        use Status::{Lost, Paused, Running, Saved, Stopped};
        let table = [
            (
                Verb::Stop,
                [(Running, Stopped), (Paused, Stopped), (Stopped, Stopped), (Saved, Saved), (Lost, Lost)]
                    .as_slice(),
            ),
            (SAVE, &[(Running, Saved), (Paused, Saved), (Stopped, Saved), (Saved, Saved)]),
            (SAVE_KEEP, &[(Running, Running), (Paused, Paused), (Stopped, Stopped)]),
            (Verb::Resume, &[(Stopped, Running), (Saved, Running), (Paused, Running), (Running, Running)]),
            (Verb::Rollback { unsaved: true }, &[(Stopped, Running), (Saved, Running), (Paused, Running)]),
            (Verb::Pause, &[(Running, Paused), (Paused, Paused)]),
            (Verb::Unpause, &[(Paused, Running), (Running, Running)]),
        ];
        for (verb, rows) in table {
            for (from, to) in rows {
                assert_eq!(ends(*from, verb), Ok(*to), "{verb:?} from {from:?}");
            }
        }
    }

    #[test]
    fn files_are_at_hand_in_every_state_that_has_a_container() {
        for status in [Status::Running, Status::Paused, Status::Stopped, Status::Saved] {
            assert_eq!(ends(status, Verb::Files), Ok(status), "{status:?}");
        }
        assert_eq!(ends(Status::Starting, Verb::Files), Err(Refusal::Starting));
    }

    #[test]
    fn a_lost_session_refuses_by_name_what_needs_its_files() {
        let rollback = Verb::Rollback { unsaved: true };
        for verb in [SAVE, SAVE_KEEP, Verb::Resume, rollback, Verb::Fork, Verb::Exec, Verb::Files] {
            assert_eq!(ends(Status::Lost, verb), Err(Refusal::Lost), "{verb:?}");
        }
        assert!(ends(Status::Lost, Verb::Delete { keep_snapshots: false }).is_ok());
    }

    #[test]
    fn a_session_of_another_program_can_only_be_deleted() {
        let session = Session { engine: EngineKind::External, ..at(Status::Unknown) };
        for verb in
            [Verb::Stop, SAVE, Verb::Resume, Verb::Pause, Verb::Unpause, Verb::Fork, Verb::Exec, Verb::Files]
        {
            assert_eq!(plan(&session, verb), Err(Refusal::External), "{verb:?}");
        }
        assert_eq!(plan(&session, Verb::Delete { keep_snapshots: false }).expect("allowed").steps, &[]);
    }

    #[test]
    fn a_named_save_of_a_saved_session_takes_a_new_snapshot_and_a_plain_one_changes_nothing() {
        let named = Verb::Save { keep_running: false, distinct: true };
        assert_eq!(plan(&at(Status::Saved), named).expect("allowed").steps, &[Step::Snapshot]);
        assert_eq!(plan(&at(Status::Saved), SAVE).expect("allowed").steps, &[]);
    }

    /// What the engine does at each step, so that random sequences can be checked against reality.
    fn carry_out(state: Status, steps: &[Step]) -> Status {
        steps.iter().fold(state, |state, step| match step {
            Step::Stop => Status::Stopped,
            Step::Pause => Status::Paused,
            Step::Unpause | Step::Bring | Step::Replace => Status::Running,
            Step::Snapshot | Step::Remove => state,
        })
    }

    fn verbs() -> impl Strategy<Value = Verb> {
        prop_oneof![
            Just(Verb::Stop),
            any::<(bool, bool)>().prop_map(|(keep_running, distinct)| Verb::Save { keep_running, distinct }),
            Just(Verb::Resume),
            any::<bool>().prop_map(|unsaved| Verb::Rollback { unsaved }),
            Just(Verb::Pause),
            Just(Verb::Unpause),
            Just(Verb::Fork),
        ]
    }

    #[test]
    fn going_back_over_unsaved_files_takes_a_snapshot_first() {
        let plan = plan(&at(Status::Stopped), Verb::Rollback { unsaved: true }).expect("allowed");
        assert_eq!(plan.steps, [Step::Stop, Step::Snapshot, Step::Replace]);
    }

    proptest! {
        #[test]
        fn no_sequence_of_verbs_leaves_the_row_and_the_container_apart(sequence in prop::collection::vec(verbs(), 0..40)) {
            let mut session = at(Status::Running);
            let mut container = Status::Running;
            for verb in sequence {
                if let Ok(plan) = plan(&session, verb) {
                    container = carry_out(container, plan.steps);
                    session.status = plan.ends_in;
                }
                let row = if session.status == Status::Saved { Status::Stopped } else { session.status };
                prop_assert_eq!(row, container);
            }
        }
    }
}
