//! Reads a screen as text, out of what paints it.
//!
//! The model's crate shows neither cells nor cursor, only the bytes that paint them. Those use few sequences, so reading
//! them back is little: text, where it goes, and which screen it is on. Any other sequence changes no character.

use unicode_width::UnicodeWidthChar;

use super::split::{Piece, Splitter};
use crate::guest::wire;

/// Most bytes of text in an answer; older scrollback is left out. Below what one frame takes.
const MAX_TEXT_BYTES: usize = wire::MAX_FROM_GUEST - 16 * 1024;

/// The cell to the right of a wide character, which is part of it.
const PADDING: char = '\0';

/// A cell: a character, and what modifies it.
#[derive(Debug, Clone)]
struct Cell {
    character: char,
    modifiers: String,
}

/// A screen that is being read.
#[derive(Debug)]
struct Reader {
    columns: usize,
    height: usize,
    rows: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    /// The next character goes to the next row.
    wraps: bool,
    /// Origin mode: positions are relative to the region and the margins.
    origin: bool,
    region_top: usize,
    margins: Option<(usize, usize)>,
    cursor_visible: bool,
    alternate: bool,
}

/// Reads what `painting` shows on a terminal of that size. The title is the caller's to fill in.
pub(super) fn read(painting: &[u8], size: wire::Size) -> wire::Screen {
    let mut reader = Reader {
        columns: size.cols.into(),
        height: size.rows.into(),
        rows: vec![Vec::new(); size.rows.into()],
        row: 0,
        column: 0,
        wraps: false,
        origin: false,
        region_top: 0,
        margins: None,
        cursor_visible: true,
        alternate: false,
    };
    Splitter::default().split(painting, |piece| match piece {
        Piece::Text(text) => String::from_utf8_lossy(text).chars().for_each(|c| reader.character(c)),
        Piece::Control(sequence) => reader.control(sequence),
        Piece::Command(_) | Piece::Other => {}
    });
    reader.screen(size)
}

impl Reader {
    fn top(&self) -> usize {
        self.rows.len() - self.height
    }

    fn character(&mut self, character: char) {
        match character {
            '\r' => (self.column, self.wraps) = (0, false),
            '\n' => self.line_feed(),
            _ => match character.width() {
                None => {}
                Some(0) => self.modify(character),
                Some(width) => self.print(character, width),
            },
        }
    }

    fn line_feed(&mut self) {
        self.wraps = false;
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
        }
    }

    fn print(&mut self, character: char, width: usize) {
        let end = match self.margins {
            Some((_, right)) if self.column < right => right,
            _ => self.columns,
        };
        if self.wraps || self.column + width > end {
            self.column = 0;
            self.line_feed();
        }
        let row = &mut self.rows[self.row];
        let blank = |character| Cell { character, modifiers: String::new() };
        if row.len() < self.column + width {
            row.resize(self.column + width, blank(' '));
        }
        // Writing on one half of a wide character blanks the other.
        if row[self.column].character == PADDING && self.column > 0 {
            row[self.column - 1] = blank(' ');
        }
        row[self.column] = blank(character);
        row[self.column + 1..self.column + width].fill(blank(PADDING));
        let after = self.column + width;
        if row.get(after).is_some_and(|cell| cell.character == PADDING) {
            row[after] = blank(' ');
        }
        self.wraps = after >= end;
        self.column = if self.wraps { end.saturating_sub(1) } else { after };
    }

    fn modify(&mut self, character: char) {
        let before = if self.wraps { self.column + 1 } else { self.column };
        let row = &mut self.rows[self.row];
        let before = before.min(row.len());
        if let Some(cell) = row[..before].iter_mut().rev().find(|cell| cell.character != PADDING) {
            cell.modifiers.push(character);
        }
    }

    fn control(&mut self, sequence: &[u8]) {
        let Some(body) = sequence.strip_prefix(b"\x1b[").and_then(|body| std::str::from_utf8(body).ok())
        else {
            return;
        };
        let Some(last) = body.chars().last() else { return };
        let body = &body[..body.len() - last.len_utf8()];
        let mut numbers = body.split(';').map(|n| n.parse::<usize>().ok().filter(|n| *n > 0));
        let first = numbers.next().flatten();
        let second = numbers.next().flatten();
        match (last, body) {
            ('H', _) => self.go_to(first.unwrap_or(1) - 1, second.unwrap_or(1) - 1),
            ('r', _) => {
                self.region_top = first.unwrap_or(1) - 1;
                self.go_to(0, 0);
            }
            ('s', _) if second.is_some() => {
                self.margins = first.zip(second).map(|(left, right)| (left - 1, right));
                self.go_to(0, 0);
            }
            ('h' | 'l', "?69") => self.margins = None,
            ('h' | 'l', "?6") => {
                self.origin = last == 'h';
                self.go_to(0, 0);
            }
            ('h' | 'l', "?25") => self.cursor_visible = last == 'h',
            ('h', "?1049") => self.switch(),
            _ => {}
        }
    }

    fn go_to(&mut self, row: usize, column: usize) {
        let (above, left) =
            if self.origin { (self.region_top, self.margins.map_or(0, |(left, _)| left)) } else { (0, 0) };
        self.row = self.top() + (row + above).min(self.height.saturating_sub(1));
        self.column = (column + left).min(self.columns.saturating_sub(1));
        self.wraps = false;
    }

    /// To the alternate screen, which has no scrollback. The cursor stays where it is.
    fn switch(&mut self) {
        self.row -= self.top();
        self.rows = vec![Vec::new(); self.height];
        self.alternate = true;
    }

    fn screen(self, size: wire::Size) -> wire::Screen {
        let top = self.top();
        let mut room = MAX_TEXT_BYTES;
        let mut lines: Vec<String> = Vec::new();
        for (index, row) in self.rows.iter().enumerate().rev() {
            let line = line(row);
            // What fits no longer is left out above the screen, and blank on it, where lines are counted.
            let fits = line.len() + 4 <= room;
            room = if fits { room - line.len() - 4 } else { 0 };
            match (fits, index < top) {
                (true, _) => lines.push(line),
                (false, true) => break,
                (false, false) => lines.push(String::new()),
            }
        }
        lines.reverse();
        let narrow = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        wire::Screen {
            scrollback: u32::try_from(lines.len().saturating_sub(self.height)).unwrap_or(u32::MAX),
            lines,
            size,
            column: narrow(self.column),
            row: narrow(self.row - top),
            cursor_visible: self.cursor_visible,
            alternate: self.alternate,
            title: String::new(),
        }
    }
}

fn line(row: &[Cell]) -> String {
    let mut line = String::with_capacity(row.len());
    for cell in row.iter().filter(|cell| cell.character != PADDING) {
        line.push(cell.character);
        line.push_str(&cell.modifiers);
    }
    line.truncate(line.trim_end_matches(' ').len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::wire::Payload;

    fn shown(painting: &str) -> (Vec<String>, u32, (u16, u16)) {
        let screen = read(painting.as_bytes(), wire::Size { cols: 6, rows: 3 });
        (screen.lines, screen.scrollback, (screen.row, screen.column))
    }

    #[test]
    fn text_is_read_where_it_is_painted() {
        let (lines, scrollback, cursor) = shown("\x1b[H\x1b[Jone\r\n\x1b[31mtwo\x1b[m\r\n\x1b[3;2Hxy");
        assert_eq!(
            (lines, scrollback, cursor),
            (["one", "two", " xy"].map(str::to_owned).to_vec(), 0, (2, 3))
        );
    }

    #[test]
    fn wide_and_composed_characters_take_the_columns_that_they_have() {
        let (lines, _, cursor) = shown("a好e\u{301}!\r\n12345好\x1b[1;3Hx");
        assert_eq!((lines, cursor), (["a xe\u{301}!", "12345", "好"].map(str::to_owned).to_vec(), (0, 3)));
    }

    #[test]
    fn what_scrolled_away_is_scrollback_and_the_alternate_screen_has_none() {
        let (lines, scrollback, cursor) = shown("1\r\n2\r\n3\r\n4\r\nabcdef");
        assert_eq!((lines.join(" "), scrollback, cursor), ("1 2 3 4 abcdef".to_owned(), 2, (2, 5)));
        let (lines, scrollback, cursor) =
            shown("1\r\n2\r\n3\r\n4\x1b[?1049h\x1b[Htop\x1b[2;3r\x1b[?6h\x1b[1;2H");
        assert_eq!((lines.join(" "), scrollback, cursor), ("top  ".to_owned(), 0, (1, 1)));
    }

    #[test]
    fn an_answer_fits_into_a_frame() {
        let size = wire::Size { cols: 400, rows: 2 };
        let row = "好".repeat(200);
        let screen = read([row.as_str(); 1000].join("\r\n").as_bytes(), size);
        let bytes: usize = screen.lines.iter().map(|line| line.len() + 4).sum();
        assert!(bytes <= MAX_TEXT_BYTES && bytes > MAX_TEXT_BYTES - 1000, "{bytes}");
        assert_eq!(screen.lines.len(), screen.scrollback as usize + 2);
        assert!(screen.encode().len() < wire::MAX_FROM_GUEST);
    }
}
