//! Watches which modes a program in the sandbox has switched on in the user's terminal, to switch them off when the
//! stream ends before the program does it itself.

/// Longest control sequence that is looked at, in bytes; modes are set by far shorter ones.
const MAX_SEQUENCE_BYTES: usize = 64;

/// Private modes that are switched off, if they were on: application cursor keys, mouse reports, focus reports,
/// alternate screens, bracketed paste.
const OFF: [u16; 13] = [1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 47, 1047, 1049];

/// Bracketed paste.
const PASTE: u16 = 2004;

/// The cursor; the one mode here that is on at first.
const CURSOR: u16 = 25;

/// What is known of the terminal so far.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    state: State,
    sequence: Vec<u8>,
    on: Vec<u16>,
    hidden: bool,
    keypad: bool,
    keyboard: usize,
    styled: bool,
    mid_line: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Text,
    Escape,
    Control,
}

impl Tracker {
    /// Reads output that goes to the terminal.
    pub(crate) fn watch(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line = !matches!(last, b'\n' | b'\r');
        }
        for byte in bytes {
            match (self.state, byte) {
                (State::Text, 0x1b) => self.state = State::Escape,
                (State::Text, _) => {}
                (State::Escape, b'[') => {
                    self.sequence.clear();
                    self.state = State::Control;
                }
                (_, 0x1b) => self.state = State::Escape,
                (State::Escape, b'c') => *self = Self { mid_line: self.mid_line, ..Self::default() },
                (State::Escape, b'=' | b'>') => {
                    self.keypad = *byte == b'=';
                    self.state = State::Text;
                }
                (State::Escape, _) => self.state = State::Text,
                (State::Control, 0x40..=0x7e) => {
                    self.state = State::Text;
                    self.control(*byte);
                }
                (State::Control, _) if self.sequence.len() < MAX_SEQUENCE_BYTES => self.sequence.push(*byte),
                (State::Control, _) => self.state = State::Text,
            }
        }
    }

    /// What to send to the terminal so that it is as it was.
    pub(crate) fn undo(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.keyboard > 0 {
            text.push_str(&format!("\u{1b}[<{}u", self.keyboard));
        }
        for mode in &self.on {
            text.push_str(&format!("\u{1b}[?{mode}l"));
        }
        if self.hidden {
            text.push_str("\u{1b}[?25h");
        }
        if self.keypad {
            text.push_str("\u{1b}>");
        }
        if self.styled {
            text.push_str("\u{1b}[0m");
        }
        text.into_bytes()
    }

    /// Whether the next line of ours must begin with a new one.
    pub(crate) fn mid_line(&self) -> bool {
        self.mid_line
    }

    fn control(&mut self, last: u8) {
        let sequence = std::mem::take(&mut self.sequence);
        let numbers = |text: &[u8]| -> Vec<u16> {
            text.split(|b| *b == b';').filter_map(|n| std::str::from_utf8(n).ok()?.parse().ok()).collect()
        };
        match (sequence.first(), last) {
            (Some(b'?'), b'h' | b'l') => {
                numbers(&sequence[1..]).into_iter().for_each(|mode| self.mode(mode, last == b'h'));
            }
            (Some(b'>'), b'u') => self.keyboard += 1,
            (Some(b'<'), b'u') => {
                let count = numbers(&sequence[1..]).first().copied().unwrap_or(1);
                self.keyboard = self.keyboard.saturating_sub(count.into());
            }
            (_, b'm') => self.styled = !matches!(sequence.as_slice(), b"" | b"0"),
            _ => {}
        }
    }

    fn mode(&mut self, mode: u16, on: bool) {
        if mode == CURSOR {
            self.hidden = !on;
        } else if mode == PASTE || OFF.contains(&mode) {
            self.on.retain(|m| *m != mode);
            if on {
                self.on.push(mode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_on_is_switched_off_and_nothing_else() {
        let mut tracker = Tracker::default();
        tracker.watch(b"\x1b[?1049h\x1b[?2004h\x1b[?1000;1006h\x1b[?25l\x1b=\x1b[>1u\x1b[1;31mred");
        tracker.watch(b"\x1b[?1000l\x1b[?12h\x1b]0;title\x07");
        let want = "\u{1b}[<1u\u{1b}[?1049l\u{1b}[?2004l\u{1b}[?1006l\u{1b}[?25h\u{1b}>\u{1b}[0m";
        assert_eq!(String::from_utf8(tracker.undo()).expect("ASCII"), want);
    }

    #[test]
    fn a_program_that_tidied_up_leaves_nothing_to_undo_even_byte_by_byte() {
        let mut tracker = Tracker::default();
        let output = b"\x1b[?1049h\x1b[?25l\x1b[>1u\x1b[32mhi\x1b[0m\x1b[<u\x1b[?25h\x1b[?1049l";
        output.iter().for_each(|b| tracker.watch(&[*b]));
        assert_eq!(tracker.undo(), b"");
    }

    #[test]
    fn endless_sequences_are_given_up() {
        let mut tracker = Tracker::default();
        tracker.watch(b"\x1b[");
        tracker.watch(&vec![b'1'; 1 << 20]);
        assert!(tracker.sequence.capacity() < 1024);
        tracker.watch(b"\x1b[?25l");
        assert_eq!(tracker.undo(), b"\x1b[?25h");
    }
}
