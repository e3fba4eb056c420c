//! A command's input.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::Shared;
use crate::daemon::guests::heard::Keys;
use crate::guest::wire::{Kind, MAX_DATA_BYTES};

/// Takes bytes as abx-init gives credit for them.
pub(super) struct Input {
    shared: Arc<Shared>,
    keys: Option<Keys>,
}

impl Input {
    /// `keys` hears what is typed, where this is a terminal's.
    pub(super) fn new(shared: Arc<Shared>, keys: Option<Keys>) -> Self {
        Self { shared, keys }
    }
}

impl AsyncWrite for Input {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wanted = bytes.len().min(MAX_DATA_BYTES);
        // Before the look at the stream: another may take its place meanwhile.
        self.shared.resumed.register(cx.waker());
        let Some(open) = self.shared.open() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        match ready!(open.poll_input(cx, wanted)) {
            Some(taken) => {
                open.send(Kind::Input, &bytes[..taken]);
                if let Some(keys) = &self.keys {
                    keys.hear(&bytes[..taken]);
                }
                Poll::Ready(Ok(taken))
            }
            None if self.shared.ended().is_some() => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            // What is typed while a connection is lost goes nowhere, and a terminal takes keys again after it.
            None if self.keys.is_some() => Poll::Ready(Ok(wanted)),
            // A file of which a piece is missing must not look whole: it goes on where the command is followed on.
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.end_input();
        Poll::Ready(Ok(()))
    }
}
