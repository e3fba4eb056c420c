//! A stream whose first bytes were read already, to find out what it speaks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::eager::Eager;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Most bytes of several pieces that are copied into one before they are written: an answer's head and a session.
const JOINED_BYTES: usize = 2 * 1024;

/// Gives back the bytes that were read too early, then reads on from the stream itself.
#[derive(Debug)]
pub struct Replay<S> {
    prefix: Bytes,
    inner: S,
    eager: Eager,
    received: u64,
    written: u64,
    /// How long the other side may take nothing of what is written.
    patience: Option<Duration>,
    /// When it has taken nothing for so long.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Replay<S> {
    /// Puts `prefix` in front of what `inner` will still give.
    pub fn new(prefix: Bytes, inner: S) -> Self {
        let eager = Eager::default();
        Self { prefix, inner, eager, received: 0, written: 0, patience: None, stall: None }
    }

    /// Ends writing with an error where the other side takes no byte for so long.
    #[must_use]
    pub fn given_up_after(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Gives the bytes not read again yet, and the stream.
    pub fn into_parts(self) -> (Bytes, S) {
        (self.prefix, self.inner)
    }

    /// The stream itself, for its readiness and its descriptor.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Bytes that the stream has taken until now.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that the stream has given until now.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn note(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = &written {
            self.eager.answered();
            self.written += result.as_ref().map_or(0, |bytes| *bytes as u64);
            self.stall = None;
        } else if let Some(patience) = self.patience {
            let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(patience)));
            if stall.as_mut().poll(cx).is_ready() {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answers");
                return Poll::Ready(Err(error));
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            let before = buf.filled().len();
            let read = Pin::new(&mut self.inner).poll_read(cx, buf);
            self.received += (buf.filled().len() - before) as u64;
            if read.is_pending() {
                self.eager.poll(cx);
            }
            return read;
        }
        let taken = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..taken]);
        self.prefix.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match joined(bufs, &mut [0; JOINED_BYTES]) {
            Some(short) => Pin::new(&mut self.inner).poll_write(cx, short),
            None => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
        };
        self.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// The pieces as one, if they are short: to the system one short piece is cheaper than a list of them.
fn joined<'a>(pieces: &[io::IoSlice<'_>], space: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut length = 0;
    for piece in pieces {
        space.get_mut(length..length + piece.len())?.copy_from_slice(piece);
        length += piece.len();
    }
    Some(&space[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_joined_in_order_and_long_ones_left_alone() {
        let pieces = [b"head".as_slice(), b"", b"body"].map(io::IoSlice::new);
        assert_eq!(joined(&pieces, &mut [0; 8]), Some(b"headbody".as_slice()));
        assert_eq!(joined(&pieces, &mut [0; 7]), None);
    }
}
