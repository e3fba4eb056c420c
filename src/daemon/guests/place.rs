//! Where a sandbox finds abx-init: for each session a directory with the program and a socket.
//!
//! The directory is mounted into the sandbox and must stay the same one while that runs: it is made once, what is in it
//! is replaced by renaming, and it goes with its session.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio::net::UnixListener;

use crate::engine::{GUEST_PROGRAM, GUEST_SOCKET as SOCKET, GUEST_TOOL};
use crate::model::id::SessionId;
use crate::paths::fnv1a;

/// Directories: whoever runs in a sandbox may pass, and lists nothing.
const DIRECTORY_MODE: u32 = 0o711;

/// The program, and its copies.
const PROGRAM_MODE: u32 = 0o755;

/// The socket: main programs of any user connect, and each connection is checked.
const SOCKET_MODE: u32 = 0o666;

/// What files are called until they are whole. A crash may leave some.
const UNFINISHED: &str = "new";

/// The directories of one home.
#[derive(Debug)]
pub(super) struct Places {
    root: PathBuf,
    program: &'static [u8],
    /// Held by who makes the program that the sessions share.
    extracting: Mutex<()>,
}

/// A file on its way to its place: it goes again unless it gets there, so that a full disk is not made fuller.
struct Unfinished<'a> {
    path: PathBuf,
    place: &'a Path,
}

impl Places {
    /// Directories below `root`, with this program in each. Makes nothing yet.
    pub(super) fn new(root: PathBuf, program: &'static [u8]) -> Self {
        Self { root, program, extracting: Mutex::default() }
    }

    /// Whether there is a program for this machine.
    pub(super) fn has_program(&self) -> bool {
        !self.program.is_empty()
    }

    /// Makes a session's directory with the program in it under both of its names, in place of an older one.
    pub(super) fn prepare(&self, id: &SessionId) -> io::Result<PathBuf> {
        let dir = self.directory(id)?;
        let shared = self.extract()?;
        make(&dir)?;
        let program = dir.join(GUEST_PROGRAM);
        if !self.is_whole(&program) {
            let fresh = Unfinished::of(&program)?;
            // Not on every file system, and not any number of times.
            if fs::hard_link(&shared, &fresh.path).is_err() {
                self.write(&fresh.path)?;
            }
            fresh.finish()?;
        }
        let tool = dir.join(GUEST_TOOL);
        if fs::read_link(&tool).is_ok_and(|leads| leads == Path::new(GUEST_PROGRAM)) {
            return Ok(dir);
        }
        let fresh = Unfinished::of(&tool)?;
        symlink(GUEST_PROGRAM, &fresh.path)?;
        fresh.finish()?;
        Ok(dir)
    }

    /// Listens in a session's directory, which is there. The socket is there, open to all, from its first instant.
    pub(super) fn bind(&self, id: &SessionId) -> io::Result<UnixListener> {
        let dir = self.directory(id)?;
        let open = File::open(&dir)?;
        let place = dir.join(SOCKET);
        let fresh = Unfinished::of(&place)?;
        // The path of a socket is short, and a home may be deep.
        let short = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        let listener = UnixListener::bind(short.join(fresh.path.file_name().unwrap_or_default()))?;
        fs::set_permissions(&fresh.path, Permissions::from_mode(SOCKET_MODE))?;
        fresh.finish()?;
        Ok(listener)
    }

    /// Whether a session's directory has a socket.
    pub(super) fn is_bound(&self, id: &SessionId) -> bool {
        self.directory(id).is_ok_and(|dir| dir.join(SOCKET).exists())
    }

    /// Removes what a crash left half made. Only while nothing is being made.
    pub(super) fn remove_unfinished(&self) {
        let dirs = self.all().into_iter().filter_map(|id| self.directory(&id).ok());
        for dir in dirs.chain([self.root.clone()]) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|extension| extension == UNFINISHED)
                    && let Err(error) = remove(&path)
                {
                    tracing::warn!(%error, ?path, "what a crash left stays behind");
                }
            }
        }
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
        let _alone = self.extracting.lock().unwrap_or_else(PoisonError::into_inner);
        make(&self.root)?;
        let shared = self.root.join(format!("{GUEST_PROGRAM}-{:016x}", fnv1a(self.program)));
        if !self.is_whole(&shared) {
            let fresh = Unfinished::of(&shared)?;
            self.write(&fresh.path)?;
            fresh.finish()?;
            self.remove_older(&shared);
        }
        Ok(shared)
    }

    /// Whether this is the program, to the last byte: sandboxes run it as root.
    fn is_whole(&self, path: &Path) -> bool {
        fs::read(path).is_ok_and(|found| found == self.program)
    }

    /// Writes the program, and all of it to the disk.
    fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.program)?;
        fs::set_permissions(path, Permissions::from_mode(PROGRAM_MODE))?;
        File::open(path)?.sync_all()
    }

    fn remove_older(&self, shared: &Path) {
        let older = format!("{GUEST_PROGRAM}-");
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&older) && entry.path() != shared {
                // What is left of it takes room, and nothing else.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl<'a> Unfinished<'a> {
    /// For a file with this place. What an earlier attempt left is removed.
    fn of(place: &'a Path) -> io::Result<Self> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{UNFINISHED}"));
        let path = place.with_file_name(name);
        remove(&path)?;
        Ok(Self { path, place })
    }

    /// Puts it in its place.
    fn finish(self) -> io::Result<()> {
        fs::rename(&self.path, self.place)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // It has its place, or what is left of it is removed at the next start.
        let _ = remove(&self.path);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
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
        assert_eq!(fs::read(dir.join("abx")).expect("its other name"), b"newer");
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

    fn unfinished(dir: &Path) -> usize {
        let names = fs::read_dir(dir).expect("there").flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".new")).count()
    }

    #[test]
    fn what_does_not_get_its_place_leaves_nothing_and_a_file_of_the_right_length_is_not_the_program() {
        let home = tempfile::tempdir().expect("temporary directory");
        let places = places(home.path(), b"program");
        let id = SessionId::new("a");
        let run = home.path().join("run");
        let shared = run.join(format!("abx-init-{:016x}", fnv1a(b"program")));
        fs::create_dir_all(shared.join("in the way")).expect("create");
        places.prepare(&id).expect_err("its place is taken");
        assert_eq!(unfinished(&run), 0);
        fs::remove_dir_all(&shared).expect("remove");
        for rotten in [run.join("a/abx-init"), shared] {
            let dir = places.prepare(&id).expect("made");
            fs::remove_file(&rotten).expect("it is there");
            fs::write(&rotten, b"rotten!").expect("written");
            places.prepare(&id).expect("made");
            assert_eq!(fs::read(dir.join("abx-init")).expect("there"), b"program");
            assert_eq!(unfinished(&dir), 0);
        }
    }

    #[test]
    fn what_a_crash_left_half_made_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().expect("temporary directory");
        let places = places(home.path(), b"program");
        places.remove_unfinished();
        let dir = places.prepare(&SessionId::new("a")).expect("made");
        let run = home.path().join("run");
        for left in [run.join("abx-init.new"), dir.join("abx-init.new"), dir.join("sock.new")] {
            fs::write(left, b"half").expect("written");
        }
        places.remove_unfinished();
        assert_eq!((unfinished(&run), unfinished(&dir)), (0, 0));
        assert!(dir.join("abx-init").exists());
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
        places(home.path(), b"x").bind(&SessionId::new("gone")).expect_err("it makes no directory");
        assert!(!home.path().join("run/gone").exists());
    }
}
