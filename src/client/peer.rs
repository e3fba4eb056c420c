//! Who is at the other end of the socket.

use std::fs;
use std::os::unix::net::UnixStream;

use crate::paths::Home;

/// The process that listens, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its id. Under socket activation this is the service manager's, which opened the socket.
    pub pid: Option<i32>,
}

/// Longest lock file that is looked at, in bytes: it holds one number.
const MAX_LOCK_BYTES: usize = 64;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn peer(stream: &UnixStream) -> Option<Peer> {
    let credentials =
        nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials).ok()?;
    Some(Peer { uid: credentials.uid(), pid: Some(credentials.pid()).filter(|pid| *pid > 0) })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn peer(stream: &UnixStream) -> Option<Peer> {
    use nix::sys::socket::{getsockopt, sockopt};
    let uid = getsockopt(stream, sockopt::LocalPeerCred).ok()?.uid();
    Some(Peer { uid, pid: getsockopt(stream, sockopt::LocalPeerPid).ok().filter(|pid| *pid > 0) })
}

/// The daemon's process id: the peer's if that is an `abxd`, else the one in the lock file if that is one. Never the
/// service manager's.
pub fn daemon_pid(home: &Home, peer: Option<Peer>) -> Option<i32> {
    let locked = || {
        let text = fs::read(home.lock()).ok()?;
        let text = String::from_utf8(text.into_iter().take(MAX_LOCK_BYTES).collect()).ok()?;
        let digits: String = text.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<i32>().ok().filter(|pid| *pid > 1)
    };
    peer.and_then(|p| p.pid).filter(|pid| is_abxd(*pid)).or_else(|| locked().filter(|pid| is_abxd(*pid)))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_abxd(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "abxd")
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_abxd(pid: i32) -> bool {
    let output = std::process::Command::new("ps").args(["-o", "comm=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).trim_end().rsplit('/').next() == Some("abxd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (one, _two) = UnixStream::pair().expect("a pair");
        let peer = peer(&one).expect("credentials");
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
    }

    #[test]
    fn a_process_that_is_no_abxd_is_never_taken_for_the_daemon() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = Home::find(Some(dir.path()), None).expect("a home");
        let me = i32::try_from(std::process::id()).expect("small");
        fs::write(home.lock(), format!("{me}\n")).expect("write");
        assert_eq!(daemon_pid(&home, Some(Peer { uid: 0, pid: Some(me) })), None);
    }
}
