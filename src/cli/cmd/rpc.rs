//! `abx rpc`: one call, its result on standard output.

mod stdio;

use std::io::Read;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::{Empty, EventSubscribe, Method, RpcDiscover, TerminalOpen, subscribes};
use crate::proto::version::MAX_MESSAGE_BYTES;

/// Calls a method; without one, lists the methods.
pub(crate) fn run(context: &Context, method: Option<&str>, params: Option<&str>) -> Result<u8, Failure> {
    let Some(method) = method else { return list(context) };
    if subscribes(method) {
        let text = format!("{method} tells on its connection, which this command closes after the answer");
        return Err(Failure::usage(text).with_hint(instead(method)));
    }
    let text = match params {
        Some("-") => read_params()?,
        Some(text) => text.to_owned(),
        None => "{}".to_owned(),
    };
    let params = RawValue::from_string(text.trim().to_owned())
        .map_err(|error| Failure::usage(format!("the parameters are not JSON: {error}")))?;
    let result = context.ask(&mut context.connect()?, |client| client.call_raw(method, &params))?;
    context.output.document(result.get());
    Ok(0)
}

/// Makes standard input and output a connection. Standard output is the other program's alone: what goes wrong is said on
/// standard error, as a document too.
pub(crate) fn bridge(context: &Context) -> u8 {
    stdio::run(context).unwrap_or_else(|failure| {
        context.output.failure_aside(&failure);
        failure.exit
    })
}

/// What serves in place of a subscription that would end at once.
fn instead(method: &str) -> &'static str {
    match method {
        EventSubscribe::NAME => "abx events --follow, or abx rpc --stdio",
        TerminalOpen::NAME => "abx attach NAME, or abx rpc --stdio",
        _ => "abx rpc --stdio",
    }
}

fn read_params() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_MESSAGE_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("failed to read the parameters from standard input", &error))?;
    Ok(text)
}

fn list(context: &Context) -> Result<u8, Failure> {
    let document = context.call::<RpcDiscover>(&Empty {})?;
    if context.output.json {
        context.output.data(document.get());
        return Ok(0);
    }
    let document: Value = serde_json::from_str(document.get()).unwrap_or_default();
    let methods = document["methods"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<(&str, &str)> = methods
        .iter()
        .filter_map(|m| {
            let summary = m["summary"].as_str().or(m["description"].as_str()).unwrap_or_default();
            Some((m["name"].as_str()?, summary))
        })
        .collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, summary)| {
            if context.output.quiet {
                clean(name)
            } else {
                format!("{:<width$}  {}", clean(name), clean(summary))
            }
        })
        .collect();
    context.output.data(&lines.join("\n"));
    Ok(0)
}
