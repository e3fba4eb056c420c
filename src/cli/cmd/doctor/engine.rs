//! What abx has on the engine: containers and images without a row, and how deep sessions stand on snapshots.

use super::{Check, LOW_SPACE_BYTES, Mend, counted};
use crate::cli::output::clean;
use crate::config::size;
use crate::proto::daemon::{DaemonCheckResult, SpaceUse};

/// Layers from which on a save takes longer, and the limit of engines comes near.
const MANY_LAYERS: u64 = 64;

/// Every check of it.
pub(super) fn checks(found: &DaemonCheckResult) -> Vec<Check> {
    let mut checks: Vec<Check> = found
        .containers
        .iter()
        .map(|orphan| {
            let why = format!(
                "the container {} ({}) is of this home, and no session's",
                clean(&orphan.name),
                clean(&orphan.state)
            );
            match &orphan.session {
                Some(name) => {
                    let fix = format!("abx adopt {} {}", clean(name), clean(&orphan.name));
                    let (name, container) = (name.clone(), orphan.id.clone());
                    Check::warning("orphan", why, fix).mended_by(Mend::Adopt { name, container })
                }
                // It may hold the only copy of some files: nobody is told to remove it unseen.
                None => {
                    let name = clean(&orphan.name);
                    let fix = format!(
                        "see what it holds with docker diff {name}, keep that with docker commit {name} NAME:TAG, \
                         and only then: docker rm {name}"
                    );
                    Check::warning("orphan", why, fix)
                }
            }
        })
        .collect();
    if !found.images.is_empty() {
        let why = format!(
            "{} of snapshots have no row: {}",
            counted(found.images.len(), "image", "images"),
            found.images.join(", ")
        );
        checks.push(Check::warning("orphan", clean(&why), "abx daemon restart"));
    }
    if checks.is_empty() {
        checks.push(Check::ok("orphans", "every container and image of this home has a row"));
    }
    checks.extend(found.space.as_ref().map(space));
    let deep: Vec<String> = found
        .layers
        .iter()
        .filter(|session| session.layers >= MANY_LAYERS)
        .map(|session| format!("{} ({})", clean(&session.name), session.layers))
        .collect();
    let most = found.layers.iter().map(|session| session.layers).max().unwrap_or_default();
    checks.push(if deep.is_empty() {
        Check::ok("layers", format!("no session stands on more than {most} layers"))
    } else {
        let why = format!("many layers of snapshots: {}", deep.join(", "));
        Check::warning(
            "layers",
            why,
            "save it, then abx resume NAME --snapshot S: that is flattened meanwhile",
        )
    });
    checks
}

/// Of the budget for snapshots, less than this part left is worth a word: a tenth.
const LOW_BUDGET: u64 = 10;

/// What sandboxes and snapshots take, and whether there is room for more.
fn space(found: &SpaceUse) -> Check {
    let SpaceUse { sandboxes_bytes, snapshots_bytes, budget_bytes, disk } = found;
    let budget =
        budget_bytes.map_or_else(|| "no budget".to_owned(), |bytes| format!("a budget of {}", size(bytes)));
    let mut why = format!(
        "sandboxes take {}, snapshots {} with {budget}",
        size(*sandboxes_bytes),
        size(*snapshots_bytes)
    );
    if let Some(disk) = disk {
        let (free, total) = (size(disk.free_bytes), size(disk.total_bytes));
        why.push_str(&format!("; {free} of {total} free at {}", clean(&disk.path)));
    }
    let low =
        budget_bytes.is_some_and(|budget| budget.saturating_sub(*snapshots_bytes) < budget / LOW_BUDGET);
    let full = disk.as_ref().is_some_and(|disk| disk.free_bytes < LOW_SPACE_BYTES);
    if low || full {
        Check::warning(
            "storage",
            why,
            "abx snapshot prune --keep 3 --dry-run, and without --dry-run if that is right",
        )
    } else {
        Check::ok("storage", why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::proto::daemon::{EngineDisk, OrphanContainer, SessionLayers};

    #[test]
    fn an_orphan_is_named_with_the_command_that_adopts_it() {
        let orphan = OrphanContainer {
            id: "c0ffee".to_owned(),
            name: "session-a".to_owned(),
            state: "running".to_owned(),
            session: Some("a".to_owned()),
        };
        let second = OrphanContainer { session: None, name: "session-b".to_owned(), ..orphan.clone() };
        let layers = vec![SessionLayers { name: "deep".to_owned(), layers: 90 }];
        let found =
            DaemonCheckResult { containers: vec![orphan, second], images: Vec::new(), layers, space: None };
        let checks = checks(&found);
        assert_eq!(checks.iter().map(|c| c.verdict).collect::<Vec<_>>(), [Verdict::Warning; 3]);
        assert_eq!(checks[0].fix.as_deref(), Some("abx adopt a session-a"));
        let keeps = checks[1].fix.as_deref().is_some_and(|fix| fix.contains("docker commit session-b "));
        assert!(keeps, "its files are kept before it goes");
        assert!(checks[2].why.contains("deep (90)"));
    }

    #[test]
    fn storage_that_runs_out_is_a_warning_with_what_makes_room() {
        let disk = |free_bytes| EngineDisk { path: "/data".to_owned(), free_bytes, total_bytes: 1 << 40 };
        let found = |used, budget, free| SpaceUse {
            sandboxes_bytes: 1 << 30,
            snapshots_bytes: used,
            budget_bytes: budget,
            disk: Some(disk(free)),
        };
        let verdict = |used, budget, free| space(&found(used, budget, free)).verdict;
        assert_eq!(verdict(1 << 30, None, 1 << 40), Verdict::Ok);
        assert_eq!(verdict(9 << 30, Some(10 << 30), 1 << 40), Verdict::Ok);
        assert_eq!(verdict((9 << 30) + 1, Some(10 << 30), 1 << 40), Verdict::Warning);
        assert_eq!(verdict(11 << 30, Some(10 << 30), 1 << 40), Verdict::Warning);
        assert_eq!(verdict(0, None, 1 << 20), Verdict::Warning);
        let why = space(&found(9 << 30, Some(10 << 30), 1 << 39)).why;
        let want = "sandboxes take 1.0 GiB, snapshots 9.0 GiB with a budget of 10.0 GiB; 512.0 GiB of 1.0 TiB free at /data";
        assert_eq!(why, want);
    }
}
