//! Finds abxd: connects to its socket and connects again when that was lost; takes a bridge where there is no socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::poller::{Interest, Poller, Token, Watched};

/// First pause before another try: a socket that was just bound is listened on in a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Longest pause. It matters only where changes of the directory are not seen.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What calls and is called.
#[derive(Debug)]
pub(super) struct Dialer {
    path: Option<PathBuf>,
    directory: Option<Watched>,
    listener: Option<Watched>,
    uid: u32,
    pause: Duration,
    next: Option<Instant>,
}

impl Dialer {
    /// Calls the socket at `path`, and answers bridges at the abstract name `listen`. `uid` is who may call.
    pub(super) fn new(path: Option<PathBuf>, listen: Option<&str>, uid: u32, poller: &Poller) -> Self {
        // Another that has the name, or a file system that tells no changes, leaves the other ways.
        let listener = listen.and_then(|name| listen_at(name).ok());
        let directory = path.as_ref().and_then(|path| watch(path).ok());
        let readable = Interest { read: true, write: false };
        let watched = |fd: Option<OwnedFd>, token| {
            let mut watched = Watched::new(fd?, token);
            poller.set(&mut watched, readable);
            Some(watched)
        };
        Self {
            next: path.is_some().then(Instant::now),
            path,
            directory: watched(directory, Token::Directory),
            listener: watched(listener, Token::Listener),
            uid,
            pause: FIRST_PAUSE,
        }
    }

    /// When to call next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Calls. Without an answer another call is due later.
    pub(super) fn call(&mut self) -> Option<OwnedFd> {
        let path = self.path.as_ref()?;
        if let Ok(socket) = connect(path) {
            self.next = None;
            return Some(socket);
        }
        self.later();
        None
    }

    /// Calls again: a connection was lost. Soon, if it was one on which both sides had agreed.
    pub(super) fn lost(&mut self, agreed: bool) {
        if agreed {
            self.pause = FIRST_PAUSE;
        }
        self.later();
    }

    fn later(&mut self) {
        self.next = self.path.is_some().then(|| Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Sees to changes of the directory; a new socket is called soon, if one is looked for.
    pub(super) fn directory_changed(&mut self) {
        let Some(directory) = &self.directory else { return };
        let mut buffer = [0_u8; 4096];
        while rustix::io::read(directory, &mut buffer).is_ok_and(|read| read > 0) {}
        if self.next.is_some() {
            self.pause = FIRST_PAUSE;
            self.later();
        }
    }

    /// Takes a bridge's connection, if its user is our own: any process of the sandbox can find the name.
    pub(super) fn accept(&mut self) -> Option<OwnedFd> {
        let listener = self.listener.as_ref()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(listener, flags).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok()?;
        if peer.uid.as_raw() != self.uid {
            return None;
        }
        self.next = None;
        Some(socket)
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn listen_at(name: &str) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

fn watch(path: &Path) -> io::Result<OwnedFd> {
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let directory = path.parent().unwrap_or(path);
    let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(inotify.as_fd(), directory, flags)?;
    Ok(inotify)
}
