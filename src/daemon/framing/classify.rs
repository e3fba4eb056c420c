//! What a connection speaks, by its first bytes.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::proto::stream::PREFACE;

/// How long a connection may stay silent before its first byte when the daemon is nearly out of connections.
pub(super) const FIRST_BYTE: Duration = Duration::from_secs(30);

/// Bytes asked of the system at first; most first requests are shorter.
const FIRST_READ_BYTES: usize = 8 * 1024;

/// Longest token that can begin a request line or a header; far longer than any real one.
const MAX_TOKEN_BYTES: usize = 64;

/// What it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Json,
    ContentLength,
    Http,
    Raw,
    Garbage,
    /// It was closed without a word.
    Nothing,
}

/// Reads until it is clear what the connection speaks, and gives the bytes read so far, without blanks in front. `crowded`
/// tells whether a silent connection takes the place of another.
pub(super) async fn classify(
    stream: &mut UnixStream,
    crowded: impl Fn() -> bool,
) -> io::Result<(Spoken, BytesMut)> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        let read = tokio::select! {
            read = stream.read_buf(&mut buffer) => read?,
            () = tokio::time::sleep(FIRST_BYTE), if buffer.is_empty() => {
                if crowded() {
                    return Ok((Spoken::Nothing, buffer));
                }
                continue;
            }
        };
        skip_blank(&mut buffer);
        if let Some(spoken) = decide(&buffer) {
            if spoken == Spoken::Raw {
                buffer.advance(PREFACE.len());
            }
            return Ok((spoken, buffer));
        }
        if read == 0 {
            let spoken = if buffer.is_empty() { Spoken::Nothing } else { Spoken::Garbage };
            return Ok((spoken, buffer));
        }
        buffer.reserve(FIRST_READ_BYTES);
    }
}

pub(super) fn skip_blank(buffer: &mut BytesMut) {
    loop {
        let blank = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        buffer.advance(blank);
        if !buffer.starts_with(b"\xef\xbb\xbf") {
            return;
        }
        buffer.advance(3);
    }
}

/// None: more bytes are needed.
pub(super) fn decide(bytes: &[u8]) -> Option<Spoken> {
    match bytes.first()? {
        b'{' | b'[' => return Some(Spoken::Json),
        // The beginning of a byte order mark.
        0xef if bytes.len() < 3 && b"\xef\xbb\xbf".starts_with(bytes) => return None,
        b'a' if begins(bytes, PREFACE) => return (bytes.len() >= PREFACE.len()).then_some(Spoken::Raw),
        _ => {}
    }
    const LENGTH: &[u8] = b"content-";
    let known = bytes.len().min(LENGTH.len());
    if bytes[..known].eq_ignore_ascii_case(&LENGTH[..known]) {
        return (known == LENGTH.len()).then_some(Spoken::ContentLength);
    }
    if !bytes[0].is_ascii_uppercase() {
        return Some(Spoken::Garbage);
    }
    // A header's name ends in a colon, an HTTP method in a space.
    let token = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match bytes.get(token.take(MAX_TOKEN_BYTES).count()) {
        Some(b':') => Some(Spoken::ContentLength),
        Some(_) => Some(Spoken::Http),
        None => None,
    }
}

fn begins(bytes: &[u8], whole: &[u8]) -> bool {
    let known = bytes.len().min(whole.len());
    bytes[..known] == whole[..known]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide_even_one_at_a_time() {
        for (text, want) in [
            ("{\"jsonrpc\"", Spoken::Json),
            ("[1]", Spoken::Json),
            ("Content-Length: 1", Spoken::ContentLength),
            ("content-type: x", Spoken::ContentLength),
            ("X-Other: 1\r\nContent-Length: 2", Spoken::ContentLength),
            ("CONNECT x HTTP/1.1", Spoken::Http),
            ("COPY x", Spoken::Http),
            ("GET / HTTP/1.1", Spoken::Http),
            ("POST / HTTP/1.1", Spoken::Http),
            ("HELLO\n", Spoken::Http),
            ("abx-stream/1\n", Spoken::Raw),
            ("abx-stream/2\n", Spoken::Garbage),
            ("content?", Spoken::Garbage),
            ("hello\n", Spoken::Garbage),
            ("\0\0", Spoken::Garbage),
            ("\u{feff}?", Spoken::Garbage),
        ] {
            let decided = (1..=text.len()).find_map(|end| {
                let mut buffer = BytesMut::from(&text.as_bytes()[..end]);
                skip_blank(&mut buffer);
                decide(&buffer)
            });
            assert_eq!(decided, Some(want), "{text:?}");
        }
        // What is no header after so many bytes is none because a colon came along with them.
        let long = format!("{}: x", "X".repeat(MAX_TOKEN_BYTES + 1));
        assert_eq!(decide(&long.as_bytes()[..=MAX_TOKEN_BYTES]), Some(Spoken::Http));
        assert_eq!(decide(long.as_bytes()), Some(Spoken::Http));
        assert_eq!(decide(b"CONTENT"), None);
        assert_eq!(decide(b"abx-stream/1"), None);
    }
}
