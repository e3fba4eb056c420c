//! What a copy has done so far: for the progress bar, the last line, and Ctrl-C.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use crate::cli::output::{Output, clean};
use crate::cli::progress::Bar;
use crate::client::{Meanwhile, Progress};
use crate::proto::copy::CopyPlace;

/// Bytes that are moved at once: a frame of the stream.
const MOVE_BYTES: usize = 256 * 1024;

/// Time between two looks at the progress: each costs more than moving a small file.
const TELL: Duration = Duration::from_millis(100);

/// Files that are named when they are left out; the rest are counted.
const NAMED_SKIPS: usize = 10;

/// One copy as it goes on.
pub(super) struct Watch<'a> {
    output: &'a Output,
    bar: Bar<'a>,
    total_bytes: Option<u64>,
    told: Instant,
    pressed: Arc<AtomicBool>,
    /// The signal by which the user did.
    signal: Arc<AtomicUsize>,
    /// Bytes of files so far.
    pub(super) bytes: u64,
    /// Files, directories and links so far.
    pub(super) entries: u64,
    /// What was left out, and why.
    pub(super) skipped: Vec<String>,
    more_skipped: u64,
    /// What may hold a part of the files, if this ends before they are whole.
    part: Option<String>,
    buffer: Vec<u8>,
}

impl<'a> Watch<'a> {
    /// For a copy that begins now. From here on Ctrl-C ends it only after what is half written is gone again; a second
    /// one ends it at once.
    pub(super) fn start(output: &'a Output) -> Self {
        let (pressed, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in [SIGINT, SIGTERM] {
            // Where it cannot be caught, it ends this process as ever.
            let _ = flag::register_conditional_default(signal, pressed.clone())
                .and_then(|_| flag::register_usize(signal, last.clone(), signal.unsigned_abs() as usize))
                .and_then(|_| flag::register(signal, pressed.clone()));
        }
        Self {
            output,
            bar: Bar::patient(output, "copying"),
            total_bytes: None,
            told: Instant::now(),
            pressed,
            signal: last,
            bytes: 0,
            entries: 0,
            skipped: Vec::new(),
            more_skipped: 0,
            part: None,
            buffer: vec![0; MOVE_BYTES],
        }
    }

    /// Says how much there will be.
    pub(super) fn expect(&mut self, total_bytes: Option<u64>) {
        self.total_bytes = total_bytes;
    }

    /// Says where in a sandbox the files go: engines unpack them under their own names as they come.
    pub(super) fn goes_to(&mut self, session: &str, place: &CopyPlace) {
        self.part = Some(format!("{session}:{}", place.path));
    }

    /// Counts from the beginning: what was moved so far is moved once more.
    pub(super) fn again(&mut self) {
        self.bytes = 0;
    }

    /// Notes an entry that was copied.
    pub(super) fn entry(&mut self) -> io::Result<()> {
        self.entries += 1;
        self.moved(0)
    }

    /// Notes an entry that is left out.
    pub(super) fn skip(&mut self, name: &[u8], why: &str) {
        if self.skipped.len() == NAMED_SKIPS {
            self.more_skipped += 1;
            return;
        }
        let name = clean(&String::from_utf8_lossy(name));
        self.skipped.push(format!("{name}: {why}"));
    }

    /// Moves bytes to the end, and gives how many.
    ///
    /// # Errors
    /// Either side's, or that the user wants to leave.
    pub(super) fn transfer(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut whole = 0;
        let moved = loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break Ok(whole),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
            };
            if let Err(error) = to.write_all(&buffer[..count]).and_then(|()| self.moved(count as u64)) {
                break Err(error);
            }
            whole += count as u64;
        };
        self.buffer = buffer;
        moved
    }

    /// Notes bytes that were moved.
    ///
    /// # Errors
    /// When the user wants to leave.
    pub(super) fn moved(&mut self, count: u64) -> io::Result<()> {
        self.bytes += count;
        if self.told.elapsed() >= TELL {
            self.tell();
        }
        if self.pressed.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        Ok(())
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        let progress = Progress {
            op: None,
            text: "copying".to_owned(),
            current_bytes: Some(self.bytes),
            total_bytes: self.total_bytes,
        };
        self.bar.hear(Meanwhile::Progress(progress));
    }

    /// Clears the bar and says what was left out, or what may be left of files that are not `whole`. Where the user wanted
    /// to leave, the process ends here.
    pub(super) fn finish(&mut self, whole: bool) {
        self.bar.clear();
        if let Some(place) = self.part.as_deref().filter(|_| !whole && self.bytes > 0) {
            let text = "may hold a part of what was copied, in the place of what was there";
            self.output.note(&format!("Warning: {} {text}", clean(place)));
        }
        if self.pressed.load(Ordering::Relaxed) {
            // Does not come back; should it fail, what was interrupted is told as an error.
            let signal = i32::try_from(self.signal.load(Ordering::Relaxed)).unwrap_or(SIGINT);
            let _ = emulate_default_handler(signal);
        }
        if self.output.json {
            return;
        }
        for line in &self.skipped {
            self.output.note(&format!("left out {line}"));
        }
        if self.more_skipped > 0 {
            self.output.note(&format!("left out {} more", self.more_skipped));
        }
    }
}

/// Reads as much as was announced.
pub(super) struct Exactly<R> {
    from: R,
    left: u64,
}

impl<R: Read> Exactly<R> {
    /// The next `size` bytes: fewer are an error, more stay unread.
    pub(super) fn new(from: R, size: u64) -> Self {
        Self { from, left: size }
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.from.read(&mut buffer[..most])?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Reads, and tells a watch how much.
pub(super) struct Watched<'w, 'a, R> {
    /// What is read.
    pub(super) from: R,
    /// Who is told.
    pub(super) watch: &'w mut Watch<'a>,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.watch.moved(count as u64)?;
        Ok(count)
    }
}
