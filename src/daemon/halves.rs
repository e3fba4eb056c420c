//! The two halves of a Unix socket, each of which waits for its own direction alone.
//!
//! Tokio's socket is watched for both at once, so that whoever waits for input is woken each time the other side has
//! taken something, and finds nothing. Where single keys go through, each such wake costs as much as the key itself.

use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The half to read: whatever can be read is a pipe's end to tokio.
pub(super) type ReadHalf = pipe::Receiver;

/// The half to write. It is watched only while the other side takes nothing. Dropping it ends our side.
#[derive(Debug)]
pub(super) struct WriteHalf {
    socket: StdStream,
    /// Another descriptor of it, for the system watches each one once.
    full: Option<pipe::Sender>,
}

/// Parts a socket.
///
/// # Errors
/// When the system has no room to watch it.
pub(super) fn split(socket: UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let socket = socket.into_std()?;
    let read = pipe::Receiver::from_owned_fd_unchecked(socket.try_clone()?.into())?;
    Ok((read, WriteHalf { socket, full: None }))
}

impl WriteHalf {
    /// Writes with `now`, or else with `later` once the other side takes something again.
    fn poll_with(
        &mut self,
        cx: &mut Context<'_>,
        now: impl FnOnce(&StdStream) -> io::Result<usize>,
        later: impl FnOnce(Pin<&mut pipe::Sender>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let full = match &mut self.full {
            Some(full) => full,
            none => match now(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let other = self.socket.as_fd().try_clone_to_owned()?;
                    none.insert(pipe::Sender::from_owned_fd_unchecked(other)?)
                }
                done => return Poll::Ready(done),
            },
        };
        let done = ready!(later(Pin::new(full), cx));
        self.full = None;
        Poll::Ready(done)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |mut socket| socket.write(bytes), |full, cx| full.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let now = |mut socket: &StdStream| socket.write_vectored(pieces);
        self.poll_with(cx, now, |full, cx| full.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}

impl AsFd for WriteHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // Fails only when the other side is gone.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

    use super::*;

    #[tokio::test]
    async fn what_the_socket_does_not_hold_goes_when_it_is_taken_and_the_end_follows() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut read, mut write) = split(ours).expect("watched");
        let sent: Vec<u8> = (0..4_000_000).map(|at: u32| (at % 251) as u8).collect();
        let (got, ()) = tokio::join!(
            async {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).await.expect("it ends");
                theirs.write_all(b"answer").await.expect("the other half is there");
                drop(theirs);
                got
            },
            async {
                write.write_all(&sent).await.expect("taken");
                drop(write);
            }
        );
        assert!(got == sent);
        let mut answer = String::new();
        read.read_to_string(&mut answer).await.expect("the end");
        assert_eq!(answer, "answer");
    }

    #[derive(Default)]
    struct Noted(AtomicBool);

    impl Wake for Noted {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn whoever_reads_is_not_woken_because_something_was_taken() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut read, mut write) = split(ours).expect("watched");
        let noted = Arc::<Noted>::default();
        let waker = Waker::from(Arc::clone(&noted));
        let mut buffer = [0; 8];
        let mut buffer = ReadBuf::new(&mut buffer);
        assert!(Pin::new(&mut read).poll_read(&mut Context::from_waker(&waker), &mut buffer).is_pending());
        write.write_all(b"key").await.expect("there is room");
        theirs.read_exact(&mut [0; 3]).await.expect("the key");
        // Turns enough for the system's events.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!noted.0.load(Ordering::Relaxed), "nothing is there to be read");
        theirs.write_all(b"echo").await.expect("there is room");
        while !noted.0.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }
}
