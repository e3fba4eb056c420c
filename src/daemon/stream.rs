//! The raw stream: one command's bytes on a connection of its own, as `proto::stream` lays them out.

mod copy;
mod input;
pub mod notify;
mod out;
mod serve;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::input::{Reader, pass_on};
use self::out::Out;
use self::serve::{LAST_WORD, Left, Served, bridge, part};
use super::awake::Use;
use super::caller::{self, Introduced};
use super::driver::Driver;
use super::exec::{ChunkStream, ExecRequest, Input, Live};
use super::failure::Failure;
use super::framing::replay::Replay;
use super::framing::{Peer, RawHandler, wrong};
use super::guests::Wanted;
use super::halves;
use super::progress::{Progress, Report};
use super::shutdown::Shutdown;
use super::text::shown;
use crate::engine::WindowSize;
use crate::proto::stream::{Doing, MAX_OPEN_BYTES, Open, Opened, Refused};
use crate::proto::version::{PROTOCOL, VERSION};

/// Longest wait for the opening.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Lines that wait to be told before an opening is answered: there is one of each resume, and its warnings.
const QUEUE_LINES: usize = 64;

/// Serves raw streams.
#[derive(Clone)]
pub struct RawStreams {
    driver: Driver,
    shutdown: Shutdown,
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
        let (report, doing) = hearing(open.hears);
        if let Some(asked) = &open.copy {
            let wanted = Use { session: open.session.clone(), resume: open.resume, report };
            return copy::serve(self, wanted, asked, doing, reader, out).await;
        }
        let live = match tell(doing, self.start(&open, report), &mut out).await {
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
            live.follow(String::new());
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
        if matches!(left, Left::Served) && interrupted.load(Ordering::Relaxed) {
            // A shell's children in the background ignore interrupts.
            drop(handle.end());
        }
        part(left, detached, handle, io.output).await;
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
            return Err(Failure::not_begun("the daemon is stopping"));
        }
        Ok(open)
    }

    async fn start(&self, open: &Open, report: Report) -> Result<Live, Failure> {
        let (request, wanted) = asked(open);
        let request = ExecRequest { report, ..request };
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
        let gone = async { client.join_next().await.and_then(Result::ok).flatten() };
        let left = bridge(served, output, gone, &self.shutdown, out).await;
        if matches!(left, Left::Gone(None)) && !client.is_empty() {
            // It takes nothing any more, but what it sent before it left is still to be passed on: the last keys.
            let gone = timeout(LAST_WORD, client.join_next()).await;
            return Left::Gone(gone.ok().flatten().and_then(Result::ok).flatten());
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

/// What an opening asks for: what to run, and how to follow what runs already.
fn asked(open: &Open) -> (ExecRequest, Wanted) {
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
        resume: open.resume,
        ..ExecRequest::default()
    };
    let wanted = Wanted {
        stdout_from: open.stdout_from,
        stderr_from: open.stderr_from,
        writes: open.stdin && !open.read_only,
        size: open.tty.map(|size| WindowSize { cols: size.cols, rows: size.rows }),
        scrollback: open.scrollback,
    };
    (request, wanted)
}

/// What is done first, as lines for the client.
type Lines = mpsc::Receiver<String>;

/// Takes what there is to say before an opening is answered, if its client `hears` that.
fn hearing(hears: bool) -> (Report, Lines) {
    let (sender, lines) = mpsc::channel(QUEUE_LINES);
    let send = move |step: &Progress| {
        // A client that takes none of them misses some.
        let _ = sender.try_send(step.text.clone());
    };
    let report = if hears { Report::aloud(send) } else { Report::default() };
    (report, lines)
}

/// Waits for what comes of an opening, and passes on what there is to say before.
async fn tell<T>(mut lines: Lines, work: impl Future<Output = T>, out: &mut Out) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            Some(doing) = lines.recv() => {
                // A client that is gone shows when it is answered.
                let _ = out.line(&Doing { doing }).await;
            }
            done = &mut work => return done,
        }
    }
}

/// Says that there will be no command, to the client and in the log by the same id.
async fn refuse(out: &mut Out, open: Option<&Open>, failure: &Failure) -> io::Result<()> {
    let request = open.and_then(|open| open.key.as_deref()).map(shown);
    let (session, version) = (open.map(|open| shown(&open.session)), open.map(|open| shown(&open.version)));
    let (request, session, version) = (request.as_deref(), session.as_deref(), version.as_deref());
    tracing::info!(request, session, version, causes = ?failure.causes, "a raw stream is refused: {failure}");
    out.line(&Refused { error: failure.to_wire() }).await
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
