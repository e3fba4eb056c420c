//! A connection whose bytes are another program's: it speaks whichever framing it likes, and this side only carries.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::connect::Connector;
use crate::proto::daemon::HelloResult;

/// A connection on which nothing has been said.
#[derive(Debug)]
pub struct Pipe {
    stream: UnixStream,
    connector: Connector,
    /// What answered when it was opened.
    daemon: HelloResult,
}

impl Pipe {
    pub(super) fn new(stream: UnixStream, connector: Connector, daemon: HelloResult) -> Self {
        Self { stream, connector, daemon }
    }

    /// Sends all of these bytes.
    ///
    /// # Errors
    /// The system's, when the daemon no longer reads.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// Says that nothing more will be sent. What was asked is still answered.
    pub fn end_input(&self) {
        // A connection that is gone has no input either.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads once; 0 is the end.
    ///
    /// # Errors
    /// The system's, when the connection was broken off.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.stream).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Whether the daemon that this connection was opened to still serves. The end of a connection looks the same whether
    /// everything was answered or the daemon was killed.
    pub fn is_served(&self) -> bool {
        self.connector.probe().is_ok_and(|hello| hello.is_same(&self.daemon))
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
