//! What each tool takes and gives, out of the protocol document: no type is described twice.
//!
//! Clients hand these schemas to models and validators of all kinds, so they use no more of JSON Schema than those
//! understand: no references, no formats, and on the way in no null.

use serde_json::{Map, Value, json};

use super::bound::LEFT_OUT;
use super::part::OFFSET_NEXT;
use super::tools::{Shape, Tool, Words};
use crate::proto::methods::OPENRPC;

/// The protocol document.
pub(super) struct Document(Value);

/// How a description begins that lists words.
const WORDS: &str = "One of ";

/// Whether a schema is of what is taken or of what is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Document {
    /// Reads it.
    ///
    /// # Panics
    /// Never: a test renders it and compares.
    pub(super) fn read() -> Self {
        Self(serde_json::from_str(OPENRPC).expect("a test renders and compares the document"))
    }

    fn method(&self, name: &str) -> &Value {
        let methods = self.0["methods"].as_array().map(Vec::as_slice).unwrap_or_default();
        methods.iter().find(|method| method["name"] == name).unwrap_or(&Value::Null)
    }

    /// What the tool does, in words.
    pub(super) fn words(&self, tool: &Tool) -> String {
        let more = match tool.words {
            Words::More(more) => more,
            Words::Own { tool, .. } => return tool.to_owned(),
        };
        let words = self.method(tool.method)["summary"].as_str().unwrap_or_default();
        format!("{words} {more}").trim().to_owned()
    }

    /// What it takes. `hidden` is left out.
    pub(super) fn input(&self, tool: &Tool, hidden: &[&str]) -> Map<String, Value> {
        let params = self.method(tool.method)["params"].as_array().map(Vec::as_slice).unwrap_or_default();
        let taken = |name: &str| tool.params.contains(&name) && !hidden.contains(&name);
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for param in params {
            let Some(name) = param["name"].as_str().filter(|name| taken(name)) else { continue };
            let mut schema = self.plain(&param["schema"], Way::In);
            if let Words::Own { params, .. } = tool.words
                && let Some((_, words)) = params.iter().find(|(own, _)| *own == name)
            {
                schema["description"] = json!(words);
            }
            properties.insert(name.to_owned(), schema);
            if param["required"] == true {
                required.push(name);
            }
        }
        object(properties, &required, Some(false))
    }

    /// What it gives.
    pub(super) fn output(&self, tool: &Tool) -> Map<String, Value> {
        if tool.shape == Shape::Run {
            return run_result();
        }
        let result = self.plain(&self.method(tool.method)["result"]["schema"], Way::Out);
        let Shape::List { field, keep, .. } = tool.shape else {
            let Value::Object(mut result) = result else { return Map::new() };
            if let Some(properties) = result.get_mut("properties").and_then(Value::as_object_mut) {
                properties.insert(LEFT_OUT.to_owned(), left_out());
                if tool.shape == Shape::Part {
                    let words = "The offset at which the next part begins.";
                    properties
                        .insert(OFFSET_NEXT.to_owned(), json!({"type": "integer", "description": words}));
                }
            }
            return result;
        };
        let mut items = result["items"].clone();
        if let (false, Some(properties)) =
            (keep.is_empty(), items.get_mut("properties").and_then(Value::as_object_mut))
        {
            properties.retain(|name, _| keep.contains(&name.as_str()));
        }
        if let Some(items) = items.as_object_mut() {
            // Entries are without what is null.
            items.remove("required");
        }
        let list = json!({"type": "array", "items": items});
        let properties = [(field.to_owned(), list), (LEFT_OUT.to_owned(), left_out())];
        object(properties.into_iter().collect(), &[field], None)
    }

    /// The schema without references, and without what not every reader understands.
    fn plain(&self, schema: &Value, way: Way) -> Value {
        let Some(schema) = schema.as_object() else { return schema.clone() };
        let mut plain = Map::new();
        let mut inherit = |from: Value| {
            if let Value::Object(from) = from {
                plain.extend(from);
            }
        };
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let target = name.trim_start_matches('#');
            inherit(self.plain(self.0.pointer(target).unwrap_or(&Value::Null), way));
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            inherit(self.plain(part, way));
        }
        let choices = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array);
        if let Some(choices) = choices {
            inherit(self.choice(choices, way));
        }
        for (key, value) in schema {
            let value = match key.as_str() {
                "$ref" | "allOf" | "anyOf" | "oneOf" | "format" => continue,
                "default" if way == Way::Out || value.is_null() || value.is_object() || value.is_array() => {
                    continue;
                }
                "type" if way == Way::In => without_null(value),
                "properties" => self.each(value, way),
                "items" | "additionalProperties" => self.plain(value, way),
                "description" => with_words(value, plain.get("description")),
                _ => value.clone(),
            };
            plain.insert(key.clone(), value);
        }
        Value::Object(plain)
    }

    fn each(&self, properties: &Value, way: Way) -> Value {
        let each = properties.as_object().into_iter().flatten();
        Value::Object(each.map(|(name, schema)| (name.clone(), self.plain(schema, way))).collect())
    }

    /// One of several: words become a text that names them, something or nothing becomes that.
    fn choice(&self, choices: &[Value], way: Way) -> Value {
        let is_null = |choice: &Value| choice["type"] == "null";
        let some: Vec<Value> =
            choices.iter().filter(|choice| !is_null(choice)).map(|choice| self.plain(choice, way)).collect();
        let words: Vec<&str> = some.iter().filter_map(|choice| choice["const"].as_str()).collect();
        let nullable = way == Way::Out && choices.iter().any(is_null);
        if !words.is_empty() {
            let text = if nullable { json!(["string", "null"]) } else { json!("string") };
            return json!({"type": text, "description": format!("{WORDS}{}.", words.join(", "))});
        }
        let [one] = some.as_slice() else { return json!({}) };
        let mut one = one.clone();
        if let (true, Some(kind)) = (nullable, one.get("type").cloned()) {
            one["type"] = match kind {
                Value::Array(kinds) => Value::Array(kinds),
                kind => json!([kind, "null"]),
            };
        }
        one
    }
}

fn without_null(kind: &Value) -> Value {
    match kind.as_array().map(|kinds| kinds.iter().filter(|kind| *kind != "null").collect::<Vec<_>>()) {
        Some(kinds) if kinds.len() == 1 => kinds[0].clone(),
        _ => kind.clone(),
    }
}

/// A description, and what a list of words has to say beside it.
fn with_words(own: &Value, inherited: Option<&Value>) -> Value {
    let words = inherited.and_then(Value::as_str).and_then(|words| words.find(WORDS).map(|at| &words[at..]));
    match (own.as_str(), words) {
        (Some(own), Some(words)) => json!(format!("{own} {words}")),
        _ => own.clone(),
    }
}

fn object(properties: Map<String, Value>, required: &[&str], more: Option<bool>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_owned(), json!(required));
    }
    if let Some(more) = more {
        object.insert("additionalProperties".to_owned(), json!(more));
    }
    object
}

fn left_out() -> Value {
    json!({
        "type": "object",
        "description": "What the result is too long for: entries of a list, or bytes of a text, by field.",
        "additionalProperties": {"type": "integer"},
    })
}

/// What `exec_run` gives.
fn run_result() -> Map<String, Value> {
    let integer = |words: &str| json!({"type": "integer", "description": words});
    let text = |words: &str| json!({"type": "string", "description": words});
    let properties = json!({
        "id": text("The exec's id."),
        "exit_code": integer("The command's code; 128+n when signal n ended it, 124 when its time ran out."),
        "reason": {"type": ["string", "null"], "description": "One line, when it did not end by itself."},
        "stdout": text("Standard output; a line in brackets says how many bytes are left out in its place."),
        "stderr": text("Standard error, likewise."),
        "encoding": text("`utf-8`, or `base64` if either stream is not UTF-8."),
        "stdout_bytes": integer("Length of all standard output."),
        "stderr_bytes": integer("Length of all standard error."),
        "truncated": {"type": "boolean", "description": "Whether output was left out."},
        "duration_ms": integer("How long it took."),
        LEFT_OUT: left_out(),
    });
    let Value::Object(properties) = properties else { return Map::new() };
    let required: Vec<String> = properties.keys().filter(|name| *name != LEFT_OUT).cloned().collect();
    object(properties, &required.iter().map(String::as_str).collect::<Vec<_>>(), None)
}

#[cfg(test)]
mod tests {
    use super::super::tools::TOOLS;
    use super::*;

    #[test]
    fn every_tool_is_a_method_with_params_and_words_that_the_document_has() {
        let document = Document::read();
        for tool in TOOLS {
            let input = document.input(tool, &[]);
            let has: Vec<&String> =
                input["properties"].as_object().into_iter().flatten().map(|(n, _)| n).collect();
            let mut wants: Vec<&&str> = tool.params.iter().collect();
            wants.sort_unstable();
            assert_eq!(has, wants, "{}", tool.name);
            let words = document.words(tool);
            assert!(
                words.len() > 20 && words.ends_with('.') && !words.contains("  "),
                "{}: {words}",
                tool.name
            );
            let output = document.output(tool);
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert!(output["properties"].as_object().is_some_and(|fields| fields.len() > 1), "{}", tool.name);
            for schema in [input, output] {
                let text = Value::Object(schema).to_string();
                for word in ["$ref", "allOf", "anyOf", "oneOf", "\"format\""] {
                    assert!(!text.contains(word), "{}: {word} in {text}", tool.name);
                }
            }
        }
    }

    #[test]
    fn what_a_tool_does_otherwise_than_its_method_is_said_of_the_tool() {
        let document = Document::read();
        for tool in TOOLS {
            let schemas = [document.input(tool, &[]), document.output(tool)].map(Value::Object);
            let said = format!("{} {} {}", document.words(tool), schemas[0], schemas[1]);
            for limit in ["1 MiB", "oldest first", "never if absent"] {
                assert!(!said.contains(limit), "{}: {limit} in {said}", tool.name);
            }
            let Words::Own { params, .. } = tool.words else { continue };
            for (name, words) in params {
                assert_eq!(schemas[0]["properties"][*name]["description"], json!(words), "{}", tool.name);
            }
        }
    }

    #[test]
    fn words_are_listed_and_what_may_be_absent_is_simply_not_required() {
        let document = Document::read();
        let tool = |name: &str| TOOLS.iter().find(|tool| tool.name == name).expect("a tool");
        let start = document.input(tool("session_start"), &["workspace"]);
        assert_eq!(start["required"], json!(["name"]));
        assert!(start["properties"].get("workspace").is_none());
        let network = &start["properties"]["network"];
        assert_eq!(network["type"], "string");
        assert!(network["description"].as_str().is_some_and(|text| text.ends_with("One of bridge, none.")));
        assert_eq!(start["properties"]["limits"]["properties"]["cpus"]["type"], "number");
        let listed = document.output(tool("session_list"));
        let session = &listed["properties"]["sessions"]["items"];
        assert_eq!(session["properties"]["reason"]["type"], json!(["string", "null"]));
        assert!(session["properties"].get("env").is_none() && session.get("required").is_none());
    }
}
