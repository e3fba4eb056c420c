//! Where one JSON text ends in a stream of bytes.

/// Follows the grammar just far enough to see, at the first possible byte, that a text ends or cannot go on. What
/// numbers and words mean is left to the parser.
#[derive(Debug)]
pub(super) struct Scanner {
    /// Where to go on.
    position: usize,
    lexeme: Lexeme,
    expect: Expect,
    /// One bit per open container: set for an object.
    open: Vec<u64>,
    depth: usize,
}

/// What the bytes seen so far are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The beginning of a text.
    More,
    /// A text that ends before this offset.
    Complete(usize),
    /// No text can go on like this: the byte at this offset does not belong.
    Broken(usize),
}

#[derive(Debug, Clone, Copy)]
enum Lexeme {
    Structure,
    Text { key: bool, escaped: bool },
    Word,
}

#[derive(Debug, Clone, Copy)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self { position: 0, lexeme: Lexeme::Structure, expect: Expect::Value, open: Vec::new(), depth: 0 }
    }

    /// Goes on where the last call ended; `bytes` begin with the text's first byte and may have grown since.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Scan {
        while let Some(&byte) = bytes.get(self.position) {
            match self.lexeme {
                Lexeme::Text { key, escaped: true } => self.lexeme = Lexeme::Text { key, escaped: false },
                Lexeme::Text { key, escaped: false } => match byte {
                    b'"' => {
                        self.lexeme = Lexeme::Structure;
                        self.expect = if key { Expect::Colon } else { Expect::CommaOrEnd };
                    }
                    b'\\' => self.lexeme = Lexeme::Text { key, escaped: true },
                    0..=0x1f => return Scan::Broken(self.position),
                    _ => {}
                },
                Lexeme::Word if is_word(byte) => {}
                Lexeme::Word => {
                    self.lexeme = Lexeme::Structure;
                    self.expect = Expect::CommaOrEnd;
                    continue;
                }
                Lexeme::Structure if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') => {}
                Lexeme::Structure => {
                    if !self.structure(byte) {
                        return Scan::Broken(self.position);
                    }
                    if self.depth == 0 {
                        return Scan::Complete(self.position + 1);
                    }
                }
            }
            self.position += 1;
        }
        Scan::More
    }

    fn structure(&mut self, byte: u8) -> bool {
        use Expect::{Colon, CommaOrEnd, Key, KeyOrEnd, Value, ValueOrEnd};
        match (self.expect, byte) {
            (Value | ValueOrEnd, b'{') => self.push(true),
            (Value | ValueOrEnd, b'[') => self.push(false),
            (Value | ValueOrEnd, b'"') => self.lexeme = Lexeme::Text { key: false, escaped: false },
            (Value | ValueOrEnd, _) if is_word(byte) => self.lexeme = Lexeme::Word,
            (Key | KeyOrEnd, b'"') => self.lexeme = Lexeme::Text { key: true, escaped: false },
            (Colon, b':') => self.expect = Value,
            (CommaOrEnd, b',') => self.expect = if self.in_object() { Key } else { Value },
            (KeyOrEnd, b'}') | (ValueOrEnd, b']') => self.pop(),
            (CommaOrEnd, b'}') if self.in_object() => self.pop(),
            (CommaOrEnd, b']') if !self.in_object() => self.pop(),
            _ => return false,
        }
        true
    }

    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.open.len() {
            self.open.push(0);
        }
        self.open[word] = self.open[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
        self.expect = if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.expect = Expect::CommaOrEnd;
    }

    fn in_object(&self) -> bool {
        let top = self.depth.saturating_sub(1);
        self.open[top / 64] >> (top % 64) & 1 == 1
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a text a byte at a time, as the slowest client does.
    fn slowly(text: &str) -> Scan {
        let mut scanner = Scanner::new();
        for end in 1..=text.len() {
            match scanner.feed(&text.as_bytes()[..end]) {
                Scan::More => {}
                done => return done,
            }
        }
        Scan::More
    }

    #[test]
    fn a_text_ends_where_its_first_bracket_closes() {
        for text in [
            "{}",
            "[]",
            r#"{"a":"}]\"\\"}"#,
            r#"[{"a":[1,-2.5e+3,true,null]},"x"]"#,
            "{ \"a\" :\n\t[ ] ,\r\n \"b\" : { } }",
        ] {
            assert_eq!(slowly(text), Scan::Complete(text.len()), "{text}");
            let glued = format!("{text}{{\"next\"");
            assert_eq!(Scanner::new().feed(glued.as_bytes()), Scan::Complete(text.len()), "{glued}");
        }
    }

    #[test]
    fn what_cannot_go_on_is_seen_at_its_first_byte() {
        for (text, at) in [
            ("{]", 1),
            ("[}", 1),
            ("{\"a\",", 4),
            ("{\"a\":}", 5),
            ("[1 2", 3),
            ("{\"a\":1,\n{", 8),
            ("[\"a\nb\"]", 3),
            ("{a", 1),
            ("[,", 1),
            ("[1,]", 3),
        ] {
            assert_eq!(slowly(text), Scan::Broken(at), "{text}");
        }
    }

    #[test]
    fn a_million_open_brackets_are_only_the_beginning_of_a_text() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(Scanner::new().feed(deep.as_bytes()), Scan::More);
        let whole = format!("{deep}{}", "]".repeat(1_000_000));
        assert_eq!(Scanner::new().feed(whole.as_bytes()), Scan::Complete(whole.len()));
    }
}
