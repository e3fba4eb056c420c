//! Giving an engine an archive of images: a thread writes it while the engine takes it.

use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::unpack::Refusal;
use crate::daemon::failure::Failure;
use crate::engine::Engine;
use crate::proto::errors::Kind;

/// Chunks on their way to the engine; past them the writer waits.
const QUEUE_CHUNKS: usize = 4;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 256 * 1024;

/// Where an archive is written.
pub(in crate::daemon) type Sink = BufWriter<ToEngine>;

/// Hands what is written to the engine.
pub(in crate::daemon) struct ToEngine(mpsc::Sender<io::Result<Bytes>>);

impl Write for ToEngine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has the engine take in what `writer` writes, all of it or nothing; `heard` is told how many bytes it has.
///
/// # Errors
/// The engine's own, as said; else the writer's.
pub(in crate::daemon) async fn give<T, F>(
    engine: &dyn Engine,
    heard: impl Fn(u64) + Send + 'static,
    writer: F,
) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: FnOnce(Sink) -> Result<T, Refusal> + Send + 'static,
{
    let (chunks, queue) = mpsc::channel(QUEUE_CHUNKS);
    let writing = spawn_blocking(move || {
        let written = writer(BufWriter::with_capacity(CHUNK_BYTES, ToEngine(chunks.clone())));
        if written.is_err() {
            // An end would have the engine take what it has. It may have refused it already.
            let _ = chunks.blocking_send(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        written
    });
    let source = stream::unfold(queue, |mut queue| async { queue.recv().await.map(|next| (next, queue)) });
    let mut done = 0;
    let source = source.inspect(move |next: &io::Result<Bytes>| {
        done += next.as_ref().map_or(0, |bytes| bytes.len() as u64);
        heard(done);
    });
    let loaded = engine.load_images(source.boxed()).await.map_err(Failure::from);
    let written = writing.await.map_err(|error| {
        tracing::error!(%error, "a writer of images panicked");
        Failure::new(Kind::Internal, "writing the image failed inside abxd").hint("abx daemon logs")
    })?;
    match (written, loaded) {
        // The engine took no more: its own words say why.
        (Err(Refusal::Garbled(error)), Err(refused)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(refused.into())
        }
        (Err(refusal), _) => Err(refusal),
        (Ok(_), Err(refused)) => Err(refused.into()),
        (Ok(written), Ok(())) => Ok(written),
    }
}
