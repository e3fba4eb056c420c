//! Finding the daemon, or starting one.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr};

use super::calls::{Asked, CallError, Client};
use super::hello::{ABX, HELLO_LIMIT, PROBE, greet};
use super::launch::Launcher;
use super::peer::{daemon_pid, peer};
use super::pipe::Pipe;
use super::stream::{RawStream, StreamError};
use crate::paths::{Home, PathError};
use crate::proto::daemon::HelloResult;
use crate::proto::errors::Kind;
use crate::proto::stream::Open;
use crate::proto::version::{PROTOCOL, VERSION};

/// How long a started daemon may take until it listens, and a stopping one until its successor does.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// How long a daemon that holds the home may take to listen, after ours has found that out, before another socket of it is
/// looked for: far longer than from lock to socket.
const ELSEWHERE_LIMIT: Duration = Duration::from_secs(2);

/// First and longest pause between two looks for the socket: a start takes about ten milliseconds.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Why there is no connection to a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens, and none may be started.
    #[error("no abxd listens on {}", .socket.display())]
    NotListening {
        /// The socket.
        socket: PathBuf,
    },
    /// Something else stands in the socket's place.
    #[error("{} is not a socket", .socket.display())]
    NotASocket {
        /// The place.
        socket: PathBuf,
    },
    /// The socket may not be used by this user.
    #[error("this user may not connect to {}", .socket.display())]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Some other failure of the system.
    #[error("failed to connect to {}", .socket.display())]
    Dial {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user's process listens there.
    #[error("{} belongs to a process of user {uid}, not of this one", .socket.display())]
    Foreign {
        /// The socket.
        socket: PathBuf,
        /// That process's user.
        uid: u32,
    },
    /// The home cannot be made ready for a daemon.
    #[error("failed to prepare the home of abxd")]
    Home {
        /// Why.
        source: PathError,
    },
    /// There is no `abxd` to start.
    #[error("there is no abxd beside abx or on the search path (looked for {})", .program.display())]
    NoDaemon {
        /// What was looked for.
        program: PathBuf,
    },
    /// It cannot be started.
    #[error("failed to start abxd")]
    Launch {
        /// The system's error.
        source: io::Error,
    },
    /// It was started and ended with an error.
    #[error("abxd could not start ({status}); its log is {}", .log.display())]
    Failed {
        /// How it ended.
        status: String,
        /// What it wrote, or the log's last lines.
        words: Vec<String>,
        /// The log.
        log: PathBuf,
    },
    /// It was started and does not listen.
    #[error("abxd did not listen within {seconds} s; its log is {}", .log.display())]
    NotReady {
        /// The limit.
        seconds: u64,
        /// The log's last lines.
        words: Vec<String>,
        /// The log.
        log: PathBuf,
    },
    /// The home's daemon listens on another socket, and a home has one daemon.
    #[error("the abxd{} of this home does not listen on {}, but elsewhere", pid_suffix(*.pid), .socket.display())]
    Elsewhere {
        /// The socket that was asked for.
        socket: PathBuf,
        /// The daemon's process id.
        pid: Option<i32>,
    },
    /// It accepts connections and does not answer.
    #[error("abxd{} does not answer", pid_suffix(*.pid))]
    Hung {
        /// Its process id, if it could be found out.
        pid: Option<i32>,
    },
    /// Something else listens there.
    #[error("{} is not abxd's: {server:?} answers there", .socket.display())]
    Stranger {
        /// The socket.
        socket: PathBuf,
        /// What it calls itself.
        server: String,
    },
    /// Daemon and client do not understand each other.
    #[error(
        "this abx ({VERSION}) speaks protocol {PROTOCOL}, the running abxd ({version}) protocol {protocol}"
    )]
    Protocol {
        /// The daemon's version.
        version: String,
        /// Its protocol.
        protocol: u32,
    },
    /// The greeting failed.
    #[error("abxd did not greet")]
    Greeting {
        /// Why.
        source: CallError,
    },
}

fn pid_suffix(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// How to reach the daemon of a home.
#[derive(Debug, Clone)]
pub struct Connector {
    home: Home,
    autostart: bool,
    program: Option<PathBuf>,
    caller: Cow<'static, str>,
}

enum Attempt {
    /// The daemon is going; another will come.
    Again(ConnectError),
    Final(ConnectError),
}

enum Dial {
    Stream(UnixStream),
    Absent,
    /// Its queue of connections is full.
    Full,
}

impl Connector {
    /// Reaches the daemon of `home`; starts one when nobody listens and `autostart` is set.
    pub fn new(home: Home, autostart: bool) -> Self {
        Self { home, autostart, program: None, caller: Cow::Borrowed(ABX) }
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether this connector starts a daemon.
    pub fn autostart(&self) -> bool {
        self.autostart
    }

    /// The same, but starts no daemon.
    #[must_use]
    pub fn without_autostart(&self) -> Self {
        Self { autostart: false, ..self.clone() }
    }

    /// The same, for a program of another name: the daemon notes who asked for what. What it has to say once, to a user
    /// who reads it, it does not say to this one.
    #[must_use]
    pub fn calling_itself(&self, name: String) -> Self {
        Self { caller: Cow::Owned(name), ..self.clone() }
    }

    #[cfg(test)]
    pub(crate) fn with_program(self, program: PathBuf) -> Self {
        Self { program: Some(program), ..self }
    }

    /// Connects and exchanges versions.
    ///
    /// # Errors
    /// When there is no daemon, none can be started, it does not answer, or it speaks another protocol.
    pub fn connect(&self) -> Result<Client, ConnectError> {
        let client = self.connect_any_protocol()?;
        same_protocol(client.hello())?;
        Ok(client)
    }

    /// Connects to a daemon of whatever protocol, to ask for its version or to stop it.
    ///
    /// # Errors
    /// As [`Connector::connect`], but for the protocol.
    pub fn connect_any_protocol(&self) -> Result<Client, ConnectError> {
        self.reach(|stream| self.greet(stream, &self.caller, None))
    }

    /// Connects to a daemon of whatever protocol and asks it something with the greeting.
    ///
    /// # Errors
    /// As [`Connector::connect_any_protocol`].
    pub fn connect_asking(&self, asked: &Asked) -> Result<Client, ConnectError> {
        self.reach(|stream| self.greet(stream, &self.caller, Some(asked)))
    }

    /// Opens a raw stream. Versions travel in its opening, and who calls.
    ///
    /// # Errors
    /// As [`Connector::connect`], or when the daemon refuses to run the command.
    pub fn open(&self, open: &Open) -> Result<RawStream, StreamError> {
        self.open_telling(open, &|_| {})
    }

    /// As [`Connector::open`]; what is done before the answer is told to `doing`, line by line, if the opening says that it
    /// is heard.
    ///
    /// # Errors
    /// As there.
    pub fn open_telling(&self, open: &Open, doing: &dyn Fn(&str)) -> Result<RawStream, StreamError> {
        let answers = || self.probe().map(drop);
        let open = Open { client: Some(self.caller.clone().into_owned()), ..open.clone() };
        let opened = self.reach(|stream| match RawStream::open(stream, &open, &answers, doing) {
            Err(StreamError::Refused(remote)) if remote.error.kind() == Some(Kind::ShuttingDown) => {
                Err(Attempt::Again(ConnectError::Greeting { source: CallError::Remote(remote) }))
            }
            other => Ok(other),
        });
        opened.map_err(|source| StreamError::Connect { source })?
    }

    /// Opens a connection for bytes of another program, once a daemon of whatever protocol answers: which one it speaks
    /// is that program's matter.
    ///
    /// # Errors
    /// As [`Connector::connect_any_protocol`].
    pub fn pipe(&self) -> Result<Pipe, ConnectError> {
        self.reach(|stream| {
            let daemon = self.greet(stream, PROBE, None)?.hello().clone();
            match self.dial().map_err(Attempt::Final)? {
                Dial::Stream(stream) => Ok(Pipe::new(stream, self.without_autostart(), daemon)),
                Dial::Absent | Dial::Full => {
                    let socket = self.home.socket().to_owned();
                    Err(Attempt::Again(ConnectError::NotListening { socket }))
                }
            }
        })
    }

    /// Asks whether a daemon answers, and which; starts none.
    ///
    /// # Errors
    /// As [`Connector::connect_any_protocol`].
    pub(super) fn probe(&self) -> Result<HelloResult, ConnectError> {
        let probe = self.without_autostart();
        probe.reach(|stream| probe.greet(stream, PROBE, None)).map(|client| client.hello().clone())
    }

    fn greet(&self, stream: UnixStream, caller: &str, asked: Option<&Asked>) -> Result<Client, Attempt> {
        let who = peer(&stream);
        let mut client = Client::new(stream);
        let hello = greet(&mut client, caller, asked).map_err(|error| match error {
            CallError::Silent { .. } => {
                Attempt::Final(ConnectError::Hung { pid: daemon_pid(&self.home, who) })
            }
            CallError::Gone { .. } => Attempt::Again(ConnectError::Greeting { source: error }),
            CallError::Remote(ref remote) if remote.error.kind() == Some(Kind::ShuttingDown) => {
                Attempt::Again(ConnectError::Greeting { source: error })
            }
            source => Attempt::Final(ConnectError::Greeting { source }),
        })?;
        if hello.server != "abxd" {
            let socket = self.home.socket().to_owned();
            return Err(Attempt::Final(ConnectError::Stranger { socket, server: hello.server }));
        }
        Ok(client.greeted(hello))
    }

    /// Connects, starting a daemon where that is needed and allowed, and makes `attempt` on each connection until one
    /// is final.
    fn reach<T>(&self, mut attempt: impl FnMut(UnixStream) -> Result<T, Attempt>) -> Result<T, ConnectError> {
        let deadline = Instant::now() + READY_LIMIT;
        let mut launcher = Launcher::new(&self.home, self.program.as_deref());
        let mut failed = None;
        let mut pause = PAUSES.0;
        loop {
            let overdue = Instant::now() >= deadline;
            match self.dial()? {
                Dial::Stream(stream) => match (peer(&stream), attempt(stream)) {
                    (who, Ok(value)) => {
                        launcher.let_go(who.and_then(|p| p.pid));
                        return Ok(value);
                    }
                    (_, Err(Attempt::Final(error))) => return Err(error),
                    (_, Err(Attempt::Again(error))) if overdue => return Err(error),
                    (_, Err(Attempt::Again(_))) => {}
                },
                Dial::Full if overdue => {
                    return Err(ConnectError::Hung { pid: daemon_pid(&self.home, None) });
                }
                Dial::Full => {}
                Dial::Absent if !self.autostart => {
                    return Err(ConnectError::NotListening { socket: self.home.socket().to_owned() });
                }
                // Looked once more after the failure: another client's daemon may have come up instead.
                Dial::Absent if failed.is_some() || overdue => {
                    return Err(failed.unwrap_or_else(|| {
                        let held = launcher.lost(ELSEWHERE_LIMIT) && daemon_pid(&self.home, None).is_some();
                        if held { self.elsewhere() } else { launcher.timed_out(READY_LIMIT) }
                    }));
                }
                Dial::Absent => {
                    if let Err(error) = launcher.advance() {
                        failed = Some(error);
                        continue;
                    }
                    if launcher.lost(ELSEWHERE_LIMIT) && self.listens_on_its_own_socket() {
                        failed = Some(self.elsewhere());
                        continue;
                    }
                }
            }
            sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Whether somebody listens on the socket that the home has unless told otherwise, where another is asked for.
    fn listens_on_its_own_socket(&self) -> bool {
        Home::find(Some(self.home.root()), None)
            .is_ok_and(|own| own.socket() != self.home.socket() && dial(own.socket()).is_ok())
    }

    fn elsewhere(&self) -> ConnectError {
        ConnectError::Elsewhere { socket: self.home.socket().to_owned(), pid: daemon_pid(&self.home, None) }
    }

    fn dial(&self) -> Result<Dial, ConnectError> {
        let socket = self.home.socket();
        let stream = match dial(socket) {
            Ok(stream) => stream,
            Err(Errno::ENOENT) => return Ok(Dial::Absent),
            Err(Errno::EAGAIN) => return Ok(Dial::Full),
            Err(Errno::ECONNREFUSED) if !is_other_file(socket) => return Ok(Dial::Absent),
            Err(Errno::ECONNREFUSED | Errno::EPROTOTYPE | Errno::ENOTSOCK) => {
                return Err(ConnectError::NotASocket { socket: socket.to_owned() });
            }
            Err(errno @ (Errno::EACCES | Errno::EPERM)) => {
                return Err(ConnectError::Denied { socket: socket.to_owned(), source: errno.into() });
            }
            Err(errno) => {
                return Err(ConnectError::Dial { socket: socket.to_owned(), source: errno.into() });
            }
        };
        let ours = nix::unistd::geteuid().as_raw();
        if let Some(uid) = peer(&stream).map(|p| p.uid).filter(|uid| *uid != ours && *uid != 0) {
            return Err(ConnectError::Foreign { socket: socket.to_owned(), uid });
        }
        Ok(Dial::Stream(stream))
    }
}

/// Checks that daemon and client understand each other.
///
/// # Errors
/// When they do not.
pub fn same_protocol(hello: &HelloResult) -> Result<(), ConnectError> {
    if hello.protocol == PROTOCOL {
        return Ok(());
    }
    Err(ConnectError::Protocol { version: hello.version.clone(), protocol: hello.protocol })
}

/// Connects without waiting: a blocking connect to a stopped daemon whose queue is full never returns.
fn dial(socket: &Path) -> Result<UnixStream, Errno> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let flags = SockFlag::empty();
    let address = UnixAddr::new(socket)?;
    let stream =
        UnixStream::from(nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    let errno = |error: io::Error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        fcntl(&stream, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        stream.set_nonblocking(true).map_err(errno)?;
    }
    nix::sys::socket::connect(stream.as_raw_fd(), &address)?;
    stream.set_nonblocking(false).map_err(errno)?;
    Ok(stream)
}

fn is_other_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.file_type().is_socket())
}

// The greeting is what bounds a start from the client's side: both limits are told as one in the documentation.
const _: () = assert!(HELLO_LIMIT.as_secs() == READY_LIMIT.as_secs());

#[cfg(test)]
mod tests;
