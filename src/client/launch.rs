//! Starting `abxd` when nobody listens.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::connect::ConnectError;
use crate::paths::Home;

/// Shortest time between two starts by one client: a daemon that lost the race for the lock needs no successor at once.
const RESPAWN_PAUSE: Duration = Duration::from_millis(500);

/// How much of what a failing daemon wrote is kept, in bytes: its error and causes, not a flood.
const MAX_STDERR_BYTES: usize = 16 * 1024;

/// How long to wait for the last words of a daemon that has ended. Its pipe is closed, so they are there at once.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// How long a client waits for its own daemon that lost the race, before it goes on.
const LOSER_LIMIT: Duration = Duration::from_millis(500);

/// How much of the log's end is searched for its last lines, in bytes.
const LOG_TAIL_BYTES: u64 = 8 * 1024;

/// Number of log lines shown when a daemon fails without a word.
const LOG_TAIL_LINES: usize = 10;

/// One client's attempts to have a daemon.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    home: &'a Home,
    program: Option<&'a Path>,
    child: Option<(Child, Receiver<Vec<u8>>)>,
    last: Option<Instant>,
    lost: Option<Instant>,
}

impl<'a> Launcher<'a> {
    pub(super) fn new(home: &'a Home, program: Option<&'a Path>) -> Self {
        Self { home, program, child: None, last: None, lost: None }
    }

    /// Starts a daemon unless one is starting already, and looks after the one that was started before.
    ///
    /// # Errors
    /// When no daemon can be started, or the one started has failed.
    pub(super) fn advance(&mut self) -> Result<(), ConnectError> {
        if let Some((child, words)) = &mut self.child {
            match child.try_wait().map_err(|source| ConnectError::Launch { source })? {
                None => return Ok(()),
                // Another daemon holds the lock and will listen.
                Some(status) if status.success() => {
                    self.child = None;
                    self.lost.get_or_insert_with(Instant::now);
                }
                Some(status) => {
                    let words = words.recv_timeout(LAST_WORDS_LIMIT).unwrap_or_default();
                    self.child = None;
                    return Err(self.failed(status.to_string(), &words));
                }
            }
        }
        if self.last.is_none_or(|last| last.elapsed() >= RESPAWN_PAUSE) {
            self.home.prepare().map_err(|source| ConnectError::Home { source })?;
            self.last = Some(Instant::now());
            self.child = match self.spawn() {
                // An upgrade is just writing it.
                Err(ConnectError::Launch { source })
                    if source.kind() == io::ErrorKind::ExecutableFileBusy =>
                {
                    None
                }
                spawned => Some(spawned?),
            };
        }
        Ok(())
    }

    /// Whether a daemon of ours found that another holds the home, this long ago or longer.
    pub(super) fn lost(&self, ago: Duration) -> bool {
        self.lost.is_some_and(|lost| lost.elapsed() >= ago)
    }

    /// The error for a daemon that does not listen in time.
    pub(super) fn timed_out(&self, limit: Duration) -> ConnectError {
        let log = self.home.log_file();
        ConnectError::NotReady { seconds: limit.as_secs(), words: tail(&log), log }
    }

    /// Leaves the daemon `listening` to itself. A child that lost the race to it is collected: it ends within
    /// milliseconds, and not every system's first process collects orphans.
    pub(super) fn let_go(self, listening: Option<i32>) {
        let Some((mut child, _words)) = self.child else { return };
        if listening.is_some_and(|pid| i32::try_from(child.id()) == Ok(pid)) {
            return;
        }
        let (send, ended) = sync_channel(1);
        std::thread::spawn(move || send.send(child.wait().is_ok()));
        // The thread stays behind where it takes longer.
        let _ = ended.recv_timeout(LOSER_LIMIT);
    }

    fn spawn(&self) -> Result<(Child, Receiver<Vec<u8>>), ConnectError> {
        let program = self.program.map_or_else(daemon_program, Path::to_owned);
        let mut command = Command::new(&program);
        command.arg("--home").arg(self.home.root());
        // The daemon computes the same default; only a socket elsewhere must be told.
        if Home::find(Some(self.home.root()), None).map(|h| h.socket() != self.home.socket()).unwrap_or(true)
        {
            command.arg("--socket").arg(self.home.socket());
        }
        command.arg("--spawned").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ConnectError::NoDaemon { program },
            _ => ConnectError::Launch { source },
        })?;
        let (send, words) = sync_channel(1);
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || send.send(last_words(stderr)));
        }
        Ok((child, words))
    }

    fn failed(&self, status: String, words: &[u8]) -> ConnectError {
        let text = String::from_utf8_lossy(words);
        let words: Vec<String> =
            text.lines().map(str::trim_end).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        let log = self.home.log_file();
        let words = if words.is_empty() { tail(&log) } else { words };
        ConnectError::Failed { status, words, log }
    }
}

/// Takes the place of a home's daemon, so that no client starts one as long as the file is kept. None while one runs.
///
/// # Errors
/// When the lock file cannot be opened.
pub fn take_place(home: &Home) -> io::Result<Option<Flock<File>>> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(home.lock())?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(place) => Ok(Some(place)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// The `abxd` beside this program, so that the two fit together; else its bare name, for the search path.
pub fn daemon_program() -> PathBuf {
    program_beside("abxd")
}

/// The program of this name beside this one; else its bare name, for the search path.
pub fn program_beside(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .map(|exe| exe.with_file_name(name))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// Reads to the end and keeps the end.
fn last_words(mut stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => return kept,
            Ok(read) => {
                kept.extend_from_slice(&buffer[..read]);
                let excess = kept.len().saturating_sub(MAX_STDERR_BYTES);
                kept.drain(..excess);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return kept,
        }
    }
}

/// The last lines of a log, if it can be read.
fn tail(log: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].iter().map(|l| (*l).to_owned()).collect()
}
