//! The methods for people to read.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Where references to schemas lead.
const TYPES: &str = "schemas.json";

/// Renders every method of an OpenRPC document: params, result, errors and an example.
pub fn methods_md(openrpc: &Value) -> String {
    let mut text = format!(
        "# Methods\n\n\
         Rendered from the code; do not edit. Params go by name; those in **bold** are needed. Every method may also fail \
         with\n`invalid_params`, `shutting_down` and `internal`. The types are in [{TYPES}]({TYPES}), as \
         `$defs/NAME`; [openrpc.json](openrpc.json)\nhas all of this for programs, and [errors.md](errors.md) says what \
         each kind means. Examples are out of the\n[transcripts](transcripts/), which a test replays; results in them are \
         without what differs each time.\n"
    );
    let mut noun = "";
    for method in openrpc["methods"].as_array().into_iter().flatten() {
        let name = method["name"].as_str().unwrap_or_default();
        let this = name.split('.').next().unwrap_or_default();
        if this != noun {
            let _ = write!(text, "\n## {this}\n");
            noun = this;
        }
        write_method(&mut text, name, method);
    }
    text.push_str("\n## Notifications\n\nThe daemon sends these unasked.\n\n| method | params | meaning |\n| --- | --- | --- |\n");
    for told in openrpc["x-notifications"].as_array().into_iter().flatten() {
        let (name, summary) = (told["name"].as_str(), told["summary"].as_str());
        let (name, summary) = (name.unwrap_or_default(), summary.unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {} | {summary} |", kind(&told["params"]));
    }
    text
}

// Writing to a String cannot fail.
fn write_method(text: &mut String, name: &str, method: &Value) {
    let _ = write!(text, "\n### {name}\n\n{}\n", method["summary"].as_str().unwrap_or_default());
    let params = method["params"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !params.is_empty() {
        text.push_str("\n| param | type | meaning |\n| --- | --- | --- |\n");
    }
    for param in params {
        let name = param["name"].as_str().unwrap_or_default();
        let name = if param["required"] == true { format!("**`{name}`**") } else { format!("`{name}`") };
        let meaning = param["summary"].as_str().unwrap_or_default().split_whitespace();
        let meaning = meaning.collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let _ = writeln!(text, "| {name} | {} | {meaning} |", kind(&param["schema"]));
    }
    let _ = write!(text, "\nResult: {}.", kind(&method["result"]["schema"]));
    let kinds: Vec<String> = method["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|error| error["$ref"].as_str()?.rsplit('/').next())
        .filter(|kind| !["invalid_params", "shutting_down", "internal"].contains(kind))
        .map(|kind| format!("`{kind}`"))
        .collect();
    if !kinds.is_empty() {
        let _ = write!(text, " Fails with {}.", kinds.join(", "));
    }
    text.push('\n');
    for example in method["examples"].as_array().into_iter().flatten() {
        let params: Map<String, Value> = example["params"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|param| Some((param["name"].as_str()?.to_owned(), param["value"].clone())))
            .collect();
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": name, "params": params });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": example["result"]["value"] });
        let _ = write!(text, "\n```json\n{request}\n{answer}\n```\n");
    }
}

/// A schema in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return format!("`{name}`");
    }
    if let Some([one]) = schema["allOf"].as_array().map(Vec::as_slice) {
        return kind(one);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let one = |word: &str| match word {
        "array" if schema["items"].is_object() => format!("array of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        word => word.to_owned(),
    };
    match &schema["type"] {
        Value::String(word) => one(word),
        Value::Array(words) => {
            words.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => "any JSON".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_told_in_a_few_words() {
        for (schema, words) in [
            (json!({"$ref": "#/components/schemas/Session"}), "`Session`"),
            (json!({"type": ["string", "null"]}), "string or null"),
            (json!({"type": "array", "items": {"type": "string"}}), "array of string"),
            (json!({"anyOf": [{"$ref": "#/x/Mount"}, {"type": "null"}]}), "`Mount` or null"),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "object of string"),
            (json!({"allOf": [{"$ref": "#/x/Limits"}], "default": {}}), "`Limits`"),
            (json!({}), "any JSON"),
        ] {
            assert_eq!(kind(&schema), words);
        }
    }
}
