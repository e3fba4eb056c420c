//! Where abxd's socket cannot be put into the sandbox: the engine runs `abx-init bridge`, whose standard input and
//! output are abxd's, and which passes both on to PID 1.

use std::io;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Copies until either side ends.
///
/// # Errors
/// When PID 1 is not there, or either side fails.
pub(super) fn run(name: &str) -> io::Result<()> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let to_guest = socket.try_clone()?;
    // Ends with the process, should the other direction end first.
    std::thread::Builder::new().spawn(move || {
        let copied = io::copy(&mut io::stdin().lock(), &mut &to_guest);
        // PID 1 sees the end, closes its side, and so ends the other direction.
        let _ = to_guest.shutdown(if copied.is_ok() { Shutdown::Write } else { Shutdown::Both });
    })?;
    copy_out(&socket)
}

/// Unbuffered: a keystroke's echo must not wait for more.
fn copy_out(mut socket: &UnixStream) -> io::Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    let stdout = rustix::stdio::stdout();
    loop {
        let read = io::Read::read(&mut socket, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            match rustix::io::write(stdout, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}
