//! A terminal as a subscription: what it shows goes to its client as notifications, and what the client does goes through
//! other calls of the same connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::asked;
use super::out::{Last, Out, Sink};
use super::serve::{Left, Served, bridge, part};
use crate::daemon::driver::Driver;
use crate::daemon::exec::{Handle, Input, Live};
use crate::daemon::failure::Failure;
use crate::daemon::named;
use crate::daemon::shutdown::Shutdown;
use crate::daemon::subscriptions::{Begun, Place, Reserved, Voice};
use crate::daemon::text;
use crate::engine::Chunk;
use crate::model::id::SessionId;
use crate::proto::errors::Kind;
use crate::proto::stream::{Open, Size};
use crate::proto::terminals::{
    TERMINAL_NOTIFICATION, TerminalNews, TerminalNotification, TerminalOpenParams, TerminalOpened,
};

/// Most bytes of one notification, before they are written as JSON. A connection queues some thirty of them for a client
/// that does not read.
const PIECE_BYTES: usize = 16 * 1024;

/// The size of a terminal whose client names none: the one that terminals have had since the VT100.
const USUAL: Size = Size { cols: 80, rows: 24 };

/// How long a program may read nothing of what is typed before the call fails.
const TAKEN_LIMIT: Duration = Duration::from_secs(10);

/// The terminals that a connection has open and types into. In the extensions of each call.
#[derive(Default)]
pub struct Seats(Mutex<Vec<Weak<Seat>>>);

/// A client's own place at a terminal.
pub struct Seat {
    session: SessionId,
    terminal: String,
    handle: Handle,
    subscription: Place,
    input: tokio::sync::Mutex<Option<Input>>,
}

/// What became of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typed {
    /// They were taken.
    Taken,
    /// Nobody reads them any more.
    Ended,
    /// The seat was left before they came: none of them was typed.
    Left,
}

/// Opens a terminal, and begins to send what it shows.
///
/// # Errors
/// As for [`Driver::open_exec`].
pub async fn open(
    driver: &Driver,
    shutdown: &Shutdown,
    place: Reserved,
    seats: &Seats,
    mut params: TerminalOpenParams,
) -> Result<TerminalOpened, Failure> {
    params.terminal = named::terminal(&params.terminal)?;
    let (size, is_viewer) = (params.size, params.read_only);
    let open = opening(params);
    let (request, mut wanted) = asked(&open);
    // Whoever names no size takes the terminal as it is.
    wanted.size = wanted.size.filter(|_| size.is_some());
    let mut live = driver.open_exec(request, None, &wanted).await?;
    let seat = Arc::new(Seat {
        session: live.handle.session().clone(),
        terminal: open.terminal.unwrap_or_default(),
        handle: live.handle.copy(),
        subscription: place.place(),
        input: tokio::sync::Mutex::new(live.io.input.take()),
    });
    if !is_viewer {
        seats.add(&seat);
    }
    let (exec, followed, note) = (live.id.clone(), live.followed, live.note.clone());
    let shutdown = shutdown.clone();
    let subscription = place.begin(|begun| show(begun, live, seat, shutdown));
    Ok(TerminalOpened { subscription, exec, followed, note })
}

fn opening(params: TerminalOpenParams) -> Open {
    let TerminalOpenParams {
        session,
        terminal,
        cmd,
        env,
        cwd,
        user,
        size,
        read_only,
        scrollback,
        agent,
        resume,
    } = params;
    Open {
        session,
        cmd,
        env,
        cwd,
        user,
        tty: Some(size.unwrap_or(USUAL)),
        stdin: true,
        attach: true,
        terminal: Some(terminal),
        read_only,
        scrollback,
        agent,
        resume,
        ..Open::default()
    }
}

/// Sends what a terminal shows, from when its client knows of the subscription to the end of either.
async fn show(begun: Begun, live: Live, seat: Arc<Seat>, shutdown: Shutdown) {
    let Begun { id, voice, answered, over } = begun;
    let Live { mut io, handle, detached, deadline, .. } = live;
    answered.wait().await;
    let mut out = Out::to(Notifications { voice, subscription: id, waiting: BytesMut::new() });
    // What is not read stays with abx-init, which paints a fresh screen for whoever fell behind.
    out.read_nothing_ahead();
    let served = Served { handle: &handle, deadline, request: None };
    let gone = async {
        over.wait().await;
        None
    };
    let left = match bridge(&served, &mut io.output, gone, &shutdown, &mut out).await {
        Left::Gone(_) => Left::Gone(seat.input.lock().await.take()),
        left => left,
    };
    part(left, detached, handle, io.output).await;
}

impl Seats {
    fn add(&self, seat: &Arc<Seat>) {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|seat| seat.strong_count() > 0);
        seats.push(Arc::downgrade(seat));
    }

    /// The one at this terminal; of several the one that was taken last. None that its client has left, or is leaving.
    pub fn at(&self, session: &SessionId, terminal: &str) -> Option<Arc<Seat>> {
        let seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = seats.iter().rev().filter_map(Weak::upgrade);
        open.find(|seat| seat.is_taken() && seat.session == *session && seat.terminal == terminal)
    }
}

impl Seat {
    fn is_taken(&self) -> bool {
        self.subscription.is_open()
    }

    /// Types.
    ///
    /// # Errors
    /// `busy` when the program reads nothing for long.
    pub async fn write(&self, keys: &[u8]) -> Result<Typed, Failure> {
        let typing = async {
            match &mut *self.input.lock().await {
                Some(input) => match input.write_all(keys).await {
                    Ok(()) => Typed::Taken,
                    Err(_) => Typed::Ended,
                },
                None => Typed::Left,
            }
        };
        timeout(TAKEN_LIMIT, typing).await.map_err(|_| {
            let text = format!("what runs on terminal '{}' does not read what is typed", self.terminal);
            Failure::new(Kind::Busy, text).hint("a part of it may have been taken")
        })
    }

    /// Sets the size that its client has.
    pub async fn resize(&self, size: Size) {
        self.handle.resize(size).await;
    }
}

/// A terminal's output that waits to be sent as notifications.
struct Notifications {
    voice: Voice,
    subscription: u64,
    waiting: BytesMut,
}

impl Notifications {
    /// The bytes of the next notification. A character that is cut waits for its rest, unless this is `all` there will
    /// be.
    fn piece(&self, all: bool) -> &[u8] {
        let piece = &self.waiting[..self.waiting.len().min(PIECE_BYTES)];
        if all && piece.len() == self.waiting.len() {
            return piece;
        }
        &piece[..piece.len() - text::cut_character(piece)]
    }

    async fn send(&mut self, all: bool) -> io::Result<()> {
        loop {
            let piece = self.piece(all);
            if piece.is_empty() {
                return Ok(());
            }
            let length = piece.len();
            let (encoding, [data]) = text::encode([piece.to_vec()]);
            self.tell(TerminalNews::Output { data, encoding }).await?;
            self.waiting.advance(length);
        }
    }

    async fn tell(&self, result: TerminalNews) -> io::Result<()> {
        let params = TerminalNotification { subscription: self.subscription, result };
        if self.voice.send(TERMINAL_NOTIFICATION, &params).await {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

impl Sink for Notifications {
    fn push(&mut self, chunk: Chunk) {
        let (Chunk::Stdout(bytes) | Chunk::Stderr(bytes)) = chunk;
        self.waiting.extend_from_slice(&bytes);
    }

    fn waiting(&self) -> usize {
        self.piece(false).len()
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.send(false).await
    }

    async fn last(&mut self, last: &Last) -> io::Result<()> {
        self.send(true).await?;
        self.tell(match last {
            Last::Exit(exit) => {
                TerminalNews::Ended { exit_code: exit.exit_code, reason: exit.reason.clone() }
            }
            Last::Error(error) => TerminalNews::Error { error: error.clone() },
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that these chunks go out in.
    fn pieces(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut sink = Notifications { voice: Voice::none(), subscription: 1, waiting: BytesMut::new() };
        let mut pieces = Vec::new();
        let mut take = |sink: &mut Notifications, all| {
            while !sink.piece(all).is_empty() {
                let piece = sink.piece(all).to_vec();
                sink.waiting.advance(piece.len());
                pieces.push(piece);
            }
        };
        for chunk in chunks {
            sink.push(Chunk::Stdout(chunk.to_vec().into()));
            take(&mut sink, false);
        }
        take(&mut sink, true);
        pieces
    }

    #[test]
    fn a_character_goes_out_whole_however_it_comes() {
        let smile = "x😀y".as_bytes();
        for at in 0..=smile.len() {
            let (a, b) = smile.split_at(at);
            let sent = pieces(&[a, b]);
            assert_eq!(sent.concat(), smile);
            assert!(sent.iter().all(|piece| std::str::from_utf8(piece).is_ok()), "cut at {at}: {sent:?}");
        }
        let bytes: Vec<&[u8]> = smile.chunks(1).collect();
        assert_eq!(pieces(&bytes), [&b"x"[..], "😀".as_bytes(), b"y"]);
    }

    #[test]
    fn what_is_no_text_and_what_is_never_finished_goes_out_all_the_same() {
        assert_eq!(pieces(&[b"\xff\x00"]), [b"\xff\x00"]);
        assert_eq!(pieces(&[b"a\xc3", b"b"]), [&b"a"[..], b"\xc3b"]);
        assert_eq!(pieces(&[b"a\xf0\x9f"]), [&b"a"[..], b"\xf0\x9f"]);
    }

    #[test]
    fn much_goes_out_in_pieces_that_cut_no_character() {
        let much = "é".repeat(PIECE_BYTES) + "x" + &"漢".repeat(PIECE_BYTES);
        let sent = pieces(&[much.as_bytes()]);
        assert_eq!(sent.concat(), much.as_bytes());
        assert!(sent.iter().all(|piece| piece.len() <= PIECE_BYTES && std::str::from_utf8(piece).is_ok()));
    }
}
