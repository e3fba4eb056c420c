//! What of a client's input is a user's.

const ESCAPE: u8 = 0x1b;

/// Whether a user typed this, or a part of it. Terminals send on the same way what no user did: where the mouse is, that
/// their window got the focus, answers to questions of the program. A sequence that is cut off counts as a key.
pub fn is_typed(mut bytes: &[u8]) -> bool {
    while let [first, rest @ ..] = bytes {
        if *first != ESCAPE {
            return true;
        }
        let after = match rest {
            [b'[', b'M', _, _, _, after @ ..] => after,
            [b'[', sequence @ ..] => {
                let Some(end) = sequence.iter().position(|b| (0x40..=0x7e).contains(b)) else { return true };
                if is_key(&sequence[..end], sequence[end]) {
                    return true;
                }
                &sequence[end + 1..]
            }
            // An answer, up to its end.
            [b']' | b'P' | b'_' | b'^' | b'X', text @ ..] => match end_of_string(text) {
                Some(after) => after,
                None => return true,
            },
            // Escape itself, and keys together with it.
            _ => return true,
        };
        bytes = after;
    }
    false
}

/// Whether a control sequence is a key. Those of the kitty protocol are, too.
fn is_key(parameters: &[u8], last: u8) -> bool {
    let asks = parameters.first().is_some_and(|first| matches!(first, b'?' | b'<' | b'>' | b'='));
    !asks && matches!(last, b'A'..=b'F' | b'H' | b'P' | b'Q' | b'S' | b'Z' | b'~' | b'u')
}

fn end_of_string(text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|b| matches!(*b, ESCAPE | 0x07))?;
    match &text[at..] {
        [0x07, after @ ..] | [ESCAPE, b'\\', after @ ..] => Some(after),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_typed;

    #[test]
    fn keys_are_typed_and_reports_are_not() {
        let keys: [&[u8]; 10] = [
            b"a",
            b"\r",
            b"\x03",
            b"\x1b",
            b"\x1bx",
            b"\x1b[A",
            b"\x1bOA",
            b"\x1b[13u",
            b"\x1b[200~x\x1b[201~",
            b"\x1b[I\r",
        ];
        for key in keys {
            assert!(is_typed(key), "{}", key.escape_ascii());
        }
        let reports: [&[u8]; 10] = [
            b"",
            b"\x1b[I",
            b"\x1b[O",
            b"\x1b[<35;10;5M",
            b"\x1b[M !!",
            b"\x1b[?62;22c",
            b"\x1b[?1u",
            b"\x1b[24;80R",
            b"\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[?1;2c",
            b"\x1bP1$r0m\x1b\\",
        ];
        for report in reports {
            assert!(!is_typed(report), "{}", report.escape_ascii());
        }
    }
}
