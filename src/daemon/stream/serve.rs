//! A command that is carried to its client, whatever the client speaks: its output, its end, and what becomes of it when
//! they part.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use super::out::{Last, Out, Sink};
use crate::daemon::exec::{ChunkStream, Ended, Handle, Input, by};
use crate::daemon::failure::Failure;
use crate::daemon::shutdown::Shutdown;
use crate::engine::docker::start_failure;
use crate::engine::{Chunk, EngineError};
use crate::model::exec::signal::TERM;
use crate::model::exec::{Verdict, code};
use crate::proto::stream::Exit;

/// How long a first output that looks like the engine's word on a program that it cannot start is held back, if nothing
/// follows: that word is the last, and the end comes at once.
const HOLD_LIMIT: Duration = Duration::from_millis(200);

/// How long a client may take to read why the daemon leaves it, before it is left without.
pub(super) const LAST_WORD: Duration = Duration::from_secs(1);

/// Why a command is not followed to its end.
pub(super) enum Broken {
    /// The client does not take its output.
    Client(io::Error),
    /// The engine does not give it, or cannot say what became of it.
    Command(Failure),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

/// A command that is carried to its client.
pub(super) struct Served<'a> {
    /// What it is followed by.
    pub(super) handle: &'a Handle,
    /// When its time runs out.
    pub(super) deadline: Option<Instant>,
    /// The id by which the client asked for it.
    pub(super) request: Option<&'a str>,
}

/// How a client and its command parted.
pub(super) enum Left {
    /// With its last frame.
    Served,
    /// With word that the command cannot be followed.
    Broken,
    /// The client went away, or does not take what is written. With the command's input, if that is at hand.
    Gone(Option<Input>),
    /// The daemon is stopping.
    Shutdown,
}

/// Carries the command to its end, unless the client goes away before, or the daemon stops, which the client is told.
pub(super) async fn bridge<S: Sink>(
    served: &Served<'_>,
    output: &mut ChunkStream,
    gone: impl Future<Output = Option<Input>>,
    shutdown: &Shutdown,
    out: &mut Out<S>,
) -> Left {
    let left = tokio::select! {
        biased;
        input = gone => Left::Gone(input),
        () = shutdown.wait() => Left::Shutdown,
        left = serve(served, output, out) => left,
    };
    if matches!(left, Left::Shutdown) {
        let failure = Failure::goes_on(served.handle.id());
        // A client that does not read finds its connection closed.
        let _ = timeout(LAST_WORD, out.last(&Last::Error(failure.to_wire()))).await;
    }
    left
}

/// Does with the command what follows from how they parted. One that is `detached` goes on without its client.
pub(super) async fn part(left: Left, detached: bool, handle: Handle, mut output: ChunkStream) {
    match left {
        Left::Gone(input) if detached => handle.leave(input, output),
        Left::Gone(_) => drop(handle.finish(&mut output, Verdict::Abandoned, |_| {}).await),
        Left::Broken if !detached => drop(handle.finish(&mut output, Verdict::Abandoned, |_| {}).await),
        Left::Served | Left::Broken | Left::Shutdown => {}
    }
}

/// Follows the command and sends its end.
pub(super) async fn serve<S: Sink>(served: &Served<'_>, output: &mut ChunkStream, out: &mut Out<S>) -> Left {
    let Served { handle, deadline, request } = *served;
    let seen = tokio::select! {
        seen = by(deadline, carry(handle, output, out)) => seen,
        // Whoever asks a command to end that is frozen need not wait for the thaw.
        () = handle.owed() => {
            let (exit_code, reason) = (code::of_signal(TERM), Some(handle.owed_line()));
            Some(Ok(Exit { exit_code, reason }))
        }
    };
    let sent = match seen {
        Some(Ok(exit)) => out.last(&Last::Exit(exit)).await,
        Some(Err(Broken::Command(failure))) => {
            tracing::warn!(request, exec = handle.id(), %failure, "a command cannot be followed");
            let _ = out.last(&Last::Error(failure.to_wire())).await;
            return Left::Broken;
        }
        Some(Err(Broken::Client(error))) => Err(error),
        None => {
            let ended = handle.finish(output, Verdict::TimedOut, |chunk| out.keep(chunk)).await;
            out.last(&Last::Exit(exit(ended))).await
        }
    };
    match sent {
        Ok(()) => Left::Served,
        Err(error) => {
            tracing::debug!(%error, "a client does not take its command's output");
            Left::Gone(None)
        }
    }
}

/// Carries the output to its end and waits for the command's.
async fn carry<S: Sink>(handle: &Handle, output: &mut ChunkStream, out: &mut Out<S>) -> Result<Exit, Broken> {
    pump(output, out).await?;
    let ended = handle.wait().await.map_err(Broken::Command)?;
    if !ended.never_started {
        return Ok(exit(ended));
    }
    let text = out.take_held().unwrap_or_default();
    let reason = handle.start_refusal(ended.code, &text);
    Ok(Exit { exit_code: ended.code, reason: Some(reason) })
}

/// Carries the output to its end.
pub(super) async fn pump<S: Sink>(output: &mut ChunkStream, out: &mut Out<S>) -> Result<(), Broken> {
    let mut next = first(output, out).await?;
    while let Some(chunk) = next {
        out.push(chunk.map_err(|error| Broken::Command(error.into()))?);
        next = out.flush_until(output).await?;
    }
    Ok(out.flush().await?)
}

/// Waits for the first output, and where that may not be the command's, for what follows it.
async fn first<S: Sink>(
    output: &mut ChunkStream,
    out: &mut Out<S>,
) -> io::Result<Option<Result<Chunk, EngineError>>> {
    let next = output.next().await;
    let Some(Ok(chunk)) = &next else { return Ok(next) };
    if !looks_like_a_failed_start(chunk) {
        return Ok(next);
    }
    out.hold(chunk.clone());
    let next = timeout(HOLD_LIMIT, output.next()).await;
    if !matches!(next, Ok(None)) {
        out.release();
    }
    match next {
        Ok(next) => Ok(next),
        Err(_) => out.flush_until(output).await,
    }
}

fn looks_like_a_failed_start(chunk: &Chunk) -> bool {
    let (Chunk::Stdout(bytes) | Chunk::Stderr(bytes)) = chunk;
    start_failure(&String::from_utf8_lossy(bytes)).is_some()
}

fn exit(ended: Ended) -> Exit {
    Exit { exit_code: ended.code, reason: ended.reason }
}
