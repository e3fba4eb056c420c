//! Every file and directory that abx owns, and the two of the older tools that it reads.
//!
//! The only module, with `config`, that reads the environment.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::Source;

/// Longest socket path, in bytes, that every platform can bind: `sun_path` holds 108 bytes on Linux and 104 on macOS,
/// and the daemon first binds a name eight bytes longer beside it.
pub const MAX_SOCKET_PATH_BYTES: usize = 94;

/// Most entries of an older tool's directory that are looked at: enough to know that there are many.
const MAX_COUNTED_FILES: usize = 10_000;

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
    root_source: Source,
    socket: PathBuf,
    socket_source: Source,
}

impl Home {
    /// The home to use: `flag`, else `ABX_HOME`, else `~/.abx`, with links resolved, so that one directory is one home
    /// however it is spelled; and its socket: `socket_flag`, else `ABX_SOCKET`, else `daemon.sock` in the home. Where that
    /// path is too long, the socket is a short one in the system's temporary directory that depends on the path and the
    /// user alone.
    ///
    /// # Errors
    /// When there is no home directory and no variable names one.
    pub fn find(flag: Option<&Path>, socket_flag: Option<&Path>) -> Result<Self, PathError> {
        let (root, root_source) = match chosen(flag, "--home", "ABX_HOME") {
            Some((path, source)) => (path, source),
            None => (user_home().ok_or(PathError::NoHome)?.join(".abx"), Source::Default),
        };
        let root = resolved(&root);
        let (socket, socket_source) = match chosen(socket_flag, "--socket", "ABX_SOCKET") {
            Some((path, source)) => (bindable(&path, &path), source),
            None => (bindable(&root.join("daemon.sock"), &root), Source::Default),
        };
        Ok(Self { root, root_source, socket, socket_source })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the choice of the directory came from.
    pub fn root_source(&self) -> &Source {
        &self.root_source
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where the choice of the socket came from.
    pub fn socket_source(&self) -> &Source {
        &self.socket_source
    }

    /// The lock that the daemon holds for life. Never removed.
    pub fn lock(&self) -> PathBuf {
        self.root.join("daemon.lock")
    }

    /// The session table.
    pub fn database(&self) -> PathBuf {
        self.root.join("sessions.db")
    }

    /// The directory of the table's copies.
    pub fn backups(&self) -> PathBuf {
        self.root.join("backups")
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
            // One that is there already is somebody's on purpose, and stays as it is.
            Some(dir) if dir != self.root => {
                make_private(dir).map_err(|source| PathError::Prepare { path: dir.to_owned(), source })
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

impl LegacyStore {
    /// Number of session files in it, as far as they are counted; none where there are none.
    pub fn count(&self) -> Option<usize> {
        let entries = fs::read_dir(&self.dir).ok()?.take(MAX_COUNTED_FILES).flatten();
        let count = entries.filter(|e| e.path().extension().is_some_and(|x| x == "json")).count();
        (count > 0).then_some(count)
    }
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

/// What is free on the disk of a directory for this user, in bytes.
///
/// # Errors
/// When the system does not tell.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let disk = nix::sys::statvfs::statvfs(dir)?;
    #[expect(clippy::useless_conversion, reason = "the fields are narrower on other platforms")]
    Ok(u64::from(disk.blocks_available()).saturating_mul(u64::from(disk.fragment_size())))
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

/// What the command line, else the environment, says, as an absolute path.
fn chosen(flag: Option<&Path>, flag_name: &'static str, variable: &'static str) -> Option<(PathBuf, Source)> {
    match (flag, env_path(variable)) {
        (Some(path), _) => Some((absolute(path), Source::Flag(flag_name))),
        (None, Some(path)) => Some((absolute(&path), Source::Environment(variable))),
        (None, None) => None,
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The path without links and trailing slashes, as far as it exists: it stays the same when the rest is made.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        // Whoever may put a link into a shared directory would otherwise choose where our files go.
        let foreign =
            fs::symlink_metadata(ancestor).is_ok_and(|meta| meta.is_symlink() && !is_trusted(&meta));
        if foreign {
            break;
        }
        if let (Ok(existing), Ok(rest)) = (fs::canonicalize(ancestor), path.strip_prefix(ancestor)) {
            return rest.components().fold(existing, |path, part| path.join(part));
        }
    }
    path.components().collect()
}

/// Whether this user or the system's owner made it.
fn is_trusted(meta: &fs::Metadata) -> bool {
    meta.uid() == nix::unistd::geteuid().as_raw() || meta.uid() == 0
}

/// The path itself where every platform can bind it, else a short one that depends on `named` alone.
fn bindable(path: &Path, named: &Path) -> PathBuf {
    if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return path.to_owned();
    }
    short_socket_dir().join(format!("{:016x}.sock", fnv1a(named.as_os_str().as_bytes())))
}

/// Not `TMPDIR` and not the runtime directory: both may differ between a client's and a daemon's environment.
fn short_socket_dir() -> PathBuf {
    PathBuf::from(format!("/tmp/abx-{}", nix::unistd::geteuid()))
}

/// The 64-bit FNV-1a hash: the same in every build, unlike the standard library's.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Makes a directory and those above it, each for this user alone; leaves what is there.
fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn private_dir(path: &Path) -> Result<(), PathError> {
    let fail = |source| PathError::Prepare { path: path.to_owned(), source };
    make_private(path).or_else(ignore_existing).map_err(fail)?;
    let meta = fs::symlink_metadata(path).map_err(fail)?;
    // A link to another disk is common and harmless; one that another user put into a shared directory is an attack.
    let meta = if meta.is_symlink() && is_trusted(&meta) { fs::metadata(path).map_err(fail)? } else { meta };
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

    fn home(root: &Path) -> Home {
        Home::find(Some(root), None).expect("a home")
    }

    #[test]
    fn a_deep_home_gets_a_short_socket_that_depends_on_the_home_alone() {
        let deep = PathBuf::from("/").join("d".repeat(200));
        let (one, two) = (home(&deep), home(&deep));
        assert_eq!(one.socket(), two.socket());
        assert!(one.socket().as_os_str().len() <= MAX_SOCKET_PATH_BYTES);
        assert_ne!(one.socket(), home(&deep.join("x")).socket());
    }

    #[test]
    fn a_socket_whose_path_is_too_long_gets_a_short_one_that_is_found_again() {
        let long = PathBuf::from("/").join("s".repeat(200));
        let find = |path: &Path| Home::find(Some(Path::new("/h")), Some(path)).expect("a home");
        let short = find(&long);
        assert!(short.socket().as_os_str().len() <= MAX_SOCKET_PATH_BYTES);
        // A daemon is told the short one.
        assert_eq!(find(short.socket()).socket(), short.socket());
        assert_eq!(find(&long).socket(), short.socket());
        assert_ne!(find(&long.join("x")).socket(), short.socket());
        assert_eq!(short.socket_source(), &Source::Flag("--socket"));
    }

    #[test]
    fn one_directory_is_one_home_however_it_is_spelled_and_before_it_exists() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let real = fs::canonicalize(dir.path()).expect("there").join("disk/home");
        fs::create_dir(dir.path().join("disk")).expect("create");
        std::os::unix::fs::symlink(dir.path().join("disk"), dir.path().join("link")).expect("link");
        let spellings = ["disk/home", "disk/home/", "disk/./home//", "link/home", "link/../disk/home/"];
        let all = || spellings.map(|spelling| home(&dir.path().join(spelling)));
        for home in all() {
            assert_eq!((home.root(), home.socket()), (real.as_path(), real.join("daemon.sock").as_path()));
        }
        let before = all();
        before[3].prepare().expect("prepare");
        assert_eq!(all(), before);
        std::os::unix::fs::symlink(&real, dir.path().join("abx")).expect("link");
        let linked = home(&dir.path().join("abx"));
        assert_eq!(linked, before[0]);
        linked.prepare().expect("prepare");
    }

    #[test]
    fn a_directory_that_is_made_for_a_socket_is_private_and_one_that_was_there_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mode = |path: &Path| fs::metadata(path).expect("meta").mode() & 0o777;
        let there = dir.path().join("there");
        fs::create_dir(&there).expect("create");
        fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).expect("open it");
        for (socket, want) in [("made/deep/s", 0o700), ("there/s", 0o755)] {
            let socket = dir.path().join(socket);
            let home = Home::find(Some(&dir.path().join("home")), Some(&socket)).expect("a home");
            home.prepare().expect("prepare");
            assert_eq!(mode(socket.parent().expect("a directory")), want);
        }
        assert_eq!(mode(&dir.path().join("made")), 0o700);
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
