//! The raw stream: one command's bytes on a connection of its own, as `proto::stream` lays them out.

mod copy;
mod input;
mod out;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::input::{Reader, pass_on};
use self::out::Out;
use super::caller::{self, Introduced};
use super::driver::Driver;
use super::exec::{ChunkStream, Ended, ExecRequest, Handle, Input, Live, by};
use super::failure::Failure;
use super::framing::replay::Replay;
use super::framing::{Peer, RawHandler, wrong};
use super::guests::Wanted;
use super::halves;
use super::shutdown::Shutdown;
use crate::engine::docker::start_failure;
use crate::engine::{Chunk, EngineError, WindowSize};
use crate::model::exec::signal::TERM;
use crate::model::exec::{Verdict, code};
use crate::proto::errors::Kind;
use crate::proto::stream::{Exit, FrameKind, MAX_OPEN_BYTES, Open, Opened, Refused};
use crate::proto::version::{PROTOCOL, VERSION};

/// Longest wait for the opening.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// How long a first output that looks like the engine's word on a program that it cannot start is held back, if nothing
/// follows: that word is the last, and the end comes at once.
const HOLD_LIMIT: Duration = Duration::from_millis(200);

/// How long a client may take to read why the daemon leaves it, before it is left without.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Serves raw streams.
#[derive(Clone)]
pub struct RawStreams {
    driver: Driver,
    shutdown: Shutdown,
}

/// Why a command is not followed to its end.
enum Broken {
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
struct Served<'a> {
    handle: &'a Handle,
    deadline: Option<Instant>,
    /// The id by which the client asked for it.
    request: Option<&'a str>,
}

/// How a connection ended.
enum Left {
    /// With its last frame.
    Served,
    /// With word that the command cannot be followed.
    Broken,
    /// The client went away, or does not take what is written. With the command's input, if that is at hand.
    Gone(Option<Input>),
    /// The daemon is stopping.
    Shutdown,
}

impl RawStreams {
    /// Streams of this driver's sessions, until `shutdown` begins.
    pub fn new(driver: Driver, shutdown: Shutdown) -> Self {
        Self { driver, shutdown }
    }

    async fn run(self, stream: Replay<UnixStream>, peer: &Peer) -> io::Result<()> {
        let (prefix, unix) = stream.into_parts();
        let (read, write) = halves::split(unix)?;
        let mut reader = BufReader::new(io::Cursor::new(prefix).chain(read));
        let mut out = Out::new(write);
        let open = match self.opening(&mut reader).await {
            Ok(open) => open,
            Err(failure) => return refuse(&mut out, None, &failure).await,
        };
        let introduced = Introduced::default();
        introduced.note(open.client.as_deref().unwrap_or_default());
        let by = caller::of(peer, Some(&introduced));
        caller::acting(Some(by), self.open(open, reader, out)).await
    }

    /// Does what the client wants.
    async fn open(&self, open: Open, reader: Reader, mut out: Out) -> io::Result<()> {
        if let Some(asked) = &open.copy {
            return copy::serve(self, &open.session, asked, reader, out).await;
        }
        let live = match self.start(&open).await {
            Ok(live) => live,
            Err(failure) => return refuse(&mut out, Some(&open), &failure).await,
        };
        let opened = Opened {
            exec: live.id.clone(),
            followed: live.followed,
            durable: live.handle.is_durable(),
            stdout_from: live.from.0,
            stderr_from: live.from.1,
            note: live.note.clone(),
            ..Opened::default()
        };
        if open.detach {
            live.follow();
            return out.line(&opened).await;
        }
        let Live { mut io, handle, detached, deadline, .. } = live;
        if open.tty.is_none() {
            out.widen();
        }
        if handle.is_durable() {
            out.read_nothing_ahead();
        }
        let interrupted = Arc::<AtomicBool>::default();
        let left = match out.line(&opened).await {
            Ok(()) => {
                let mut client = JoinSet::new();
                let noted = Arc::clone(&interrupted);
                client.spawn(pass_on(reader, io.input.take(), handle.copy(), noted, open.read_only));
                let served = Served { handle: &handle, deadline, request: open.key.as_deref() };
                self.bridge(&served, &mut io.output, &mut client, &mut out).await
            }
            Err(_) => Left::Gone(None),
        };
        drop(out);
        match left {
            Left::Gone(input) if detached => handle.leave(input, io.output),
            Left::Gone(_) => drop(handle.finish(&mut io.output, Verdict::Abandoned, |_| {}).await),
            Left::Broken if !detached => {
                drop(handle.finish(&mut io.output, Verdict::Abandoned, |_| {}).await)
            }
            // A shell's children in the background ignore interrupts.
            Left::Served if interrupted.load(Ordering::Relaxed) => drop(handle.end()),
            Left::Served | Left::Broken | Left::Shutdown => {}
        }
        Ok(())
    }

    /// Reads what the client wants.
    async fn opening(&self, reader: &mut Reader) -> Result<Open, Failure> {
        let mut line = Vec::new();
        let read = async { reader.take(MAX_OPEN_BYTES as u64).read_until(b'\n', &mut line).await };
        match timeout(OPEN_LIMIT, read).await {
            Ok(Ok(_)) if line.ends_with(b"\n") => {}
            _ => return Err(Failure::params("the opening of a raw stream is one line of JSON")),
        }
        let line = std::str::from_utf8(&line).map_err(|_| Failure::params("the opening is not UTF-8"))?;
        let open: Open = serde_json::from_str(line)
            .map_err(|error| Failure::params(format!("the opening: {}", wrong(line, &error))))?;
        if open.protocol != PROTOCOL {
            let text = format!("abx speaks protocol {}, abxd {VERSION} speaks {PROTOCOL}", open.protocol);
            return Err(Failure::params(text).hint("abx daemon restart"));
        }
        if self.shutdown.begun() {
            return Err(Failure::new(Kind::ShuttingDown, "the daemon is stopping"));
        }
        Ok(open)
    }

    async fn start(&self, open: &Open) -> Result<Live, Failure> {
        let request = ExecRequest {
            session: open.session.clone(),
            cmd: open.cmd.clone(),
            env: open.env.clone(),
            cwd: open.cwd.clone(),
            user: open.user.clone(),
            tty: open.tty,
            stdin: open.stdin && !open.detach,
            attach: open.attach,
            detached: open.detach,
            key: open.key.clone(),
            terminal: open.terminal.clone().filter(|_| open.attach),
            agent: open.agent.filter(|_| open.attach),
            timeout: open.timeout_ms.map(Duration::from_millis),
            ..ExecRequest::default()
        };
        let wanted = Wanted {
            stdout_from: open.stdout_from,
            stderr_from: open.stderr_from,
            writes: open.stdin && !open.read_only,
            size: open.tty.map(|size| WindowSize { cols: size.cols, rows: size.rows }),
            scrollback: open.scrollback,
        };
        let mut live = self.driver.open_exec(request, open.follow.as_deref(), &wanted).await?;
        if open.detach && !live.followed {
            live.confirm().await?;
        }
        Ok(live)
    }

    /// Carries bytes both ways until the command or the client ends. The client is watched all the time: also while it
    /// does not read, and while a command that has closed its output lives on.
    async fn bridge(
        &self,
        served: &Served<'_>,
        output: &mut ChunkStream,
        client: &mut JoinSet<Option<Input>>,
        out: &mut Out,
    ) -> Left {
        let left = tokio::select! {
            biased;
            gone = client.join_next() => Left::Gone(gone.and_then(Result::ok).flatten()),
            () = self.shutdown.wait() => Left::Shutdown,
            left = serve(served, output, out) => left,
        };
        if matches!(left, Left::Gone(None)) && !client.is_empty() {
            // It takes nothing any more, but what it sent before it left is still to be passed on: the last keys.
            let gone = timeout(LAST_WORD, client.join_next()).await;
            return Left::Gone(gone.ok().flatten().and_then(Result::ok).flatten());
        }
        if matches!(left, Left::Shutdown) {
            let failure = Failure::new(Kind::ShuttingDown, "the daemon is stopping; the command goes on");
            // A client that does not read finds its connection closed.
            let _ = timeout(LAST_WORD, out.last(FrameKind::Error, &failure.to_wire())).await;
        }
        left
    }
}

impl RawHandler for RawStreams {
    fn serve(&self, stream: Replay<UnixStream>, peer: Peer) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            if let Err(error) = this.run(stream, &peer).await {
                tracing::debug!(%error, connection = peer.connection, "a raw stream broke off");
            }
        })
    }
}

/// Says that there will be no command, to the client and in the log by the same id.
async fn refuse(out: &mut Out, open: Option<&Open>, failure: &Failure) -> io::Result<()> {
    let (request, session) =
        (open.and_then(|open| open.key.as_deref()), open.map(|open| open.session.as_str()));
    let version = open.map(|open| open.version.as_str());
    tracing::info!(request, session, version, causes = ?failure.causes, "a raw stream is refused: {failure}");
    out.line(&Refused { error: failure.to_wire() }).await
}

/// Follows the command and sends its end.
async fn serve(served: &Served<'_>, output: &mut ChunkStream, out: &mut Out) -> Left {
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
        Some(Ok(exit)) => out.last(FrameKind::Exit, &exit).await,
        Some(Err(Broken::Command(failure))) => {
            tracing::warn!(request, exec = handle.id(), %failure, "a command cannot be followed");
            let _ = out.last(FrameKind::Error, &failure.to_wire()).await;
            return Left::Broken;
        }
        Some(Err(Broken::Client(error))) => Err(error),
        None => {
            let ended = handle.finish(output, Verdict::TimedOut, |chunk| out.keep(chunk)).await;
            out.last(FrameKind::Exit, &exit(ended)).await
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
async fn carry(handle: &Handle, output: &mut ChunkStream, out: &mut Out) -> Result<Exit, Broken> {
    pump(output, out).await?;
    let ended = handle.wait().await.map_err(Broken::Command)?;
    if !ended.never_started {
        return Ok(exit(ended));
    }
    let text = out.take_held().unwrap_or_default();
    let reason = handle.start_refusal(ended.code, &text);
    Ok(Exit { exit_code: ended.code, reason: Some(reason) })
}

async fn pump(output: &mut ChunkStream, out: &mut Out) -> Result<(), Broken> {
    let mut next = first(output, out).await?;
    while let Some(chunk) = next {
        out.push(chunk.map_err(|error| Broken::Command(error.into()))?);
        next = out.flush_until(output).await?;
    }
    Ok(out.flush().await?)
}

/// Waits for the first output, and where that may not be the command's, for what follows it.
async fn first(output: &mut ChunkStream, out: &mut Out) -> io::Result<Option<Result<Chunk, EngineError>>> {
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

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
