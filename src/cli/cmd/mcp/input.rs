//! What the client writes, and word of what the protocol's makers say nothing about: of its end, since calls that last go on
//! without, and of lines that are not JSON.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{mpsc, watch};

/// Most lines that are not JSON and wait to be answered. More are passed over: who echoes the answers writes no more of them.
const MAX_GARBLED: usize = 16;

/// What is read, and is looked at for its end.
pub(super) struct Input<R> {
    inner: R,
    over: watch::Sender<bool>,
    /// What has come of the line that is read.
    line: Vec<u8>,
    garbled: mpsc::Sender<()>,
}

/// Word of the end. Clones hear the same.
#[derive(Clone)]
pub(super) struct Over(watch::Receiver<bool>);

impl<R> Input<R> {
    /// Of this; the receiver hears of each line that is not JSON.
    pub(super) fn new(inner: R) -> (Self, Over, mpsc::Receiver<()>) {
        let (over, heard) = watch::channel(false);
        let (garbled, lines) = mpsc::channel(MAX_GARBLED);
        (Self { inner, over, line: Vec::new(), garbled }, Over(heard), lines)
    }

    fn look(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let begun = parts.next_back().unwrap_or_default();
        for end in parts {
            self.line.extend_from_slice(end);
            if !is_json(&self.line) {
                // Full: there are answers enough on the way.
                let _ = self.garbled.try_send(());
            }
            self.line.clear();
        }
        // A line that is too long is passed over as a whole.
        if self.line.len() <= DEFAULT_MAX_LINE_LENGTH {
            self.line.extend_from_slice(begun);
        }
    }
}

/// Whether a line is JSON, or blank.
fn is_json(line: &[u8]) -> bool {
    if line.len() > DEFAULT_MAX_LINE_LENGTH || line.trim_ascii().is_empty() {
        return true;
    }
    std::str::from_utf8(line).is_ok_and(|line| serde_json::from_str::<IgnoredAny>(line).is_ok())
}

impl Over {
    /// Waits for the end.
    ///
    /// # Cancel safety
    /// Nothing is lost: who asks later hears of it, too.
    pub(super) async fn wait(&mut self) {
        // What reads is dropped only when all is over.
        let _ = self.0.wait_for(|over| *over).await;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        let this = &mut *self;
        this.look(&buffer.filled()[before..]);
        if read.is_err() || room > 0 && buffer.filled().len() == before {
            self.over.send_replace(true);
        }
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_hears_of_the_end_and_not_of_what_comes_before_it() {
        let (mut input, over, _) = Input::new(&b"ab"[..]);
        let mut bytes = [0; 2];
        input.read_exact(&mut bytes).await.expect("it reads");
        assert!(!*over.0.borrow());
        assert_eq!(input.read(&mut bytes).await.expect("it reads"), 0);
        over.clone().wait().await;
        drop(input);
        over.clone().wait().await;
    }
}
