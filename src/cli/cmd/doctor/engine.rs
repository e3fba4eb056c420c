//! What abx has on the engine: containers and images without a row, and how deep sessions stand on snapshots.

use super::{Check, Mend, counted};
use crate::cli::output::clean;
use crate::proto::daemon::DaemonCheckResult;

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
                        "keep its files with docker commit {name} NAME:TAG, and then: docker rm {name}"
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

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::proto::daemon::{OrphanContainer, SessionLayers};

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
        let found = DaemonCheckResult { containers: vec![orphan, second], images: Vec::new(), layers };
        let checks = checks(&found);
        assert_eq!(checks.iter().map(|c| c.verdict).collect::<Vec<_>>(), [Verdict::Warning; 3]);
        assert_eq!(checks[0].fix.as_deref(), Some("abx adopt a session-a"));
        let keeps = checks[1].fix.as_deref().is_some_and(|fix| fix.contains("docker commit session-b "));
        assert!(keeps, "its files are kept before it goes");
        assert!(checks[2].why.contains("deep (90)"));
    }
}
