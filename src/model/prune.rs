//! Which snapshots of a timeline are too many.

use std::sync::Arc;

use super::event::By;
use super::id::Timestamp;
use super::session::Snapshot;

/// How much of a timeline stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rule {
    /// The newest that stay whatever else is said.
    pub keep: usize,
    /// Those taken since then stay, too.
    pub before: Option<Timestamp>,
    /// Those on which a user has put a note stay, too: not those that the daemon took, and says why.
    pub spare_noted: bool,
}

impl Rule {
    /// The snapshots that go by this rule, oldest first. `timeline` is newest first.
    pub fn beyond(&self, timeline: &[Arc<Snapshot>]) -> Vec<Arc<Snapshot>> {
        let goes = |s: &&Arc<Snapshot>| {
            self.before.is_none_or(|before| s.created_at < before) && !(self.spare_noted && is_noted(s))
        };
        timeline.iter().skip(self.keep).filter(goes).rev().cloned().collect()
    }
}

/// Whether a user has put a note on it.
pub(super) fn is_noted(snapshot: &Snapshot) -> bool {
    snapshot.note.is_some() && !snapshot.creator.as_ref().is_some_and(By::is_daemon)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::id::SnapshotId;
    use crate::model::session::SnapshotState;

    /// Taken at this moment, with a note if it is even.
    fn taken(at: i64) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            id: SnapshotId::new(at.to_string()),
            name: at.to_string(),
            session: None,
            session_name: "a".to_owned(),
            image_id: String::new(),
            created_at: Timestamp(at),
            creator: None,
            note: (at % 2 == 0).then(|| "kept for a reason".to_owned()),
            parent: None,
            size_bytes: 0,
            own_bytes: None,
            excluded: Vec::new(),
            state: SnapshotState::Ready,
        })
    }

    fn gone(rule: Rule) -> Vec<String> {
        let timeline: Vec<_> = (1..=6).rev().map(taken).collect();
        rule.beyond(&timeline).iter().map(|s| s.name.clone()).collect()
    }

    #[test]
    fn what_goes_is_neither_new_nor_among_the_last_nor_spared() {
        assert_eq!(gone(Rule { keep: 2, ..Rule::default() }), ["1", "2", "3", "4"]);
        assert_eq!(gone(Rule { keep: 2, spare_noted: true, ..Rule::default() }), ["1", "3"]);
        let old = Rule { before: Some(Timestamp(3)), ..Rule::default() };
        assert_eq!(gone(old), ["1", "2"]);
        assert_eq!(gone(Rule { keep: 5, ..old }), ["1"], "both must hold");
        assert_eq!(gone(Rule { keep: 9, ..Rule::default() }), [""; 0]);
        let own = Snapshot { creator: Some(By::daemon()), ..Snapshot::clone(&taken(2)) };
        let rule = Rule { keep: 0, spare_noted: true, ..Rule::default() };
        assert_eq!(rule.beyond(&[Arc::new(own)]).len(), 1, "what the daemon noted itself is no user's note");
    }

    proptest! {
        #[test]
        fn the_newest_are_never_among_what_goes(keep in 0_usize..8, before in prop::option::of(0_i64..8), spare in any::<bool>()) {
            let left = gone(Rule { keep, before: before.map(Timestamp), spare_noted: spare });
            prop_assert!(left.iter().all(|name| name.parse::<usize>().expect("a number") <= 6_usize.saturating_sub(keep)));
        }
    }
}
