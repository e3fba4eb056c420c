//! Bytes of commands and files in a result: as many of them as fit, measured as JSON has them, and what says where the rest
//! is.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::bound::fitting;
use crate::proto::files::Encoding;

/// Most of one stream of a command, in bytes of JSON: both together fit into a result.
const STREAM_BYTES: usize = 24 * 1024;

/// How much of them is the beginning; the end says how it went.
const HEAD_BYTES: usize = 6 * 1024;

/// Room for the line that stands where something is missing.
const GAP_BYTES: usize = 96;

/// Most of a part of a file, in bytes of JSON: what is asked for at once comes whole where it is base64, or usual text.
const PART_BYTES: usize = 48 * 1024;

/// The field that says where to read on in a file.
pub(super) const OFFSET_NEXT: &str = "offset_next";

/// Beginning and end of a stream of any length. No byte is less than one of JSON, so more than this is never given.
#[derive(Default)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes that have come.
    pub(super) total: usize,
}

/// The streams of a command, as a result has them.
pub(super) struct Streams {
    /// How both are written.
    pub(super) encoding: Encoding,
    /// The streams; a line stands where something is missing.
    pub(super) texts: [String; 2],
    /// Whether something is.
    pub(super) truncated: bool,
}

/// What is given of a stream.
struct Given {
    head: Vec<u8>,
    /// Nothing where nothing is missing.
    tail: Vec<u8>,
    missing: usize,
}

impl Kept {
    /// Takes more of it.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(first);
        const MOST: usize = STREAM_BYTES - HEAD_BYTES;
        let rest = &rest[rest.len().saturating_sub(MOST)..];
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(MOST));
    }

    fn given(self) -> Given {
        let Self { mut head, tail, total } = self;
        let mut tail = Vec::from(tail);
        if head.len() + tail.len() == total {
            head.append(&mut tail);
        } else {
            // A cut may go through a character; the pieces of it are left out.
            if let Err(error) = std::str::from_utf8(&head)
                && error.error_len().is_none()
            {
                head.truncate(error.valid_up_to());
            }
            let pieces = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            tail.drain(..pieces);
        }
        Given { missing: total - head.len() - tail.len(), head, tail }
    }
}

/// Writes both streams as text, or both in base64 if one is no text.
pub(super) fn write(streams: [Kept; 2]) -> Streams {
    let streams = streams.map(Kept::given);
    let encoding = if streams.iter().all(Given::is_text) { Encoding::Utf8 } else { Encoding::Base64 };
    let streams = streams.map(|given| given.cut(encoding));
    let truncated = streams.iter().any(|given| given.missing > 0);
    let texts = streams.map(|given| match encoding {
        Encoding::Utf8 => String::from_utf8_lossy(&given.into_bytes()).into_owned(),
        Encoding::Base64 => STANDARD.encode(given.into_bytes()),
    });
    Streams { encoding, texts, truncated }
}

impl Given {
    fn is_text(&self) -> bool {
        [&self.head, &self.tail].iter().all(|bytes| std::str::from_utf8(bytes).is_ok())
    }

    fn cut(mut self, encoding: Encoding) -> Self {
        if self.missing == 0 && beginning(&self.head, encoding, STREAM_BYTES) == self.head.len() {
            return self;
        }
        let total = self.head.len() + self.missing + self.tail.len();
        let rest = self.head.split_off(beginning(&self.head, encoding, HEAD_BYTES));
        if self.missing == 0 {
            self.tail = rest;
        }
        let end = end(&self.tail, encoding, STREAM_BYTES - HEAD_BYTES - GAP_BYTES);
        self.tail.drain(..self.tail.len() - end);
        self.missing = total - self.head.len() - self.tail.len();
        self
    }

    fn into_bytes(self) -> Vec<u8> {
        if self.missing == 0 {
            return self.head;
        }
        let gap = format!("\n[{} bytes are left out here]\n", self.missing);
        [self.head, gap.into_bytes(), self.tail].concat()
    }
}

/// How many bytes of the beginning fit into `room` bytes of JSON.
fn beginning(bytes: &[u8], encoding: Encoding, room: usize) -> usize {
    match encoding {
        Encoding::Utf8 => fitting(text(bytes).chars(), room),
        Encoding::Base64 => bytes.len().min(room / 4 * 3),
    }
}

/// How many bytes of the end do.
fn end(bytes: &[u8], encoding: Encoding, room: usize) -> usize {
    match encoding {
        Encoding::Utf8 => fitting(text(bytes).chars().rev(), room),
        Encoding::Base64 => bytes.len().min(room / 4 * 3),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes)
        .expect("what is written as text was found to be text, and is cut between characters")
}

/// Cuts a result of `exec.logs`, so that it still tells where to ask on.
pub(super) fn cut_logs(result: &mut Map<String, Value>) {
    for stream in ["stdout", "stderr"] {
        let Some((given, true)) = cut(result, stream, STREAM_BYTES) else { continue };
        let from = result.get(&format!("{stream}_from")).and_then(Value::as_u64).unwrap_or_default();
        result.insert(format!("{stream}_next"), json!(from + given));
        result.insert("ended".to_owned(), json!(false));
    }
}

/// Cuts a result of `file.read` from this offset, and says where the next part begins.
pub(super) fn cut_file(result: &mut Map<String, Value>, offset: u64) {
    let Some((given, is_cut)) = cut(result, "content", PART_BYTES) else { return };
    result.insert(OFFSET_NEXT.to_owned(), json!(offset + given));
    if is_cut {
        result.insert("truncated".to_owned(), json!(true));
    }
}

/// Cuts a text to what fits into `room` bytes of JSON. Gives how many bytes it stands for now, and whether that is less than
/// it was.
fn cut(result: &mut Map<String, Value>, field: &str, room: usize) -> Option<(u64, bool)> {
    let is_base64 = result.get("encoding").is_some_and(|encoding| *encoding == json!(Encoding::Base64));
    let Some(Value::String(text)) = result.get_mut(field) else { return None };
    let before = text.len();
    let given = if is_base64 {
        // Four characters are three bytes.
        text.truncate(room / 4 * 4);
        text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
    } else {
        text.truncate(fitting(text.chars(), room));
        text.len()
    };
    Some((given as u64, text.len() < before))
}

#[cfg(test)]
mod tests {
    use super::super::bound::{LEFT_OUT, RESULT_BYTES, fit};
    use super::*;

    fn written(streams: [&[&[u8]]; 2]) -> Streams {
        write(streams.map(|chunks| {
            let mut kept = Kept::default();
            chunks.iter().for_each(|chunk| kept.push(chunk));
            kept
        }))
    }

    /// A stream as it is given beside an empty one.
    fn alone(chunks: &[&[u8]]) -> (String, bool) {
        let Streams { texts: [text, _], truncated, .. } = written([chunks, &[]]);
        (text, truncated)
    }

    fn as_json(text: &str) -> usize {
        json!(text).to_string().len() - 2
    }

    #[test]
    fn what_is_short_is_given_whole_and_of_what_is_long_both_ends_are() {
        assert_eq!(alone(&[b"one\n", b"two\n"]), ("one\ntwo\n".to_owned(), false));
        let whole = "x".repeat(STREAM_BYTES);
        assert_eq!(alone(&[whole.as_bytes()]), (whole, false));
        let (text, truncated) = alone(&[b"begin", &vec![b'x'; 10 * STREAM_BYTES], b"end"]);
        assert!(truncated && text.starts_with("beginx") && text.ends_with("xend"));
        assert!(text.len() > STREAM_BYTES - 100 && text.len() <= STREAM_BYTES, "{}", text.len());
        let letters = "ü".repeat(STREAM_BYTES);
        let (text, _) = alone(&[b"a", letters.as_bytes(), b"a"]);
        assert!(text.starts_with("aü") && text.ends_with("üa"), "a character was cut through");
    }

    #[test]
    fn both_ends_of_both_streams_are_given_however_long_json_writes_them() {
        for filler in [b"\0".as_slice(), b"y\n", b"\"\\", "ü\u{1b}".as_bytes(), b"\xff\0"] {
            for count in [5_000, 100_000] {
                let long = [b"begin".as_slice(), &filler.repeat(count), b"end"].concat();
                let Streams { encoding, texts, truncated } = written([&[&long], &[&long]]);
                assert_eq!(encoding == Encoding::Base64, filler[0] == 0xff, "{filler:?}");
                let mut missing = None;
                for text in &texts {
                    assert!(as_json(text) <= STREAM_BYTES, "{filler:?}: {}", as_json(text));
                    let bytes = match encoding {
                        Encoding::Utf8 => text.clone().into_bytes(),
                        Encoding::Base64 => STANDARD.decode(text).expect("base64"),
                    };
                    assert!(bytes.starts_with(b"begin") && bytes.ends_with(b"end"), "{filler:?}");
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let gap = text.split_once("\n[").and_then(|(_, rest)| rest.split_once(" bytes are left"));
                    missing = gap.map(|(count, _)| count.parse::<usize>().expect("a number"));
                    let line =
                        missing.map_or(0, |count| format!("\n[{count} bytes are left out here]\n").len());
                    assert_eq!(bytes.len() - line + missing.unwrap_or(0), long.len(), "{filler:?}");
                }
                assert_eq!(truncated, missing.is_some());
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told_from_text_and_come_back_as_they_were() {
        let Streams { encoding, texts, truncated } = written([&[b"a\xffb"], &[b"words"]]);
        assert_eq!((encoding, truncated), (Encoding::Base64, false));
        assert_eq!(
            texts.map(|text| STANDARD.decode(text).expect("base64")),
            [b"a\xffb".to_vec(), b"words".to_vec()]
        );
        assert_eq!(written([&["é".as_bytes()], &[]]).encoding, Encoding::Utf8);
    }

    /// What must come through when somebody reads on from where the last answer said.
    fn contents() -> [Vec<u8>; 6] {
        [
            b"y\n".repeat(30_000),
            vec![0; 20_000],
            b"\"\\\x1b".repeat(20_000),
            format!("a{}", "ü\u{1f600}".repeat(20_000)).into_bytes(),
            b"t\0e\0x\0t\0".repeat(10_000),
            b"\xff\xfet\0".repeat(20_001),
        ]
    }

    /// Bytes as the daemon writes them, and back.
    fn encode(bytes: &[u8]) -> (Value, Encoding) {
        match std::str::from_utf8(bytes) {
            Ok(text) => (json!(text), Encoding::Utf8),
            Err(_) => (json!(STANDARD.encode(bytes)), Encoding::Base64),
        }
    }

    fn decode(result: &Map<String, Value>, field: &str) -> Vec<u8> {
        let text = result[field].as_str().expect("text");
        if result["encoding"] == "base64" { STANDARD.decode(text).expect("base64") } else { text.into() }
    }

    #[test]
    fn whoever_asks_for_logs_from_where_the_last_ended_misses_nothing() {
        for content in contents() {
            let (mut out, mut err, mut rounds) = (Vec::new(), Vec::new(), 0);
            loop {
                let ((stdout, encoding), (stderr, _)) =
                    (encode(&content[out.len()..]), encode(&content[err.len()..]));
                let mut result = json!({"stdout": stdout, "stderr": stderr, "encoding": encoding,
                    "stdout_from": out.len(), "stderr_from": err.len(),
                    "stdout_next": content.len(), "stderr_next": content.len(), "ended": true});
                let map = result.as_object_mut().expect("an object");
                cut_logs(map);
                fit(map);
                assert!(!map.contains_key(LEFT_OUT), "{}", map[LEFT_OUT]);
                out.append(&mut decode(map, "stdout"));
                err.append(&mut decode(map, "stderr"));
                assert_eq!(
                    (&map["stdout_next"], &map["stderr_next"]),
                    (&json!(out.len()), &json!(err.len()))
                );
                rounds += 1;
                assert!(rounds < 100, "it does not get on");
                if map["ended"] == true {
                    break;
                }
            }
            assert!(out == content && err == content && rounds > 1, "{rounds}");
        }
    }

    #[test]
    fn whoever_reads_a_file_from_where_the_last_part_ended_misses_nothing() {
        for content in contents() {
            let (mut read, mut rounds) = (Vec::new(), 0);
            loop {
                let mut end = content.len().min(read.len() + 32 * 1024);
                while std::str::from_utf8(&content).is_ok_and(|text| !text.is_char_boundary(end)) {
                    end -= 1;
                }
                let (text, encoding) = encode(&content[read.len()..end]);
                let mut result = json!({"content": text, "encoding": encoding, "size_bytes": content.len(),
                    "truncated": end < content.len()});
                let map = result.as_object_mut().expect("an object");
                cut_file(map, read.len() as u64);
                fit(map);
                assert!(!map.contains_key(LEFT_OUT) && result.to_string().len() <= RESULT_BYTES);
                let map = result.as_object().expect("an object");
                read.append(&mut decode(map, "content"));
                assert_eq!(map[OFFSET_NEXT], json!(read.len()));
                rounds += 1;
                assert!(rounds < 100, "it does not get on");
                if map["truncated"] == false {
                    break;
                }
            }
            assert!(read == content && rounds > 1, "{rounds}");
        }
    }
}
