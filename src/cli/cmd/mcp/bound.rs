//! What a tool gives is read by a model: nothing of it may be longer than that one can take in.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Longest result, in bytes of JSON: clients warn of or cut what is longer than about 25,000 tokens. It is sent twice, as the
/// protocol asks, and read once.
pub(super) const RESULT_BYTES: usize = 64 * 1024;

/// Where a result says what was left out of it.
pub(super) const LEFT_OUT: &str = "left_out";

/// Values of objects that are longer than this are cut one by one; shorter ones go as a whole.
const SMALL_BYTES: usize = 1024;

/// Shortens the longest parts of a result until it fits. What was left out of which field is in `left_out`: entries of a
/// list, bytes of a text.
pub(super) fn fit(result: &mut Map<String, Value>) {
    fit_to(result, RESULT_BYTES);
}

/// How many bytes of a text's characters are no more than `room` bytes of JSON.
pub(super) fn fitting(characters: impl Iterator<Item = char>, mut room: usize) -> usize {
    let fits = |c: &char| {
        let rest = room.checked_sub(length(c) - "\"\"".len());
        room = rest.unwrap_or(room);
        rest.is_some()
    };
    characters.take_while(fits).map(char::len_utf8).sum()
}

fn fit_to(result: &mut Map<String, Value>, most: usize) {
    let mut left_out = Map::new();
    loop {
        // What is said of it takes room, too.
        let said = if left_out.is_empty() { 0 } else { length(&left_out) + LEFT_OUT.len() + "\"\":,".len() };
        let excess = (length(result) + said).saturating_sub(most);
        if excess == 0 {
            break;
        }
        let Some((path, count)) = shorten(result, excess) else { break };
        let before = left_out.get(&path).and_then(Value::as_u64).unwrap_or_default();
        left_out.insert(path, json!(before + count));
    }
    if !left_out.is_empty() {
        result.insert(LEFT_OUT.to_owned(), Value::Object(left_out));
    }
}

/// Shortens the longest value by about `excess` bytes. Gives its place, and how much went.
fn shorten(map: &mut Map<String, Value>, excess: usize) -> Option<(String, u64)> {
    let (name, value) = map.iter_mut().max_by_key(|(_, value)| length(value))?;
    let name = name.clone();
    let size = length(value);
    match value {
        Value::String(text) if !text.is_empty() => {
            let end = fitting(text.chars(), size.saturating_sub("\"\"".len() + excess));
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

/// How long a value is as JSON.
fn length(value: &(impl Serialize + ?Sized)) -> usize {
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, value)
        .expect("a document's names are text, and counting does not fail");
    counted.0
}

/// Counts what is written, and keeps nothing of it.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_cut_where_it_is_long_and_says_so() {
        let cases = [
            (json!({"sessions": vec![json!({"name": "n".repeat(100)}); 50]}), "sessions"),
            (json!({"session": {"name": "a", "metadata": {"k": "v".repeat(3000)}}}), "session.metadata.k"),
            (json!({"path": "/", "content": "c".repeat(3000)}), "content"),
            (json!({"path": "/", "content": "\0".repeat(3000)}), "content"),
            (
                json!({"session": {"metadata": {"\0".repeat(100): "v"}, "note": "\n".repeat(1500)}}),
                "session.note",
            ),
        ];
        for (mut result, place) in cases {
            let map = result.as_object_mut().expect("an object");
            fit_to(map, 2_000);
            assert!(map["left_out"][place].as_u64().is_some_and(|count| count > 0), "{map:?}");
            let length = result.to_string().len();
            assert!((1_500..=2_000).contains(&length), "{place}: {length}");
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
