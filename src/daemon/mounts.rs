//! Which directories of the host a sandbox may see.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::failure::Failure;
use crate::model::session::Mount;
use crate::proto::errors::Kind;
use crate::proto::types;

/// Where a workspace goes unless the user says otherwise.
pub const DEFAULT_TARGET: &str = "/workspace";

/// Sockets that give whoever reaches them the host: never mounted, nor any directory that holds one.
const ENGINE_SOCKETS: [&str; 5] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
];

/// Directories through which the host itself is reached: the kernel's, and those of engines. Below `/dev`, shared
/// memory is harmless.
const HOST_ITSELF: [&str; 7] = [
    "/proc",
    "/sys",
    "/dev",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/run/containerd",
];

/// What is never mounted, nor any directory that holds it.
#[derive(Debug, Clone, Copy)]
pub struct Guarded<'a> {
    /// abx's home.
    pub home: &'a Path,
    /// The daemon's socket.
    pub socket: &'a Path,
    /// The engine's socket.
    pub engine_socket: Option<&'a Path>,
}

/// Longest look at mount sources: a file server that does not answer by then is treated as absent.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// Looks at mount sources on a thread of its own.
///
/// # Errors
/// What the look finds, and `workspace_missing` when it takes too long.
pub async fn in_time<T, F>(look: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Failure> + Send + 'static,
{
    match timeout(LOOK_LIMIT, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(Failure::new(Kind::Internal, error.to_string())),
        Err(_) => {
            Err(Failure::new(Kind::WorkspaceMissing, "the file system of a mount source does not answer"))
        }
    }
}

/// Resolves the source of a mount, which errors call `field`, and checks both sides. Links are followed first, so that a link to `/` is `/`.
///
/// # Errors
/// `workspace_missing` when the source does not exist or may not be mounted, `invalid_params` when a side is not a
/// usable path.
pub fn resolve(field: &str, mount: &types::Mount, guarded: &Guarded<'_>) -> Result<Mount, Failure> {
    let target = if mount.target.is_empty() { DEFAULT_TARGET } else { &mount.target };
    check_target(field, target)?;
    if !mount.source.starts_with('/') {
        check_volume(field, &mount.source)?;
        return Ok(Mount {
            source: mount.source.clone(),
            target: target.to_owned(),
            read_only: mount.read_only,
        });
    }
    let missing = |why: String| Failure::new(Kind::WorkspaceMissing, why);
    let source = std::fs::canonicalize(&mount.source).map_err(|error| {
        missing(format!("mount source {:?}: {error}", mount.source))
            .hint("create it first, or check the path")
    })?;
    let text = source
        .to_str()
        .ok_or_else(|| missing(format!("mount source {:?} is not UTF-8", mount.source)))?
        .to_owned();
    if let Some(why) = forbidden(&source, guarded) {
        return Err(missing(format!("mount source {:?} is refused: {why}", mount.source))
            .hint("mount the one directory that the sandbox needs"));
    }
    Ok(Mount { source: text, target: target.to_owned(), read_only: mount.read_only })
}

fn forbidden(source: &Path, guarded: &Guarded<'_>) -> Option<String> {
    if source == Path::new("/") {
        return Some("it is the whole host".to_owned());
    }
    let host = HOST_ITSELF.iter().find(|dir| source.starts_with(dir) || Path::new(dir).starts_with(source));
    if let Some(dir) = host.filter(|_| !source.starts_with("/dev/shm")) {
        return Some(format!("it gives access to the host itself through {dir}"));
    }
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let holds = |path: &Path| path.starts_with(source) || real(path).starts_with(source);
    let mut sockets = ENGINE_SOCKETS.iter().map(Path::new).chain(guarded.engine_socket);
    if let Some(socket) = sockets.find(|socket| holds(socket)) {
        return Some(format!("it gives access to the engine through {}", socket.display()));
    }
    if holds(guarded.socket) {
        return Some(format!("it gives access to abx itself through {}", guarded.socket.display()));
    }
    let home = real(guarded.home);
    if home.starts_with(source) {
        return Some(format!("it holds abx's own home {}", home.display()));
    }
    let ours = ["log", "run", "backups", "adopted", "daemon.sock", "daemon.lock", "config.toml"];
    let inside = source.strip_prefix(&home).ok()?;
    let first = inside.iter().next()?.to_string_lossy();
    (ours.contains(&first.as_ref()) || first.starts_with("sessions.db"))
        .then(|| "it is a file of abx itself".to_owned())
}

fn check_target(field: &str, target: &str) -> Result<(), Failure> {
    let path = Path::new(target);
    let climbs = path.components().any(|c| matches!(c, std::path::Component::ParentDir));
    if !path.is_absolute() || climbs || path == Path::new("/") || target.contains('\0') {
        return Err(Failure::field(&format!("{field}.target"), "an absolute path below /"));
    }
    Ok(())
}

/// The engine's own rule for volume names.
fn check_volume(field: &str, name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.len() >= 2 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(good) {
        return Ok(());
    }
    Err(Failure::field(&format!("{field}.source"), "an absolute path, or the name of a volume"))
}

/// Looks again, before a container is started, at sources that were checked when the session was made: one that is gone
/// would be replaced by an empty directory, and one that became a link since, perhaps from inside a sandbox, would be
/// followed.
///
/// # Errors
/// `workspace_missing` naming the first that is not what it was.
pub fn check_again<'a>(
    mounts: impl IntoIterator<Item = &'a Mount>,
    guarded: &Guarded<'_>,
) -> Result<(), Failure> {
    for mount in mounts.into_iter().filter(|mount| !mount.is_volume()) {
        let why = match std::fs::canonicalize(&mount.source) {
            Err(_) => "is gone".to_owned(),
            Ok(real) if real != Path::new(&mount.source) => format!("leads to {} now", real.display()),
            Ok(real) => match forbidden(&real, guarded) {
                Some(why) => format!("is refused: {why}"),
                None => continue,
            },
        };
        let text = format!("mount source {:?} {why}", mount.source);
        return Err(Failure::new(Kind::WorkspaceMissing, text).hint("put it back, then resume again"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &Path, target: &str) -> types::Mount {
        types::Mount { source: source.display().to_string(), target: target.to_owned(), read_only: false }
    }

    fn guarded(home: &Path) -> Guarded<'_> {
        Guarded { home, socket: Path::new("/nonexistent/sock"), engine_socket: None }
    }

    fn kind(source: &Path, home: &Path) -> Result<(), Kind> {
        resolve("workspace", &mount(source, ""), &guarded(home)).map(|_| ()).map_err(|f| f.kind)
    }

    #[test]
    fn the_host_the_engine_and_abx_itself_are_refused_also_through_links() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        for inside in ["log", "backups"] {
            std::fs::create_dir_all(home.join(inside)).expect("create");
        }
        let link = dir.path().join("innocent");
        std::os::unix::fs::symlink("/", &link).expect("link");
        let kernel = ["/proc", "/sys", "/dev", "/proc/sys"].map(Path::new);
        for source in kernel {
            assert_eq!(kind(source, &home), Err(Kind::WorkspaceMissing), "{source:?}");
        }
        let inside = ["log", "backups"].map(|inside| home.join(inside));
        for source in [Path::new("/"), &link, &home, &inside[0], &inside[1], dir.path()] {
            assert_eq!(kind(source, &home), Err(Kind::WorkspaceMissing), "{source:?}");
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).expect("create");
        for socket in ["daemon.sock", "engine.sock"].map(|name| elsewhere.join(name)) {
            let ours = Guarded { socket: &socket, ..guarded(&home) };
            let engines = Guarded { engine_socket: Some(&socket), ..guarded(&home) };
            for guarded in [ours, engines] {
                let refused =
                    resolve("workspace", &mount(&elsewhere, ""), &guarded).expect_err("it holds a socket");
                assert!(refused.message.contains("gives access"), "{refused}");
            }
        }
    }

    #[test]
    fn a_source_that_became_a_link_or_vanished_since_is_not_followed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        let work = dir.path().join("work");
        std::fs::create_dir(&work).expect("create");
        let checked = resolve("workspace", &mount(&work, ""), &guarded(&home)).expect("fine");
        check_again([&checked], &guarded(&home)).expect("unchanged");
        std::fs::rename(&work, dir.path().join("away")).expect("move");
        let gone = check_again([&checked], &guarded(&home)).expect_err("gone");
        std::os::unix::fs::symlink("/etc", &work).expect("link");
        let link = check_again([&checked], &guarded(&home)).expect_err("a link");
        assert_eq!((gone.kind, link.kind), (Kind::WorkspaceMissing, Kind::WorkspaceMissing));
        assert!(link.message.contains("leads to /etc"), "{link}");
    }

    #[test]
    fn odd_but_harmless_sources_are_fine() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        for name in ["with space", "a:b", "数据", "comma,equals=x", "quote\"'"] {
            let source = dir.path().join(name);
            std::fs::create_dir(&source).expect("create");
            let got = resolve("workspace", &mount(&source, ""), &guarded(&home)).expect("fine");
            assert_eq!(got.target, DEFAULT_TARGET);
            assert!(got.source.ends_with(name));
        }
    }

    #[test]
    fn a_missing_source_and_a_bad_target_are_told_apart() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        assert_eq!(kind(&dir.path().join("nowhere"), &home), Err(Kind::WorkspaceMissing));
        let work = dir.path().join("work");
        std::fs::create_dir(&work).expect("create");
        for target in ["relative", "/", "/a/../b"] {
            let got = resolve("workspace", &mount(&work, target), &guarded(&home)).expect_err(target);
            assert_eq!(got.kind, Kind::InvalidParams, "{target}");
        }
    }
}
