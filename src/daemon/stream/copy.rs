//! Copies on a raw stream: a tar stream from the engine to the client, or from the client to the engine.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::input::{Reader, read_frame};
use super::out::{Last, Out};
use super::serve::{Broken, LAST_WORD, pump};
use super::{Lines, RawStreams, tell};
use crate::daemon::awake::Use;
use crate::daemon::exec::ChunkStream;
use crate::daemon::failure::Failure;
use crate::daemon::files::{CopyIn, CopyOut, Running};
use crate::daemon::named;
use crate::daemon::progress::Report;
use crate::engine::{ArchiveSource, Chunk};
use crate::proto::copy::{CopyOpen, CopyPlace, Direction};
use crate::proto::errors::Kind;
use crate::proto::stream::{Exit, FrameKind, Opened, Refused};

/// Frames from the client that wait for the engine.
const QUEUE_FRAMES: usize = 2;

/// How long a client may take nothing of the files that it asked for, before the copy is ended: the engine does nothing
/// else about the sandbox meanwhile, and calls about it fail after as long.
const CLIENT_STALL: Duration = Duration::from_secs(30);

/// How a copy ended.
enum Ended {
    /// It is done.
    Done,
    /// It failed, and the client should know.
    Failed(Failure),
    /// The client went away.
    Gone,
}

/// Serves one copy to its end, or until the client is gone.
pub(super) async fn serve(
    streams: &RawStreams,
    wanted: Use,
    asked: &CopyOpen,
    doing: Lines,
    reader: Reader,
    mut out: Out,
) -> io::Result<()> {
    if let Err(failure) = named::operation(asked.op.as_deref()) {
        return out.line(&Refused { error: failure.to_wire() }).await;
    }
    let report = streams.driver.report(Some(&wanted.session), asked.op.clone(), None);
    let work = async {
        match asked.direction {
            Direction::Out => {
                let (copy, running) = tell(doing, streams.driver.copy_out(wanted, asked), &mut out).await?;
                unless_ended(running, give(copy, report, reader, &mut out)).await
            }
            Direction::In => {
                let (copy, running) = tell(doing, streams.driver.copy_in(wanted, asked), &mut out).await?;
                unless_ended(running, take(copy, report, reader, &mut out)).await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = work => ended,
        () = streams.shutdown.wait() => {
            let text = "the daemon is stopping; what was copied so far stays";
            Ok(Ended::Failed(Failure::new(Kind::ShuttingDown, text)))
        }
    };
    let last = async {
        match ended {
            Ok(Ended::Done) => out.last(&Last::Exit(Exit { exit_code: 0, reason: None })).await,
            Ok(Ended::Failed(failure)) => out.last(&Last::Error(failure.to_wire())).await,
            Ok(Ended::Gone) => Ok(()),
            Err(failure) => out.line(&Refused { error: failure.to_wire() }).await,
        }
    };
    // A client that does not read finds its connection closed when the daemon stops.
    let left = async {
        streams.shutdown.wait().await;
        sleep(LAST_WORD).await;
    };
    tokio::select! {
        biased;
        said = last => said,
        () = left => Ok(()),
    }
}

/// Does the work, unless the copy has to end before. It has let go of the sandbox by the time that is noted.
async fn unless_ended(
    mut running: Running,
    work: impl Future<Output = Result<Ended, Failure>>,
) -> Result<Ended, Failure> {
    tokio::select! {
        biased;
        ended = work => ended,
        why = running.ended() => Ok(Ended::Failed(why)),
    }
}

fn opened(place: &CopyPlace) -> Opened {
    let copy = Some(place.clone());
    Opened { copy, ..Opened::default() }
}

/// Sends files to the client.
///
/// # Errors
/// None after the opening was answered.
async fn give(copy: CopyOut, report: Report, mut reader: Reader, out: &mut Out) -> Result<Ended, Failure> {
    if out.line(&opened(&copy.place)).await.is_err() {
        return Ok(Ended::Gone);
    }
    let CopyOut { archive, files: _in_use, .. } = copy;
    out.give_up_after(CLIENT_STALL);
    let mut done = 0;
    let counted = archive.inspect(move |next| {
        done += next.as_ref().map_or(0, |bytes| bytes.len() as u64);
        report.bytes("copying", done);
    });
    let mut chunks: ChunkStream = counted.map(|next| next.map(Chunk::Stdout)).boxed();
    let left = async { while matches!(read_frame(&mut reader).await, Ok(Some(_))) {} };
    tokio::select! {
        biased;
        pumped = pump(&mut chunks, out) => Ok(match pumped {
            Ok(()) => Ended::Done,
            Err(Broken::Command(failure)) => Ended::Failed(failure),
            Err(Broken::Client(error)) if error.kind() == io::ErrorKind::TimedOut => {
                let text = format!("nobody took the files for {} s; the copy was ended", CLIENT_STALL.as_secs());
                Ended::Failed(Failure::new(Kind::Limit, text))
            }
            Err(Broken::Client(_)) => Ended::Gone,
        }),
        () = left => Ok(Ended::Gone),
    }
}

/// Takes files from the client. The engine is asked for nothing before the first of them: a client that finds that it
/// cannot copy what it wanted to that place closes the connection.
async fn take(copy: CopyIn, report: Report, reader: Reader, out: &mut Out) -> Result<Ended, Failure> {
    if out.line(&opened(&copy.place)).await.is_err() {
        return Ok(Ended::Gone);
    }
    let (sender, mut queue) = mpsc::channel(QUEUE_FRAMES);
    let mut feeding = pin!(feed(reader, sender));
    let mut writing = pin!(async {
        let Some(Ok(first)) = queue.recv().await else { return Ok(Ended::Gone) };
        let rest = stream::unfold(queue, |mut queue| async { queue.recv().await.map(|next| (next, queue)) });
        let mut done = 0;
        let source: ArchiveSource = stream::iter([Ok(first)])
            .chain(rest)
            .inspect(move |next: &io::Result<Bytes>| {
                done += next.as_ref().map_or(0, |bytes| bytes.len() as u64);
                report.bytes("copying", done);
            })
            .boxed();
        Ok(match copy.write(source).await {
            Ok(()) => Ended::Done,
            Err(failure) => Ended::Failed(failure),
        })
    });
    tokio::select! {
        biased;
        ended = &mut writing => return ended,
        () = &mut feeding => {}
    }
    writing.await
}

/// Passes on what the client sends, to its end. A client that went away before that leaves an error behind, so that the
/// engine does not take a part for the whole.
async fn feed(mut reader: Reader, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let next = match read_frame(&mut reader).await {
            Ok(Some((Some(FrameKind::Input), payload))) if payload.is_empty() => return,
            Ok(Some((Some(FrameKind::Input), payload))) => Ok(Bytes::from(payload)),
            Ok(Some(_)) => continue,
            Ok(None) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client went away")),
            Err(error) => Err(error),
        };
        let over = next.is_err();
        if sender.send(next).await.is_err() || over {
            return;
        }
    }
}
