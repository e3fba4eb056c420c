//! Pulling images.

use futures_util::StreamExt;

use super::api::CreateImageOptionsBuilder;
use super::link::{About, Link};
use super::{is_reference, snapshot};
use crate::engine::{EngineError, Image, Progress, PullProgress};

/// Pulls, as long as it takes: only the connection has a deadline.
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
    while let Some(step) = steps.next().await {
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

/// The reference with `latest` where it has neither tag nor digest: the engine would pull every tag.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

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
