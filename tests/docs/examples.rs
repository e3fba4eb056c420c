//! Examples of calls, out of the transcripts that a test replays.

use std::collections::BTreeMap;

use abx::proto::document::Example;
use serde_json::{Map, Value, json};

use super::{files_under, read};

/// The first call of each method in the transcripts that succeeds.
pub(super) fn examples() -> BTreeMap<String, Example> {
    let mut examples = BTreeMap::new();
    for transcript in files_under("proto-docs/transcripts", ".jsonl") {
        let lines: Vec<Value> =
            read(&transcript).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for sent in lines.iter().filter_map(|line| line.get("send")).filter(|sent| sent["id"].is_number()) {
            let answer = lines
                .iter()
                .filter_map(|line| line.get("expect"))
                .find(|answer| answer["id"] == sent["id"] && answer.get("result").is_some());
            if let (Some(method), Some(answer)) = (sent["method"].as_str(), answer) {
                let params: Map<String, Value> = sent["params"].as_object().cloned().unwrap_or_default();
                let params = params.into_iter().map(|(name, value)| (name, shown(&value))).collect();
                let example = Example { params, result: shown(&answer["result"]) };
                examples.entry(method.to_owned()).or_insert(example);
            }
        }
    }
    examples
}

/// A message as a reader wants to see it: what may be anything is left out, and what has a form stands for itself.
fn shown(value: &Value) -> Value {
    match value {
        Value::String(word) if word == "$time" => json!("2026-02-01T10:20:30.123Z"),
        Value::String(word) if word.ends_with("subscription") && word.starts_with('$') => json!(1),
        Value::String(word) if word.starts_with('$') => json!("019c1b2e-7d3b-7c4a-9f21-5e6d7c8b9a01"),
        Value::Array(items) => items.iter().map(shown).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| *value != "$any")
                .map(|(name, value)| (name.clone(), shown(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

#[test]
fn every_method_has_an_example() {
    let examples = examples();
    let without: Vec<&str> = abx::proto::methods::ALL
        .iter()
        .map(|m| m.name)
        .filter(|name| !examples.contains_key(*name))
        .collect();
    assert!(without.is_empty(), "no transcript has a call that succeeds of {without:?}");
}
