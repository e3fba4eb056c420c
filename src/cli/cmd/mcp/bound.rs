//! What a tool gives is read by a model: nothing of it may be longer than that one can take in.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

/// Longest result, in bytes of JSON: clients warn of or cut what is longer than about 25,000 tokens.
pub(super) const RESULT_BYTES: usize = 64 * 1024;

/// Most bytes of one stream of a command: both together fit into a result.
const STREAM_BYTES: usize = 24 * 1024;

/// How much of them is the beginning; the end says how it went.
const HEAD_BYTES: usize = 6 * 1024;

/// Values of objects that are longer than this are cut one by one; shorter ones go as a whole.
const SMALL_BYTES: usize = 1024;

/// Beginning and end of a stream of any length.
#[derive(Default)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes that have come.
    pub(super) total: usize,
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

    /// Bytes that are not kept.
    pub(super) fn missing(&self) -> usize {
        self.total - self.head.len() - self.tail.len()
    }

    /// What is kept as text; a line stands where something is missing.
    pub(super) fn into_text(self) -> String {
        let missing = self.missing();
        if missing == 0 {
            let all: Vec<u8> = self.head.into_iter().chain(self.tail).collect();
            return String::from_utf8_lossy(&all).into_owned();
        }
        let tail: Vec<u8> = self.tail.into();
        // A cut may go through a character; the pieces of it are left out.
        let head = self.head.utf8_chunks().fold(String::new(), |text, chunk| text + chunk.valid());
        let start = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        format!("{head}\n[{missing} bytes are left out here]\n{}", String::from_utf8_lossy(&tail[start..]))
    }
}

/// Cuts a result of `exec.logs`, so that it still tells where to ask on.
pub(super) fn cut_logs(result: &mut Map<String, Value>) {
    let base64 = result.get("encoding").is_some_and(|encoding| encoding == "base64");
    for stream in ["stdout", "stderr"] {
        let Some(Value::String(text)) = result.get_mut(stream) else { continue };
        if text.len() <= STREAM_BYTES {
            continue;
        }
        // In base64 four characters are three bytes.
        let bytes = if base64 { STREAM_BYTES / 4 * 3 } else { text.floor_char_boundary(STREAM_BYTES) };
        text.truncate(if base64 { STREAM_BYTES } else { bytes });
        let from = result.get(&format!("{stream}_from")).and_then(Value::as_u64).unwrap_or_default();
        result.insert(format!("{stream}_next"), json!(from + bytes as u64));
        result.insert("ended".to_owned(), json!(false));
    }
}

/// Shortens the longest parts of a result until it fits. What was left out of which field is in `left_out`: entries of a
/// list, bytes of a text.
pub(super) fn fit(result: &mut Map<String, Value>) {
    fit_to(result, RESULT_BYTES);
}

fn fit_to(result: &mut Map<String, Value>, most: usize) {
    let mut left_out = Map::new();
    let mut size = map_length(result);
    while size > most {
        let Some((path, count)) = shorten(result, size - most) else { break };
        let before = left_out.get(&path).and_then(Value::as_u64).unwrap_or_default();
        left_out.insert(path, json!(before + count));
        size = map_length(result);
    }
    if !left_out.is_empty() {
        result.insert("left_out".to_owned(), Value::Object(left_out));
    }
}

/// Shortens the longest value by about `excess` bytes. Gives its place, and how much went.
fn shorten(map: &mut Map<String, Value>, excess: usize) -> Option<(String, u64)> {
    let (name, value) = map.iter_mut().max_by_key(|(_, value)| length(value))?;
    let name = name.clone();
    match value {
        Value::String(text) if !text.is_empty() => {
            let end = text.floor_char_boundary(text.len().saturating_sub(excess + 1));
            let cut = text.len() - end;
            text.truncate(end);
            Some((name, cut as u64))
        }
        Value::Array(list) if !list.is_empty() => {
            let before = list.len();
            let mut gone = 0;
            while gone < excess
                && let Some(last) = list.pop()
            {
                gone += length(&last) + 1;
            }
            Some((name, (before - list.len()) as u64))
        }
        Value::Object(inner) if !inner.is_empty() => {
            let largest = inner.values().map(length).max().unwrap_or_default();
            if largest > SMALL_BYTES {
                let (place, count) = shorten(inner, excess)?;
                return Some((format!("{name}.{place}"), count));
            }
            let before = inner.len();
            let mut gone = 0;
            while gone < excess
                && let Some(last) = inner.keys().next_back().cloned()
            {
                gone += last.len() + inner.remove(&last).map_or(0, |value| length(&value)) + 4;
            }
            Some((name, (before - inner.len()) as u64))
        }
        _ => None,
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::Object(map) => map_length(map),
        value => value.to_string().len(),
    }
}

fn map_length(map: &Map<String, Value>) -> usize {
    map.iter().map(|(name, value)| name.len() + 4 + length(value)).sum::<usize>() + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(chunks: &[&[u8]]) -> Kept {
        let mut kept = Kept::default();
        chunks.iter().for_each(|chunk| kept.push(chunk));
        kept
    }

    #[test]
    fn what_is_short_is_kept_whole_and_of_what_is_long_both_ends_are() {
        assert_eq!(kept(&[b"one\n", b"two\n"]).into_text(), "one\ntwo\n");
        let whole = vec![b'x'; STREAM_BYTES];
        assert_eq!(kept(&[&whole]).missing(), 0);
        let long = kept(&[b"begin", &vec![b'x'; 10 * STREAM_BYTES], b"end"]);
        assert_eq!(long.missing(), 9 * STREAM_BYTES + 8);
        let text = long.into_text();
        assert!(text.starts_with("beginx") && text.ends_with("xend") && text.len() < STREAM_BYTES + 100);
        assert!(text.contains(&format!("\n[{} bytes are left out here]\n", 9 * STREAM_BYTES + 8)));
        let letters = "ü".repeat(STREAM_BYTES);
        let text = kept(&[b"a", letters.as_bytes(), b"a"]).into_text();
        assert!(!text.contains('\u{fffd}'), "a character was cut through");
    }

    #[test]
    fn logs_tell_where_to_ask_on() {
        let ask = |encoding: &str, text: &str| {
            let mut result = json!({"stdout": text, "stderr": "", "encoding": encoding, "stdout_from": 10,
                "stderr_from": 0, "stdout_next": 10 + text.len(), "stderr_next": 0, "ended": true});
            let map = result.as_object_mut().expect("an object");
            cut_logs(map);
            let length = map["stdout"].as_str().expect("text").len() as u64;
            (length, map["stdout_next"].as_u64().expect("a number"), map["ended"] == true)
        };
        assert_eq!(ask("utf-8", "abc"), (3, 13, true));
        let most = STREAM_BYTES as u64;
        assert_eq!(ask("utf-8", &"x".repeat(STREAM_BYTES + 1)), (most, 10 + most, false));
        assert_eq!(ask("utf-8", &format!("a{}", "ü".repeat(STREAM_BYTES))), (most - 1, 9 + most, false));
        assert_eq!(ask("base64", &"AAAA".repeat(STREAM_BYTES)), (most, 10 + most / 4 * 3, false));
    }

    #[test]
    fn a_result_is_cut_where_it_is_long_and_says_so() {
        let cases = [
            (json!({"sessions": vec![json!({"name": "n".repeat(100)}); 50]}), "sessions"),
            (json!({"session": {"name": "a", "metadata": {"k": "v".repeat(3000)}}}), "session.metadata.k"),
            (json!({"path": "/", "content": "c".repeat(3000)}), "content"),
        ];
        for (mut result, place) in cases {
            let map = result.as_object_mut().expect("an object");
            fit_to(map, 2_000);
            assert!(map["left_out"][place].as_u64().is_some_and(|count| count > 0), "{map:?}");
            map.remove("left_out");
            assert!(Value::Object(map.clone()).to_string().len() <= 2_000, "{place}");
        }
        let many: Map<String, Value> = (0..500).map(|n| (format!("k{n:04}"), json!("v"))).collect();
        let mut result = json!({"name": "a", "metadata": many});
        let map = result.as_object_mut().expect("an object");
        fit_to(map, 2_000);
        assert!(map["metadata"]["k0000"] == "v" && map["left_out"]["metadata"].is_u64(), "{map:?}");
        let mut short = json!({"a": 1});
        fit(short.as_object_mut().expect("an object"));
        assert_eq!(short, json!({"a": 1}));
    }
}
