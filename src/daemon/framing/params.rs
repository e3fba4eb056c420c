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
    let why = in_json(without_value(&error.to_string()));
    match field(text, error) {
        field if field.is_empty() => why,
        field => format!("{field}: {why}"),
    }
}

/// What was expected in the words of JSON, where the parser says it in Rust's.
fn in_json(why: String) -> String {
    let Some(expected) = why.strip_prefix("expected ") else { return why };
    let json = match expected {
        "a map" => "an object",
        "a sequence" => "an array",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        structure if structure.starts_with("struct ") => "an object",
        other => other,
    };
    format!("expected {json}")
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
            // An object that closes at the very end is what was found wrong: its last member was not.
            (b'}', Some(Step::Object(key))) if last => *key = None,
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
            (r#"{"env":{"A":"x"},"timeout_ms":"s3cret"}"#, "timeout_ms: expected an integer from 0"),
            (r#"{"timeout_ms": -5}"#, "timeout_ms: expected an integer from 0"),
            ("{\n \"name\": \"a\",\n \"env\": [\"s3cret\"]\n}", "env: expected an object"),
            (
                r#"{"ports":[{"container":80},{"container":8.5}]}"#,
                "ports[1].container: expected an integer from 0 to 65535",
            ),
            (r#"{"ports":[{"container":80},{"host":1}]}"#, "ports[1]: missing field `container`"),
            (r#"{"workspace":"s3cret"}"#, "workspace: expected an object"),
            (r#"{"workspace":[]}"#, "workspace: expected an object"),
            (r#"{"ports":7}"#, "ports: expected an array"),
            (r#"{"limits":{"cpus":"s3cret"}}"#, "limits.cpus: expected a number"),
            (r#"{"profile":7}"#, "profile: expected a string"),
            (r#"{"profile":{"s3cret":7}}"#, "profile: expected a string"),
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
