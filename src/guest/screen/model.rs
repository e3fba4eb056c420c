//! What a terminal shows, kept from what its program writes, so that it can be painted again.

use std::time::Instant;

use shpool_vterm::{ContentRegion, Size, Term};

use super::modes::{Left, Modes};
use super::signals::Signals;
use super::split::{Piece, Splitter, unfinished};
use super::{styles, text};
use crate::guest::wire;

/// Most columns, and most rows, of a model. A terminal beyond is shown as far as that.
const MAX_SIDE: u16 = 1000;

/// Most cells of scrollback: 1,000 lines of 500 columns. A cell takes some 60 bytes, so this is some 30 MB.
const MAX_SCROLLBACK_CELLS: u32 = 500_000;

/// Longest link that is remembered, in bytes, with its parameters: every cell of it has a copy of its own.
const MAX_LINK_BYTES: usize = 192;

/// Most bytes that the crate's parser is given at once. For every byte that is not UTF-8 it looks through all that is
/// left, so the cost grows with the square of this and with nothing else.
const MAX_TEXT_BYTES: usize = 2048;

/// Ends a link.
const NO_LINK: &[u8] = b"\x1b]8;;\x1b\\";

/// Saves a cursor as if none had been saved on this screen (DECSC): home, in no style, with no other character set.
const SAVE_HOME: &[u8] = b"\x1b[?6l\x1b[m\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[H\x1b7";

/// Breaks off whatever the crate's parser is in the middle of.
const CANCEL: &[u8] = b"\x18";

/// A model of a terminal's screen.
pub(super) trait ScreenModel {
    /// Takes what the program wrote, in any portions; gives what it says in that.
    fn process(&mut self, bytes: &[u8]) -> Vec<wire::Notice>;

    /// Takes another size.
    fn resize(&mut self, size: wire::Size);

    /// Returns what paints the screen on a terminal of that size in whatever state, with that many lines of scrollback
    /// above it. What the program writes next may follow, be it the rest of a sequence or of a character.
    fn redraw(&self, scrollback: u32) -> Vec<u8>;

    /// Returns the screen as text.
    fn peek(&self, scrollback: u32) -> wire::Screen;
}

/// The model in use: shpool_vterm, and beside it what that does not know.
pub(super) struct Vterm {
    term: Term,
    splitter: Splitter,
    modes: Modes,
    signals: Signals,
    size: wire::Size,
    scrollback: u32,
}

impl Vterm {
    pub(super) fn new(size: wire::Size, scrollback: u32) -> Self {
        let size = bounded(size);
        Self {
            term: Term::new(lines(size, scrollback), of_crate(size)),
            splitter: Splitter::default(),
            modes: Modes::default(),
            signals: Signals::default(),
            size,
            scrollback,
        }
    }

    fn paint(&self, scrollback: u32) -> Vec<u8> {
        self.term.contents(ContentRegion::BottomLines(lines(self.size, scrollback)))
    }
}

impl ScreenModel for Vterm {
    fn process(&mut self, bytes: &[u8]) -> Vec<wire::Notice> {
        let Self { term, splitter, modes, signals, size, .. } = self;
        splitter.split(bytes, |piece| match piece {
            Piece::Text(text) => {
                signals.text(text);
                parts(text).for_each(|part| term.process(part));
            }
            Piece::Control(sequence) => {
                signals.text(sequence);
                // What was saved on the alternate screen is in no painting of the main one. Nor do terminals agree on
                // whether it is still there on the next visit.
                if modes.control(sequence) == Left::WithCursorRestored {
                    term.process(SAVE_HOME);
                }
                let other = shorter_repeat(sequence, *size).or_else(|| styles::for_model(sequence));
                term.process(other.as_deref().unwrap_or(sequence));
            }
            Piece::Command(command) => {
                modes.command(command);
                signals.command(command);
                let long_link = command.starts_with(b"\x1b]8;") && command.len() > MAX_LINK_BYTES;
                term.process(if long_link { NO_LINK } else { command });
            }
            Piece::Other => term.process(CANCEL),
        });
        signals.take(Instant::now())
    }

    fn resize(&mut self, size: wire::Size) {
        let size = bounded(size);
        if size != self.size {
            self.size = size;
            self.term.resize(of_crate(size));
            self.term.set_scrollback_lines(lines(size, self.scrollback));
        }
    }

    fn redraw(&self, scrollback: u32) -> Vec<u8> {
        let mut painting = self.modes.before(self.size.cols);
        painting.append(&mut styles::put_back(&self.paint(scrollback)));
        painting.append(&mut self.modes.after());
        painting.extend_from_slice(self.splitter.held());
        painting
    }

    fn peek(&self, scrollback: u32) -> wire::Screen {
        let title = String::from_utf8_lossy(self.term.title().unwrap_or_default());
        wire::Screen {
            title: title.chars().filter(|c| !c.is_control()).collect(),
            ..text::read(&self.paint(scrollback), self.size)
        }
    }
}

/// Cuts text between characters: of several around a cut within one, the crate's parser loses some.
fn parts(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let most = &text[..text.len().min(MAX_TEXT_BYTES)];
        let cut = if most.len() < text.len() { most.len() - unfinished(most) } else { most.len() };
        let (part, rest) = text.split_at(cut);
        text = rest;
        (!part.is_empty()).then_some(part)
    })
}

fn bounded(size: wire::Size) -> wire::Size {
    wire::Size { cols: size.cols.clamp(1, MAX_SIDE), rows: size.rows.clamp(1, MAX_SIDE) }
}

fn of_crate(size: wire::Size) -> Size {
    Size { width: size.cols.into(), height: size.rows.into() }
}

/// Returns how many lines there are with that much scrollback: the crate counts those of the screen as well.
fn lines(size: wire::Size, scrollback: u32) -> usize {
    let scrollback = scrollback.min(MAX_SCROLLBACK_CELLS / u32::from(size.cols));
    usize::from(size.rows) + usize::try_from(scrollback).unwrap_or(usize::MAX)
}

/// Returns what to do in place of repeating a character more often than the screen has cells, which ends in the same
/// column: a handful of bytes must not ask for a thousand times their work.
fn shorter_repeat(sequence: &[u8], size: wire::Size) -> Option<Vec<u8>> {
    let count = sequence.strip_prefix(b"\x1b[")?.strip_suffix(b"b")?;
    let count: u64 = std::str::from_utf8(count).ok()?.parse().ok()?;
    let (columns, cells) = (u64::from(size.cols), u64::from(size.cols) * u64::from(size.rows));
    // The crate reads numbers up to this one.
    let count = count.min(u16::MAX.into());
    (count > cells).then(|| format!("\x1b[{}b", cells + (count - cells) % columns).into_bytes())
}
