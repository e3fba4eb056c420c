//! The keys that leave an attached terminal.
//!
//! Keys are matched as they come: a key that begins the sequence is held until the next one, every other passes at
//! once. A program in the sandbox may have switched the terminal to longer encodings of keys (`CSI u`); those are
//! understood too, or the keys would stop working just where they are needed.

use std::fmt;
use std::str::FromStr;

/// The keys that leave unless others are given.
pub(crate) const DEFAULT: &str = "ctrl-],d";

/// Most keys of a sequence: nobody types more.
const MAX_KEYS: usize = 16;

/// A sequence of keys; empty is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    keys: Vec<u8>,
    text: String,
}

impl Keys {
    /// Whether there are keys at all.
    pub(crate) fn is_none(&self) -> bool {
        self.keys.is_empty()
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.replace(',', " "))
    }
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self { keys: Vec::new(), text: text.to_owned() });
        }
        let keys: Vec<u8> = text.split(',').map(key).collect::<Result<_, _>>()?;
        if keys.len() > MAX_KEYS {
            return Err(format!("at most {MAX_KEYS} keys"));
        }
        Ok(Self { keys, text: text.to_owned() })
    }
}

fn key(text: &str) -> Result<u8, String> {
    let bad = || {
        format!("{text:?} is not a key: expected a character, or ctrl- and one of a-z @ [ \\ ] ^ _ (or none)")
    };
    match text.as_bytes() {
        [byte @ 0x20..=0x7e] => Ok(*byte),
        [b'c' | b'C', b't' | b'T', b'r' | b'R', b'l' | b'L', b'-', byte] => match byte.to_ascii_lowercase() {
            byte @ b'a'..=b'z' => Ok(byte - b'a' + 1),
            byte @ (b'@' | b'[' | b'\\' | b']' | b'^' | b'_') => Ok(byte - b'@'),
            b'?' => Ok(0x7f),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    }
}

/// What to do with what was typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Send these bytes; there may be none.
    Send(Vec<u8>),
    /// Send these, then leave.
    Leave(Vec<u8>),
}

/// Finds the keys in what is typed, across reads.
#[derive(Debug)]
pub(crate) struct Splitter {
    keys: Vec<u8>,
    matched: usize,
    held: Vec<u8>,
}

impl Splitter {
    /// Looks for these keys.
    pub(crate) fn new(keys: &Keys) -> Self {
        Self { keys: keys.keys.clone(), matched: 0, held: Vec::new() }
    }

    /// Takes what was typed.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Typed {
        let mut send = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let (stroke, length) = stroke(bytes);
            let (taken, rest) = bytes.split_at(length);
            bytes = rest;
            match stroke {
                Stroke::Release if self.matched > 0 => {}
                Stroke::Press(key) if !self.keys.is_empty() => {
                    if self.press(key, taken, &mut send) {
                        return Typed::Leave(send);
                    }
                }
                _ => {
                    self.give_up(&mut send);
                    send.extend_from_slice(taken);
                }
            }
        }
        Typed::Send(send)
    }

    /// What is still held when input ends.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut send = Vec::new();
        self.give_up(&mut send);
        send
    }

    /// Gives whether the sequence is complete.
    fn press(&mut self, key: u8, bytes: &[u8], send: &mut Vec<u8>) -> bool {
        if key == self.keys[self.matched] {
            self.matched += 1;
            self.held.extend_from_slice(bytes);
            return self.matched == self.keys.len();
        }
        // The first key typed twice is sent once.
        if self.matched == 1 && key == self.keys[0] {
            self.give_up(send);
            return false;
        }
        self.give_up(send);
        if key == self.keys[0] {
            self.matched = 1;
            self.held.extend_from_slice(bytes);
        } else {
            send.extend_from_slice(bytes);
        }
        false
    }

    fn give_up(&mut self, send: &mut Vec<u8>) {
        self.matched = 0;
        send.append(&mut self.held);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stroke {
    /// A key that has a byte.
    Press(u8),
    /// Some key was let go, or a modifier moved: only terminals in a longer encoding tell.
    Release,
    /// Anything else.
    Other,
}

/// The first key of some bytes, and how many bytes it takes. A longer encoding is recognised where it comes whole, as
/// terminals send it.
fn stroke(bytes: &[u8]) -> (Stroke, usize) {
    if let [0x1b, b'[', rest @ ..] = bytes
        && let Some(end) = rest.iter().take(32).position(|b| (0x40..=0x7e).contains(b))
    {
        let length = end + 3;
        return match (encoded(&rest[..end], rest[end]), rest[end]) {
            (Some(stroke), _) => (stroke, length),
            (None, _) => (Stroke::Other, length),
        };
    }
    (Stroke::Press(bytes[0]), 1)
}

/// `CSI code ; modifiers : event u`, or `CSI 27 ; modifiers ; code ~`.
fn encoded(params: &[u8], last: u8) -> Option<Stroke> {
    let text = std::str::from_utf8(params).ok()?;
    let mut fields = text.split(';');
    let first = |field: &str| field.split(':').next().and_then(|n| n.parse::<u32>().ok());
    let (code, modifiers) = match last {
        b'u' => (first(fields.next()?)?, fields.next().unwrap_or("1")),
        b'~' => {
            if first(fields.next()?)? != 27 {
                return None;
            }
            let modifiers = fields.next()?;
            (first(fields.next()?)?, modifiers)
        }
        _ => return None,
    };
    let event = modifiers.split(':').nth(1).unwrap_or("1");
    // 57441 to 57454 are the modifier keys themselves.
    if event == "3" || (57_441..=57_454).contains(&code) {
        return Some(Stroke::Release);
    }
    // Caps and num lock do not count.
    let modifiers = (first(modifiers).unwrap_or(1).saturating_sub(1)) & !(64 | 128);
    let byte = u8::try_from(code).ok().filter(u8::is_ascii)?;
    match (modifiers, byte) {
        (0, byte) => Some(Stroke::Press(byte)),
        (4, byte @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')) => {
            Some(Stroke::Press(byte.to_ascii_uppercase() & 0x1f))
        }
        _ => Some(Stroke::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Keys {
        text.parse().expect("keys")
    }

    /// Feeds the pieces; gives what was sent, and whether it left.
    fn feed(keys_text: &str, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut splitter = Splitter::new(&keys(keys_text));
        let mut sent = Vec::new();
        for piece in pieces {
            match splitter.feed(piece) {
                Typed::Send(bytes) => sent.extend(bytes),
                Typed::Leave(bytes) => {
                    sent.extend(bytes);
                    return (sent, true);
                }
            }
        }
        sent.extend(splitter.finish());
        (sent, false)
    }

    #[test]
    fn keys_are_written_as_docker_writes_them() {
        for (text, want) in [
            ("ctrl-],d", vec![0x1d, b'd']),
            ("ctrl-p,ctrl-q", vec![0x10, 0x11]),
            ("ctrl-@", vec![0]),
            ("ctrl-\\,x,Y", vec![0x1c, b'x', b'Y']),
            ("a", vec![b'a']),
            ("none", vec![]),
        ] {
            assert_eq!(keys(text).keys, want, "{text}");
        }
        for text in ["", "ctrl-", "ctrl-1", "ctrl-],", "meta-x", "ab", "é", "None"] {
            assert!(text.parse::<Keys>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_sequence_leaves_wherever_the_reads_cut_it() {
        assert_eq!(feed("ctrl-],d", &[b"ls\x1dd rest"]), (b"ls".to_vec(), true));
        assert_eq!(feed("ctrl-],d", &[b"ls\x1d", b"d"]), (b"ls".to_vec(), true));
        assert_eq!(feed("ctrl-p,ctrl-q", &[b"\x10", b"\x11"]), (Vec::new(), true));
        assert_eq!(feed("a,b,c", &[b"a", b"b", b"c"]), (Vec::new(), true));
        assert_eq!(feed("ctrl-a", &[b"x\x01"]), (b"x".to_vec(), true));
    }

    #[test]
    fn other_keys_pass_at_once_and_a_broken_sequence_is_sent_whole() {
        let mut splitter = Splitter::new(&keys(DEFAULT));
        assert_eq!(splitter.feed(b"\x1b"), Typed::Send(b"\x1b".to_vec()));
        assert_eq!(splitter.feed(b"x"), Typed::Send(b"x".to_vec()));
        assert_eq!(splitter.feed(b"\x1d"), Typed::Send(Vec::new()));
        assert_eq!(splitter.feed(b"x"), Typed::Send(b"\x1dx".to_vec()));
        assert_eq!(feed("a,b,c", &[b"ab", b"x"]), (b"abx".to_vec(), false));
        assert_eq!(feed("a,b,c", &[b"aba", b"bc"]), (b"ab".to_vec(), true));
    }

    #[test]
    fn the_prefix_twice_is_sent_once_and_one_at_the_end_is_not_lost() {
        assert_eq!(feed(DEFAULT, &[b"\x1d\x1dd"]), (b"\x1dd".to_vec(), false));
        assert_eq!(feed(DEFAULT, &[b"\x1d", b"\x1d", b"\x1d", b"d"]), (b"\x1d".to_vec(), true));
        assert_eq!(feed(DEFAULT, &[b"\x1d"]), (b"\x1d".to_vec(), false));
        assert_eq!(feed("ctrl-p,ctrl-p", &[b"\x10\x10"]), (Vec::new(), true));
    }

    #[test]
    fn no_keys_pass_everything() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(feed("none", &[&all]), (all, false));
    }

    #[test]
    fn keys_in_the_longer_encodings_leave_too() {
        assert_eq!(feed(DEFAULT, &[b"\x1b[93;5u", b"d"]), (Vec::new(), true));
        assert_eq!(feed(DEFAULT, &[b"\x1b[93;5u\x1b[93;5:3u", b"\x1b[100u"]), (Vec::new(), true));
        assert_eq!(feed(DEFAULT, &[b"\x1b[27;5;93~", b"\x1b[27;1;100~"]), (Vec::new(), true));
        assert_eq!(feed(DEFAULT, &[b"\x1b[93;69u", b"d"]), (Vec::new(), true));
        assert_eq!(feed(DEFAULT, &[b"\x1b[93;5ux"]), (b"\x1b[93;5ux".to_vec(), false));
        assert_eq!(feed(DEFAULT, &[b"\x1b[A\x1b[1;5C"]), (b"\x1b[A\x1b[1;5C".to_vec(), false));
    }
}
