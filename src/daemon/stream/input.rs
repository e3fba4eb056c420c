//! What comes from the client of a raw stream.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::daemon::exec::{Handle, Input};
use crate::daemon::halves::ReadHalf;
use crate::model::exec::signal::{INT, TERM};
use crate::proto::stream::{FrameKind, HEADER_BYTES, Size, parse_header};

/// Time between two looks at whether the client is gone, while what it sent cannot be passed on.
const HANGUP_POLL: Duration = Duration::from_millis(500);

/// How long a command may go on after an interrupt before it is ended: whoever interrupts it wants it to end.
const INTERRUPT_GRACE: Duration = Duration::from_secs(5);

pub(super) type Reader = BufReader<tokio::io::Chain<io::Cursor<Bytes>, ReadHalf>>;

/// Passes on what the client sends, and notes an interrupt; of one that only `watches`, neither keys nor size. Ends when the
/// client is gone, and gives back the command's input if it is open.
pub(super) async fn pass_on(
    mut reader: Reader,
    mut input: Option<Input>,
    handle: Handle,
    interrupted: Arc<AtomicBool>,
    watches: bool,
) -> Option<Input> {
    // Ends with this, which does not outlive the command.
    let mut impatience = JoinSet::new();
    while let Ok(Some((kind, payload))) = read_frame(&mut reader).await {
        let Some(kind) = kind else { continue };
        if watches && matches!(kind, FrameKind::Input | FrameKind::Resize) {
            continue;
        }
        if kind == FrameKind::Signal && payload.first().is_some_and(|signal| i32::from(*signal) == INT) {
            interrupted.store(true, Ordering::Relaxed);
            if impatience.is_empty() {
                let handle = handle.copy();
                impatience.spawn(async move {
                    sleep(INTERRUPT_GRACE).await;
                    drop(handle.end());
                });
            }
        }
        tokio::select! {
            () = deliver(kind, &payload, &mut input, &handle) => {}
            () = hung_up(&reader) => break,
        }
    }
    input
}

async fn deliver(kind: FrameKind, payload: &[u8], input: &mut Option<Input>, handle: &Handle) {
    match kind {
        FrameKind::Input if payload.is_empty() => {
            if let Some(mut stdin) = input.take() {
                // The command may have closed its side already.
                let _ = stdin.shutdown().await;
            }
        }
        FrameKind::Input => {
            if let Some(stdin) = input
                && stdin.write_all(payload).await.is_err()
            {
                *input = None;
            }
        }
        FrameKind::Resize => {
            if let Ok(size) = serde_json::from_slice::<Size>(payload) {
                handle.resize(size).await;
            }
        }
        FrameKind::Signal => {
            match payload[..] {
                // Whoever ignores it is killed: the client has no other way to say so.
                [signal] if i32::from(signal) == TERM => drop(handle.end()),
                [signal @ 1..=64] => handle.signal(i32::from(signal)).await,
                _ => {}
            }
        }
        FrameKind::Stdout | FrameKind::Stderr | FrameKind::Exit | FrameKind::Error => {}
    }
}

/// Waits until the client has closed its side although it has not been read to the end: a command that does not read
/// its input must not hide that nobody waits for it any more.
pub(super) async fn hung_up(reader: &Reader) {
    let (_, socket) = reader.get_ref().get_ref();
    loop {
        sleep(HANGUP_POLL).await;
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
    }
}

/// The next frame; none where the client has closed its side.
pub(super) async fn read_frame(
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
