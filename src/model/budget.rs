//! Whether there is room for a snapshot, and what can go to make some.

use std::collections::HashSet;
use std::sync::Arc;

use super::id::{SessionId, SnapshotId};
use super::prune::is_noted;
use super::session::{Session, Snapshot, SnapshotState};

/// Most snapshots that are proposed for deletion at once.
const MOST: usize = 8;

/// The room that there is, in bytes; none is without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// What snapshots may take.
    pub budget: Option<u64>,
    /// What they take, with those that are being made.
    pub used: u64,
    /// What is free on the engine's disk, but for what is being made.
    pub free: Option<u64>,
}

/// What there is too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Of the budget so much is left, and so much more is needed.
    Budget {
        /// What is left.
        left: u64,
        /// What has to go.
        short: u64,
    },
    /// Of the disk.
    Disk {
        /// What is left.
        left: u64,
        /// What has to go.
        short: u64,
    },
}

impl Room {
    /// What there is too little of for a snapshot that takes this.
    pub fn lack(self, need: u64) -> Option<Lack> {
        if let Some(budget) = self.budget {
            let left = budget.saturating_sub(self.used);
            // One that takes nothing does not fit either, once the budget is spent: it never takes nothing.
            if need.max(1) > left {
                return Some(Lack::Budget { left, short: (self.used + need.max(1)).saturating_sub(budget) });
            }
        }
        let left = self.free?;
        (need > left).then(|| Lack::Disk { left, short: need - left })
    }
}

/// What snapshots take, as far as it is known.
pub fn used(snapshots: &[Arc<Snapshot>]) -> u64 {
    snapshots.iter().filter_map(|snapshot| snapshot.own_bytes).sum()
}

/// The snapshots whose deletion gives back so many bytes, the largest first, or what comes next to it: no session's newest, none
/// on which a container stands, and none on which a user has put a note. `snapshots` is newest first; `made_from` are those from
/// which containers were made, which may have stood on other images then.
pub fn to_free(
    snapshots: &[Arc<Snapshot>],
    sessions: &[Arc<Session>],
    made_from: &HashSet<SnapshotId>,
    bytes: u64,
) -> Vec<Arc<Snapshot>> {
    let used: HashSet<&str> = sessions.iter().filter_map(|session| session.image_id.as_deref()).collect();
    let mut newest = HashSet::new();
    let mut all: Vec<&Arc<Snapshot>> = snapshots
        .iter()
        .filter(|s| s.state == SnapshotState::Ready)
        .filter(|s| !newest.insert(s.session.as_ref().map_or(s.session_name.as_str(), SessionId::as_str)))
        .filter(|s| {
            let stood_on = used.contains(s.image_id.as_str()) || made_from.contains(&s.id);
            !stood_on && !is_noted(s) && s.own_bytes.is_some_and(|own| own > 0)
        })
        .collect();
    // Of the same size the oldest comes first.
    all.sort_by_key(|s| (std::cmp::Reverse(s.own_bytes), s.created_at));
    let mut freed = 0;
    let enough = |s: &&&Arc<Snapshot>| {
        let more = freed < bytes;
        freed += s.own_bytes.unwrap_or_default();
        more
    };
    all.iter().take(MOST).take_while(enough).map(|s| Arc::clone(s)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Timestamp;
    use crate::model::session::tests::sample;

    fn taken(at: i64, session: &str, own: u64) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            id: SnapshotId::new(at.to_string()),
            name: format!("{session}-{at}"),
            session: None,
            session_name: session.to_owned(),
            image_id: format!("sha256:{at}"),
            created_at: Timestamp(at),
            creator: None,
            note: None,
            parent: None,
            size_bytes: own + 100,
            own_bytes: Some(own),
            excluded: Vec::new(),
            state: SnapshotState::Ready,
        })
    }

    #[test]
    fn what_does_not_fit_says_what_of_and_how_much_is_missing() {
        let room = Room { budget: Some(100), used: 70, free: Some(50) };
        assert_eq!(room.lack(30), None);
        assert_eq!(room.lack(31), Some(Lack::Budget { left: 30, short: 1 }));
        let spent = Room { used: 100, ..room };
        assert_eq!(spent.lack(0), Some(Lack::Budget { left: 0, short: 1 }), "none takes nothing");
        let over = Room { used: 130, ..room };
        assert_eq!(
            over.lack(5),
            Some(Lack::Budget { left: 0, short: 35 }),
            "as after the budget was made smaller"
        );
        let free = Room { budget: None, ..room };
        assert_eq!((free.lack(50), free.lack(51)), (None, Some(Lack::Disk { left: 50, short: 1 })));
        assert_eq!(Room::default().lack(u64::MAX), None);
    }

    #[test]
    fn what_can_go_is_the_largest_that_nothing_needs() {
        let noted = Snapshot { note: Some("mine".to_owned()), ..Snapshot::clone(&taken(1, "a", 900)) };
        let all = [
            taken(6, "a", 1_000),
            taken(5, "a", 10),
            taken(4, "b", 2_000),
            taken(3, "a", 30),
            taken(2, "a", 500),
            Arc::new(noted),
        ];
        let stands = Session { image_id: Some("sha256:2".to_owned()), ..sample("a") };
        let names = |bytes| -> Vec<String> {
            to_free(&all, &[Arc::new(stands.clone())], &HashSet::new(), bytes)
                .iter()
                .map(|s| s.name.clone())
                .collect()
        };
        let moved = HashSet::from([SnapshotId::new("3")]);
        assert_eq!(to_free(&all, &[], &moved, 1)[0].name, "a-2", "its container stands on what it was");
        assert_eq!(names(1), ["a-3"]);
        assert_eq!(names(30), ["a-3"]);
        assert_eq!(names(31), ["a-3", "a-5"]);
        assert_eq!(names(u64::MAX), ["a-3", "a-5"], "or all that can");
        assert_eq!(used(&all), 4_440);
    }
}
