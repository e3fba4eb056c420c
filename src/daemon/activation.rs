//! The socket that a service manager listens on for the daemon: systemd's, or launchd's.

use std::io;
use std::os::unix::net::UnixListener;

use super::handover::Inherited;

/// The socket that was passed to this process; none where it was started without one. Its manager passes it once.
///
/// # Errors
/// When what was passed is no such socket.
pub(super) fn socket() -> io::Result<Option<Inherited>> {
    let socket = match listenfd::ListenFd::from_env().take_unix_listener(0)? {
        Some(socket) => Some(socket),
        None => launchd()?,
    };
    Ok(socket.map(|socket| Inherited { socket, managed: true }))
}

#[cfg(not(target_os = "macos"))]
#[expect(clippy::unnecessary_wraps, reason = "on macOS it may fail")]
fn launchd() -> io::Result<Option<UnixListener>> {
    Ok(None)
}

#[cfg(target_os = "macos")]
#[expect(unsafe_code, reason = "launchd gives numbers of descriptors")]
fn launchd() -> io::Result<Option<UnixListener>> {
    use std::os::fd::FromRawFd;

    use raunch::Error;

    /// Its name in `launchd/dev.abx.abxd.plist`.
    const NAME: &str = "daemon";

    let sockets = match raunch::activate_socket(NAME) {
        Ok(sockets) => sockets,
        Err(Error::NotManaged | Error::NotInPlist) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    // A path is one socket; were there more, the others would stay open for nobody.
    let [socket] = sockets[..] else {
        return Err(io::Error::other(format!("launchd passed {} sockets, not one", sockets.len())));
    };
    // SAFETY: launchd has opened it for this process, which hears of it here only: nothing else owns or closes it
    // (launch_activate_socket(3)).
    Ok(Some(unsafe { UnixListener::from_raw_fd(socket) }))
}
