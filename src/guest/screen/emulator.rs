//! A terminal of other make, to see what a real one would show: alacritty's.

use std::sync::{Arc, Mutex};

use alacritty_terminal::Term;
use alacritty_terminal::event::{Event, EventListener};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::test::TermSize;
use alacritty_terminal::term::{Config, TermMode};
use alacritty_terminal::vte::ansi::Processor;

use super::wire;

/// What it would have sent to the program, and done to its window.
#[derive(Debug, Default, Clone)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl EventListener for Listener {
    fn send_event(&self, event: Event) {
        if !matches!(event, Event::MouseCursorDirty | Event::CursorBlinkingChange) {
            self.0.lock().expect("no panic").push(format!("{event:?}"));
        }
    }
}

/// The emulator.
pub(crate) struct Emulator {
    term: Term<Listener>,
    processor: Processor,
    events: Listener,
}

impl Emulator {
    pub(crate) fn new(size: wire::Size) -> Self {
        let events = Listener::default();
        let config = Config { kitty_keyboard: true, scrolling_history: 20_000, ..Config::default() };
        let size = TermSize::new(size.cols.into(), size.rows.into());
        Self { term: Term::new(config, &size, events.clone()), processor: Processor::new(), events }
    }

    pub(crate) fn show(size: wire::Size, bytes: &[u8]) -> Self {
        let mut emulator = Self::new(size);
        emulator.feed(bytes);
        emulator
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.processor.advance(&mut self.term, bytes);
    }

    pub(crate) fn resize(&mut self, size: wire::Size) {
        self.term.resize(TermSize::new(size.cols.into(), size.rows.into()));
    }

    pub(crate) fn mode(&self) -> TermMode {
        *self.term.mode()
    }

    pub(crate) fn history(&self) -> usize {
        self.term.grid().history_size()
    }

    /// What it answered, and the titles it was given.
    pub(crate) fn events(&self) -> Vec<String> {
        self.events.0.lock().expect("no panic").clone()
    }

    /// The last title it was given.
    pub(crate) fn title(&self) -> Option<String> {
        self.events().into_iter().rfind(|event| event.contains("Title"))
    }

    /// Its rows as text, that many lines of scrollback first.
    pub(crate) fn text(&self, scrollback: usize) -> Vec<String> {
        let row = |row| {
            let cells = self.row(row).filter(|cell| !cell.flags.intersects(SPACERS));
            let text: String = cells
                .flat_map(|cell| {
                    std::iter::once(cell.c).chain(cell.zerowidth().into_iter().flatten().copied())
                })
                .collect();
            text.trim_end().to_owned()
        };
        self.rows(scrollback).map(row).collect()
    }

    /// All that can be seen, and all that changes what will be: cells with their attributes, cursor, modes.
    pub(crate) fn snapshot(&self, scrollback: usize) -> Vec<String> {
        let mut all: Vec<String> = self.rows(scrollback).map(|row| self.described(row)).collect();
        let cursor = &self.term.grid().cursor;
        all.push(format!("cursor {:?} wraps {}", cursor.point, cursor.input_needs_wrap));
        all.push(format!("pen {}", described(&cursor.template)));
        // What a vi mode or damage does is the window's own.
        all.push(format!("modes {:?}", self.term.mode()));
        all.push(format!("shape {:?}", self.term.cursor_style()));
        all
    }

    fn rows(&self, scrollback: usize) -> impl Iterator<Item = i32> + use<> {
        let above = i32::try_from(scrollback.min(self.history())).expect("few lines");
        -above..i32::try_from(self.term.screen_lines()).expect("few lines")
    }

    fn row(&self, row: i32) -> impl Iterator<Item = &Cell> {
        (0..self.term.columns()).map(move |column| &self.term.grid()[Line(row)][Column(column)])
    }

    fn described(&self, row: i32) -> String {
        let cells: Vec<String> = self.row(row).map(described).collect();
        let mut line = String::new();
        for run in cells.chunk_by(|a, b| a == b) {
            line.push_str(&format!("{}*{} ", run[0], run.len()));
        }
        line
    }
}

const SPACERS: Flags = Flags::WIDE_CHAR_SPACER.union(Flags::LEADING_WIDE_CHAR_SPACER);

fn described(cell: &Cell) -> String {
    if cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) {
        // A last column without room for a wide character: this emulator paints it in the character's attributes.
        return described(&Cell::default());
    }
    let blank = matches!(cell.c, ' ' | '\t');
    let mut flags = cell.flags - Flags::WRAPLINE;
    if blank {
        // None of these shows on a blank.
        flags -= Flags::BOLD | Flags::ITALIC | Flags::DIM | Flags::HIDDEN;
    }
    let shows = !blank || flags.intersects(Flags::INVERSE | Flags::ALL_UNDERLINES | Flags::STRIKEOUT);
    let foreground = if shows { format!("{:?}", cell.fg) } else { String::new() };
    let character = if blank { ' ' } else { cell.c };
    format!("{character}{:?}/{foreground}/{:?}/{flags:?}", cell.zerowidth().unwrap_or_default(), cell.bg)
}
