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
            // What is typed while a connection is lost goes nowhere, and a terminal takes keys again after it.
            None if self.keys.is_some() && self.shared.ended().is_none() => Poll::Ready(Ok(wanted)),
            // A file of which a piece is missing must not look whole.
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(open) = self.shared.open() {
            open.send(Kind::InputEnd, &[]);
        }
        Poll::Ready(Ok(()))
    }
}
