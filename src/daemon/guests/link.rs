//! One connection to a sandbox's abx-init: its greeting, and its frames to and from the streams on it.
//!
//! What comes from inside is not trusted: a frame that makes no sense ends the connection and nothing else, and nothing
//! piles up here, whatever comes and whoever does not read.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::stream::{Item, Stream};
use crate::daemon::halves::{self, ReadHalf, WriteHalf};
use crate::guest::wire::{
    Credit, Entry, HEADER_BYTES, Header, Hello, Kind, MAX_FROM_GUEST, MAX_TO_GUEST, Malformed, NO_STREAM,
    Notice, OLDEST, Oom, Payload, VERSION, Welcome, frame,
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

/// Bytes that wait to be sent, past which commands get no more input: what they were given credit for may all come at
/// once, and a sandbox that does not read gives credit all the same.
const CROWDED_BYTES: usize = 1024 * 1024;

/// Most bytes that wait to be sent: eight of the longest requests. A sandbox that lets more of them pile up does not
/// read, and its connection ends.
const MAX_WAITING_BYTES: usize = 8 * MAX_TO_GUEST;

/// What abx-init tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The terminal of this command wrote something.
    Active(String),
    /// A command says what it is doing.
    Notice(Box<Notice>),
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
    /// Bounded by what waits in it.
    out: mpsc::UnboundedSender<Bytes>,
    /// Bytes of it that are not sent yet.
    waiting: AtomicUsize,
    table: Mutex<Table>,
    /// Whether it ends because of what came.
    made_no_sense: AtomicBool,
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
        if version < hello.oldest.max(OLDEST) {
            let spoken = (hello.oldest, hello.newest);
            let text = format!(
                "its abx-init speaks versions {} to {}, abxd {OLDEST} to {VERSION}: stop and resume the session",
                spoken.0, spoken.1
            );
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
    ///
    /// # Errors
    /// When the system has no room to watch it.
    pub(super) fn new(socket: UnixStream, events: Events) -> io::Result<Arc<Self>> {
        let (read, write) = halves::split(socket)?;
        let (out, frames) = mpsc::unbounded_channel();
        let table = Table { open: HashMap::new(), next: NO_STREAM + 1, gone: false };
        let (waiting, gone) = (AtomicUsize::new(0), watch::Sender::new(false));
        let (table, made_no_sense) = (Mutex::new(table), AtomicBool::new(false));
        let shared = Arc::new(Shared { out, waiting, table, made_no_sense, gone });
        let (reading, writing) = (Arc::clone(&shared), Arc::clone(&shared));
        let writer = tokio::spawn(async move {
            if let Err(error) = send(write, frames, &writing).await {
                tracing::debug!(%error, "a sandbox takes no more");
                writing.close();
            }
        });
        let writer = writer.abort_handle();
        let other_half = writer.clone();
        let reader = tokio::spawn(async move {
            if let Err(error) = receive(read, &reading, &events).await {
                tracing::warn!(%error, "a connection to a sandbox ends");
                let is_malformed = error.get_ref().is_some_and(|why| why.is::<Malformed>());
                reading.made_no_sense.fetch_or(is_malformed, Ordering::SeqCst);
            }
            // The other side sees it end, whoever still holds a stream of it.
            other_half.abort();
            reading.close();
        });
        Ok(Arc::new(Self { shared, tasks: [reader.abort_handle(), writer] }))
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

    /// Ends it because of what came on it.
    pub(super) fn refuse(&self) {
        self.shared.made_no_sense.store(true, Ordering::SeqCst);
        self.close();
    }

    /// Whether it ends because of what came on it. Tells it once.
    pub(super) fn takes_nonsense(&self) -> bool {
        self.shared.made_no_sense.swap(false, Ordering::SeqCst)
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
        let shared = &self.link.shared;
        let frame = frame(kind, self.number, payload);
        if shared.waiting.fetch_add(frame.len(), Ordering::SeqCst) + frame.len() > MAX_WAITING_BYTES {
            if !self.link.is_gone() {
                tracing::warn!("a sandbox reads nothing that it is sent: its connection ends");
            }
            return self.link.close();
        }
        // A connection that is gone closes its streams, which is seen where they are read.
        let _ = shared.out.send(frame.into());
    }

    /// Takes credit for up to `wanted` bytes of input; none once nobody takes input any more.
    pub(super) fn poll_input(&self, cx: &Context<'_>, wanted: usize) -> Poll<Option<usize>> {
        // Before the look at what waits: the sender wakes whoever waits for that.
        self.stream.wake_for_input(cx);
        let is_crowded = self.link.shared.waiting.load(Ordering::SeqCst) >= CROWDED_BYTES;
        self.stream.poll_input(cx, if is_crowded { 0 } else { wanted })
    }

    /// Whether all input that was sent on it is known to have arrived.
    pub(super) fn has_taken_input(&self) -> bool {
        self.stream.has_taken_input()
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

    /// Notes that so much was sent.
    fn sent(&self, bytes: usize) {
        let before = self.waiting.fetch_sub(bytes, Ordering::SeqCst);
        if before >= CROWDED_BYTES && before - bytes < CROWDED_BYTES {
            self.lock().open.values().for_each(|stream| stream.take_input_again());
        }
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
                Kind::Active => events(Event::Active(String::from_utf8_lossy(&payload).into_owned())),
                Kind::Notice => events(Event::Notice(Box::new(Notice::decode(&payload)?))),
                Kind::Oom => events(Event::Oom(Oom::decode(&payload)?.kills)),
                Kind::Ended => events(Event::Ended(Box::new(Entry::decode(&payload)?))),
                _ => return Err(Malformed("a frame without a stream that needs one")),
            }
            return Ok(());
        }
        if !kind.is_from_guest() {
            return Err(Malformed("a frame that is not for us"));
        }
        let found = {
            let mut table = self.lock();
            if kind.is_last() {
                table.open.remove(&header.stream)
            } else {
                table.open.get(&header.stream).cloned()
            }
        };
        // One that was given up may still have some on its way.
        found.map_or(Ok(()), |stream| stream.take_in(kind, payload))
    }
}

async fn receive(mut socket: ReadHalf, shared: &Shared, events: &Events) -> io::Result<()> {
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

async fn send(
    mut socket: WriteHalf,
    mut frames: mpsc::UnboundedReceiver<Bytes>,
    shared: &Shared,
) -> io::Result<()> {
    let mut gathered = BytesMut::new();
    while let Some(first) = frames.recv().await {
        gathered.extend_from_slice(&first);
        while gathered.len() < WRITE_BYTES
            && let Ok(next) = frames.try_recv()
        {
            gathered.extend_from_slice(&next);
        }
        socket.write_all(&gathered).await?;
        shared.sent(gathered.len());
        gathered.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn pair() -> (UnixStream, Arc<Link>) {
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        (theirs, Link::new(ours, Box::new(|_| {})).expect("watched"))
    }

    #[tokio::test]
    async fn a_sandbox_that_gives_credit_and_reads_nothing_gets_no_more_input_than_has_room() {
        let (mut theirs, link) = pair();
        let open = link.open(Kind::Run, b"", 0).expect("it is there");
        let mut taken = 0;
        loop {
            theirs
                .write_all(&frame(Kind::Credit, 1, &Credit { bytes: 64 * 1024 }.encode()))
                .await
                .expect("sent");
            let input = poll_fn(|cx| open.poll_input(cx, 64 * 1024));
            let is_crowded = || link.shared.waiting.load(Ordering::SeqCst) >= CROWDED_BYTES;
            let Some(more) = input.now_or_never() else {
                if is_crowded() {
                    break;
                }
                tokio::task::yield_now().await;
                continue;
            };
            let more = more.expect("it goes on");
            open.send(Kind::Input, &vec![0; more]);
            taken += more;
            assert!(taken < 16 * CROWDED_BYTES, "{taken} bytes were taken");
        }
        let again = tokio::spawn(async move { poll_fn(|cx| open.poll_input(cx, 1)).await });
        let mut buffer = vec![0; READ_BYTES];
        while !again.is_finished() {
            let read = theirs.read(&mut buffer);
            tokio::select! {
                read = read => assert!(read.expect("read") > 0),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(again.await.expect("joins"), Some(1));
    }

    #[tokio::test]
    async fn requests_that_pile_up_end_the_connection() {
        let (_theirs, link) = pair();
        let longest = vec![0; MAX_TO_GUEST];
        let sent = (0..20).map_while(|_| link.open(Kind::Run, &longest, 0)).count();
        assert!((7..20).contains(&sent), "{sent} were sent");
        assert!(link.is_gone());
    }
}
