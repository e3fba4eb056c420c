//! Watches what a program in the sandbox has set in the user's terminal, to undo it when the stream ends before the
//! program does it itself. Only what is set at that moment is undone; the title stays.

/// Longest sequence that is looked at, in bytes, and most of a longer command: what is looked for is far shorter.
const MAX_SEQUENCE_BYTES: usize = 64;

/// Private modes that are off at first: application cursor keys, reverse video, origin, keypad and margin modes, mouse,
/// focus, colour scheme and size reports, alternate screens, bracketed paste, synchronized output, Win32 input.
const OFF_AT_FIRST: [u16; 22] = [
    1, 5, 6, 9, 47, 66, 69, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026,
    2031, 9001,
];

/// In-band size reports, off at first, too. A terminal answers when they are switched on, but not when off.
const SIZE_REPORTS: u16 = 2048;

/// Private modes that are on at first: wrapping at the end of a line, and the cursor.
const ON_AT_FIRST: [u16; 2] = [7, 25];

/// The alternate screens.
const ALTERNATE: [u16; 3] = [47, 1047, 1049];

/// Modes that a soft reset (`CSI ! p`) puts back.
const SOFT: [u16; 6] = [1, 6, 7, 25, 66, 69];

/// Most keyboard option resources that are remembered; there are eight.
const MAX_RESOURCES: usize = 8;

/// What is known of the terminal so far.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    state: State,
    sequence: Vec<u8>,
    set: Set,
    mid_line: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Text,
    Escape,
    Charset,
    Control,
    Command,
}

/// What is not as it was.
#[derive(Debug, Default)]
struct Set {
    /// Private modes that are not as at first, the last one last.
    private: Vec<u16>,
    insert: bool,
    newline: bool,
    keypad: bool,
    /// Of the main and the alternate screen.
    keyboards: [Keyboard; 2],
    /// Resources of xterm's key modifier options.
    key_resources: Vec<u16>,
    styled: bool,
    shape: bool,
    region: bool,
    charset: bool,
    link: bool,
    palette: bool,
    /// Numbers of dynamic colours, from 10 to 19.
    colours: Vec<u16>,
}

/// The kitty keyboard protocol: how many states are stacked, and whether the lowest one has flags.
#[derive(Debug, Default)]
struct Keyboard {
    pushed: usize,
    flags: bool,
}

impl Tracker {
    /// Reads output that goes to the terminal.
    pub(crate) fn watch(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line = !matches!(last, b'\n' | b'\r');
        }
        for byte in bytes {
            self.state = self.next(*byte);
        }
    }

    /// What to send to the terminal so that it is as it was.
    pub(crate) fn undo(&self) -> Vec<u8> {
        self.set.undo().into_bytes()
    }

    /// Whether the next line of ours must begin with a new one.
    pub(crate) fn mid_line(&self) -> bool {
        self.mid_line
    }

    fn next(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Command, 0x07 | 0x1b) => {
                self.set.command(&self.sequence);
                if byte == 0x1b { State::Escape } else { State::Text }
            }
            (_, 0x1b) => State::Escape,
            (State::Text, _) => State::Text,
            (State::Escape, b'[' | b']') => {
                self.sequence.clear();
                if byte == b'[' { State::Control } else { State::Command }
            }
            (State::Escape, b'(') => State::Charset,
            (State::Charset, _) => {
                self.set.charset = byte != b'B';
                State::Text
            }
            (State::Escape, _) => {
                match byte {
                    b'c' => self.set = Set::default(),
                    b'=' | b'>' => self.set.keypad = byte == b'=',
                    _ => {}
                }
                State::Text
            }
            (State::Control, 0x40..=0x7e) => {
                let sequence = std::mem::take(&mut self.sequence);
                self.set.control(&sequence, byte);
                State::Text
            }
            (State::Control | State::Command, _) if self.sequence.len() < MAX_SEQUENCE_BYTES => {
                self.sequence.push(byte);
                self.state
            }
            (State::Control, _) => State::Text,
            (State::Command, _) => State::Command,
        }
    }
}

impl Set {
    fn undo(&self) -> String {
        let mut text = String::new();
        let alternate = self.alternate();
        if let Some(screen) = alternate {
            self.keyboards[1].undo(&mut text);
            if self.region {
                text.push_str("\u{1b}[r");
            }
            text.push_str(&format!("\u{1b}[?{screen}l"));
        }
        self.keyboards[0].undo(&mut text);
        if self.region && alternate.is_none() {
            // It moves the cursor.
            text.push_str("\u{1b}7\u{1b}[r\u{1b}8");
        }
        for mode in self.private.iter().filter(|mode| Some(**mode) != alternate) {
            let back = if ON_AT_FIRST.contains(mode) { 'h' } else { 'l' };
            text.push_str(&format!("\u{1b}[?{mode}{back}"));
        }
        for resource in &self.key_resources {
            text.push_str(&format!("\u{1b}[>{resource}m"));
        }
        for colour in &self.colours {
            text.push_str(&format!("\u{1b}]1{colour}\u{1b}\\"));
        }
        for (is, back) in [
            (self.insert, "\u{1b}[4l"),
            (self.newline, "\u{1b}[20l"),
            (self.keypad, "\u{1b}>"),
            (self.shape, "\u{1b}[0 q"),
            (self.charset, "\u{1b}(B"),
            (self.link, "\u{1b}]8;;\u{1b}\\"),
            (self.palette, "\u{1b}]104\u{1b}\\"),
            (self.styled, "\u{1b}[0m"),
        ] {
            text.push_str(if is { back } else { "" });
        }
        text
    }

    fn alternate(&self) -> Option<u16> {
        self.private.iter().copied().find(|mode| ALTERNATE.contains(mode))
    }

    fn control(&mut self, sequence: &[u8], last: u8) {
        let numbers = |text: &[u8]| -> Vec<u16> {
            text.split(|b| *b == b';').filter_map(|n| std::str::from_utf8(n).ok()?.parse().ok()).collect()
        };
        match (sequence.first(), last) {
            (Some(b'?'), b'h' | b'l') => {
                numbers(&sequence[1..]).into_iter().for_each(|mode| self.private(mode, last == b'h'));
            }
            (Some(b'>' | b'<' | b'='), b'u') => {
                let screen = usize::from(self.alternate().is_some());
                self.keyboards[screen].change(sequence[0], &numbers(&sequence[1..]));
            }
            (Some(b'>'), b'm') => self.key_resource(&numbers(&sequence[1..])),
            (Some(b'!'), b'p') => self.soft_reset(),
            (Some(b'?' | b'>' | b'<' | b'='), _) => {}
            (_, b'h' | b'l') => numbers(sequence).into_iter().for_each(|mode| match mode {
                4 => self.insert = last == b'h',
                20 => self.newline = last == b'h',
                _ => {}
            }),
            (_, b'm') => self.styled = !matches!(sequence, b"" | b"0"),
            (_, b'r') => self.region = !numbers(sequence).is_empty(),
            (_, b'q') if sequence.ends_with(b" ") => self.shape = !matches!(sequence, b" " | b"0 "),
            _ => {}
        }
    }

    fn private(&mut self, mode: u16, on: bool) {
        let at_first = ON_AT_FIRST.contains(&mode);
        if !at_first && !OFF_AT_FIRST.contains(&mode) && mode != SIZE_REPORTS {
            return;
        }
        // The alternate screen is one, whatever it was entered with.
        let same = |known: u16| known == mode || (ALTERNATE.contains(&known) && ALTERNATE.contains(&mode));
        self.private.retain(|known| !same(*known));
        if on != at_first {
            self.private.push(mode);
        }
    }

    fn key_resource(&mut self, numbers: &[u16]) {
        let Some(&resource) = numbers.first() else { return self.key_resources.clear() };
        self.key_resources.retain(|known| *known != resource);
        if numbers.get(1).is_some_and(|value| *value != 0) && self.key_resources.len() < MAX_RESOURCES {
            self.key_resources.push(resource);
        }
    }

    fn soft_reset(&mut self) {
        self.private.retain(|mode| !SOFT.contains(mode));
        self.insert = false;
        self.keypad = false;
        self.styled = false;
        self.region = false;
        self.charset = false;
    }

    fn command(&mut self, command: &[u8]) {
        let mut parts = command.split(|b| *b == b';');
        let number = parts.next().and_then(|n| std::str::from_utf8(n).ok()?.parse::<u16>().ok());
        let sets = |value: &[u8]| value != b"?";
        match number {
            Some(4) => self.palette |= parts.skip(1).step_by(2).any(sets),
            Some(8) => self.link = parts.nth(1).is_some_and(|target| !target.is_empty()),
            Some(104) => self.palette &= parts.next().is_some_and(|index| !index.is_empty()),
            Some(first @ 10..=19) => {
                for (colour, _) in (first..20).zip(parts).filter(|(_, value)| sets(value)) {
                    self.colours.retain(|known| *known != colour);
                    self.colours.push(colour);
                }
            }
            Some(reset @ 110..=119) => self.colours.retain(|known| *known != reset - 100),
            _ => {}
        }
    }
}

impl Keyboard {
    fn change(&mut self, how: u8, numbers: &[u16]) {
        let first = numbers.first().copied();
        match how {
            b'>' => self.pushed += 1,
            b'<' => match self.pushed.checked_sub(first.unwrap_or(1).max(1).into()) {
                Some(left) => self.pushed = left,
                None => *self = Self::default(),
            },
            _ if self.pushed == 0 => match numbers.get(1) {
                None | Some(1) => self.flags = first.unwrap_or(0) != 0,
                Some(2) => self.flags |= first.unwrap_or(0) != 0,
                _ => {}
            },
            _ => {}
        }
    }

    fn undo(&self, text: &mut String) {
        if self.pushed > 0 {
            text.push_str(&format!("\u{1b}[<{}u", self.pushed));
        }
        if self.flags {
            text.push_str("\u{1b}[=0;1u");
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

    #[test]
    fn what_is_set_on_each_screen_is_undone_on_it() {
        let mut tracker = Tracker::default();
        tracker.watch(b"\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[>7u\x1b[2;9r\x1b[>4;2m\x1b[5 q\x1b[?2026h");
        let want = "\u{1b}[<2u\u{1b}[r\u{1b}[?1049l\u{1b}[<1u\u{1b}[?2026l\u{1b}[>4m\u{1b}[0 q";
        assert_eq!(String::from_utf8(tracker.undo()).expect("ASCII"), want);
        tracker.watch(b"\x1b[r\x1b[<2u\x1b[?1049l\x1b[<9u\x1b[>4m\x1b[ q\x1b[?2026l\x1b[!p");
        assert_eq!(tracker.undo(), b"");
    }

    #[test]
    fn colours_links_and_character_sets_are_undone_and_questions_set_nothing() {
        let mut tracker = Tracker::default();
        tracker.watch(b"\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]4;1;?\x07\x1b[?u\x1b[?2026$p\x1b[>c\x1b[6n");
        assert_eq!(tracker.undo(), b"");
        tracker.watch(b"\x1b]8;;http://a\x07\x1b]4;1;red\x1b\\\x1b]11;#000\x07\x1b(0\x1b[4h\x1b[?7l");
        let want = "\u{1b}[?7h\u{1b}]111\u{1b}\\\u{1b}[4l\u{1b}(B\u{1b}]8;;\u{1b}\\\u{1b}]104\u{1b}\\";
        assert_eq!(String::from_utf8(tracker.undo()).expect("ASCII"), want);
        tracker.watch(b"\x1b]8;;\x07\x1b]104\x07\x1b]111\x07\x1b(B\x1b[4l\x1b[?7h");
        assert_eq!(tracker.undo(), b"");
    }
}
