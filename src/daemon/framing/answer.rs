//! The texts of answers that no method gives: errors of JSON-RPC itself, and of the door.

use jsonrpsee::types::ErrorObjectOwned;
use serde::Serialize;

use super::envelope::NO_ID;
use crate::proto::errors::{ErrorData, Kind, WireError};
use crate::proto::stream::Refused;
use crate::proto::version::MAX_MESSAGE_BYTES;

/// The text is not JSON.
pub(super) const PARSE_ERROR: i32 = -32700;
/// The JSON is not a request.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// No such method.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// The method has no such params.
pub(super) const INVALID_PARAMS: i32 = -32602;
/// The client no longer wants the answer; the language servers' code.
pub(super) const REQUEST_CANCELLED: i32 = -32800;

/// Longest part of a client's own text that an error repeats, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// What every response of the method table begins with, since its methods are called with id null.
const TABLE_PREFIX: &str = r#"{"jsonrpc":"2.0","id":null,"#;

/// The error of a kind, as a method gives it.
pub(super) fn failure(kind: Kind, message: &str) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(code(kind), message, Some(data(kind)))
}

/// An error object of JSON-RPC itself.
pub(super) fn plain(id: &str, code: i32, message: &str) -> Vec<u8> {
    error(id, &WireError { code, message: message.to_owned(), data: None })
}

/// An error of one of our kinds.
pub(super) fn of_kind(id: &str, kind: Kind, message: &str) -> Vec<u8> {
    error(id, &WireError { code: code(kind), message: message.to_owned(), data: Some(data(kind)) })
}

/// The answer of a daemon that stops to what it has not begun.
pub(super) fn not_begun(id: &str, message: &str) -> Vec<u8> {
    let data = ErrorData { begun: Some(false), ..data(Kind::ShuttingDown) };
    error(id, &WireError { code: code(Kind::ShuttingDown), message: message.to_owned(), data: Some(data) })
}

/// The answer to a message that is too long; `seen` bytes of it are known of.
pub(super) fn too_long(seen: u64) -> Vec<u8> {
    let text = format!("message of {seen} bytes or more is over the limit of {MAX_MESSAGE_BYTES}");
    plain(NO_ID, INVALID_REQUEST, &text)
}

/// The answer to a text that is none.
pub(super) fn not_utf8() -> Vec<u8> {
    plain(NO_ID, PARSE_ERROR, "Parse error: not UTF-8")
}

/// The answer to a connection that speaks nothing known: a line.
pub(super) fn garbage() -> Vec<u8> {
    let mut line =
        plain(NO_ID, PARSE_ERROR, "Parse error: neither JSON, Content-Length, HTTP nor a raw stream");
    line.push(b'\n');
    line
}

/// The refusal of a raw stream: a line.
pub(super) fn refused(kind: Kind, message: &str) -> Vec<u8> {
    let error = WireError { code: kind.code(), message: message.to_owned(), data: Some(data(kind)) };
    let mut line = serde_json::to_vec(&Refused { error }).expect("strings and numbers always encode");
    line.push(b'\n');
    line
}

/// The answer to an unknown method.
pub(super) fn not_found(id: &str, method: &str) -> Vec<u8> {
    let name: String = method.chars().take(MAX_QUOTED_CHARS).collect();
    plain(id, METHOD_NOT_FOUND, &format!("Method not found: {name:?}"))
}

/// Puts the client's id into a response of the method table.
pub(super) fn with_id(response: &str, id: &str) -> Vec<u8> {
    let Some(rest) = response.strip_prefix(TABLE_PREFIX) else {
        tracing::error!("the method table changed the form of its responses");
        return of_kind(id, Kind::Internal, "the response could not be addressed");
    };
    let mut text = Vec::with_capacity(response.len() + id.len());
    text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    text.extend_from_slice(id.as_bytes());
    text.push(b',');
    text.extend_from_slice(rest.as_bytes());
    text
}

/// A notification's text.
pub(super) fn notification(method: &str, params: &impl Serialize) -> Option<Vec<u8>> {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'static str,
        method: &'a str,
        params: P,
    }
    serde_json::to_vec(&Notification { jsonrpc: "2.0", method, params }).ok()
}

fn code(kind: Kind) -> i32 {
    if kind == Kind::InvalidParams { INVALID_PARAMS } else { kind.code() }
}

fn data(kind: Kind) -> ErrorData {
    ErrorData { kind: kind.name().to_owned(), ..ErrorData::default() }
}

fn error(id: &str, error: &WireError) -> Vec<u8> {
    let error = serde_json::to_string(error).expect("strings and numbers always encode");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use jsonrpsee::RpcModule;

    use super::*;

    #[tokio::test]
    async fn the_method_table_still_answers_in_the_form_that_ids_are_put_into() {
        let mut module = RpcModule::new(());
        module.register_method("one", |_, (), _| 1).expect("a new name");
        let request = r#"{"jsonrpc":"2.0","id":null,"method":"one"}"#;
        let (response, _) = module.raw_json_request(request, 1).await.expect("a response");
        let text = String::from_utf8(with_id(response.get(), "-1.50")).expect("text");
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":-1.50,"result":1}"#);
    }
}
