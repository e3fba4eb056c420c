//! Cuts what a program writes into text and whole control sequences, and holds back what is not yet whole.
//!
//! So a screen is never painted from within a sequence or a character, and what is held can follow the painting, for the
//! rest of it to come right. Sequences are delimited as the parser behind the model does it, but for one thing: there, a
//! byte 0x9C ends a device control string, although it is part of characters such as U+2713.

/// Most bytes of an unfinished string (title, link, clipboard, image) that are held; of longer ones only the beginning
/// of the next painting knows, and no model hears of them.
const MAX_STRING_BYTES: usize = 64 * 1024;

/// Most bytes of any other unfinished sequence. Real ones have some tens.
const MAX_SEQUENCE_BYTES: usize = 1024;

/// What is held in place of a command that is too long: one that no terminal knows, so that its rest does nothing.
const LONG_COMMAND: &[u8] = b"\x1b]7777;";

/// The same for the other strings: a privacy message, which all terminals skip.
const LONG_STRING: &[u8] = b"\x1b^";

/// The same for a control sequence: parameters in an order that makes terminals skip it.
const LONG_CONTROL: &[u8] = b"\x1b[0<";

const ESCAPE: u8 = 0x1b;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const BELL: u8 = 0x07;

/// A part of the output that can be acted on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Characters and single control bytes.
    Text(&'a [u8]),
    /// An escape or control sequence, with its `ESC`; cut off where the program broke it off.
    Control(&'a [u8]),
    /// An operating system command, with its `ESC ]` and its end.
    Command(&'a [u8]),
    /// Any other string (DCS, APC, PM, SOS), or a sequence that is too long: nothing that shows.
    Other,
}

/// Where in the output a splitter is.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Ground,
    Character,
    Escape,
    Intermediate,
    Control,
    Command,
    String,
}

/// Cuts output, given in any portions.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    state: State,
    /// The last byte of a string was `ESC`: it ends, or is broken off.
    closing: bool,
    /// It became too long: what is held stands for it.
    long: bool,
    held: Vec<u8>,
}

impl Splitter {
    /// Cuts the next portion.
    pub(super) fn split(&mut self, mut bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        while let Some(&byte) = bytes.first() {
            if self.state == State::Ground {
                bytes = self.text(bytes, &mut each);
            } else if self.take(byte, &mut each) {
                bytes = &bytes[1..];
            }
        }
    }

    /// Returns what is not whole yet, or what stands for it.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Passes on text up to the next sequence, and returns what follows its `ESC`.
    fn text<'a>(&mut self, bytes: &'a [u8], each: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let end = bytes.iter().position(|b| *b == ESCAPE);
        let text = &bytes[..end.unwrap_or(bytes.len())];
        let whole = if end.is_some() { text.len() } else { text.len() - unfinished(text) };
        if whole > 0 {
            each(Piece::Text(&text[..whole]));
        }
        if let Some(end) = end {
            self.begin();
            return &bytes[end + 1..];
        }
        if whole < text.len() {
            self.held.extend_from_slice(&text[whole..]);
            self.state = State::Character;
        }
        &[]
    }

    fn begin(&mut self) {
        self.held.clear();
        self.held.push(ESCAPE);
        self.state = State::Escape;
        self.closing = false;
        self.long = false;
    }

    /// Takes a byte of what is held. False: it belongs to what comes next.
    fn take(&mut self, byte: u8, each: &mut impl FnMut(Piece<'_>)) -> bool {
        match self.state {
            State::Ground => return false,
            State::Character => return self.character(byte, each),
            State::Command | State::String => return self.string(byte, each),
            State::Escape | State::Intermediate | State::Control => {}
        }
        if byte == ESCAPE {
            self.end(each);
            self.begin();
            return true;
        }
        self.hold(byte);
        match (self.state, byte) {
            (_, CANCEL | SUBSTITUTE) => self.end(each),
            (State::Escape, b'[') => self.state = State::Control,
            (State::Escape, b']') => self.state = State::Command,
            (State::Escape, b'P' | b'X' | b'^' | b'_') => self.state = State::String,
            (State::Escape, 0x20..=0x2f) => self.state = State::Intermediate,
            (State::Escape | State::Intermediate, 0x30..=0x7e) | (State::Control, 0x40..=0x7e) => {
                self.end(each)
            }
            _ => {}
        }
        true
    }

    fn character(&mut self, byte: u8, each: &mut impl FnMut(Piece<'_>)) -> bool {
        let continues = byte & 0xc0 == 0x80;
        if continues {
            self.held.push(byte);
        }
        if !continues || unfinished(&self.held) == 0 {
            each(Piece::Text(&self.held));
            self.reset();
        }
        continues
    }

    fn string(&mut self, byte: u8, each: &mut impl FnMut(Piece<'_>)) -> bool {
        if self.closing && byte != b'\\' {
            // Broken off by another sequence, whose beginning is held as its last byte.
            self.held.pop();
            self.end(each);
            self.begin();
            return false;
        }
        if byte == ESCAPE {
            self.closing = true;
            self.held.push(byte);
            return true;
        }
        let bell = byte == BELL && self.state == State::Command;
        let ends = self.closing || bell || matches!(byte, CANCEL | SUBSTITUTE);
        self.hold(byte);
        if ends {
            self.end(each);
        }
        true
    }

    fn hold(&mut self, byte: u8) {
        if self.long {
            return;
        }
        self.held.push(byte);
        let string = matches!(self.state, State::Command | State::String);
        if self.held.len() > if string { MAX_STRING_BYTES } else { MAX_SEQUENCE_BYTES } {
            self.long = true;
            self.held = match self.state {
                State::Command => LONG_COMMAND.to_vec(),
                State::String => LONG_STRING.to_vec(),
                _ => LONG_CONTROL.to_vec(),
            };
        }
    }

    fn end(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        each(match self.state {
            _ if self.long => Piece::Other,
            State::Command => Piece::Command(&self.held),
            State::String => Piece::Other,
            _ => Piece::Control(&self.held),
        });
        self.reset();
    }

    fn reset(&mut self) {
        self.state = State::Ground;
        self.closing = false;
        self.long = false;
        self.held.clear();
        self.held.shrink_to(MAX_SEQUENCE_BYTES);
    }
}

/// Returns how many bytes at the end of a text begin a character and do not finish it.
pub(super) fn unfinished(text: &[u8]) -> usize {
    let tail = &text[text.len().saturating_sub(3)..];
    for (back, byte) in tail.iter().rev().enumerate().map(|(n, byte)| (n + 1, *byte)) {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        let begun = &tail[tail.len() - back..];
        let valid = std::str::from_utf8(begun).is_err_and(|e| e.error_len().is_none());
        return if back < length && valid { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(portions: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let mut splitter = Splitter::default();
        let mut all = Vec::new();
        for portion in portions {
            splitter.split(portion, |piece| {
                all.push(match piece {
                    Piece::Text(text) => format!("text {}", text.escape_ascii()),
                    Piece::Control(text) => format!("control {}", text.escape_ascii()),
                    Piece::Command(text) => format!("command {}", text.escape_ascii()),
                    Piece::Other => "other".to_owned(),
                });
            });
        }
        (all, splitter.held().to_vec())
    }

    #[test]
    fn sequences_come_whole_however_they_are_portioned() {
        let output =
            b"a\x1b[1;2mb\x1b(0\x1b]0;t\x1b\\c\x1b]8;;\x07\x1bP+q\xe2\x9c\x93\x1b\\d\x1b[1\x1b7\xe5\xa5\xbd";
        let want = [
            "text a",
            "control \\x1b[1;2m",
            "text b",
            "control \\x1b(0",
            "command \\x1b]0;t\\x1b\\\\",
            "text c",
            "command \\x1b]8;;\\x07",
            "other",
            "text d",
            "control \\x1b[1",
            "control \\x1b7",
            "text \\xe5\\xa5\\xbd",
        ];
        assert_eq!(pieces(&[output]), (want.map(str::to_owned).to_vec(), vec![]));
        let bytes: Vec<&[u8]> = output.chunks(1).collect();
        assert_eq!(pieces(&bytes), (want.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn what_is_not_whole_is_held() {
        assert_eq!(pieces(&[b"a\x1b[3"]), (vec!["text a".to_owned()], b"\x1b[3".to_vec()));
        assert_eq!(pieces(&[b"a\xf0\x9f\x98"]), (vec!["text a".to_owned()], b"\xf0\x9f\x98".to_vec()));
        assert_eq!(pieces(&[b"\x1b]0;t\x1b"]), (vec![], b"\x1b]0;t\x1b".to_vec()));
        let (all, held) = pieces(&[b"\xf0\x9f", b"x"]);
        assert_eq!((all.len(), held.len()), (2, 0), "a character that is broken off is not waited for");
    }

    #[test]
    fn a_string_broken_off_by_a_sequence_is_followed_by_it() {
        let (all, held) = pieces(&[b"\x1b]0;t\x1b[1mx"]);
        assert_eq!(all, ["command \\x1b]0;t", "control \\x1b[1m", "text x"]);
        assert!(held.is_empty());
    }

    #[test]
    fn endless_sequences_cost_no_memory_and_their_rest_is_skipped() {
        for (begin, stands, end) in [
            (&b"\x1b]52;c;"[..], LONG_COMMAND, &b"\x07"[..]),
            (b"\x1bPq", LONG_STRING, b"\x1b\\"),
            (b"\x1b[", LONG_CONTROL, b"m"),
        ] {
            let mut splitter = Splitter::default();
            splitter.split(begin, |_| {});
            splitter.split(&vec![b'1'; 1 << 20], |piece| panic!("{piece:?}"));
            assert_eq!(splitter.held(), stands);
            let mut all = Vec::new();
            splitter.split(end, |piece| all.push(piece == Piece::Other));
            assert_eq!(all, [true]);
            assert!(splitter.held.capacity() <= MAX_SEQUENCE_BYTES && splitter.held().is_empty());
        }
    }
}
