//! Looking at containers. Read here and not by the library, which fails at the first state that it does not know:
//! one container that podman is about to stop would hide all others.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::{self, ContainerInspectResponse, ContainerSummary, ContainerTopResponse};
use super::link::{About, Link, ORDINARY, SLOW, refused, within};
use crate::engine::hijack;
use crate::engine::{Change, ChangeKind, EngineError};

/// Longest answer that is read, in bytes: some kilobytes for each of many thousand containers.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Containers in whatever state, with all of these labels.
pub(super) async fn all(
    link: &Link,
    call: &'static str,
    labels: &[String],
) -> Result<Vec<ContainerSummary>, EngineError> {
    let filters = encoded(&json!({"label": labels}).to_string());
    let body = get(link, call, &format!("/containers/json?all=true&filters={filters}")).await?;
    let each = |all: &mut Value| {
        for container in all.as_array_mut().into_iter().flatten() {
            name_known_state(container.get_mut("State"));
        }
    };
    body.map_or_else(|| Ok(Vec::new()), |body| parsed(call, &body, each))
}

/// One container by id or name; none if it is not there.
pub(super) async fn one(
    link: &Link,
    call: &'static str,
    id: &str,
) -> Result<Option<ContainerInspectResponse>, EngineError> {
    let body = get(link, call, &format!("/containers/{id}/json")).await?;
    let its = |container: &mut Value| name_known_state(container.pointer_mut("/State/Status"));
    body.map(|body| parsed(call, &body, its)).transpose()
}

/// Bytes that a container has written to files of its own; none if it is not there. The engine looks at each of them.
pub(super) async fn written(link: &Link, id: &str) -> Result<Option<u64>, EngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Sized {
        size_rw: Option<i64>,
    }
    let call = "written_bytes";
    let body = get_within(link, call, &format!("/containers/{id}/json?size=true"), SLOW).await?;
    let sized = body.map(|body| parsed::<Sized>(call, &body, |_| {})).transpose()?;
    Ok(sized.map(|sized| sized.size_rw.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)))
}

/// What runs in a sandbox; none where it ended meanwhile, or the engine cannot say.
pub(super) async fn processes(link: &Link, id: &str) -> Result<Option<ContainerTopResponse>, EngineError> {
    let top = link.call("excluded", ORDINARY, About::Sandbox(id), |client| async move {
        client.docker.top_processes(id, None).await
    });
    match top.await {
        Ok(top) => Ok(Some(top)),
        Err(EngineError::Conflict { .. } | EngineError::Failed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The body of a success; none of a 404.
async fn get(link: &Link, call: &'static str, path: &str) -> Result<Option<Bytes>, EngineError> {
    get_within(link, call, path, ORDINARY).await
}

async fn get_within(
    link: &Link,
    call: &'static str,
    path: &str,
    deadline: Duration,
) -> Result<Option<Bytes>, EngineError> {
    let client = link.client().await?;
    let ask = async {
        let request = Request::get(client.path(path)).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| EngineError::Failed { call, text: error.to_string() })?;
        let answer = hijack::send(&client.candidate.address, request).await;
        let answer = answer.map_err(|error| link.broken(&client, &error.to_string()))?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => match whole(answer).await {
                Ok(body) => Ok(Some(body)),
                Err(error) if error.is::<LengthLimitError>() => {
                    let text = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
                    Err(EngineError::Failed { call, text })
                }
                Err(error) => Err(link.broken(&client, &hijack::chain(&*error))),
            },
            status => Err(refused(call, About::Nothing, status.as_u16(), hijack::error_text(answer).await)),
        }
    };
    within(call, deadline, ask).await?
}

async fn whole(answer: Response<Incoming>) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await?.to_bytes())
}

/// Reads an answer; where the library's types do not take it, once more with states that they know.
fn parsed<T: DeserializeOwned>(
    call: &'static str,
    body: &[u8],
    name_known_states: impl Fn(&mut Value),
) -> Result<T, EngineError> {
    let first = serde_json::from_slice(body);
    let read = first.or_else(|_| {
        let mut value: Value = serde_json::from_slice(body)?;
        name_known_states(&mut value);
        serde_json::from_value(value)
    });
    read.map_err(|error| EngineError::Failed { call, text: format!("its answer cannot be read: {error}") })
}

/// Puts Docker's word for a state of podman's; none for what nobody knows.
fn name_known_state(state: Option<&mut Value>) {
    let Some(state) = state else { return };
    let known = match state.as_str().unwrap_or_default() {
        "configured" | "initialized" => "created",
        "stopped" => "exited",
        docker @ ("created" | "running" | "paused" | "restarting" | "exited" | "removing" | "dead"
        | "stopping") => docker,
        _ => "",
    };
    *state = json!(known);
}

/// Text as a part of a path's query.
pub(super) fn encoded(text: &str) -> String {
    let mut all = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            all.push(char::from(byte));
        } else {
            all.push_str(&format!("%{byte:02X}"));
        }
    }
    all
}

/// What a container has otherwise than its image.
pub(super) async fn changes(link: &Link, id: &str) -> Result<Vec<Change>, EngineError> {
    let all = link
        .call("changes", SLOW, About::Sandbox(id), |client| async move {
            client.docker.container_changes(id).await
        })
        .await?;
    let change = |seen: api::FilesystemChange| {
        let kind = match seen.kind {
            api::ChangeType::_0 => ChangeKind::Modified,
            api::ChangeType::_1 => ChangeKind::Added,
            api::ChangeType::_2 => ChangeKind::Deleted,
        };
        Change { kind, path: seen.path }
    };
    Ok(all.unwrap_or_default().into_iter().map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_a_query_keeps_every_byte() {
        assert_eq!(encoded("a-b_c.~ &=+\"/é%"), "a-b_c.~%20%26%3D%2B%22%2F%C3%A9%25");
    }

    #[test]
    fn only_states_that_nobody_knows_are_replaced() {
        for (theirs, ours) in
            [("stopped", "exited"), ("configured", "created"), ("running", "running"), ("novel", "")]
        {
            let mut state = json!(theirs);
            name_known_state(Some(&mut state));
            assert_eq!(state, ours);
        }
    }
}
