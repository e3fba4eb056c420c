//! JSON texts one after the other: a line each, glued together, or spread over many lines.

use bytes::{Buf, BytesMut};

use super::answer::{self, PARSE_ERROR};
use super::envelope::NO_ID;
use super::scan::{Scan, Scanner};
use super::stream::{Codec, Next};
use crate::proto::version::MAX_MESSAGE_BYTES;

/// Splits a stream into texts, and finds its way back after garbage.
#[derive(Debug)]
pub(super) struct JsonTexts {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before a text.
    Between,
    /// In an object or an array.
    Value(Scanner),
    /// In a line that is neither, of which this many bytes hold no newline.
    Line(usize),
    /// In the rest of a line that was answered already, or is passed over like its neighbours.
    Skip { resync: bool },
    /// Behind a text that broke on a later line than its first: its other lines are passed over.
    Resync,
}

impl JsonTexts {
    pub(super) fn new() -> Self {
        Self { state: State::Between }
    }
}

impl Codec for JsonTexts {
    fn next(&mut self, buffer: &mut BytesMut, ended: bool) -> Next {
        loop {
            match &mut self.state {
                State::Between => {
                    skip_blank(buffer, ended);
                    self.state = match buffer.first() {
                        None => return Next::More,
                        // A byte order mark that has not come as a whole.
                        Some(0xef) if buffer.len() < BOM.len() && !ended => return Next::More,
                        Some(b'{' | b'[') => State::Value(Scanner::new()),
                        Some(_) => State::Line(0),
                    };
                }
                State::Value(scanner) => match scanner.feed(buffer) {
                    Scan::Complete(end) => {
                        self.state = State::Between;
                        return whole(buffer, end);
                    }
                    Scan::Broken(at) => {
                        self.state = give_up(buffer, at);
                        return bad("Parse error: this is not JSON");
                    }
                    Scan::More if ended => {
                        buffer.clear();
                        self.state = State::Between;
                        return bad("Parse error: the stream ended in the middle of a text");
                    }
                    Scan::More => return need_more(buffer),
                },
                State::Line(seen) => {
                    let Some(end) = newline(buffer, *seen).or(ended.then_some(buffer.len())) else {
                        *seen = buffer.len();
                        return need_more(buffer);
                    };
                    self.state = State::Between;
                    return whole(buffer, end);
                }
                State::Skip { resync } => {
                    let Some(end) = newline(buffer, 0) else {
                        buffer.clear();
                        return Next::More;
                    };
                    buffer.advance(end + 1);
                    self.state = if *resync { State::Resync } else { State::Between };
                }
                State::Resync => {
                    skip_blank(buffer, ended);
                    match buffer.first() {
                        None => return Next::More,
                        Some(0xef) if buffer.len() < BOM.len() && !ended => return Next::More,
                        Some(b'{' | b'[') => self.state = State::Between,
                        Some(_) => self.state = State::Skip { resync: true },
                    }
                }
            }
        }
    }

    fn frame(&self, answer: &[u8], out: &mut BytesMut) {
        out.reserve(answer.len() + 1);
        out.extend_from_slice(answer);
        out.extend_from_slice(b"\n");
    }
}

/// Some programs put it in front of every text that they write.
const BOM: &[u8] = b"\xef\xbb\xbf";

fn skip_blank(buffer: &mut BytesMut, ended: bool) {
    loop {
        let blank = buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
        buffer.advance(blank);
        if buffer.starts_with(BOM) || (ended && !buffer.is_empty() && BOM.starts_with(buffer)) {
            buffer.advance(BOM.len().min(buffer.len()));
        } else {
            return;
        }
    }
}

fn whole(buffer: &mut BytesMut, end: usize) -> Next {
    if end > MAX_MESSAGE_BYTES { too_long(end) } else { Next::Text(buffer.split_to(end)) }
}

fn need_more(buffer: &BytesMut) -> Next {
    if buffer.len() > MAX_MESSAGE_BYTES { too_long(buffer.len()) } else { Next::More }
}

fn too_long(seen: usize) -> Next {
    Next::Fatal(answer::too_long(seen as u64))
}

fn bad(why: &str) -> Next {
    Next::Bad(answer::plain(NO_ID, PARSE_ERROR, why))
}

/// The text broke at this offset. If that is in a later line than its first, a client that writes a text a line has
/// lost the end of one and gone on: its later lines are looked at afresh.
fn give_up(buffer: &mut BytesMut, at: usize) -> State {
    let line = buffer[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    if line > 0 {
        buffer.advance(line);
        return State::Resync;
    }
    buffer.advance(at);
    State::Skip { resync: false }
}

fn newline(buffer: &[u8], from: usize) -> Option<usize> {
    buffer[from..].iter().position(|byte| *byte == b'\n').map(|at| at + from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a stream that is cut into pieces of this many bytes.
    fn split(stream: &[u8], piece: usize) -> Vec<String> {
        let mut codec = JsonTexts::new();
        let mut buffer = BytesMut::new();
        let mut seen = Vec::new();
        let mut chunks = stream.chunks(piece);
        loop {
            let chunk = chunks.next();
            buffer.extend_from_slice(chunk.unwrap_or_default());
            loop {
                match codec.next(&mut buffer, chunk.is_none()) {
                    Next::More => break,
                    Next::Text(text) => seen.push(String::from_utf8_lossy(&text).into_owned()),
                    Next::Bad(_) => seen.push("BAD".to_owned()),
                    Next::Fatal(_) => return [seen, vec!["FATAL".to_owned()]].concat(),
                }
            }
            if chunk.is_none() {
                return seen;
            }
        }
    }

    #[test]
    fn texts_are_found_however_the_stream_is_cut() {
        let stream = b"\xef\xbb\xbf {\"a\":1}{\"b\":[2]}\r\n\n[3]\n{\n \"c\": \"}\\\"\"\n}\n garbage here\n\xef\xbb\xbf{\"d\":4}";
        let want =
            ["{\"a\":1}", "{\"b\":[2]}", "[3]", "{\n \"c\": \"}\\\"\"\n}", "garbage here", "{\"d\":4}"];
        for piece in 1..=stream.len() {
            assert_eq!(split(stream, piece), want, "pieces of {piece}");
        }
    }

    #[test]
    fn a_broken_line_costs_one_error_and_not_its_neighbours() {
        for (stream, want) in [
            ("{\"a\":]} trailing\n{\"b\":1}\n", vec!["BAD", "{\"b\":1}"]),
            ("{\"a\":\"cut\n{\"b\":1}\n", vec!["BAD", "{\"b\":1}"]),
            ("{\"a\":1,\n{\"b\":1}\n", vec!["BAD", "{\"b\":1}"]),
            ("{\n \"a\": ?,\n \"b\": 1\n}\n{\"c\":1}\n", vec!["BAD", "{\"c\":1}"]),
            ("{\"a\":1}}\n{\"b\":1}", vec!["{\"a\":1}", "}", "{\"b\":1}"]),
            ("{\"a\":", vec!["BAD"]),
            ("nonsense", vec!["nonsense"]),
            ("\n \n", vec![]),
        ] {
            for piece in 1..=stream.len() {
                assert_eq!(split(stream.as_bytes(), piece), want, "{stream:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_text_of_the_limit_passes_and_one_byte_more_does_not() {
        let text = |length: usize| format!("[\"{}\"]", "x".repeat(length - 4));
        assert_eq!(split(text(MAX_MESSAGE_BYTES).as_bytes(), 65_536)[0].len(), MAX_MESSAGE_BYTES);
        assert_eq!(split(text(MAX_MESSAGE_BYTES + 1).as_bytes(), 65_536), ["FATAL"]);
        assert_eq!(split("x".repeat(MAX_MESSAGE_BYTES + 1).as_bytes(), 65_536), ["FATAL"]);
    }
}
