//! Every type as a JSON Schema.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::{SCHEMAS, settings};
use crate::proto::stream::{Doing, Exit, Open, Opened, Refused};

/// Where schemas stand in this document.
const DEFS: &str = "#/$defs/";

/// Renders one JSON Schema document with every type of an OpenRPC document: those that have a name by that, and params
/// and result of each method as `METHOD.params` and `METHOD.result`. With it come the types of raw streams, which are no
/// part of that document.
pub fn schemas(openrpc: &Value) -> String {
    let mut types = Map::new();
    for (name, schema) in openrpc["components"]["schemas"].as_object().into_iter().flatten() {
        types.insert(name.clone(), schema.clone());
    }
    for method in openrpc["methods"].as_array().into_iter().flatten() {
        let name = method["name"].as_str().unwrap_or_default();
        types.insert(format!("{name}.params"), params(&method["params"]));
        types.insert(format!("{name}.result"), method["result"]["schema"].clone());
    }
    for (name, schema) in streams() {
        types.entry(name).or_insert(schema);
    }
    types.values_mut().for_each(move_references);
    let document = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The types of abx's socket",
        "description": "Rendered from the code; do not edit. One type is schemas.json#/$defs/NAME. Fields and words \
            that a schema does not name may come: ignore them.",
        "$defs": types,
    });
    // Maps of JSON values have text keys, so this cannot fail.
    let mut text = serde_json::to_string_pretty(&document).expect("a JSON value can be written");
    text.push('\n');
    text
}

/// The types of a raw stream: what opens it, as it is taken, and what is answered, as it is given.
fn streams() -> Map<String, Value> {
    let mut taken = settings().for_deserialize().into_generator();
    taken.subschema_for::<Open>();
    let mut given = settings().for_serialize().into_generator();
    let answers: [fn(&mut SchemaGenerator) -> schemars::Schema; 4] = [
        SchemaGenerator::subschema_for::<Doing>,
        SchemaGenerator::subschema_for::<Opened>,
        SchemaGenerator::subschema_for::<Refused>,
        SchemaGenerator::subschema_for::<Exit>,
    ];
    answers.iter().for_each(|answer| drop(answer(&mut given)));
    let mut types = given.take_definitions(true);
    types.extend(taken.take_definitions(true));
    types
}

fn params(descriptors: &Value) -> Value {
    let descriptors = descriptors.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |descriptor: &Value| descriptor["name"].as_str().unwrap_or_default().to_owned();
    let properties: Map<String, Value> =
        descriptors.iter().map(|param| (name(param), param["schema"].clone())).collect();
    let required: Vec<String> =
        descriptors.iter().filter(|param| param["required"] == true).map(name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn move_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(SCHEMAS)
            {
                *reference = format!("{DEFS}{name}");
            }
            fields.values_mut().for_each(move_references);
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::openrpc;
    use super::*;

    #[test]
    fn every_method_has_its_two_types_and_every_reference_leads_somewhere() {
        let openrpc: Value = serde_json::from_str(&openrpc(&BTreeMap::new())).expect("JSON");
        let text = schemas(&openrpc);
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let types = document["$defs"].as_object().expect("an object");
        assert_eq!(types["session.get.params"]["required"], json!(["name"]));
        assert_eq!(types["session.list.result"]["items"]["$ref"], "#/$defs/Session");
        for stream in ["Open", "Doing", "Opened", "Refused", "Exit", "CopyOpen", "CopyPlace"] {
            assert!(types.contains_key(stream), "{stream} has no schema");
        }
        for reference in text.split("\"$ref\": \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let name = reference.strip_prefix(DEFS).expect("in this document");
            assert!(types.contains_key(name), "{reference} leads nowhere");
        }
    }
}
