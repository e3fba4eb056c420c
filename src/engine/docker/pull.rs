//! Pulling images.

use std::time::Duration;

use futures_util::{Stream, StreamExt};

use super::api::CreateImageOptionsBuilder;
use super::link::{About, Link};
use super::{is_reference, snapshot};
use crate::engine::{EngineError, Image, Progress, PullProgress};

/// Longest silence between two steps of a pull, and before the first. Engines tell of every layer several times a
/// second; only a registry that is slow to answer, or the checksum of a layer of many gigabytes, takes minutes.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// Pulls, as long as it takes while it goes on.
pub(super) async fn pull(link: &Link, reference: &str, progress: Progress) -> Result<Image, EngineError> {
    let refusal =
        |text: &str| EngineError::NoImage { reference: reference.to_owned(), text: text.to_owned() };
    if !is_reference(reference) {
        return Err(refusal("that is not the name of an image"));
    }
    let full = with_tag(reference);
    let client = link.client().await?;
    let options = CreateImageOptionsBuilder::new().from_image(&full).build();
    let mut steps = std::pin::pin!(client.docker.create_image(Some(options), None, None));
    while let Some(step) = next_step(&mut steps).await? {
        let step =
            step.map_err(|error| match link.explain(&client, "pull", About::Image(reference), error) {
                EngineError::Failed { text, .. } | EngineError::Conflict { text, .. } => refusal(&text),
                other => other,
            })?;
        let bytes = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
        let detail = step.progress_detail.unwrap_or_default();
        progress(PullProgress {
            layer: step.id.unwrap_or_default(),
            status: step.status.unwrap_or_default(),
            current_bytes: bytes(detail.current),
            total_bytes: bytes(detail.total),
        });
    }
    snapshot::inspect(link, &full).await?.ok_or_else(|| refusal("the engine pulled it and does not have it"))
}

/// The next step, if there is one, unless it is too long in coming.
async fn next_step<S: Stream + Unpin>(steps: &mut S) -> Result<Option<S::Item>, EngineError> {
    let late = |_| EngineError::Timeout { call: "pull", after: SILENCE };
    tokio::time::timeout(SILENCE, steps.next()).await.map_err(late)
}

/// The reference with `latest` where it has neither tag nor digest: the engine would pull every tag.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pull_may_take_hours_but_not_fall_silent() {
        let slow = stream::iter(0..100).then(|n| async move {
            tokio::time::sleep(SILENCE - Duration::from_secs(1)).await;
            n
        });
        let mut steps = std::pin::pin!(slow.chain(stream::pending()));
        for n in 0..100 {
            assert_eq!(next_step(&mut steps).await.expect("in time"), Some(n));
        }
        let silent = next_step(&mut steps).await;
        assert!(matches!(silent, Err(EngineError::Timeout { call: "pull", after: SILENCE })), "{silent:?}");
    }

    #[test]
    fn a_reference_without_tag_is_the_latest_and_others_are_kept() {
        for (text, want) in [
            ("debian", "debian:latest"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("debian:stable-slim", "debian:stable-slim"),
            ("a/b@sha256:00", "a/b@sha256:00"),
        ] {
            assert_eq!(with_tag(text), want);
        }
    }
}
