//! Bytes in JSON: as text where they are UTF-8, else in base64.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::proto::files::Encoding;

/// Most characters of a value that are repeated to people: as many as the longest names have.
const MAX_SHOWN_CHARS: usize = 128;

/// A value that somebody gave, as it is repeated to people: as it is, or its beginning where it is long.
pub(super) fn shown(value: &str) -> Cow<'_, str> {
    beginning(value, MAX_SHOWN_CHARS)
}

/// A text, or its first characters with a sign that it goes on.
pub(super) fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Writes all of them as text, or all in base64 if one is no text.
pub(super) fn encode<const N: usize>(parts: [Vec<u8>; N]) -> (Encoding, [String; N]) {
    if parts.iter().all(|bytes| std::str::from_utf8(bytes).is_ok()) {
        let text = |bytes| String::from_utf8(bytes).unwrap_or_default();
        return (Encoding::Utf8, parts.map(text));
    }
    (Encoding::Base64, parts.map(|bytes| STANDARD.encode(bytes)))
}

/// Reads what a caller wrote.
///
/// # Errors
/// What is wrong with the base64.
pub(super) fn decode(encoding: Encoding, text: String) -> Result<Vec<u8>, base64::DecodeError> {
    match encoding {
        Encoding::Utf8 => Ok(text.into_bytes()),
        Encoding::Base64 => STANDARD.decode(text),
    }
}

/// Drops a character at the end that the cut of a part went through, unless nothing would be left: a reader would
/// never get on.
pub(super) fn drop_cut_character(bytes: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
}

/// How many bytes at the end begin a character that is not whole, whatever is before them.
pub(super) fn cut_character(bytes: &[u8]) -> usize {
    let is_begun = |tail: &[u8]| {
        std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    // A character has at most four.
    (1..=bytes.len().min(3)).find(|length| is_begun(&bytes[bytes.len() - length..])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8], is_cut: bool) -> (Encoding, String) {
        let mut bytes = bytes.to_vec();
        if is_cut {
            drop_cut_character(&mut bytes);
        }
        let (encoding, [text]) = encode([bytes]);
        (encoding, text)
    }

    #[test]
    fn a_part_is_text_where_it_can_be_and_no_character_is_cut() {
        assert_eq!(told("aé".as_bytes(), false), (Encoding::Utf8, "aé".to_owned()));
        assert_eq!(told(b"a\xc3", true), (Encoding::Utf8, "a".to_owned()));
        assert_eq!(told(b"a\xc3", false), (Encoding::Base64, "YcM=".to_owned()));
        assert_eq!(told(b"\xc3", true), (Encoding::Base64, "ww==".to_owned()));
        assert_eq!(told(b"\xff\x00", true), (Encoding::Base64, "/wA=".to_owned()));
    }

    #[test]
    fn what_is_repeated_of_a_long_value_is_its_beginning() {
        assert_eq!(shown("feature-x"), "feature-x");
        let longest = "é".repeat(MAX_SHOWN_CHARS);
        assert_eq!(shown(&longest), longest);
        assert_eq!(shown(&"é".repeat(8 << 20)), longest + "...");
    }

    #[test]
    fn several_are_written_alike_and_read_back() {
        let (encoding, [a, b]) = encode([b"a".to_vec(), b"\xff".to_vec()]);
        assert_eq!(encoding, Encoding::Base64);
        assert_eq!(decode(encoding, a).expect("base64"), b"a");
        assert_eq!(decode(encoding, b).expect("base64"), b"\xff");
        assert!(decode(Encoding::Base64, "no!".to_owned()).is_err());
    }
}
