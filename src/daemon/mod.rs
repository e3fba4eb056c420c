//! The daemon: the order in which it starts, serves and stops.
//!
//! Start: directories, lock, log, signals, services, socket, ready. Stop: new work is refused, what runs finishes or is
//! recorded, the socket goes, connections get their last answers, the lock goes; ten seconds at most. A second signal
//! ends it at once.

mod activation;
mod adopted;
mod agents;
mod attention;
pub mod awake;
mod backups;
mod boot;
mod bundle;
pub mod caller;
mod check;
pub mod clock;
pub mod driver;
mod effects;
mod elsewhere;
mod engine_state;
pub mod exec;
mod expiry;
pub mod failure;
pub mod feed;
pub mod files;
mod flatten;
pub mod framing;
mod gaps;
pub mod guests;
mod halves;
pub mod handover;
pub mod idle;
mod late;
mod layers;
mod listener;
pub mod logging;
pub mod mounts;
mod named;
mod orphans;
pub mod progress;
mod rebuild;
mod recovery;
pub mod resolve;
mod room;
pub mod rpc;
mod services;
pub mod shutdown;
pub mod stream;
pub mod subscriptions;
#[cfg(test)]
mod tests;
mod text;
mod turns;
pub mod usage;
pub mod verbs;
mod wait;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Methods;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{dup2_stderr, setsid};
use sd_notify::NotifyState;

use crate::config::Config;
use crate::paths::{Home, PathError};
use crate::proto::version::VERSION;
use crate::store::Store;
use crate::store::error::StoreError;
use failure::Failure;
use framing::{Drain, RawHandler, Server};
use handover::Inherited;
use listener::{Listener, Lock};
use logging::LogError;
use shutdown::Shutdown;

/// Open files that the daemon asks the system for, the second where the first is refused (macOS has a limit of its own):
/// each connection is one, and so is each stream of an engine.
const WANTED_OPEN_FILES: [u64; 2] = [65_536, 10_240];

/// How long a daemon that a service manager starts waits for the one that has the home: a stop takes ten seconds at most.
const MANAGED_LIMIT: Duration = Duration::from_secs(15);

/// How to run.
#[derive(Debug)]
pub struct Options {
    /// Which home to serve.
    pub home: Home,
    /// The settings.
    pub config: Config,
    /// Whether a client started this process: it then leaves the client's terminal and directory, and gives up standard
    /// error, which the client reads, once it is ready.
    pub spawned: bool,
    /// The socket, where this program goes on for another.
    pub inherited: Option<Inherited>,
}

/// What the program that goes on is given.
pub struct Handover {
    listener: Listener,
    shutdown: Shutdown,
}

impl Handover {
    /// Becomes the other program. Returns only if that fails; nobody serves then.
    pub fn go(self) -> DaemonError {
        let source = match self.shutdown.successor() {
            Some(successor) => self.listener.give(successor),
            None => io::ErrorKind::NotFound.into(),
        };
        DaemonError::Handover { source }
    }
}

/// What is served.
#[derive(Clone)]
pub struct Services {
    /// The method table.
    pub methods: Methods,
    /// What serves raw streams.
    pub raw: Arc<dyn RawHandler>,
    /// What a stop waits for.
    pub drain: Arc<dyn Drain>,
}

/// Why the daemon does not run, or did not stop in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The home cannot be used.
    #[error("failed to prepare the home")]
    Home(#[from] PathError),
    /// Another daemon serves this home.
    #[error("abxd is already running{} and holds {lock:?}", pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    AlreadyRunning {
        /// Its process, if it has written that yet.
        pid: Option<i32>,
        /// The lock it holds.
        lock: PathBuf,
    },
    /// The lock file cannot be opened or locked.
    #[error("failed to lock {path:?}")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no log.
    #[error("failed to start the log")]
    Log(#[from] LogError),
    /// The system refuses signal handlers.
    #[error("failed to listen for signals")]
    Signals {
        /// The system's error.
        source: io::Error,
    },
    /// The socket cannot be bound.
    #[error("failed to listen on {path:?}")]
    Bind {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The session table cannot be used.
    #[error("failed to open the session table")]
    Store(#[from] StoreError),
    /// What the service manager passed is no socket.
    #[error("failed to use the socket that the service manager passed")]
    Activation {
        /// The system's error.
        source: io::Error,
    },
    /// The program that was to go on cannot.
    #[error("failed to become the next abxd")]
    Handover {
        /// The system's error.
        source: io::Error,
    },
    /// A second signal came before the stop had ended.
    #[error("stopped without waiting for what was under way")]
    Forced,
}

impl DaemonError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::AlreadyRunning { .. } => Some("abx daemon status".to_owned()),
            Self::Bind { .. } => Some("abxd --socket PATH, or set ABX_SOCKET".to_owned()),
            Self::Log(_) => Some("abxd --log info".to_owned()),
            Self::Store(error) => Failure::from(error.clone()).hint,
            _ => None,
        }
    }
}

/// Runs the daemon until it is asked to stop, or to hand over; then what the next program is given.
///
/// # Errors
/// When it cannot start, [`DaemonError::AlreadyRunning`] among others, or was made to stop at once.
pub async fn run(options: Options) -> Result<Option<Handover>, DaemonError> {
    let Options { home, config, spawned, inherited } = options;
    settle(spawned);
    home.prepare()?;
    let passed = match inherited {
        Some(inherited) => Some(inherited),
        None => activation::socket().map_err(|source| DaemonError::Activation { source })?,
    };
    // Whoever is told that it is running already would be started again and again.
    let patience =
        if passed.as_ref().is_some_and(|passed| passed.managed) { MANAGED_LIMIT } else { Duration::ZERO };
    let lock = Lock::take_within(&home, patience).await?;
    logging::install(&home.log_file(), &config.log.value, !spawned)?;
    let shutdown = Shutdown::new();
    shutdown.listen(spawned).map_err(|source| DaemonError::Signals { source })?;
    tracing::info!(version = VERSION, pid = std::process::id(), home = ?home.root(), "abxd starts");
    let services = services::build(&home, config, &shutdown).await?;
    let listener = Listener::open(&home, lock, shutdown.clone(), passed)?;
    announce(&[NotifyState::Ready]);
    if spawned {
        leave_stderr();
    }
    tracing::info!(socket = ?home.socket(), "abxd is ready");
    if let Some(limit) = sd_notify::watchdog_enabled() {
        tokio::spawn(feed_watchdog(limit));
    }
    let stopping = shutdown.clone();
    tokio::spawn(async move {
        stopping.wait().await;
        match stopping.successor() {
            Some(_) => announce(&reloading()),
            None => announce(&[NotifyState::Stopping]),
        }
    });
    // On a thread of the runtime's own, where the events of sockets arrive too.
    let mut serving = tokio::spawn(Server::new(services, shutdown.clone()).run(listener));
    tokio::select! {
        biased;
        () = shutdown.forced() => {
            serving.abort();
            // Its end takes the socket and the lock with it.
            let _ = serving.await;
            Err(DaemonError::Forced)
        }
        ended = &mut serving => {
            let kept = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            tracing::info!(successor = ?shutdown.successor(), "abxd has stopped");
            Ok(kept.map(|listener| Handover { listener, shutdown }))
        }
    }
}

/// Looks whether a daemon of this program would find what it needs in a home that another may be using.
///
/// # Errors
/// When the table is a newer abx's, or what is to be logged is not understood.
pub fn check(home: &Home, config: &Config) -> Result<(), DaemonError> {
    logging::check(&config.log.value)?;
    Ok(Store::check_format(&home.database())?)
}

/// Makes the process what a daemon is.
fn settle(spawned: bool) {
    // Every file, directory and socket from here on is for this user alone.
    umask(Mode::from_bits_truncate(0o077));
    if spawned {
        // It fails only where the process already leads a session, which is what is wanted.
        let _ = setsid();
        // The root is always there; a daemon keeps no other directory from being unmounted.
        let _ = std::env::set_current_dir("/");
    }
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where none is granted there are fewer connections, but there is a daemon.
        let _granted = WANTED_OPEN_FILES
            .into_iter()
            .map(|wanted| wanted.min(hard))
            .take_while(|wanted| *wanted > soft)
            .any(|wanted| setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok());
    }
}

/// Tells a service manager twice in each of its limits that the daemon lives, from the runtime that also serves: a daemon
/// whose threads all hang is ended and started again. It goes on while the daemon stops.
async fn feed_watchdog(limit: Duration) {
    let mut tick = tokio::time::interval(limit / 2);
    loop {
        tick.tick().await;
        announce(&[NotifyState::Watchdog]);
    }
}

/// What a service manager is told before another program goes on: it is ready again when that says so.
fn reloading() -> Vec<NotifyState<'static>> {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    states
}

fn announce(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "failed to tell the service manager");
    }
}

fn leave_stderr() {
    let left = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .and_then(|null| dup2_stderr(null).map_err(io::Error::from));
    if let Err(error) = left {
        tracing::warn!(%error, "failed to give up standard error");
    }
}
