//! Every file and directory that abx owns, and the two of the older tools that it reads.
//!
//! The only module, with `config`, that reads the environment.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest socket path, in bytes, that every platform can bind: `sun_path` holds 108 bytes on Linux and 104 on macOS,
/// and the daemon first binds a name eight bytes longer beside it.
pub const MAX_SOCKET_PATH_BYTES: usize = 94;

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Neither `ABX_HOME` nor a home directory.
    #[error("no home directory: set ABX_HOME")]
    NoHome,
    /// The directory cannot be made or looked at.
    #[error("failed to prepare the directory {path:?}")]
    Prepare {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Somebody else's, or a link.
    #[error("{path:?} is not a directory of this user")]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
}

/// A home of abx and the files in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
    socket: PathBuf,
}

impl Home {
    /// The home to use: `flag`, else `ABX_HOME`, else `~/.abx`; and its socket: `socket_flag`, else `ABX_SOCKET`, else
    /// `daemon.sock` in the home, else, where that path is too long, a short one in the system's temporary directory
    /// that depends on the home and the user alone.
    ///
    /// # Errors
    /// When there is no home directory and no variable names one.
    pub fn find(flag: Option<&Path>, socket_flag: Option<&Path>) -> Result<Self, PathError> {
        let root = match flag.map(Path::to_owned).or_else(|| env_path("ABX_HOME")) {
            Some(path) => absolute(&path),
            None => user_home().ok_or(PathError::NoHome)?.join(".abx"),
        };
        let socket = socket_flag
            .map(Path::to_owned)
            .or_else(|| env_path("ABX_SOCKET"))
            .map_or_else(|| default_socket(&root), |path| absolute(&path));
        Ok(Self { root, socket })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The lock that the daemon holds for life. Never removed.
    pub fn lock(&self) -> PathBuf {
        self.root.join("daemon.lock")
    }

    /// The session table.
    pub fn database(&self) -> PathBuf {
        self.root.join("sessions.db")
    }

    /// The user's settings.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// Where logs go.
    pub fn log_dir(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The daemon's log.
    pub fn log_file(&self) -> PathBuf {
        self.log_dir().join("abxd.log")
    }

    /// Makes the home, its log directory and the socket's directory, each for this user alone.
    ///
    /// # Errors
    /// When one cannot be made, is a link, or is somebody else's.
    pub fn prepare(&self) -> Result<(), PathError> {
        private_dir(&self.root)?;
        private_dir(&self.log_dir())?;
        match self.socket.parent() {
            Some(dir) if dir == short_socket_dir() => private_dir(dir),
            Some(dir) if dir != self.root => {
                fs::create_dir_all(dir).map_err(|source| PathError::Prepare { path: dir.to_owned(), source })
            }
            _ => Ok(()),
        }
    }
}

/// Where an older tool kept its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyStore {
    /// `agentkernel` or `agent-sandbox`.
    pub origin: &'static str,
    /// The directory of JSON files.
    pub dir: PathBuf,
}

/// The directories where the two older tools kept their sessions, whether or not they exist.
pub fn legacy_stores() -> Vec<LegacyStore> {
    let Some(home) = user_home() else { return Vec::new() };
    vec![
        LegacyStore { origin: "agentkernel", dir: home.join(".local/share/agentkernel/sessions") },
        LegacyStore { origin: "agent-sandbox", dir: home.join(".abx/sessions") },
    ]
}

/// The user's home directory.
pub fn user_home() -> Option<PathBuf> {
    directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned()).filter(|p| p.is_absolute())
}

/// The user's directory for systemd units.
pub fn systemd_user_dir() -> Option<PathBuf> {
    directories::BaseDirs::new().map(|dirs| dirs.config_dir().join("systemd/user"))
}

/// The user's directory for launchd agents.
pub fn launchd_dir() -> Option<PathBuf> {
    user_home().map(|home| home.join("Library/LaunchAgents"))
}

/// A variable of the environment, by name. For the few places outside `config` that pass on what the user named
/// (`-e K`, `TERM`, `SHELL`).
pub fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "this module and config own the environment")]
    std::env::var(name).ok()
}

fn env_path(name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "this module and config own the environment")]
    let value: Option<OsString> = std::env::var_os(name);
    value.filter(|v| !v.is_empty()).map(PathBuf::from)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn default_socket(root: &Path) -> PathBuf {
    let plain = root.join("daemon.sock");
    if plain.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return plain;
    }
    short_socket_dir().join(format!("{:016x}.sock", fnv1a(root.as_os_str().as_bytes())))
}

/// Not `TMPDIR` and not the runtime directory: both may differ between a client's and a daemon's environment.
fn short_socket_dir() -> PathBuf {
    PathBuf::from(format!("/tmp/abx-{}", nix::unistd::geteuid()))
}

/// The 64-bit FNV-1a hash: the same in every build, unlike the standard library's.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn private_dir(path: &Path) -> Result<(), PathError> {
    let fail = |source| PathError::Prepare { path: path.to_owned(), source };
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(fail)?;
            }
            fs::DirBuilder::new().mode(0o700).create(path).or_else(ignore_existing).map_err(fail)?;
        }
        Err(error) => ignore_existing(error).map_err(fail)?,
    }
    let meta = fs::symlink_metadata(path).map_err(fail)?;
    // A home that is a link to another disk is common and harmless when its target is ours; a link in the shared
    // temporary directory is an attack.
    let meta =
        if meta.is_symlink() && !path.starts_with("/tmp") { fs::metadata(path).map_err(fail)? } else { meta };
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(PathError::NotOurs { path: path.to_owned() });
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(fail)?;
    }
    Ok(())
}

fn ignore_existing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_home_gets_a_short_socket_that_depends_on_the_home_alone() {
        let deep = PathBuf::from("/").join("d".repeat(200));
        let (one, two) = (default_socket(&deep), default_socket(&deep));
        assert_eq!(one, two);
        assert!(one.as_os_str().len() <= MAX_SOCKET_PATH_BYTES);
        assert_ne!(one, default_socket(&deep.join("x")));
    }

    #[test]
    fn a_home_is_made_private_even_if_it_was_open_before() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("home");
        fs::create_dir(&root).expect("create");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("open it");
        let home = Home::find(Some(&root), None).expect("a home");
        home.prepare().expect("prepare");
        assert_eq!(fs::metadata(&root).expect("meta").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(home.log_dir()).expect("meta").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_in_the_homes_place_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("home");
        fs::write(&root, "x").expect("write");
        let home = Home::find(Some(&root), None).expect("a home");
        assert!(matches!(home.prepare(), Err(PathError::NotOurs { .. })));
    }
}
