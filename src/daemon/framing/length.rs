//! The base protocol of language servers: a block of headers, of which only the length counts, and a JSON text.

use bytes::{Buf, BytesMut};

use super::answer::{self, PARSE_ERROR};
use super::envelope::NO_ID;
use super::stream::{Codec, Next};
use crate::proto::version::MAX_MESSAGE_BYTES;

/// Longest block of headers, in bytes. Past it the connection closes: no client sends more than two short lines.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// Splits a stream by the lengths that its headers tell.
#[derive(Debug)]
pub(super) struct LengthPrefixed {
    /// Length of the body that comes next, once its headers were read.
    body: Option<usize>,
    /// This many bytes of the headers hold no end of the block.
    seen: usize,
}

impl LengthPrefixed {
    pub(super) fn new() -> Self {
        Self { body: None, seen: 0 }
    }

    fn headers(&mut self, buffer: &mut BytesMut, ended: bool) -> Result<Option<usize>, Next> {
        if self.seen == 0 {
            let blank = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            buffer.advance(blank);
        }
        let Some(end) = end_of_headers(buffer, self.seen.saturating_sub(3)) else {
            if buffer.len() > MAX_HEADER_BYTES {
                return Err(fatal(&format!("the headers are longer than {MAX_HEADER_BYTES} bytes")));
            }
            if ended && !buffer.is_empty() {
                buffer.clear();
                return Err(fatal("the stream ended in the middle of the headers"));
            }
            self.seen = buffer.len();
            return Ok(None);
        };
        self.seen = 0;
        let block = buffer.split_to(end);
        if block.len() > MAX_HEADER_BYTES {
            return Err(fatal(&format!("the headers are longer than {MAX_HEADER_BYTES} bytes")));
        }
        content_length(&block).map(Some)
    }
}

impl Codec for LengthPrefixed {
    fn next(&mut self, buffer: &mut BytesMut, ended: bool) -> Next {
        let length = match self.body {
            Some(length) => length,
            None => match self.headers(buffer, ended) {
                Ok(Some(length)) => *self.body.insert(length),
                Ok(None) => return Next::More,
                Err(next) => return next,
            },
        };
        if buffer.len() >= length {
            self.body = None;
            return Next::Text(buffer.split_to(length));
        }
        if ended {
            buffer.clear();
            self.body = None;
            return fatal("the stream ended in the middle of a message");
        }
        Next::More
    }

    fn frame(&self, answer: &[u8], out: &mut BytesMut) {
        out.reserve(answer.len() + 32);
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(answer.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(answer);
    }
}

fn end_of_headers(buffer: &[u8], from: usize) -> Option<usize> {
    (from..buffer.len()).find_map(|at| match &buffer[at..] {
        [b'\n', b'\n', ..] => Some(at + 2),
        [b'\n', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn content_length(block: &[u8]) -> Result<usize, Next> {
    let mut found: Option<&[u8]> = None;
    for line in block.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(fatal("a header has no colon"));
        };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length")
            && found.replace(value).is_some_and(|old| old != value)
        {
            return Err(fatal("two different lengths"));
        }
    }
    let value = found.ok_or_else(|| fatal("no Content-Length"))?;
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(fatal("Content-Length is not a number"));
    }
    let length =
        value.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    match usize::try_from(length) {
        Ok(length) if length <= MAX_MESSAGE_BYTES => Ok(length),
        _ => Err(Next::Fatal(answer::too_long(length))),
    }
}

fn fatal(why: &str) -> Next {
    Next::Fatal(answer::plain(NO_ID, PARSE_ERROR, &format!("Parse error: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(stream: &str, piece: usize) -> Vec<String> {
        let mut codec = LengthPrefixed::new();
        let mut buffer = BytesMut::new();
        let mut seen = Vec::new();
        for chunk in stream.as_bytes().chunks(piece) {
            buffer.extend_from_slice(chunk);
            loop {
                match codec.next(&mut buffer, false) {
                    Next::More => break,
                    Next::Text(text) => seen.push(String::from_utf8_lossy(&text).into_owned()),
                    Next::Bad(error) | Next::Fatal(error) => {
                        seen.push(String::from_utf8_lossy(&error).into_owned());
                        return seen;
                    }
                }
            }
        }
        seen
    }

    #[test]
    fn headers_may_come_in_any_order_and_case_and_with_bare_newlines() {
        let stream = "Content-Length: 2\r\n\r\n{}content-type: x; charset=utf-8\r\nCONTENT-LENGTH:3\r\nX-A: b\r\n\r\n[1]Content-Length: 0\n\nContent-Length:  2 \n\n{}";
        for piece in 1..=stream.len() {
            assert_eq!(split(stream, piece), ["{}", "[1]", "", "{}"], "pieces of {piece}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_meant_ends_the_connection() {
        for (header, word) in [
            ("Content-Type: x", "no Content-Length"),
            ("Content-Length: -1", "not a number"),
            ("Content-Length: +1", "not a number"),
            ("Content-Length: 1e3", "not a number"),
            ("Content-Length:", "not a number"),
            ("Content-Length: 1\r\nContent-Length: 2", "two different"),
            ("Content-Length", "no colon"),
            ("Content-Length: 8388609", "over the limit of 8388608"),
            ("Content-Length: 99999999999999999999999999", "over the limit of 8388608"),
        ] {
            let answers = split(&format!("{header}\r\n\r\n"), 7);
            assert!(answers.len() == 1 && answers[0].contains(word), "{header}: {answers:?}");
        }
        let endless = format!("Content-Length: 1\r\nX: {}", "x".repeat(MAX_HEADER_BYTES));
        assert!(split(&endless, 1000)[0].contains("headers are longer"));
    }
}
