//! `abx notify`, as a program of the sandbox calls it: says to PID 1 what that program is doing.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::arguments::Notify;
use super::notices::{Answer, MAX_ANSWER_BYTES};
use super::wire::{Notice, Payload};

/// The name under which users find this program in a sandbox. It lies beside the program itself.
pub(super) const TOOL: &str = "abx";

/// How long PID 1 may take to answer. It never blocks: past it, it is stopped or gone.
const LIMIT: Duration = Duration::from_secs(5);

/// The directory in which that name is, if there is one.
pub(super) fn tools() -> Option<PathBuf> {
    let directory = std::env::current_exe().ok()?.parent()?.to_owned();
    directory.join(TOOL).exists().then_some(directory)
}

/// Says it, and waits until it was taken.
///
/// # Errors
/// When nobody takes it.
pub(super) fn run(notify: &Notify) -> io::Result<()> {
    let mut body = notify.text.clone();
    body.truncate(body.floor_char_boundary(Notice::MAX_TEXT_BYTES));
    let notice = Notice { state: notify.state, source: Notice::COMMAND, body, ..Notice::default() };
    let socket = socket()?;
    let nobody = |error| io::Error::other(format!("abx-init does not answer in this sandbox: {error}"));
    socket.connect_addr(&SocketAddr::from_abstract_name(&notify.to)?).map_err(nobody)?;
    socket.set_write_timeout(Some(LIMIT))?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.send(&notice.encode()).map_err(nobody)?;
    let mut buffer = [0; MAX_ANSWER_BYTES];
    let read = socket.recv(&mut buffer).map_err(nobody)?;
    Answer::read(&buffer[..read])
}

/// One with a name of its own, which the system gives, so that there can be an answer.
fn socket() -> io::Result<UnixDatagram> {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    Ok(UnixDatagram::from(socket))
}
