//! What a snapshot does not hold, and whether the sandbox that is made from it has the same in its place: a bind that is
//! another directory by now, or a volume that is new and empty, is told, and never passes for what was saved.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use nix::sys::statvfs::statvfs;

use super::driver::Driver;
use super::mounts;
use crate::model::session::{Excluded, Mount, Session, Snapshot};

impl Driver {
    /// What was left out of a snapshot, with what tells it from others of its kind.
    pub(super) async fn marked(&self, session: &Session, excluded: Vec<Excluded>) -> Vec<Excluded> {
        let mut marked = Vec::with_capacity(excluded.len());
        for one in excluded {
            let mark = match mount_at(session, &one.target) {
                Some(mount) => self.mark(mount).await.unwrap_or_default(),
                None => None,
            };
            marked.push(Excluded { mark, ..one });
        }
        marked
    }

    /// In what a sandbox that is about to be made from a snapshot will differ from the one that was saved, in sentences. It is
    /// asked before: engines make the volumes that they do not have.
    pub(super) async fn gaps(&self, session: &Session, snapshot: &Snapshot) -> Vec<String> {
        let mut all = Vec::new();
        let mut programs = Vec::new();
        for one in &snapshot.excluded {
            if one.kind == "process" {
                programs.push(one.target.as_str());
                continue;
            }
            let mount = mount_at(session, &one.target);
            let now = match mount {
                Some(mount) => match self.mark(mount).await {
                    Ok(mark) => mark,
                    Err(Unknown) => continue,
                },
                None => None,
            };
            all.extend(gap(one, mount, now.as_deref()));
        }
        if !programs.is_empty() {
            all.push(format!("these ran when it was saved and do not now: {}", programs.join(", ")));
        }
        for gap in &all {
            tracing::info!(session = %session.name, snapshot = snapshot.name, gap, "not as it was saved");
        }
        all
    }

    /// Tells a mount's source from others that may take its place; none where there is none.
    async fn mark(&self, mount: &Mount) -> Result<Option<String>, Unknown> {
        if mount.is_volume() {
            let made = self.0.engine.volume_made(&mount.source).await;
            return made.map_err(|error| {
                tracing::debug!(%error, volume = mount.source, "the engine does not tell of a volume");
                Unknown
            });
        }
        let source = mount.source.clone();
        // A file server that does not answer must not hold this up for ever.
        mounts::in_time(move || Ok(file_mark(&source))).await.map_err(|_| Unknown)
    }
}

/// Nobody tells what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unknown;

/// Its file system, its number there, and when it was made: numbers are given out again at once. Not every file system
/// tells the last.
fn file_mark(source: &str) -> Option<String> {
    let file = std::fs::metadata(source).ok()?;
    let system = statvfs(source).ok()?.filesystem_id();
    let born = file.created().ok().and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
    Some(format!("{system:x}:{}:{}", file.ino(), born.unwrap_or_default().as_nanos()))
}

fn mount_at<'a>(session: &'a Session, target: &str) -> Option<&'a Mount> {
    session.spec.workspace.iter().chain(&session.spec.mounts).find(|mount| mount.target == target)
}

/// What is to be said of one thing that a snapshot does not hold, where `mount` is there now, and has this mark.
fn gap(one: &Excluded, mount: Option<&Mount>, now: Option<&str>) -> Option<String> {
    let target = &one.target;
    match (one.kind.as_str(), mount) {
        ("tmpfs", _) => Some(format!("tmpfs {target}: what was in it is gone")),
        ("volume", None) => {
            Some(format!("volume {target}: it is new, or not mounted, and what was in it is in no snapshot"))
        }
        (kind, None) => {
            Some(format!("{kind} {target}: it is not mounted, and what was in it is in no snapshot"))
        }
        (_, Some(mount)) if mount.is_volume() && now.is_none() && one.mark.is_some() => {
            Some(format!("volume {target}: '{}' was gone, and is new and empty", mount.source))
        }
        (kind, Some(mount)) => {
            let (then, now) = (one.mark.as_deref()?, now?);
            // Where nobody tells when it was made, one that is there may be the same.
            (then != now && !then.is_empty() && !now.is_empty())
                .then(|| format!("{kind} {target}: '{}' is another than when it was saved", mount.source))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(source: &str) -> Mount {
        Mount { source: source.to_owned(), target: "/t".to_owned(), read_only: false }
    }

    #[test]
    fn what_is_not_as_it_was_is_told_and_what_nobody_knows_is_not() {
        let marked = |kind: &str, mark: Option<&str>| Excluded {
            mark: mark.map(str::to_owned),
            ..Excluded::new(kind, "/t")
        };
        let (bind, volume) = (at("/src"), at("data"));
        let table = [
            (marked("bind", Some("1")), Some(&bind), Some("1"), None),
            (marked("bind", Some("1")), Some(&bind), Some("2"), Some("is another")),
            (marked("bind", None), Some(&bind), Some("2"), None),
            (marked("bind", Some("1")), Some(&bind), None, None),
            (marked("bind", Some("1")), None, None, Some("not mounted")),
            (marked("volume", Some("1")), Some(&volume), Some("1"), None),
            (marked("volume", Some("1")), Some(&volume), Some("2"), Some("is another")),
            (marked("volume", Some("1")), Some(&volume), Some(""), None),
            (marked("volume", Some("")), Some(&volume), Some("2"), None),
            (marked("volume", Some("")), Some(&volume), None, Some("new and empty")),
            (marked("volume", Some("1")), Some(&volume), None, Some("new and empty")),
            (marked("volume", None), Some(&volume), None, None),
            (marked("volume", None), None, None, Some("it is new, or not mounted")),
            (marked("tmpfs", None), None, None, Some("gone")),
        ];
        for (one, mount, now, want) in table {
            let told = gap(&one, mount, now);
            let fits = match (&told, want) {
                (Some(told), Some(want)) => told.contains(want) && told.contains("/t"),
                (told, want) => told.is_none() && want.is_none(),
            };
            assert!(fits, "{one:?} with {mount:?} {now:?}: {told:?}");
        }
    }

    #[test]
    fn a_directory_that_took_anothers_place_has_another_mark() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (place, aside) = (dir.path().join("work"), dir.path().join("aside"));
        let mark = || file_mark(place.to_str().expect("text"));
        std::fs::create_dir(&place).expect("made");
        let first = mark();
        assert!(first.is_some());
        std::fs::rename(&place, &aside).expect("moved");
        assert_eq!(mark(), None);
        std::fs::create_dir(&place).expect("made");
        assert_ne!(mark(), first);
        std::fs::remove_dir(&place).expect("removed");
        std::fs::rename(&aside, &place).expect("put back");
        assert_eq!(mark(), first);
    }
}
