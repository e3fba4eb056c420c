//! What the client writes, and word of its end: calls that last hear of it, which the protocol's makers let go on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

/// What is read, and is looked at for its end.
pub(super) struct Input<R> {
    inner: R,
    over: watch::Sender<bool>,
}

/// Word of the end. Clones hear the same.
#[derive(Clone)]
pub(super) struct Over(watch::Receiver<bool>);

impl<R> Input<R> {
    /// Of this.
    pub(super) fn new(inner: R) -> (Self, Over) {
        let (over, heard) = watch::channel(false);
        (Self { inner, over }, Over(heard))
    }
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
        let (mut input, over) = Input::new(&b"ab"[..]);
        let mut bytes = [0; 2];
        input.read_exact(&mut bytes).await.expect("it reads");
        assert!(!*over.0.borrow());
        assert_eq!(input.read(&mut bytes).await.expect("it reads"), 0);
        over.clone().wait().await;
        drop(input);
        over.clone().wait().await;
    }
}
