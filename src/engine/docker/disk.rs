//! The disk on which the engine keeps its data, where that is this machine's, and the volumes there.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::link::{About, Link, ORDINARY};
use super::snapshot::optional;
use crate::engine::{Disk, EngineError};

/// Longest look at the disk: one that does not answer by then is not known.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// Asks for it.
pub(super) async fn of(link: &Link) -> Result<Option<Disk>, EngineError> {
    let asked = link.call("disk", ORDINARY, About::Nothing, |client| async move {
        let ask = async {
            let info = client.docker.info().await?;
            let root = info.docker_root_dir.filter(|_| is_ours(info.name, info.kernel_version));
            Ok(root.map(PathBuf::from))
        };
        client.root.get_or_try_init(|| ask).await.cloned()
    });
    let Some(root) = asked.await? else { return Ok(None) };
    Ok(in_time(LOOK_LIMIT, move || look(&root)).await)
}

/// Looks on a thread of its own, for a file system that hangs must not hold up who asks; none where it does.
async fn in_time<T: Send + 'static>(
    limit: Duration,
    look: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    timeout(limit, spawn_blocking(look)).await.ok()?.unwrap_or_default()
}

/// When a volume was made, where its directory is ours to look at, and else nothing; none if it is not there. What engines call
/// its creation is the last change of its directory.
pub(super) async fn volume_made(link: &Link, name: &str) -> Result<Option<String>, EngineError> {
    let name = name.to_owned();
    let found = link
        .call("volume_made", ORDINARY, About::Nothing, |client| async move {
            optional(client.docker.inspect_volume(&name).await)
        })
        .await?;
    let (Some(volume), disk) = (found, of(link).await?) else { return Ok(None) };
    let root = disk.map(|disk| disk.path).filter(|root| Path::new(&volume.mountpoint).starts_with(root));
    if root.is_none() {
        return Ok(Some(String::new()));
    }
    let created = move || std::fs::metadata(volume.mountpoint).and_then(|dir| dir.created()).ok();
    let born = in_time(LOOK_LIMIT, created).await;
    let born = born.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(Some(born.map(|since| since.as_nanos().to_string()).unwrap_or_default()))
}

/// Whether an engine that says this of its machine is on ours: one in a virtual machine, or on another, has paths that are
/// not ours to look at.
fn is_ours(name: Option<String>, kernel: Option<String>) -> bool {
    let Ok(ours) = uname() else { return false };
    let same =
        |theirs: Option<String>, ours: &std::ffi::OsStr| theirs.is_some_and(|theirs| ours == theirs.as_str());
    same(name, ours.nodename()) && same(kernel, ours.release())
}

/// The disk of a directory; none if it cannot be seen.
fn look(root: &Path) -> Option<Disk> {
    let stat = statvfs(root).ok()?;
    #[expect(clippy::useless_conversion, reason = "the fields are narrower on other platforms")]
    let bytes = |blocks| u64::from(blocks).saturating_mul(u64::from(stat.fragment_size()));
    Some(Disk {
        path: PathBuf::from(root),
        free_bytes: bytes(stat.blocks_available()),
        total_bytes: bytes(stat.blocks()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_does_not_answer_is_not_known() {
        let (end, hangs) = std::sync::mpsc::channel::<()>();
        let look = move || hangs.recv().err().map(|_| ());
        assert_eq!(in_time(Duration::from_millis(10), look).await, None);
        drop(end);
        assert_eq!(in_time(LOOK_LIMIT, || Some(1)).await, Some(1));
    }

    #[test]
    fn only_an_engine_of_this_machine_has_a_disk_here() {
        let ours = uname().expect("a system");
        let text = |word: &std::ffi::OsStr| Some(word.to_string_lossy().into_owned());
        assert!(is_ours(text(ours.nodename()), text(ours.release())));
        assert!(!is_ours(Some("docker-desktop".to_owned()), text(ours.release())));
        assert!(!is_ours(text(ours.nodename()), Some("0.0.0-vm".to_owned())));
        assert!(!is_ours(None, None));
        let disk = look(Path::new("/")).expect("the root is there");
        assert!(disk.total_bytes > 0 && disk.free_bytes <= disk.total_bytes);
        assert_eq!(look(Path::new("/nowhere/at/all")), None);
    }
}
