//! What a fuzzer gives bytes to: whatever a connection says first, and how messages are told apart behind it.

use bytes::BytesMut;

use super::classify::{decide, skip_blank};
use super::envelope::{self, Entry, Message};
use super::json::JsonTexts;
use super::length::LengthPrefixed;
use super::stream::{Codec, Next};
use crate::fuzzing::{number, pieces};

/// JSON texts: the same ones however the stream is cut.
pub(crate) fn json_texts(data: &[u8]) {
    cut(JsonTexts::new, data);
}

/// Messages behind headers: the same ones however the stream is cut.
pub(crate) fn lengths(data: &[u8]) {
    cut(LengthPrefixed::new, data);
}

/// What is spoken: the same whether the first bytes come at once or one at a time.
pub(crate) fn first_bytes(data: &[u8]) {
    let mut all = BytesMut::from(data);
    skip_blank(&mut all);
    let mut buffer = BytesMut::new();
    let slowly = data.iter().find_map(|byte| {
        buffer.extend_from_slice(&[*byte]);
        skip_blank(&mut buffer);
        decide(&buffer)
    });
    assert_eq!(slowly, decide(&all));
}

/// One message: the parts of each call are JSON themselves, and its params are one object or refused.
pub(crate) fn envelope(data: &[u8]) {
    let entries = match envelope::parse(data) {
        Message::One(entry) => vec![entry],
        Message::Batch(entries) => entries,
        Message::Bad { why, .. } => return assert!(!why.is_empty()),
    };
    assert!(!entries.is_empty() && entries.len() <= envelope::MAX_BATCH);
    for entry in entries {
        let id = match entry {
            Entry::Invalid { id, .. } => Some(id),
            Entry::Call(call) => {
                if let Ok(params) = envelope::by_name(call.params) {
                    assert!(params.starts_with('{') && params.ends_with('}'), "{params:?}");
                }
                call.id
            }
        };
        let first = id.and_then(|id| id.bytes().next()).unwrap_or(b'n');
        assert!(matches!(first, b'n' | b'"' | b'-' | b'0'..=b'9'), "{id:?} comes back as an id");
    }
}

/// What comes of a stream.
#[derive(Debug, PartialEq)]
enum Seen {
    Text(BytesMut),
    Bad,
    Fatal,
}

fn cut<C: Codec>(codec: impl Fn() -> C, mut data: &[u8]) {
    let length = number(&mut data);
    let whole = seen(codec(), std::iter::once(data));
    let in_pieces = seen(codec(), pieces(data, length));
    assert_eq!(in_pieces, whole, "in pieces of {length} and one");
}

fn seen<'d>(mut codec: impl Codec, pieces: impl Iterator<Item = &'d [u8]>) -> Vec<Seen> {
    let (mut buffer, mut all) = (BytesMut::new(), Vec::new());
    let pieces = pieces.map(|piece| (piece, false)).chain([(&[][..], true)]);
    for (piece, ended) in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match codec.next(&mut buffer, ended) {
                Next::More => break,
                Next::Text(text) => all.push(Seen::Text(text)),
                Next::Bad(_) => all.push(Seen::Bad),
                Next::Fatal(_) => {
                    all.push(Seen::Fatal);
                    return all;
                }
            }
        }
    }
    all
}
