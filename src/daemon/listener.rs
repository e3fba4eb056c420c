//! The door: who owns the home, where the socket is, and who may come in.
//!
//! The lock file decides who is the daemon of a home; it is held for life and never removed. Nothing is unlinked
//! without it. The socket is bound beside its place and renamed over it, so that it appears listening, private, and in
//! the place of a stale one at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net as blocking;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::DaemonError;
use super::handover::{Inherited, Successor};
use super::shutdown::Shutdown;
use crate::paths::Home;

/// How often the socket's file is looked at, to see whether someone removed it. A `stat` a second costs nothing that can
/// be measured, and clients that find no socket wait longer than that.
const WATCH: Duration = Duration::from_secs(1);

/// How long to wait after the system had no descriptor left for a connection.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Pause between two looks whether the lock is free.
const LOOK: Duration = Duration::from_millis(20);

/// How long it is not said again that no descriptor is left.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Longest lock file that is read; it holds a process id.
const MAX_LOCK_BYTES: u64 = 32;

/// The lock of a home, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: Flock<File>,
    path: PathBuf,
    root: PathBuf,
    root_inode: Inode,
}

/// A file's identity: two names with the same one are the same file.
type Inode = (u64, u64);

impl Lock {
    /// Takes the lock of this home, which must be prepared, and writes the process id into it.
    ///
    /// # Errors
    /// `AlreadyRunning` when another process has it.
    pub(super) fn take(home: &Home) -> Result<Self, DaemonError> {
        let path = home.lock();
        let fail = |source| DaemonError::Lock { path: path.clone(), source };
        let root_inode = inode(home.root()).map_err(fail)?;
        let file = lock_file(&path).map_err(|error| match error {
            Refused::Held(pid) => DaemonError::AlreadyRunning { pid, lock: path.clone() },
            Refused::Io(source) => fail(source),
        })?;
        Ok(Self { file, path: path.clone(), root: home.root().to_owned(), root_inode })
    }

    /// As [`Self::take`], and waits for a holder that is about to end.
    ///
    /// # Errors
    /// As there, after the limit.
    ///
    /// # Cancel safety
    /// Nothing is held when the future is dropped.
    pub(super) async fn take_within(home: &Home, limit: Duration) -> Result<Self, DaemonError> {
        let deadline = Instant::now() + limit;
        loop {
            match Self::take(home) {
                Err(DaemonError::AlreadyRunning { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(LOOK).await;
                }
                taken => return taken,
            }
        }
    }

    /// Whether the lock still is the home's. A lock file that was removed is made and taken anew, unless another daemon
    /// was faster or the home as a whole is gone: then what this daemon holds is no longer what clients find.
    fn still_ours(&mut self) -> bool {
        let held = self.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        match (held, inode(&self.path)) {
            (Ok(held), Ok(found)) if held == found => return true,
            _ => {}
        }
        if inode(&self.root).is_ok_and(|found| found == self.root_inode)
            && let Ok(file) = lock_file(&self.path)
        {
            tracing::warn!(path = ?self.path, "the lock file had been removed; taken anew");
            self.file = file;
            return true;
        }
        false
    }
}

enum Refused {
    Held(Option<i32>),
    Io(io::Error),
}

fn lock_file(path: &Path) -> Result<Flock<File>, Refused> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    loop {
        let file = options.open(path).map_err(Refused::Io)?;
        let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(file, errno)| {
            if errno == Errno::EWOULDBLOCK { Refused::Held(owner(&file)) } else { Refused::Io(errno.into()) }
        })?;
        // Between opening and locking the name may have come to mean another file.
        let held = file.metadata().map(|meta| (meta.dev(), meta.ino())).map_err(Refused::Io)?;
        if inode(path).is_ok_and(|found| found == held) {
            write_pid(&mut file).map_err(Refused::Io)?;
            return Ok(file);
        }
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn owner(file: &File) -> Option<i32> {
    let mut text = String::new();
    file.take(MAX_LOCK_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn inode(path: &Path) -> io::Result<Inode> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// A connection of the daemon's own user, or of root.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: UnixStream,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: Option<i32>,
}

/// The listening socket, and the lock without which it may not listen.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    bound: Option<Bound>,
    lock: Lock,
    shutdown: Shutdown,
    watch: Interval,
    /// So that what goes on for long is said once.
    complained: bool,
    /// When it was last said that no descriptor is left.
    exhausted: Option<Instant>,
}

#[derive(Debug)]
struct Bound {
    path: PathBuf,
    inode: Inode,
    /// Whether nobody but the owner of this home may have bound the path.
    own: bool,
}

impl Listener {
    /// Listens: on the socket of the daemon before this one or of a service manager, else on the home's. Begins
    /// `shutdown` if the home is ever taken away from under it.
    ///
    /// # Errors
    /// When the path cannot be bound, or another program listens there.
    pub(super) fn open(
        home: &Home,
        lock: Lock,
        shutdown: Shutdown,
        inherited: Option<Inherited>,
    ) -> Result<Self, DaemonError> {
        let fail = |source| DaemonError::Bind { path: home.socket().to_owned(), source };
        let (socket, bound) = match inherited {
            Some(Inherited { socket, managed: true }) => (socket, None),
            Some(Inherited { socket, managed: false }) => {
                let path = home.socket().to_owned();
                // Where it was removed meanwhile, it is bound anew at the first look.
                let inode = inode(&path).unwrap_or_default();
                (socket, Some(Bound { path, inode, own: is_own(home) }))
            }
            None => {
                let (socket, bound) = bind(home.socket(), is_own(home)).map_err(fail)?;
                (socket, Some(bound))
            }
        };
        socket.set_nonblocking(true).map_err(fail)?;
        let socket = UnixListener::from_std(socket).map_err(fail)?;
        let mut watch = interval_at(Instant::now() + WATCH, WATCH);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { socket, bound, lock, shutdown, watch, complained: false, exhausted: None })
    }

    /// Whether a service manager owns the socket.
    pub(super) fn is_activated(&self) -> bool {
        self.bound.is_none()
    }

    /// Waits for the next connection of a user who may come in. Meanwhile keeps the socket's file in its place. Cancel
    /// safe.
    pub(super) async fn accept(&mut self) -> Accepted {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                _ = self.watch.tick() => {
                    self.look_after();
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Some(accepted) = check(stream) {
                        return accepted;
                    }
                }
                Err(error) => {
                    if is_exhausted(&error) {
                        if self.exhausted.is_none_or(|said| said.elapsed() > SAID_AGAIN) {
                            self.exhausted = Some(Instant::now());
                            tracing::error!(%error, "no descriptor is left for a connection; trying on");
                        }
                        tokio::time::sleep(BACK_OFF).await;
                    } else {
                        tracing::debug!(%error, "a connection was gone before it was accepted");
                    }
                }
            }
        }
    }

    /// A connection that already waits, if there is one.
    pub(super) fn waiting(&mut self) -> Option<Accepted> {
        while let Some(Ok((stream, _))) = self.socket.accept().now_or_never() {
            if let Some(accepted) = check(stream) {
                return Some(accepted);
            }
        }
        None
    }

    /// Gives the socket to the program that this process becomes; the lock goes with the descriptor that holds it.
    /// Returns only if that fails: the socket goes then as at any end.
    pub(super) fn give(self, to: &Successor) -> io::Error {
        match self.socket.as_fd().try_clone_to_owned() {
            Ok(socket) => to.take_over(blocking::UnixListener::from(socket), self.is_activated()),
            Err(error) => error,
        }
    }

    /// Removes the socket's file, if it still is the one that was bound.
    pub(super) fn unlink(&mut self) {
        if let Some(bound) = self.bound.take()
            && inode(&bound.path).is_ok_and(|found| found == bound.inode)
            && let Err(error) = fs::remove_file(&bound.path)
        {
            tracing::warn!(path = ?bound.path, %error, "failed to remove the socket");
        }
    }

    fn look_after(&mut self) {
        if self.shutdown.begun() {
            return;
        }
        if !self.lock.still_ours() {
            tracing::error!("the home was removed or another daemon has taken it; stopping");
            return self.shutdown.begin();
        }
        let Some(bound) = &self.bound else { return };
        if inode(&bound.path).is_ok_and(|found| found == bound.inode) {
            self.complained = false;
            return;
        }
        match bind(&bound.path, bound.own).and_then(|(socket, bound)| {
            socket.set_nonblocking(true)?;
            Ok((UnixListener::from_std(socket)?, bound))
        }) {
            Ok((socket, bound)) => {
                tracing::warn!(path = ?bound.path, "the socket had been removed or replaced; bound anew");
                self.bound = Some(bound);
                // Nobody can reach the old one, and who already waits there connects again.
                self.socket = socket;
            }
            Err(error) if !self.complained => {
                self.complained = true;
                tracing::error!(path = ?bound.path, %error, "failed to bind the socket anew; trying on");
            }
            Err(_) => {}
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Whether the socket stands in a directory that belongs to this home or to this user's homes alone.
fn is_own(home: &Home) -> bool {
    let own = format!("abx-{}", nix::unistd::geteuid());
    home.socket()
        .parent()
        .is_some_and(|dir| dir == home.root() || dir.file_name().is_some_and(|name| *name == *own))
}

fn bind(path: &Path, own: bool) -> io::Result<(blocking::UnixListener, Bound)> {
    if !own && blocking::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there"));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = blocking::UnixListener::bind(&temporary)?;
    let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))
        .and_then(|()| inode(&temporary))
        .and_then(|inode| fs::rename(&temporary, path).map(|()| inode));
    match placed {
        Ok(inode) => Ok((socket, Bound { path: path.to_owned(), inode, own })),
        Err(error) => {
            // The first error is the one to tell.
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    }
}

fn check(stream: UnixStream) -> Option<Accepted> {
    let cred = match stream.peer_cred() {
        Ok(cred) => cred,
        Err(error) => {
            tracing::warn!(%error, "a connection's user cannot be told; closed");
            return None;
        }
    };
    if cred.uid() != nix::unistd::geteuid().as_raw() && cred.uid() != 0 {
        tracing::warn!(uid = cred.uid(), pid = cred.pid(), "a connection of another user; closed");
        return None;
    }
    Some(Accepted { stream, uid: cred.uid(), gid: cred.gid(), pid: cred.pid() })
}

fn is_exhausted(error: &io::Error) -> bool {
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(*errno as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(dir: &Path) -> Home {
        let home = Home::find(Some(&dir.join("home")), Some(&dir.join("home/daemon.sock"))).expect("a home");
        home.prepare().expect("prepare");
        home
    }

    fn open(home: &Home) -> Listener {
        Listener::open(home, Lock::take(home).expect("free"), Shutdown::new(), None).expect("listens")
    }

    #[tokio::test]
    async fn the_second_to_lock_a_home_learns_who_was_first_or_waits_for_its_end() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        let first = Lock::take(&home).expect("free");
        let error = Lock::take(&home).expect_err("held");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert!(matches!(error, DaemonError::AlreadyRunning { pid: Some(found), .. } if found == pid));
        let wait = tokio::spawn(async move { Lock::take_within(&home, Duration::from_secs(15)).await });
        tokio::task::yield_now().await;
        assert!(!wait.is_finished(), "it waits for the first to end");
        drop(first);
        wait.await.expect("no panic").expect("free again");
    }

    #[tokio::test]
    async fn the_socket_is_private_and_takes_the_place_of_a_stale_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        drop(blocking::UnixListener::bind(home.socket()).expect("a stale socket"));
        let _listener = open(&home);
        assert_eq!(fs::metadata(home.socket()).expect("meta").mode() & 0o777, 0o600);
        blocking::UnixStream::connect(home.socket()).expect("somebody listens");
    }

    #[tokio::test]
    async fn only_the_socket_that_was_bound_is_removed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        let listener = open(&home);
        fs::remove_file(home.socket()).expect("remove");
        fs::write(home.socket(), "somebody else's").expect("replace");
        drop(listener);
        assert!(home.socket().exists());
    }

    #[tokio::test]
    async fn a_home_that_was_taken_away_stops_the_daemon_and_a_lock_file_alone_does_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        let mut listener = open(&home);
        fs::remove_file(home.lock()).expect("remove");
        listener.look_after();
        assert!(home.lock().exists() && !listener.shutdown.begun());
        fs::remove_dir_all(home.root()).expect("remove");
        home.prepare().expect("another home in its place");
        listener.look_after();
        assert!(listener.shutdown.begun());
    }

    #[tokio::test]
    async fn a_socket_elsewhere_that_another_program_listens_on_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("other/daemon.sock");
        let home = Home::find(Some(&dir.path().join("home")), Some(&path)).expect("a home");
        home.prepare().expect("prepare");
        let other = blocking::UnixListener::bind(&path).expect("another program");
        let error = Listener::open(&home, Lock::take(&home).expect("free"), Shutdown::new(), None)
            .expect_err("in use");
        assert!(matches!(error, DaemonError::Bind { .. }));
        drop(other);
        open(&home);
    }
}
