//! One connection to a sandbox's abx-init: its greeting, and its frames to and from the streams on it.
//!
//! What comes from inside is not trusted: a frame that makes no sense ends the connection and nothing else, and nothing
//! piles up here, whatever comes and whoever does not read.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::stream::{Item, Stream, is_last};
use crate::guest::wire::{
    Credit, Entry, HEADER_BYTES, Header, Hello, Kind, MAX_FROM_GUEST, MAX_TO_GUEST, Malformed, NO_STREAM,
    Oom, Payload, VERSION, Welcome, frame,
};

/// Longest wait for the greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Longest greeting, in bytes: numbers, and the name of a build.
const MAX_GREETING_BYTES: usize = 4096;

/// Bytes asked for in one read: a few frames.
const READ_BYTES: usize = 64 * 1024;

/// The same while each read brings all that was asked for: the system keeps so much for a sandbox's side, and a frame
/// that is cut by the end of a read is copied.
const FLOOD_BYTES: usize = 1024 * 1024;

/// Bytes that are written at once where several frames wait.
const WRITE_BYTES: usize = 64 * 1024;

/// What abx-init tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A terminal wrote something.
    Active,
    /// A command has ended.
    Ended(Box<Entry>),
    /// The kernel killed so many processes for want of memory.
    Oom(u64),
}

/// Takes events; must not block.
pub(super) type Events = Box<dyn Fn(Event) + Send + Sync>;

/// A connection that was greeted. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Shared {
    /// Not bounded by itself: input goes within credit, other frames with requests that wait for their answer.
    out: mpsc::UnboundedSender<Bytes>,
    table: Mutex<Table>,
    gone: watch::Sender<bool>,
}

#[derive(Debug)]
struct Table {
    open: HashMap<u32, Arc<Stream>>,
    next: u32,
    gone: bool,
}

/// A stream of a connection. Dropping it before its end gives it up.
#[derive(Debug)]
pub(super) struct Opened {
    link: Arc<Link>,
    number: u32,
    stream: Arc<Stream>,
}

/// Greets whoever connected, and gives what it said.
pub(super) async fn greet(socket: &mut UnixStream) -> io::Result<Hello> {
    let greeting = async {
        let mut head = [0; HEADER_BYTES];
        socket.read_exact(&mut head).await?;
        let header = Header::parse(head, MAX_GREETING_BYTES).map_err(io::Error::other)?;
        if header.kind != Some(Kind::Hello) || header.stream != NO_STREAM {
            return Err(io::Error::other(Malformed("it does not begin with a greeting")));
        }
        let mut payload = vec![0; header.length];
        socket.read_exact(&mut payload).await?;
        let hello = Hello::decode(&payload).map_err(io::Error::other)?;
        let version = hello.newest.min(VERSION);
        if version < hello.oldest || version == 0 {
            let text = format!("it speaks {} to {}, abxd 1 to {VERSION}", hello.oldest, hello.newest);
            return Err(io::Error::other(text));
        }
        socket.write_all(&frame(Kind::Welcome, NO_STREAM, &Welcome { version }.encode())).await?;
        Ok(hello)
    };
    tokio::time::timeout(GREETING_LIMIT, greeting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Link {
    /// Takes over a connection that was greeted. `events` gets what comes unasked.
    pub(super) fn new(socket: UnixStream, events: Events) -> Arc<Self> {
        let (read, write) = socket.into_split();
        let (out, frames) = mpsc::unbounded_channel();
        let table = Table { open: HashMap::new(), next: NO_STREAM + 1, gone: false };
        let shared = Arc::new(Shared { out, table: Mutex::new(table), gone: watch::Sender::new(false) });
        let (reading, writing) = (Arc::clone(&shared), Arc::clone(&shared));
        let writer = tokio::spawn(async move {
            if let Err(error) = send(write, frames).await {
                tracing::debug!(%error, "a sandbox takes no more");
                writing.close();
            }
        });
        let writer = writer.abort_handle();
        let other_half = writer.clone();
        let reader = tokio::spawn(async move {
            if let Err(error) = receive(read, &reading, &events).await {
                tracing::warn!(%error, "a connection to a sandbox ends");
            }
            // The other side sees it end, whoever still holds a stream of it.
            other_half.abort();
            reading.close();
        });
        Arc::new(Self { shared, tasks: [reader.abort_handle(), writer] })
    }

    /// Opens a stream with a request, whose output may have this many bytes; none once the connection is gone.
    pub(super) fn open(self: &Arc<Self>, kind: Kind, payload: &[u8], window: u32) -> Option<Opened> {
        let stream = Arc::new(Stream::new(window));
        let number = {
            let mut table = self.shared.lock();
            if table.gone {
                return None;
            }
            let number = table.next;
            match number.checked_add(1) {
                Some(next) => table.next = next,
                // Numbers are never used twice: a new connection begins anew.
                None => table.gone = true,
            }
            table.open.insert(number, Arc::clone(&stream));
            number
        };
        let opened = Opened { link: Arc::clone(self), number, stream };
        opened.send(kind, payload);
        Some(opened)
    }

    /// Ends it.
    pub(super) fn close(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.close();
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.shared.lock().gone
    }

    /// Waits for its end. Cancel safe.
    pub(super) async fn ended(&self) {
        // The sender is our own.
        let _ = self.shared.gone.subscribe().wait_for(|gone| *gone).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl Opened {
    /// The connection.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// What arrives on it.
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The next that arrives; none at its end. Cancel safe.
    pub(super) async fn next(&self) -> Option<Item> {
        self.stream.next().await
    }

    /// Sends a frame on it. Whether it arrives, the end of the connection tells.
    ///
    /// # Panics
    /// When the payload is longer than any frame: callers have checked.
    pub(super) fn send(&self, kind: Kind, payload: &[u8]) {
        debug_assert!(payload.len() <= MAX_TO_GUEST, "requests are bounded where they are made");
        // A connection that is gone closes its streams, which is seen where they are read.
        let _ = self.link.shared.out.send(frame(kind, self.number, payload).into());
    }

    /// Lets so many more bytes of output come.
    pub(super) fn grant(&self, bytes: u32) {
        self.stream.grant(bytes);
        self.send(Kind::Credit, &Credit { bytes }.encode());
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let was_open = self.link.shared.lock().open.remove(&self.number).is_some();
        if was_open {
            self.send(Kind::Leave, &[]);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let open = {
            let mut table = self.lock();
            table.gone = true;
            std::mem::take(&mut table.open)
        };
        open.values().for_each(|stream| stream.close());
        self.gone.send_replace(true);
    }

    fn deliver(&self, header: Header, payload: Bytes, events: &Events) -> Result<(), Malformed> {
        let Some(kind) = header.kind else { return Ok(()) };
        if header.stream == NO_STREAM {
            match kind {
                Kind::Active => events(Event::Active),
                Kind::Oom => events(Event::Oom(Oom::decode(&payload)?.kills)),
                Kind::Ended => events(Event::Ended(Box::new(Entry::decode(&payload)?))),
                _ => return Err(Malformed("a frame without a stream that needs one")),
            }
            return Ok(());
        }
        if (kind as u8) < Kind::Hello as u8 && kind != Kind::Credit {
            return Err(Malformed("a frame that is not for us"));
        }
        let found = {
            let mut table = self.lock();
            if is_last(kind) {
                table.open.remove(&header.stream)
            } else {
                table.open.get(&header.stream).cloned()
            }
        };
        // One that was given up may still have some on its way.
        found.map_or(Ok(()), |stream| stream.take_in(kind, payload))
    }
}

async fn receive(mut socket: OwnedReadHalf, shared: &Shared, events: &Events) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut wanted = READ_BYTES;
    loop {
        while let Some((header, payload)) = split(&mut buffer).map_err(io::Error::other)? {
            shared.deliver(header, payload, events).map_err(io::Error::other)?;
        }
        buffer.reserve(wanted);
        match socket.read_buf(&mut buffer).await? {
            0 => return Ok(()),
            read => wanted = if read >= READ_BYTES { FLOOD_BYTES } else { READ_BYTES },
        }
    }
}

/// Takes a whole frame off the front, if one is there.
fn split(buffer: &mut BytesMut) -> Result<Option<(Header, Bytes)>, Malformed> {
    let Some(head) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = Header::parse(*head, MAX_FROM_GUEST)?;
    if buffer.len() < HEADER_BYTES + header.length {
        return Ok(None);
    }
    buffer.advance(HEADER_BYTES);
    Ok(Some((header, buffer.split_to(header.length).freeze())))
}

async fn send(mut socket: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Bytes>) -> io::Result<()> {
    let mut gathered = BytesMut::new();
    while let Some(first) = frames.recv().await {
        gathered.extend_from_slice(&first);
        while gathered.len() < WRITE_BYTES
            && let Ok(next) = frames.try_recv()
        {
            gathered.extend_from_slice(&next);
        }
        socket.write_all(&gathered).await?;
        gathered.clear();
    }
    Ok(())
}
