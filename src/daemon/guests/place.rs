//! Where a sandbox finds abx-init: for each session a directory with the program and a socket.
//!
//! The directory is mounted into the sandbox and must stay the same one while that runs: it is made once, what is in it
//! is replaced by renaming, and it goes with its session.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::engine::{GUEST_PROGRAM, GUEST_SOCKET as SOCKET};
use crate::model::id::SessionId;

/// Directories: whoever runs in a sandbox may pass, and lists nothing.
const DIRECTORY_MODE: u32 = 0o711;

/// The program, and its copies.
const PROGRAM_MODE: u32 = 0o755;

/// The socket: main programs of any user connect, and each connection is checked.
const SOCKET_MODE: u32 = 0o666;

/// The directories of one home.
#[derive(Debug)]
pub(super) struct Places {
    root: PathBuf,
    program: &'static [u8],
}

impl Places {
    /// Directories below `root`, with this program in each. Makes nothing yet.
    pub(super) fn new(root: PathBuf, program: &'static [u8]) -> Self {
        Self { root, program }
    }

    /// Whether there is a program for this machine.
    pub(super) fn has_program(&self) -> bool {
        !self.program.is_empty()
    }

    /// Makes a session's directory with the program in it, in place of an older one.
    pub(super) fn prepare(&self, id: &SessionId) -> io::Result<PathBuf> {
        let dir = self.directory(id)?;
        let shared = self.extract()?;
        make(&dir)?;
        let program = dir.join(GUEST_PROGRAM);
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if fs::metadata(&program).is_ok_and(|old| fs::metadata(&shared).is_ok_and(|new| same(&old, &new))) {
            return Ok(dir);
        }
        let fresh = dir.join(format!("{GUEST_PROGRAM}.new"));
        remove(&fresh)?;
        // Not on every file system, and not any number of times.
        if fs::hard_link(&shared, &fresh).is_err() {
            fs::copy(&shared, &fresh)?;
            fs::set_permissions(&fresh, Permissions::from_mode(PROGRAM_MODE))?;
        }
        fs::rename(&fresh, &program)?;
        Ok(dir)
    }

    /// Listens in a session's directory. The socket is there, open to all, from its first instant.
    pub(super) fn bind(&self, id: &SessionId) -> io::Result<UnixListener> {
        let dir = self.directory(id)?;
        make(&dir)?;
        let fresh = dir.join(format!("{SOCKET}.new"));
        remove(&fresh)?;
        let open = File::open(&dir)?;
        // The path of a socket is short, and a home may be deep.
        let short = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        let listener = UnixListener::bind(short.join(format!("{SOCKET}.new")))?;
        fs::set_permissions(&fresh, Permissions::from_mode(SOCKET_MODE))?;
        fs::rename(&fresh, dir.join(SOCKET))?;
        Ok(listener)
    }

    /// Removes a session's directory; one that is gone is fine.
    pub(super) fn remove(&self, id: &SessionId) -> io::Result<()> {
        let removed = fs::remove_dir_all(self.directory(id)?);
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// The sessions that have a directory.
    pub(super) fn all(&self) -> Vec<SessionId> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.filter_map(|entry| entry.file_name().into_string().ok()).map(SessionId::new).collect()
    }

    /// Ids may come from labels, which anybody can write.
    fn directory(&self, id: &SessionId) -> io::Result<PathBuf> {
        let text = id.as_str();
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if text.is_empty() || !plain {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the session's id names no directory"));
        }
        Ok(self.root.join(text))
    }

    /// The program as a file that the sessions share, made at its first use. Its name tells its contents, so that a
    /// newer daemon leaves it to the sandboxes that have it.
    fn extract(&self) -> io::Result<PathBuf> {
        make(&self.root)?;
        let shared = self.root.join(format!("{GUEST_PROGRAM}-{:016x}", fnv1a(self.program)));
        if fs::metadata(&shared).is_ok_and(|meta| meta.len() == self.program.len() as u64) {
            return Ok(shared);
        }
        let fresh = self.root.join(format!("{GUEST_PROGRAM}.new"));
        fs::write(&fresh, self.program)?;
        fs::set_permissions(&fresh, Permissions::from_mode(PROGRAM_MODE))?;
        File::open(&fresh)?.sync_all()?;
        self.remove_older();
        fs::rename(&fresh, &shared)?;
        Ok(shared)
    }

    fn remove_older(&self) {
        let older = format!("{GUEST_PROGRAM}-");
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&older) {
                // What is left of it takes room, and nothing else.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn make(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Whatever the mask of this process took away.
        _ => fs::set_permissions(dir, Permissions::from_mode(DIRECTORY_MODE)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The 64-bit FNV-1a hash: tells one build of the program from another.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn places(dir: &Path, program: &'static [u8]) -> Places {
        Places::new(dir.join("run"), program)
    }

    #[test]
    fn a_newer_program_takes_an_older_ones_place_in_the_same_directory() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (a, b) = (SessionId::new("a"), SessionId::new("b"));
        let old = places(home.path(), b"old");
        let dir = old.prepare(&a).expect("made");
        let inode = fs::metadata(&dir).expect("there").ino();
        old.prepare(&b).expect("made");
        let new = places(home.path(), b"newer");
        for _ in 0..2 {
            assert_eq!(new.prepare(&a).expect("made"), dir);
        }
        assert_eq!(fs::metadata(&dir).expect("there").ino(), inode, "a running sandbox has it");
        let program = |id: &str| fs::read(home.path().join("run").join(id).join("abx-init")).expect("there");
        assert_eq!((program("a"), program("b")), (b"newer".to_vec(), b"old".to_vec()));
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("abx-init"))), (0o711, 0o755));
        let mut all = new.all();
        all.sort();
        assert_eq!(all, [a.clone(), b]);
        for _ in 0..2 {
            new.remove(&a).expect("removed");
        }
        assert!(!dir.exists());
    }

    #[tokio::test]
    async fn a_socket_in_a_deep_home_is_bound_again_and_again() {
        let home = tempfile::tempdir().expect("temporary directory");
        let deep = home.path().join("d".repeat(200));
        fs::create_dir(&deep).expect("create");
        let id = SessionId::new("a");
        let places = places(&deep, b"x");
        let dir = places.prepare(&id).expect("made");
        for _ in 0..2 {
            let listener = places.bind(&id).expect("bound");
            let socket = dir.join(SOCKET);
            assert_eq!(fs::metadata(&socket).expect("there").mode() & 0o777, 0o666);
            let open = File::open(&dir).expect("there");
            let client = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd()));
            client.expect("it listens");
            listener.accept().await.expect("accepted");
        }
    }

    #[test]
    fn an_id_that_would_leave_its_place_names_no_directory() {
        let home = tempfile::tempdir().expect("temporary directory");
        for id in ["", "..", "../x", "a/b", "."] {
            assert!(places(home.path(), b"x").prepare(&SessionId::new(id)).is_err(), "{id}");
        }
    }
}
