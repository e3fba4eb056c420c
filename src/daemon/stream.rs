//! The raw stream: one command's bytes on a connection of its own, as `proto::stream` lays them out.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::driver::Driver;
use super::exec::{Ended, ExecRequest, Handle, Live, TIMED_OUT, start_refusal};
use super::failure::Failure;
use super::framing::replay::Replay;
use super::framing::{Peer, RawHandler, wrong};
use super::shutdown::Shutdown;
use crate::engine::Chunk;
use crate::engine::docker::start_failure;
use crate::proto::errors::Kind;
use crate::proto::stream::{
    Exit, FrameKind, HEADER_BYTES, MAX_FRAME_BYTES, MAX_OPEN_BYTES, Open, Opened, Refused, Size, header,
    parse_header,
};
use crate::proto::version::{PROTOCOL, VERSION};

/// Longest wait for the opening.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Time between two looks at whether the client is gone, while its input cannot be passed on.
const HANGUP_POLL: Duration = Duration::from_millis(500);

/// Serves raw streams.
#[derive(Clone)]
pub struct RawStreams {
    driver: Driver,
    shutdown: Shutdown,
}

type Reader = BufReader<tokio::io::Chain<io::Cursor<Bytes>, OwnedReadHalf>>;

impl RawStreams {
    /// Streams of this driver's sessions, until `shutdown` begins.
    pub fn new(driver: Driver, shutdown: Shutdown) -> Self {
        Self { driver, shutdown }
    }

    async fn run(self, stream: Replay<UnixStream>) -> io::Result<()> {
        let (prefix, unix) = stream.into_parts();
        let (read, mut write) = unix.into_split();
        let mut reader = BufReader::new(io::Cursor::new(prefix).chain(read));
        let live = match self.open(&mut reader).await {
            Ok((open, live)) => (open, live),
            Err(failure) => return answer(&mut write, &Refused { error: failure.to_wire() }).await,
        };
        let (open, live) = live;
        let opened = Opened { exec: live.id.clone(), version: VERSION.to_owned(), protocol: PROTOCOL };
        answer(&mut write, &opened).await?;
        let deadline = open.timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        if open.detach {
            follow_detached(live, deadline);
            return Ok(());
        }
        self.bridge(live, reader, write, deadline, open.attach).await
    }

    async fn open(&self, reader: &mut Reader) -> Result<(Open, Live), Failure> {
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
        let request = ExecRequest {
            session: open.session.clone(),
            cmd: open.cmd.clone(),
            env: open.env.clone(),
            cwd: open.cwd.clone(),
            user: open.user.clone(),
            tty: open.tty,
            stdin: open.stdin && !open.detach,
            attach: open.attach,
        };
        Ok((open, self.driver.exec(request).await?))
    }

    /// Carries bytes both ways until the command or the client ends.
    async fn bridge(
        &self,
        live: Live,
        reader: Reader,
        mut write: OwnedWriteHalf,
        deadline: Option<Instant>,
        attach: bool,
    ) -> io::Result<()> {
        let Live { mut io, handle, .. } = live;
        let mut client = watch_client(reader, io.input.take(), handle.copy());
        let mut held = Vec::new();
        let mut timed_out = false;
        let failed = loop {
            let chunk = tokio::select! {
                biased;
                _ = &mut client => {
                    if !attach {
                        handle.end_now().await;
                    }
                    return Ok(());
                }
                () = self.shutdown.wait() => {
                    let failure = Failure::new(Kind::ShuttingDown, "the daemon is stopping; the command goes on");
                    break Some(failure);
                }
                () = at(deadline), if !timed_out => {
                    timed_out = true;
                    let copy = handle.copy();
                    tokio::spawn(async move { copy.end_now().await });
                    continue;
                }
                chunk = io.output.next() => chunk,
            };
            match chunk {
                Some(Ok(chunk)) => {
                    let (kind, bytes) = match chunk {
                        Chunk::Stdout(bytes) => (FrameKind::Stdout, bytes),
                        Chunk::Stderr(bytes) => (FrameKind::Stderr, bytes),
                    };
                    // What looks like the engine's word on a program that it cannot start is held until it is known.
                    if held.is_empty() && start_failure(&String::from_utf8_lossy(&bytes)).is_some() {
                        held.push((kind, bytes));
                    } else {
                        for (kind, bytes) in held.drain(..).chain([(kind, bytes)]) {
                            frames(&mut write, kind, &bytes).await?;
                        }
                    }
                }
                Some(Err(error)) => break (!timed_out).then(|| Failure::from(error)),
                None => break None,
            }
        };
        client.abort();
        if let Some(failure) = failed {
            return frames(&mut write, FrameKind::Error, &json(&failure.to_wire())).await;
        }
        self.finish(&handle, write, held, deadline.filter(|_| !timed_out), timed_out).await
    }

    async fn finish(
        &self,
        handle: &Handle,
        mut write: OwnedWriteHalf,
        held: Vec<(FrameKind, Bytes)>,
        deadline: Option<Instant>,
        timed_out: bool,
    ) -> io::Result<()> {
        let ended = match handle.wait(deadline).await {
            Ok(ended) => ended,
            Err(failure) => return frames(&mut write, FrameKind::Error, &json(&failure.to_wire())).await,
        };
        let exit = if ended.never_started {
            let text: Vec<u8> = held.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
            let reason = start_refusal(&handle.command, ended.code, &String::from_utf8_lossy(&text));
            Exit { exit_code: ended.code, reason: Some(reason) }
        } else {
            for (kind, bytes) in held {
                frames(&mut write, kind, &bytes).await?;
            }
            exit(ended, timed_out)
        };
        frames(&mut write, FrameKind::Exit, &json(&exit)).await?;
        write.shutdown().await
    }
}

impl RawHandler for RawStreams {
    fn serve(&self, stream: Replay<UnixStream>, peer: Peer) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            if let Err(error) = this.run(stream).await {
                tracing::debug!(%error, connection = peer.connection, "a raw stream broke off");
            }
        })
    }
}

fn exit(ended: Ended, timed_out: bool) -> Exit {
    if timed_out {
        return Exit { exit_code: TIMED_OUT, reason: Some("its time ran out".to_owned()) };
    }
    Exit { exit_code: ended.code, reason: ended.reason }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Reads a detached command's output to its end, so that it never waits for a reader.
fn follow_detached(live: Live, deadline: Option<Instant>) {
    tokio::spawn(async move {
        let Live { mut io, handle, .. } = live;
        let drained = async { while let Some(Ok(_)) = io.output.next().await {} };
        tokio::select! {
            () = drained => {}
            () = at(deadline) => handle.end_now().await,
        }
        if let Err(error) = handle.wait(deadline).await {
            tracing::debug!(%error, "cannot tell how a detached command ended");
        }
    });
}

/// Passes on what the client sends. Ends when the client is gone.
fn watch_client(
    mut reader: Reader,
    mut input: Option<std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>>,
    handle: Handle,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok(Some((kind, payload))) = read_frame(&mut reader).await {
            match kind {
                Some(FrameKind::Input) if payload.is_empty() => {
                    if let Some(mut stdin) = input.take() {
                        // The command may have closed its side already.
                        let _ = stdin.shutdown().await;
                    }
                }
                Some(FrameKind::Input) => {
                    let Some(stdin) = &mut input else { continue };
                    let written = tokio::select! {
                        written = stdin.write_all(&payload) => written.is_ok(),
                        () = hung_up(&reader) => return,
                    };
                    if !written {
                        input = None;
                    }
                }
                Some(FrameKind::Resize) => {
                    if let Ok(size) = serde_json::from_slice::<Size>(&payload) {
                        handle.resize(size).await;
                    }
                }
                Some(FrameKind::Signal) => {
                    if let [signal @ 1..=64] = payload[..] {
                        handle.signal(i32::from(signal)).await;
                    }
                }
                _ => {}
            }
        }
    })
}

/// Waits until the client has closed its side although it has not been read to the end: a command that does not read
/// its input must not hide that nobody waits for it any more.
async fn hung_up(reader: &Reader) {
    let (_, socket) = reader.get_ref().get_ref();
    loop {
        sleep(HANGUP_POLL).await;
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
    }
}

async fn read_frame(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(Option<FrameKind>, Vec<u8>)>> {
    let mut head = [0; HEADER_BYTES];
    match reader.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (kind, length) = parse_header(head)?;
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).await?;
    Ok(Some((kind, payload)))
}

async fn frames(write: &mut OwnedWriteHalf, kind: FrameKind, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(MAX_FRAME_BYTES) {
        let mut frame = Vec::with_capacity(HEADER_BYTES + part.len());
        frame.extend_from_slice(&header(kind, part.len()));
        frame.extend_from_slice(part);
        write.write_all(&frame).await?;
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

async fn answer(write: &mut OwnedWriteHalf, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = json(value);
    line.push(b'\n');
    write.write_all(&line).await
}
