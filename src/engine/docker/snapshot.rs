//! Snapshots: images that carry a sandbox's files and the configuration of the image it was made from.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::json;

use super::api::{
    self, CommitContainerOptionsBuilder, ContainerConfig, ImageConfig, ListImagesOptionsBuilder,
    RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use super::link::{About, Client, Link, ORDINARY, SLOW};
use super::{containers, observe};
use crate::engine::{CommitSpec, EngineError, Image, labels};
use crate::model::id::SnapshotId;

/// The first podman that reads the configuration in a commit's body.
const PODMAN_READS_CONFIG: u32 = 5;

/// Layers from which on no snapshot is taken: engines fail at 125, and a container needs a few more of its own.
const MAX_LAYERS: usize = 120;

/// How often a tag is taken away from under an engine that comes upon images which others remove: as many removals as
/// may well go on beside it.
const UNTAG_TRIES: u32 = 8;

pub(super) async fn commit(link: &Link, spec: &CommitSpec) -> Result<Image, EngineError> {
    let reference = labels::snapshot_reference(&spec.snapshot);
    if let Some(done) = inspect(link, &reference).await? {
        return Ok(done);
    }
    let about = About::Sandbox(&spec.sandbox_id);
    let seen = containers::one(link, "commit", &spec.sandbox_id).await?;
    let seen = seen.ok_or_else(|| EngineError::NoSandbox { id: spec.sandbox_id.clone() })?;
    let ended_at_ms = observe::ended_at_ms(seen.state.as_ref());
    let base = seen.image.unwrap_or_default();
    let found = link
        .call("commit", ORDINARY, About::Nothing, |client| async move {
            optional(client.docker.inspect_image(&base).await)
        })
        .await?;
    let base_config = found.as_ref().and_then(|image| image.config.clone()).unwrap_or_default();
    let base = found.map(observe::image);
    base.as_ref().map_or(Ok(()), has_room)?;
    let labels = labels::snapshot(spec, base.as_ref(), ended_at_ms);
    let config = config(labels, base_config);
    let mut options = CommitContainerOptionsBuilder::new()
        .container(&spec.sandbox_id)
        .repo(labels::SNAPSHOT_REPOSITORY)
        .tag(spec.snapshot.as_str())
        .comment(&spec.name)
        .pause(false);
    if link.client().await?.podman.is_some_and(|major| major < PODMAN_READS_CONFIG) {
        options = options.changes(&changes(&config));
    }
    let options = options.build();
    let made = link
        .call_alive("commit", spec.patience, about, |client| async move {
            client.docker.commit_container(options, config).await
        })
        .await?;
    inspect(link, &made.id).await?.ok_or_else(|| gone(&made.id))
}

/// Refuses a snapshot of what stands on too many already.
fn has_room(base: &Image) -> Result<(), EngineError> {
    let layers = base.layers.len();
    if layers < MAX_LAYERS {
        return Ok(());
    }
    Err(EngineError::Limit {
        text: format!(
            "the sandbox stands on {layers} layers of snapshots and engines fail beyond {MAX_LAYERS}; \
             start a session from a fresh image and copy the files over"
        ),
    })
}

/// The image's configuration as it was before abx ran its own main program on it.
///
/// The engine fills what is empty here from the container: a command unless there is an entrypoint, and an entrypoint
/// unless it is there and empty. So both are always given.
fn config(labels: BTreeMap<String, String>, base: ImageConfig) -> ContainerConfig {
    let entrypoint = base.entrypoint.unwrap_or_default();
    ContainerConfig {
        labels: Some(labels.into_iter().collect()),
        entrypoint: Some(entrypoint),
        cmd: base.cmd,
        working_dir: Some(base.working_dir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".to_owned())),
        user: base.user,
        stop_signal: base.stop_signal,
        on_build: base.on_build,
        shell: base.shell,
        args_escaped: base.args_escaped,
        ..ContainerConfig::default()
    }
}

/// The configuration as instructions, for a podman that takes nothing else. They have no quoting: a value goes to the
/// end of its line.
fn changes(config: &ContainerConfig) -> String {
    let line = |text: &str| text.replace(['\n', '\r'], " ");
    let list = |words: &Option<Vec<String>>| json!(words.as_deref().unwrap_or_default()).to_string();
    let mut all =
        vec![format!("ENTRYPOINT {}", list(&config.entrypoint)), format!("CMD {}", list(&config.cmd))];
    for (instruction, value) in
        [("WORKDIR", &config.working_dir), ("USER", &config.user), ("STOPSIGNAL", &config.stop_signal)]
    {
        all.extend(
            value.iter().filter(|value| !value.is_empty()).map(|v| format!("{instruction} {}", line(v))),
        );
    }
    let labels = config.labels.iter().flatten();
    all.extend(labels.map(|(key, value)| format!("LABEL {key}={}", line(value))));
    all.join("\n")
}

pub(super) async fn images(link: &Link, home: &str) -> Result<Vec<Image>, EngineError> {
    let label = format!("{}={home}", labels::SNAPSHOT_HOME);
    let listed = tagged(link, &label).await?;
    unpark(link, &listed).await?;
    let mut all = Vec::new();
    for Tagged { tags, id, .. } in listed {
        if tags.iter().all(|tag| is_parked(tag)) {
            continue;
        }
        let Some(image) = inspect(link, &id).await? else { continue };
        let reference = image
            .labels
            .get(labels::SNAPSHOT_ID)
            .map(|snapshot| labels::snapshot_reference(&SnapshotId::new(snapshot.as_str())));
        // One without its tag was deleted, and stays only because something stands on it.
        if reference.is_some_and(|reference| tags.contains(&reference)) {
            all.push(image);
        }
    }
    Ok(all)
}

pub(super) async fn remove(link: &Link, snapshot: &SnapshotId) -> Result<(), EngineError> {
    let reference = labels::snapshot_reference(snapshot);
    match untag(link, &reference).await {
        Err(EngineError::Conflict { .. }) => {}
        other => return other,
    }
    tag(link, "remove_snapshot", &reference, (labels::PARKED_REPOSITORY, snapshot.as_str())).await?;
    untag(link, &reference).await
}

/// Lets a snapshot's tag go over to another image. The one that had it waits for all that needs it to go.
pub(super) async fn replace(
    link: &Link,
    snapshot: &SnapshotId,
    old: &str,
    image_id: &str,
) -> Result<(), EngineError> {
    // Not the tag that it would have if its snapshot were deleted: that is for the other one.
    let parked = format!("{snapshot}-deep");
    tag(link, "replace_snapshot", old, (labels::PARKED_REPOSITORY, &parked)).await?;
    tag(link, "replace_snapshot", image_id, (labels::SNAPSHOT_REPOSITORY, snapshot.as_str())).await
}

async fn tag(
    link: &Link,
    call: &'static str,
    image: &str,
    (repository, tag): (&str, &str),
) -> Result<(), EngineError> {
    let options = TagImageOptionsBuilder::new().repo(repository).tag(tag).build();
    link.call(call, ORDINARY, About::Image(image), |client| async move {
        client.docker.tag_image(image, Some(options)).await
    })
    .await
}

/// Removes the image that a container stood on, if it only waited for that container to go.
pub(super) async fn sweep(link: &Link, image_id: &str) -> Result<(), EngineError> {
    let id = image_id.to_owned();
    let found = link
        .call("remove", ORDINARY, About::Nothing, |client| async move {
            optional(client.docker.inspect_image(&id).await)
        })
        .await?;
    let tags = found.and_then(|image| image.repo_tags).unwrap_or_default();
    for tag in tags.iter().filter(|tag| is_parked(tag)) {
        match untag(link, tag).await {
            // Another container stands on it as well.
            Err(EngineError::Conflict { .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Removes those of these images that waited for a container that others removed, or for a snapshot on top of them.
async fn unpark(link: &Link, images: &[Tagged]) -> Result<(), EngineError> {
    let parked: Vec<&Tagged> =
        images.iter().filter(|image| image.is_free_but_for_containers(images)).collect();
    if parked.is_empty() {
        return Ok(());
    }
    let containers = containers::all(link, "images", &[]).await?;
    let used: HashSet<String> =
        containers.into_iter().filter_map(|seen| seen.image_id).map(plain_id).collect();
    for Tagged { tags, id, .. } in parked {
        if used.contains(id) {
            continue;
        }
        for tag in tags {
            match untag(link, tag).await {
                // A container was made of it, or something stands on it that carries no label of ours.
                Err(EngineError::Conflict { .. }) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

impl Tagged {
    /// Whether the image waits, and none of the others stands on it.
    fn is_free_but_for_containers(&self, others: &[Self]) -> bool {
        !self.tags.is_empty()
            && self.tags.iter().all(|tag| is_parked(tag))
            && !others.iter().any(|other| other.parent == self.id)
    }
}

fn is_parked(tag: &str) -> bool {
    plain_tag(tag).split_once(':').is_some_and(|(repository, _)| repository == labels::PARKED_REPOSITORY)
}

/// Takes a tag away, and with the last one the image. An engine that comes upon an image which somebody else removes in
/// that moment breaks off with an error of its own; the tag may be gone then or not, and asking again tells.
async fn untag(link: &Link, reference: &str) -> Result<(), EngineError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let name = reference.to_owned();
        let options = RemoveImageOptionsBuilder::new().force(false).build();
        let removed = link
            .call("remove_snapshot", SLOW, About::Nothing, |client| async move {
                optional(client.docker.remove_image(&name, Some(options), None).await).map(|_| ())
            })
            .await;
        match removed {
            Err(EngineError::Failed { text, .. }) if tries < UNTAG_TRIES && lost_a_race(&text) => {}
            removed => return removed,
        }
    }
}

/// Whether this is how an engine says that an image went away while it looked at it.
fn lost_a_race(text: &str) -> bool {
    text.contains("unrecognized image ID")
}

/// What a list says of an image.
struct Tagged {
    tags: Vec<String>,
    id: String,
    /// The image that it was made from, if it is known here.
    parent: String,
}

/// Every image with this label.
async fn tagged(link: &Link, label: &str) -> Result<Vec<Tagged>, EngineError> {
    let filters = HashMap::from([("label", vec![label])]);
    let options = ListImagesOptionsBuilder::new().filters(&filters).build();
    let all = link
        .call("images", ORDINARY, About::Nothing, |client| async move {
            client.docker.list_images(Some(options)).await
        })
        .await?;
    let tagged = |image: api::ImageSummary| Tagged {
        tags: image.repo_tags.iter().map(|tag| plain_tag(tag).to_owned()).collect(),
        id: plain_id(image.id),
        parent: plain_id(image.parent_id),
    };
    Ok(all.into_iter().map(tagged).collect())
}

/// Podman names a host where there is none: its own, or the one that a name without a host stands for.
fn plain_tag(tag: &str) -> &str {
    let hosts = ["localhost/", "docker.io/library/"];
    hosts.iter().find_map(|host| tag.strip_prefix(host)).unwrap_or(tag)
}

/// Podman gives some ids without what they are.
fn plain_id(id: String) -> String {
    if id.is_empty() || id.contains(':') { id } else { format!("sha256:{id}") }
}

/// An image by reference or id; none if it is not there.
pub(super) async fn inspect(link: &Link, reference: &str) -> Result<Option<Image>, EngineError> {
    let name = reference.to_owned();
    let found = link
        .call("image", ORDINARY, About::Nothing, |client: std::sync::Arc<Client>| async move {
            optional(client.docker.inspect_image(&name).await)
        })
        .await?;
    Ok(found.map(observe::image))
}

/// What is not there is no failure.
pub(super) fn optional<T>(answer: Result<T, api::Error>) -> Result<Option<T>, api::Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(api::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(id: &str) -> EngineError {
    EngineError::NoImage { reference: id.to_owned(), text: "it went away as soon as it was made".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_on_too_many_layers_is_refused_as_a_limit() {
        let base = |layers| Image { layers: vec![String::new(); layers], ..Image::default() };
        has_room(&base(MAX_LAYERS - 1)).expect("one more fits");
        let refused = has_room(&base(MAX_LAYERS)).expect_err("full");
        assert!(matches!(&refused, EngineError::Limit { text } if text.contains("120 layers")), "{refused}");
    }

    #[test]
    fn instructions_hold_one_value_a_line_whatever_is_in_it() {
        let config = ContainerConfig {
            cmd: Some(vec!["a b".to_owned(), "\n".to_owned()]),
            working_dir: Some("/w".to_owned()),
            labels: Some(HashMap::from([("k".to_owned(), "v \"q\"\nLABEL evil=1".to_owned())])),
            ..ContainerConfig::default()
        };
        let want = "ENTRYPOINT []\nCMD [\"a b\",\"\\n\"]\nWORKDIR /w\nLABEL k=v \"q\" LABEL evil=1";
        assert_eq!(changes(&config), want);
    }

    #[test]
    fn tags_are_the_same_whatever_host_podman_puts_before_them() {
        for tag in ["abx-parked:1", "localhost/abx-parked:1", "docker.io/library/abx-parked:1"] {
            assert!(is_parked(tag), "{tag}");
        }
        assert!(!is_parked("example.com/abx-parked:1") && !is_parked("abx-snapshot:1"));
    }

    #[test]
    fn only_an_image_that_waits_with_nothing_on_top_is_free() {
        let image = |id: &str, tags: &[&str], parent: &str| Tagged {
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            id: id.to_owned(),
            parent: parent.to_owned(),
        };
        let all = [
            image("below", &["abx-parked:1"], "base"),
            image("top", &["abx-parked:2"], "below"),
            image("both", &["abx-parked:3", "abx-snapshot:3"], "base"),
            image("mine", &["mine:1"], "base"),
            image("bare", &[], "base"),
        ];
        let free = all.iter().filter(|i| i.is_free_but_for_containers(&all)).map(|i| i.id.as_str());
        assert_eq!(free.collect::<Vec<_>>(), ["top"]);
    }
}
