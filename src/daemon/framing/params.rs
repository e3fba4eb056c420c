//! Reading a method's params, and errors that name the field and never repeat its value: it may be a secret.

use jsonrpsee::types::ErrorObjectOwned;
use serde::de::DeserializeOwned;

use super::answer;
use crate::config::without_value;
use crate::proto::errors::Kind;

/// Longest name of a field that an error repeats, in characters.
const MAX_FIELD_CHARS: usize = 120;

/// Reads a method's params; by the time a method is called they are one object.
///
/// # Errors
/// JSON-RPC's -32602 with kind `invalid_params` and the field in the message.
pub fn params<T: DeserializeOwned>(params: &jsonrpsee::types::Params<'_>) -> Result<T, ErrorObjectOwned> {
    let text = params.as_str().unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| {
        let message = format!("Invalid params: {}", wrong(text, &error));
        answer::failure(Kind::InvalidParams, &message)
    })
}

/// What is wrong with a JSON text: the field and what it should be.
pub fn wrong(text: &str, error: &serde_json::Error) -> String {
    let why = without_value(&error.to_string());
    match field(text, error) {
        field if field.is_empty() => why,
        field => format!("{field}: {why}"),
    }
}

/// The field at which a text was found wrong, as `ports[0].host`; empty for the text as a whole.
fn field(text: &str, error: &serde_json::Error) -> String {
    let start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let end = start.saturating_add(error.column()).min(text.len());
    let mut steps = Vec::new();
    walk(&text.as_bytes()[..end], &mut steps);
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Object(Some(key)) => {
                let key: String = serde_json::from_str(&String::from_utf8_lossy(key)).unwrap_or_default();
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(&key);
            }
            Step::Array(index) => path.push_str(&format!("[{index}]")),
            Step::Object(None) => {}
        }
    }
    path.chars().take(MAX_FIELD_CHARS).collect()
}

enum Step<'a> {
    /// Within an object, at the member of this key, quotes included.
    Object(Option<&'a [u8]>),
    /// Within an array, at this element.
    Array(usize),
}

/// Follows JSON up to its end, which may be anywhere; gives what is open there.
fn walk<'a>(text: &'a [u8], steps: &mut Vec<Step<'a>>) {
    let mut at = 0;
    let mut string = None;
    while let Some(byte) = text.get(at) {
        let last = at + 1 == text.len();
        match (byte, steps.last_mut()) {
            (b'"', _) => {
                let length = string_length(&text[at..]);
                string = Some(&text[at..at + length]);
                at += length;
                continue;
            }
            (b':', Some(Step::Object(key))) => *key = string.take(),
            (b'{', _) => steps.push(Step::Object(None)),
            (b'[', _) => steps.push(Step::Array(0)),
            (b',', Some(Step::Object(key))) => *key = None,
            (b',', Some(Step::Array(index))) => *index += 1,
            // What closes at the very end is what was found wrong: its last member was not.
            (b'}' | b']', Some(step)) if last => {
                if let Step::Object(key) = step {
                    *key = None;
                }
            }
            (b'}' | b']', _) => drop(steps.pop()),
            _ => {}
        }
        at += 1;
    }
}

/// Bytes of the string at the beginning of a text, quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text[1..].iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::proto::sessions::{ImportParams, StartParams};

    fn message<T: DeserializeOwned>(text: &str) -> String {
        let read = params::<T>(&jsonrpsee::types::Params::new(Some(text)));
        let error = read.err().unwrap_or_else(|| panic!("{text} was understood"));
        assert_eq!(error.code(), answer::INVALID_PARAMS);
        assert_eq!(error.data().expect("data").get(), r#"{"kind":"invalid_params"}"#);
        error.message().strip_prefix("Invalid params: ").expect("the beginning").to_owned()
    }

    #[test]
    fn an_error_names_the_field_and_what_it_should_be() {
        for (text, want) in [
            ("{}", "missing field `name`"),
            (r#"{"name":"a","name":"b"}"#, "duplicate field `name`"),
            (r#"{"env":{"A":"x","TOKEN":12345}}"#, "env.TOKEN: expected a string"),
            (r#"{"env":{"A":"x"},"timeout_ms":"s3cret"}"#, "timeout_ms: expected u64"),
            (r#"{"timeout_ms": -5}"#, "timeout_ms: expected u64"),
            ("{\n \"name\": \"a\",\n \"env\": [\"s3cret\"]\n}", "env: expected a map"),
            (r#"{"ports":[{"container":80},{"container":8.5}]}"#, "ports[1].container: expected u16"),
            (r#"{"ports":[{"container":80},{"host":1}]}"#, "ports[1]: missing field `container`"),
            (r#"{"name":{"s3cret":1}}"#, "name: expected a string"),
            (r#"{"a\",:b":[1,{}],"reuse":"s3cret"}"#, "reuse: expected a boolean"),
            (r#"{"env":{"T":{"s3cret":"s3cret"}}}"#, "env.T: expected a string"),
        ] {
            assert_eq!(message::<StartParams>(text), want, "{text}");
        }
    }

    #[test]
    fn no_error_repeats_a_value() {
        let values = [
            "12345678",
            "-12345678",
            "12345678.5",
            "[12345678]",
            r#"{"12345678":12345678}"#,
            r#""12345678""#,
            r#""12345678, expected 12345678 at line 12345678""#,
            r#""`12345678`""#,
        ];
        for value in values {
            for field in ["timeout_ms", "reuse", "ports", "limits", "workspace", "env", "name"] {
                let text = format!(r#"{{"{field}":{value},"env":{{"TOKEN":{value}}},"reuse":{value}}}"#);
                let said = message::<StartParams>(&text);
                // The name of a variable is no secret.
                assert!(!said.replace("env.12345678", "").contains("12345678"), "{text}: {said}");
            }
            let row = format!(r#"{{"rows":[{{"origin":"a","row":{{"name":"n","metadata":{value}}}}}]}}"#);
            if !value.starts_with('{') {
                assert!(!message::<ImportParams>(&row).contains("12345678"), "{row}");
            }
            let said = message::<BTreeMap<String, u8>>(&format!(r#"{{"a":{value}}}"#));
            assert!(!said.contains("12345678"), "{value}: {said}");
        }
    }
}
