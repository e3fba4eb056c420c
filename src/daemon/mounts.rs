//! Which directories of the host a sandbox may see.

use std::path::{Path, PathBuf};

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

/// Resolves a mount's source and checks both sides. Links are followed first, so that a link to `/` is `/`.
///
/// # Errors
/// `workspace_missing` when the source does not exist or may not be mounted, `invalid_params` when a side is not a
/// usable path.
pub fn resolve(mount: &types::Mount, home: &Path, engine_socket: Option<&Path>) -> Result<Mount, Failure> {
    let target = if mount.target.is_empty() { DEFAULT_TARGET } else { &mount.target };
    check_target(target)?;
    if !mount.source.starts_with('/') {
        check_volume(&mount.source)?;
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
    if let Some(why) = forbidden(&source, home, engine_socket) {
        return Err(missing(format!("mount source {:?} is refused: {why}", mount.source))
            .hint("mount the one directory that the sandbox needs"));
    }
    Ok(Mount { source: text, target: target.to_owned(), read_only: mount.read_only })
}

fn forbidden(source: &Path, home: &Path, engine_socket: Option<&Path>) -> Option<String> {
    if source == Path::new("/") {
        return Some("it is the whole host".to_owned());
    }
    let sockets = ENGINE_SOCKETS.iter().map(PathBuf::from).chain(engine_socket.map(Path::to_owned));
    for socket in sockets {
        let real = std::fs::canonicalize(&socket).unwrap_or_else(|_| socket.clone());
        if socket.starts_with(source) || real.starts_with(source) {
            return Some(format!("it gives access to the engine through {}", socket.display()));
        }
    }
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    if home.starts_with(source) {
        return Some(format!("it holds abx's own home {}", home.display()));
    }
    let ours = ["log", "daemon.sock", "daemon.lock", "config.toml"];
    let inside = source.strip_prefix(&home).ok()?;
    let first = inside.iter().next()?.to_string_lossy();
    (ours.contains(&first.as_ref()) || first.starts_with("sessions.db"))
        .then(|| "it is a file of abx itself".to_owned())
}

fn check_target(target: &str) -> Result<(), Failure> {
    let path = Path::new(target);
    let climbs = path.components().any(|c| matches!(c, std::path::Component::ParentDir));
    if !path.is_absolute() || climbs || path == Path::new("/") || target.contains('\0') {
        return Err(Failure::params(format!("mount target {target:?} must be an absolute path below /")));
    }
    Ok(())
}

/// The engine's own rule for volume names.
fn check_volume(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.len() >= 2 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(good) {
        return Ok(());
    }
    Err(Failure::params(format!(
        "mount source {name:?} is neither an absolute path nor the name of a volume"
    )))
}

/// Looks again at sources that were there at start: none may have gone before the engine makes an empty directory of
/// its own in their place.
///
/// # Errors
/// `workspace_missing` naming the first that is gone.
pub fn check_present<'a>(mounts: impl IntoIterator<Item = &'a Mount>) -> Result<(), Failure> {
    for mount in mounts {
        if !mount.is_volume() && !Path::new(&mount.source).exists() {
            let text = format!("mount source {:?} is gone", mount.source);
            return Err(Failure::new(Kind::WorkspaceMissing, text).hint("put it back, then resume again"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &Path, target: &str) -> types::Mount {
        types::Mount { source: source.display().to_string(), target: target.to_owned(), read_only: false }
    }

    fn kind(source: &Path, home: &Path) -> Result<(), Kind> {
        resolve(&mount(source, ""), home, None).map(|_| ()).map_err(|f| f.kind)
    }

    #[test]
    fn the_host_the_engine_and_abx_itself_are_refused_also_through_links() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        std::fs::create_dir_all(home.join("log")).expect("create");
        let link = dir.path().join("innocent");
        std::os::unix::fs::symlink("/", &link).expect("link");
        for source in [Path::new("/"), Path::new("/run"), &link, &home, &home.join("log"), dir.path()] {
            if source.exists() {
                assert_eq!(kind(source, &home), Err(Kind::WorkspaceMissing), "{source:?}");
            }
        }
    }

    #[test]
    fn odd_but_harmless_sources_are_fine() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = dir.path().join("home");
        for name in ["with space", "a:b", "数据", "comma,equals=x", "quote\"'"] {
            let source = dir.path().join(name);
            std::fs::create_dir(&source).expect("create");
            let got = resolve(&mount(&source, ""), &home, None).expect("fine");
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
            let got = resolve(&mount(&work, target), &home, None).expect_err(target);
            assert_eq!(got.kind, Kind::InvalidParams, "{target}");
        }
    }
}
