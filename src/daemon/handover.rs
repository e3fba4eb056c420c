//! Handing over to another abxd without closing the socket: this process becomes the next program.
//!
//! The listening socket goes along as standard input, so whoever connects meanwhile waits in its queue, and the process id
//! stays: a service manager keeps its main process. Everything else is as after any stop: the table is closed, the lock is
//! let go and taken again, sandboxes and their terminals are found by their sockets.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::failure::Failure;
use crate::proto::errors::Kind;

/// Tells the next program what its standard input is; its value says whose socket that is.
pub const FLAG: &str = "--succeeds";

/// Has a program look whether it would start here, and say its version.
pub const CHECK: &str = "--check";

/// The socket is the home's own: its file is looked after, and removed at the end.
const OWN: &str = "own";

/// The socket is a service manager's.
const MANAGED: &str = "managed";

/// How long a program may take to look whether it would start: it reads the settings and the table's header.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// How much of what a program says about itself is kept, in bytes.
const MAX_WORDS: usize = 4096;

/// A program that has said that it would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// The program.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
}

impl Successor {
    /// Asks a program whether it would start in this one's place; without one, the file that this one was started from.
    ///
    /// # Errors
    /// `wrong_state` with the program's own words when it would not, or is no abxd.
    ///
    /// # Cancel safety
    /// A program that is being asked is ended when the future is dropped.
    pub(super) async fn ask(program: Option<PathBuf>) -> Result<Self, Failure> {
        let program = match program {
            Some(program) if program.is_absolute() => program,
            Some(_) => return Err(Failure::field("program", "an absolute path")),
            None => own_program().map_err(|error| refused(&error.to_string()))?,
        };
        let mut command = tokio::process::Command::new(&program);
        command.arg(CHECK).args(arguments()).stdin(Stdio::null()).kill_on_drop(true);
        let output = match tokio::time::timeout(CHECK_LIMIT, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(refused(&format!("{}: {error}", program.display()))),
            Err(_elapsed) => return Err(refused(&format!("{} does not answer", program.display()))),
        };
        let words = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_WORDS)]).into_owned();
            text.trim().to_owned()
        };
        let said = words(&output.stdout);
        match said.strip_prefix("abxd ") {
            Some(version) if output.status.success() => Ok(Self { version: version.to_owned(), program }),
            _ => {
                let told = words(&output.stderr);
                let mut lines = told.lines().map(|line| line.trim_start_matches("Error: ").to_owned());
                let first = lines.next().unwrap_or_else(|| "it is no abxd, or a much older one".to_owned());
                let failure = refused(&format!("{} would not start: {first}", program.display()));
                Err(Failure { causes: lines.collect(), ..failure })
            }
        }
    }

    /// Makes this process the successor, with the socket as its standard input. Returns only if that fails.
    pub(super) fn take_over(&self, socket: UnixListener, managed: bool) -> io::Error {
        // Whose descriptors were passed is a matter of the first program alone.
        Command::new(&self.program)
            .args(arguments())
            .arg(format!("{FLAG}={}", if managed { MANAGED } else { OWN }))
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(socket)))
            .exec()
    }
}

/// The socket that the program before this one listened on.
#[derive(Debug)]
pub struct Inherited {
    /// The socket.
    pub(super) socket: UnixListener,
    /// Whether a service manager owns it.
    pub(super) managed: bool,
}

impl Inherited {
    /// Takes standard input for what the flag's value says it is.
    ///
    /// # Errors
    /// When it is no socket, or the value is not known.
    pub fn take(value: &str) -> io::Result<Self> {
        use std::os::fd::AsFd;

        let managed = match value {
            OWN => false,
            MANAGED => true,
            other => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{FLAG}={other}"))),
        };
        let socket = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.local_addr()?;
        nix::unistd::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(Self { socket, managed })
    }
}

fn refused(why: &str) -> Failure {
    Failure::new(Kind::WrongState, format!("abxd was not restarted: {why}"))
        .hint("mend that, or abx daemon stop and abx daemon start")
}

/// What this program was started with, but for what only its own start meant.
fn arguments() -> impl Iterator<Item = OsString> {
    let passing = format!("{FLAG}=");
    std::env::args_os()
        .skip(1)
        .filter(move |argument| !argument.to_str().is_some_and(|text| text.starts_with(&passing)))
}

/// The file that this program was started from. After an upgrade the system calls the one that runs deleted.
fn own_program() -> io::Result<PathBuf> {
    const DELETED: &str = " (deleted)";
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|text| text.strip_suffix(DELETED)).map(Path::new);
    Ok(replaced.filter(|path| path.exists()).map_or(program.clone(), Path::to_owned))
}
