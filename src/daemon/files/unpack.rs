//! Reading an engine's tar stream: the stream comes as it comes, the reader of tar blocks, and a thread is between.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::daemon::failure::Failure;
use crate::engine::{Archive, EngineError};
use crate::proto::errors::Kind;
use crate::tarball::{self, Plain};

/// Chunks that wait for the reader; past them the engine waits.
const QUEUE_CHUNKS: usize = 4;

/// The bytes of a stream, for a thread that may block.
pub(in crate::daemon) struct Chunks {
    queue: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.queue.blocking_recv() {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// Lets `reader` read a tar stream. It need not read to the end.
///
/// # Cancel safety
/// Dropping the future lets the reader find the stream cut off.
///
/// # Errors
/// The engine's, else the reader's.
pub(in crate::daemon) async fn unpack<T, F>(mut archive: Archive, reader: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce(tar::Archive<Plain<Chunks>>) -> Result<T, Refusal> + Send + 'static,
{
    let (chunks, queue) = mpsc::channel(QUEUE_CHUNKS);
    let reading = spawn_blocking(move || reader(tarball::archive(Chunks { queue, rest: Bytes::new() })));
    let mut broken: Option<EngineError> = None;
    while let Some(next) = archive.next().await {
        match next {
            Ok(bytes) => {
                // It has what it wants.
                if chunks.send(bytes).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    drop((chunks, archive));
    let read = reading.await;
    if let Some(error) = broken {
        return Err(error.into());
    }
    match read {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(Refusal::Said(failure))) => Err(*failure),
        Ok(Err(Refusal::Garbled(error))) => {
            let text = format!("the engine gave files that cannot be read: {error}");
            Err(Failure::new(Kind::EngineError, text))
        }
        Err(error) => {
            tracing::error!(%error, "a reader of files panicked");
            Err(Failure::new(Kind::Internal, "reading the files failed inside abxd").hint("abx daemon logs"))
        }
    }
}

/// Why a reader gave up.
pub(in crate::daemon) enum Refusal {
    /// It is no tar stream, or is cut off.
    Garbled(io::Error),
    /// For a reason of its own.
    Said(Box<Failure>),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Garbled(error)
    }
}

impl From<io::ErrorKind> for Refusal {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Garbled(kind.into())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Said(Box::new(failure))
    }
}
