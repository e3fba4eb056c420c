//! The engine's events, as hints.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Request, Response};

use super::api::EventMessage;
use super::link::{About, Client, Link, ORDINARY, PROBE, refused};
use super::observe;
use crate::engine::hijack;
use crate::engine::{EngineError, Hint};

/// `type=container`, encoded. Not by label: podman's events leave labels out.
const PATH: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";

/// Longest event, in bytes: its attributes hold all labels of the container.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// Follows the events of all containers. With Docker they are followed from when this returns; podman may hold its
/// answer back until the first event, and then from its first answer on.
pub(super) async fn follow(
    link: &Arc<Link>,
) -> Result<BoxStream<'static, Result<Hint, EngineError>>, EngineError> {
    let client = link.client().await?;
    let mut head = Box::pin(ask(Arc::clone(link), client));
    match tokio::time::timeout(PROBE, &mut head).await {
        Ok(answer) => answer,
        Err(_) => {
            let late = async move {
                match tokio::time::timeout(ORDINARY, head).await {
                    Ok(Ok(events)) => events,
                    Ok(Err(error)) => stream::iter([Err(error)]).boxed(),
                    Err(_) => {
                        let error = EngineError::Timeout { call: "hints", after: ORDINARY };
                        stream::iter([Err(error)]).boxed()
                    }
                }
            };
            Ok(stream::once(late).flatten().fuse().boxed())
        }
    }
}

async fn ask(
    link: Arc<Link>,
    client: Arc<Client>,
) -> Result<BoxStream<'static, Result<Hint, EngineError>>, EngineError> {
    let request = Request::get(client.path(PATH)).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| EngineError::Failed { call: "hints", text: error.to_string() })?;
    let answer = hijack::send(&client.candidate.address, request).await;
    let answer = answer.map_err(|error| link.broken(&client, &error.to_string()))?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        return Err(refused("hints", About::Nothing, status, hijack::error_text(answer).await));
    }
    let events = Events { body: answer, buffer: BytesMut::new(), link, client };
    let events = stream::unfold(Some(events), |events| async {
        let mut events = events?;
        match events.next().await? {
            Ok(hint) => Some((Ok(hint), Some(events))),
            Err(error) => Some((Err(error), None)),
        }
    });
    // Who gathers hints for a while may ask once more after the end.
    Ok(events.fuse().boxed())
}

struct Events {
    body: Response<Incoming>,
    buffer: BytesMut,
    link: Arc<Link>,
    client: Arc<Client>,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Hint, EngineError>> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                // What this version does not understand is no hint.
                let event = serde_json::from_slice::<EventMessage>(&line).ok();
                if let Some(hint) = event.and_then(observe::hint) {
                    return Some(Ok(hint));
                }
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                let text = format!("an event is longer than {MAX_EVENT_BYTES} bytes");
                return Some(Err(EngineError::Failed { call: "hints", text }));
            }
            match self.body.body_mut().frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    return Some(Err(self.link.broken(&self.client, &hijack::chain(&error))));
                }
                None => {
                    // The engine stops: it may come back as another version.
                    self.link.forget(&self.client);
                    return None;
                }
            }
        }
    }
}
