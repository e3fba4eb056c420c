//! Notifications as kitty has them: `OSC 99 ; metadata ; payload`, title and text in chunks of their own.

use super::notice;
use crate::guest::wire::Notice;

/// The notification of which chunks are still to come. Another id begins another.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    id: Vec<u8>,
    title: Vec<u8>,
    body: Vec<u8>,
}

impl Chunks {
    /// Takes a chunk, and gives the notification that it finishes.
    pub(super) fn take(&mut self, command: &[u8]) -> Option<Notice> {
        let at = command.iter().position(|b| *b == b';')?;
        let (metadata, payload) = (&command[..at], &command[at + 1..]);
        let value = |name: u8| {
            let pairs = metadata.split(|b| *b == b':');
            pairs.filter_map(|pair| pair.strip_prefix(&[name, b'='])).next_back().unwrap_or_default()
        };
        let id = value(b'i');
        if self.id != id {
            *self = Self { id: id[..id.len().min(Notice::MAX_TEXT_BYTES)].to_vec(), ..Self::default() };
        }
        let part = match value(b'p') {
            b"" | b"title" => &mut self.title,
            b"body" => &mut self.body,
            // Icons and buttons, questions of the program, the end of what is shown.
            _ => return None,
        };
        let decoded = if value(b'e') == b"1" { base64(payload) } else { payload.to_vec() };
        let room = Notice::MAX_TEXT_BYTES.saturating_sub(part.len());
        part.extend_from_slice(&decoded[..decoded.len().min(room)]);
        if value(b'd') == b"0" {
            return None;
        }
        let Self { title, body, .. } = std::mem::take(self);
        (!title.is_empty() || !body.is_empty()).then(|| notice(Notice::OSC99, title, body))
    }
}

/// The bytes that a text in base64 stands for; what is no part of one is passed over.
fn base64(text: &[u8]) -> Vec<u8> {
    let (mut bits, mut held) = (0_u32, 0);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for c in text {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(commands: &[&[u8]]) -> Vec<String> {
        let mut chunks = Chunks::default();
        let all = commands.iter().filter_map(|command| chunks.take(command));
        all.map(|notice| format!("{}|{}", notice.title, notice.body)).collect()
    }

    #[test]
    fn chunks_of_one_id_are_one_notification() {
        assert_eq!(shown(&[b";hello"]), ["hello|"]);
        assert_eq!(shown(&[b"i=1:d=0:p=title;he", b"i=1:d=0;llo", b"i=1:p=body;world"]), ["hello|world"]);
        assert_eq!(shown(&[b"i=1:d=0;lost", b"i=2;other"]), ["other|"]);
        assert_eq!(shown(&[b"i=1:e=1;aGVsbG8h", b"i=1:e=1:p=body;YQ=="]), ["hello!|", "|a"]);
    }

    #[test]
    fn what_shows_nothing_is_no_notification() {
        assert_eq!(
            shown(&[b"i=1:p=?;", b"i=1:p=close;", b"i=1:p=icon;x", b"i=1;", b"no metadata"]),
            [] as [&str; 0]
        );
        let long = [b"i=1:d=0;".as_slice(), &[b'x'; 5000]].concat();
        let all = shown(&[&long, &long, b"i=1;"]);
        assert_eq!(all[0].len(), Notice::MAX_TEXT_BYTES + 1);
    }
}
