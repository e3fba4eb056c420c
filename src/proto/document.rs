//! Renders the protocol documents from the wire types: `openrpc.json`, `schemas.json`, `methods.md` and `errors.md` in
//! `proto-docs`.
//!
//! Compiled only with the feature `schema`. The daemon serves the first; a test compares all of them.

mod text;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::errors::{ErrorData, Kind};
use super::methods::{self, MethodDoc, NotificationDoc};
use super::version::{PROTOCOL, VERSION};

pub use text::methods_md;
pub use types::schemas;

/// The version of the OpenRPC specification that the document follows.
const OPENRPC: &str = "1.3.2";

/// Where schemas stand in the document.
const SCHEMAS: &str = "#/components/schemas/";

/// JSON-RPC's own code, which wrong params are sent with.
const INVALID_PARAMS: i32 = -32602;

/// The kinds that every method may fail with.
const COMMON: [Kind; 3] = [Kind::InvalidParams, Kind::ShuttingDown, Kind::Internal];

/// A call that a test makes, and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The params.
    pub params: Map<String, Value>,
    /// The result, or those parts of it that are the same each time.
    pub result: Value,
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft07().with(|s| s.definitions_path = "/components/schemas".into())
}

/// Renders the OpenRPC document: what `rpc.discover` answers. `examples` are by method.
pub fn openrpc(examples: &BTreeMap<String, Example>) -> String {
    let mut taken = settings().for_deserialize().into_generator();
    let mut given = settings().for_serialize().into_generator();
    let data = schema(&mut given, SchemaGenerator::subschema_for::<ErrorData>);
    let raw: Vec<(Value, Value)> =
        methods::ALL.iter().map(|m| (schema(&mut taken, m.params), schema(&mut given, m.result))).collect();
    let told: Vec<Value> =
        methods::NOTIFICATIONS.iter().map(|doc| notification(doc, &schema(&mut given, doc.params))).collect();
    let taken = taken.take_definitions(true);
    let params: Vec<Vec<Value>> = raw.iter().map(|(params, _)| descriptors(params, &taken)).collect();
    // What the daemon gives always has its fields, what it takes may leave some out. A type that goes both ways is
    // described once, as it is taken.
    let shared = reachable(&taken, &params.iter().flatten().collect::<Vec<_>>());
    let mut definitions = given.take_definitions(true);
    definitions.extend(shared);
    let methods = methods::ALL.iter().zip(params).zip(&raw);
    let methods: Value = methods
        .map(|((doc, params), (_, result))| method(doc, params, result, examples.get(doc.name)))
        .collect();
    let told = Value::from(told);
    let schemas = reachable(&definitions, &[&methods, &told, &data]);
    let errors: Map<String, Value> = Kind::ALL.iter().map(|k| (k.name().to_owned(), error(*k))).collect();
    let document = json!({
        "openrpc": OPENRPC,
        "info": {
            "title": "abx",
            "version": VERSION,
            "description": "Named, persistent sandboxes: the methods of abxd's socket. Framing, limits and the raw \
                stream are in proto-docs/README.md. Errors of abx carry `data` as the schema ErrorData says.",
            "license": { "name": "Apache-2.0" },
            "x-protocol": PROTOCOL,
        },
        "methods": methods,
        "x-notifications": told,
        "components": { "schemas": schemas, "errors": errors },
    });
    // Maps of JSON values have text keys, so this cannot fail.
    let mut text = serde_json::to_string_pretty(&document).expect("a JSON value can be written");
    text.push('\n');
    text
}

/// Renders the table of errors.
pub fn errors_md() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         Rendered from `src/proto/errors.rs`; do not edit. Programs look at `data.kind`: it is stable, the message is \
         prose.\nA kind that a client does not know is to be treated as `internal`. `data` may also hold `hint`, \
         `causes` (outermost\nfirst) and `session`.\n\n\
         | code | kind | meaning |\n| ---: | --- | --- |\n",
    );
    for kind in Kind::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | `{}` | {} |", code(*kind), kind.name(), sentence(kind.doc()));
    }
    text.push_str(
        "\nErrors of JSON-RPC itself have no `kind`:\n\n\
         | code | meaning |\n| ---: | --- |\n\
         | -32700 | The text is not JSON. The answer has `id` null. |\n\
         | -32600 | It is JSON, but not a request; or a message over the size limit, or an empty or over-long batch. |\n\
         | -32601 | No method has this name. |\n\
         | -32800 | The caller cancelled the request with `$/cancelRequest`. What it began goes on, but for a snapshot that is being taken. |\n",
    );
    text.push_str("\n## Which method fails how\n\nEvery method may also fail with ");
    let common: Vec<String> = COMMON.iter().map(|k| format!("`{}`", k.name())).collect();
    text.push_str(&common.join(", "));
    text.push_str(".\n\n| method | kinds |\n| --- | --- |\n");
    for method in methods::ALL {
        let kinds: Vec<String> = method.errors.iter().map(|k| format!("`{}`", k.name())).collect();
        let kinds = if kinds.is_empty() { "-".to_owned() } else { kinds.join(", ") };
        let _ = writeln!(text, "| `{}` | {kinds} |", method.name);
    }
    text
}

fn code(kind: Kind) -> i32 {
    if kind == Kind::InvalidParams { INVALID_PARAMS } else { kind.code() }
}

/// The documentation of a macro-made item, without the space that begins it and the one that ends it.
fn sentence(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn error(kind: Kind) -> Value {
    json!({ "code": code(kind), "message": sentence(kind.doc()), "data": { "kind": kind.name() } })
}

fn schema<F>(generator: &mut SchemaGenerator, make: F) -> Value
where
    F: FnOnce(&mut SchemaGenerator) -> schemars::Schema,
{
    let mut schema = make(generator);
    for transform in generator.transforms_mut() {
        transform.transform(&mut schema);
    }
    schema.to_value()
}

fn method(doc: &MethodDoc, params: Vec<Value>, result: &Value, example: Option<&Example>) -> Value {
    let kinds = doc.errors.iter().copied().chain(COMMON);
    let errors: Vec<Value> =
        kinds.map(|k| json!({ "$ref": format!("#/components/errors/{}", k.name()) })).collect();
    let noun = doc.name.split('.').next().unwrap_or(doc.name);
    let examples: Vec<Value> = example.map(|example| pairing(doc.name, example)).into_iter().collect();
    json!({
        "name": doc.name,
        "summary": doc.doc,
        "tags": [{ "name": noun }],
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": result_name(doc.name), "required": true, "schema": result },
        "errors": errors,
        "examples": examples,
    })
}

/// OpenRPC has no word for what the server sends unasked.
fn notification(doc: &NotificationDoc, params: &Value) -> Value {
    json!({ "name": doc.name, "summary": doc.doc, "params": params })
}

fn result_name(method: &str) -> String {
    format!("{method}.result")
}

/// What OpenRPC calls an example pairing.
fn pairing(method: &str, example: &Example) -> Value {
    let params: Vec<Value> =
        example.params.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    json!({
        "name": method,
        "params": params,
        "result": { "name": result_name(method), "value": example.result },
    })
}

/// One content descriptor for each property of the params; the required ones first, as OpenRPC wants them.
fn descriptors(params: &Value, definitions: &Map<String, Value>) -> Vec<Value> {
    let params = referenced(params).and_then(|name| definitions.get(name)).unwrap_or(params);
    let required: BTreeSet<&str> =
        params["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = params["properties"].as_object() else { return Vec::new() };
    let mut descriptors: Vec<Value> = properties
        .iter()
        .map(|(name, schema)| {
            json!({
                "name": name,
                "summary": schema["description"].as_str().unwrap_or_default(),
                "required": required.contains(name.as_str()),
                "schema": schema,
            })
        })
        .collect();
    descriptors.sort_by_key(|d| d["required"] != true);
    descriptors
}

fn referenced(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(SCHEMAS)
}

/// The definitions that `roots` refer to, directly or not. Params are taken apart into descriptors, so most of their
/// own definitions are needed no more.
fn reachable(definitions: &Map<String, Value>, roots: &[&Value]) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open: Vec<&Value> = roots.to_vec();
    while let Some(value) = open.pop() {
        if let Some((name, definition)) = referenced(value).and_then(|name| definitions.get_key_value(name))
            && !found.contains_key(name)
        {
            found.insert(name.clone(), definition.clone());
            open.push(definition);
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.values()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        serde_json::from_str(&openrpc(&BTreeMap::new())).expect("the document is JSON")
    }

    #[test]
    fn every_method_and_every_kind_is_in_the_document() {
        let document = document();
        let names: Vec<&str> = document["methods"]
            .as_array()
            .expect("an array")
            .iter()
            .filter_map(|m| m["name"].as_str())
            .collect();
        assert_eq!(names, methods::ALL.iter().map(|m| m.name).collect::<Vec<_>>());
        for kind in Kind::ALL {
            assert_eq!(document["components"]["errors"][kind.name()]["data"]["kind"], kind.name());
        }
    }

    #[test]
    fn required_params_come_first_and_are_exactly_those_without_a_default() {
        let document = document();
        let start = document["methods"].as_array().expect("an array").iter();
        let start = start.clone().find(|m| m["name"] == "session.start").expect("session.start");
        let params = start["params"].as_array().expect("an array");
        assert_eq!((&params[0]["name"], &params[0]["required"]), (&json!("name"), &json!(true)));
        assert!(params[1..].iter().all(|p| p["required"] == false), "{params:?}");
        assert!(params.iter().any(|p| p["name"] == "workspace"));
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(reference) = value["$ref"].as_str() {
                let pointer = reference.strip_prefix('#').expect("references stay in the document");
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => open.extend(fields.values()),
                _ => {}
            }
        }
    }

    #[test]
    fn wrong_params_are_listed_with_the_code_they_are_sent_with() {
        assert!(errors_md().contains("| -32602 | `invalid_params` |"));
    }
}
