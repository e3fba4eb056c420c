//! Files of a container, in whatever state it is: the engine's archive calls, and what its image says of its commands.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response};
use tokio::sync::mpsc;

use super::api;
use super::containers::{self, encoded};
use super::link::{About, IMAGE, Link, ORDINARY, SLOW, refused, within};
use super::observe;
use super::snapshot::optional;
use crate::engine::{Archive, ArchiveSource, EngineError, FileKind, PathStat, SandboxDefaults, hijack};

/// How long the engine may give or take nothing of an archive, before that is an error.
const STALL: Duration = SLOW;

/// Chunks of an archive on their way to the engine: enough to keep its socket filled.
const QUEUE_CHUNKS: usize = 4;

/// Bits of a file's mode as Go's `os.FileMode` has them, in which engines tell it.
mod go_mode {
    pub(super) const DIRECTORY: u32 = 1 << 31;
    pub(super) const SYMLINK: u32 = 1 << 27;
    /// Device, pipe, socket, character device, irregular.
    pub(super) const SPECIAL: u32 = 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;
    /// Set-user-id, set-group-id and sticky, and the bits that Unix has for them.
    pub(super) const EXTRA: [(u32, u32); 3] = [(1 << 23, 0o4000), (1 << 22, 0o2000), (1 << 20, 0o1000)];
}

pub(super) async fn sandbox_defaults(link: &Link, id: &str) -> Result<SandboxDefaults, EngineError> {
    let seen = containers::one(link, "sandbox_defaults", id).await?;
    let seen = seen.ok_or_else(|| EngineError::NoSandbox { id: id.to_owned() })?;
    let mounts = observe::excluded(&seen, None).into_iter().filter(|mount| mount.kind == "tmpfs");
    let tmpfs = mounts.map(|mount| mount.target).collect();
    let image = seen.image.unwrap_or_default();
    let image = link.call("sandbox_defaults", ORDINARY, About::Nothing, |client| async move {
        optional(client.docker.inspect_image(&image).await)
    });
    let (user, cwd) = match image.await?.map(|image| image.config.unwrap_or_default()) {
        Some(config) => (config.user, config.working_dir),
        // Somebody removed the image by force: the container still has what came of it.
        None => {
            let config = seen.config.unwrap_or_default();
            (config.user, config.working_dir)
        }
    };
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let read_only_root = seen.host_config.and_then(|host| host.readonly_rootfs).unwrap_or(false);
    Ok(SandboxDefaults { user: said(user), cwd: said(cwd), read_only_root, tmpfs })
}

pub(super) async fn stat(link: &Link, id: &str, path: &str) -> Result<Option<PathStat>, EngineError> {
    let seen = link
        .call("stat_path", ORDINARY, About::Sandbox(id), |client| async move {
            let options = api::ContainerArchiveInfoOptionsBuilder::new().path(path).build();
            match client.docker.get_container_archive_info(id, Some(options)).await {
                Ok(seen) => Ok(Some(seen)),
                Err(api::Error::DockerResponseServerError { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await?;
    match seen {
        Some(seen) => Ok(Some(path_stat(seen))),
        // The answer to a look has no words; that to a read says what is missing: the path or the container.
        None => match read(link, id, path).await {
            Ok(_) => Err(EngineError::Failed { call: "stat_path", text: "it cannot look at it".to_owned() }),
            Err(EngineError::NoPath { .. }) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

pub(super) async fn read(link: &Link, id: &str, path: &str) -> Result<Archive, EngineError> {
    let call = "read_archive";
    let place = format!("/containers/{id}/archive?path={}", encoded(path));
    match get(link, call, &place, SLOW).await? {
        Ok(archive) => Ok(archive),
        Err(answer) => Err(refusal(call, id, path, answer).await),
    }
}

/// All files of a container but those of its mounts.
pub(super) async fn export(link: &Link, id: &str) -> Result<Archive, EngineError> {
    let call = "export";
    match get(link, call, &format!("/containers/{id}/export"), SLOW).await? {
        Ok(archive) => Ok(archive),
        Err(answer) => Err(refusal(call, id, "/", answer).await),
    }
}

/// Images with their layers. The engine gathers them all before it says a word.
pub(super) async fn images(link: &Link, ids: &[&str]) -> Result<Archive, EngineError> {
    let call = "image_archive";
    let names: Vec<String> = ids.iter().map(|id| format!("names={}", encoded(id))).collect();
    match get(link, call, &format!("/images/get?{}", names.join("&")), IMAGE).await? {
        Ok(archive) => Ok(archive),
        Err(answer) => {
            let status = answer.status().as_u16();
            let reference = ids.first().copied().unwrap_or_default();
            Err(refused(call, About::Image(reference), status, hijack::error_text(answer).await))
        }
    }
}

/// The body of an answer, as it comes; the answer itself where it is a refusal.
async fn get(
    link: &Link,
    call: &'static str,
    place: &str,
    patience: Duration,
) -> Result<Result<Archive, Response<Incoming>>, EngineError> {
    let client = link.client().await?;
    let request = Request::get(client.path(place))
        .body(Empty::<Bytes>::new())
        .map_err(|error| EngineError::Failed { call, text: error.to_string() })?;
    let answer = within(call, patience, hijack::send(&client.candidate.address, request)).await?;
    let answer = answer.map_err(|error| link.broken(&client, &error.to_string()))?;
    if !answer.status().is_success() {
        return Ok(Err(answer));
    }
    let body = answer.into_body().into_data_stream();
    let body = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match within(call, STALL, body.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(body))),
            Ok(Some(Err(error))) => {
                let text = format!("the files broke off: {}", hijack::chain(&error));
                Some((Err(EngineError::Failed { call, text }), None))
            }
            Err(late) => Some((Err(late), None)),
        }
    });
    Ok(Ok(body.fuse().boxed()))
}

pub(super) async fn write(
    link: &Link,
    id: &str,
    directory: &str,
    archive: ArchiveSource,
) -> Result<(), EngineError> {
    let call = "write_archive";
    let place = format!("/containers/{id}/archive?path={}&noOverwriteDirNonDir=true", encoded(directory));
    let answer = send(link, call, (Method::PUT, &place), STALL, archive).await?;
    if answer.status().is_success() { Ok(()) } else { Err(refusal(call, id, directory, answer).await) }
}

/// Takes images in. The engine says that it could not after it has said that all is well.
pub(super) async fn load(link: &Link, archive: ArchiveSource) -> Result<(), EngineError> {
    let call = "load_images";
    let answer = send(link, call, (Method::POST, "/images/load?quiet=1"), IMAGE, archive).await?;
    let status = answer.status();
    let text = hijack::error_text(answer).await;
    if !status.is_success() {
        return Err(refused(call, About::Nothing, status.as_u16(), text));
    }
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    match lines.into_iter().find_map(|line| line["error"].as_str().map(str::to_owned)) {
        Some(text) => Err(EngineError::Failed { call, text }),
        None => Ok(()),
    }
}

/// Sends a tar stream, and gives the answer. After its end the engine may think for so long.
async fn send(
    link: &Link,
    call: &'static str,
    (method, place): (Method, &str),
    patience: Duration,
    mut archive: ArchiveSource,
) -> Result<Response<Incoming>, EngineError> {
    let client = link.client().await?;
    let (chunks, queue) = mpsc::channel::<std::io::Result<Frame<Bytes>>>(QUEUE_CHUNKS);
    let body = stream::unfold(queue, |mut queue| async { queue.recv().await.map(|next| (next, queue)) });
    let request = Request::builder()
        .method(method)
        .uri(client.path(place))
        .header(CONTENT_TYPE, "application/x-tar")
        .body(StreamBody::new(body))
        .map_err(|error| EngineError::Failed { call, text: error.to_string() })?;
    let mut answer = Box::pin(hijack::send(&client.candidate.address, request)).fuse();
    let mut own = None;
    let answer = loop {
        let next = tokio::select! {
            biased;
            // It may refuse before it has everything.
            answer = &mut answer => break answer,
            next = archive.next() => next,
        };
        let Some(next) = next else {
            drop(chunks);
            break within(call, patience, answer).await?;
        };
        let ends = next.as_ref().err().map(ToString::to_string);
        tokio::select! {
            biased;
            answer = &mut answer => break answer,
            sent = within(call, STALL, chunks.send(next.map(Frame::data))) => sent?.unwrap_or(()),
        }
        if ends.is_some() {
            own = ends;
            break within(call, STALL, answer).await?;
        }
    };
    if let Some(text) = own {
        return Err(EngineError::Failed { call, text });
    }
    answer.map_err(|error| link.broken(&client, &error.to_string()))
}

async fn refusal(call: &'static str, id: &str, path: &str, answer: Response<Incoming>) -> EngineError {
    let status = answer.status().as_u16();
    let text = hijack::error_text(answer).await;
    // A path that is not there is a 404 as well.
    if is_missing(&text) {
        return EngineError::NoPath { path: path.to_owned() };
    }
    refused(call, About::Sandbox(id), status, text)
}

/// Whether these are an engine's words for a path that is not there, Docker's or podman's.
fn is_missing(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    !text.contains("no such container")
        && ["could not find the file", "could not be found", "no such file or directory", "not a directory"]
            .iter()
            .any(|words| text.contains(words))
}

fn path_stat(seen: api::PathStatResponse) -> PathStat {
    let mode = seen.file_mode;
    let kind = if mode & go_mode::DIRECTORY != 0 {
        FileKind::Directory
    } else if mode & go_mode::SYMLINK != 0 {
        FileKind::Symlink
    } else if mode & go_mode::SPECIAL != 0 {
        FileKind::Other
    } else {
        FileKind::File
    };
    let extra = go_mode::EXTRA.iter().filter(|(go, _)| mode & go != 0).map(|(_, unix)| unix).sum::<u32>();
    let modified = seen.modification_time.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    PathStat {
        name: seen.name,
        kind,
        size_bytes: u64::try_from(seen.size).unwrap_or(0),
        mode: (mode & 0o777) | extra,
        modified_at_ms: modified.map(jiff::Timestamp::as_millisecond),
        link_target: Some(seen.link_target).filter(|_| kind == FileKind::Symlink),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_says_of_a_path_is_told_in_unix_terms() {
        let seen = |file_mode| {
            path_stat(api::PathStatResponse {
                name: "x".to_owned(),
                size: 5,
                file_mode,
                modification_time: Some("2026-02-01T10:20:30.123456789+01:00".to_owned()),
                link_target: "/etc".to_owned(),
            })
        };
        let stat = seen(134_218_239);
        assert_eq!((stat.kind, stat.link_target.as_deref()), (FileKind::Symlink, Some("/etc")));
        assert_eq!(stat.modified_at_ms, Some(1_769_937_630_123));
        let stat = seen(go_mode::DIRECTORY | 1 << 20 | 0o777);
        assert_eq!((stat.kind, stat.mode, stat.link_target), (FileKind::Directory, 0o1777, None));
        assert_eq!(seen(1 << 25 | 0o600).kind, FileKind::Other);
        assert_eq!((seen(0o644 | 1 << 23).kind, seen(0o644 | 1 << 23).mode), (FileKind::File, 0o4644));
    }

    #[test]
    fn a_path_that_is_not_there_is_no_missing_container() {
        assert!(is_missing("Could not find the file /nope in container 8b25"));
        assert!(is_missing("\"/nope\" could not be found on container x: no such file or directory"));
        assert!(is_missing("lstat /a/b: not a directory"));
        assert!(!is_missing("No such container: 8b25"));
        assert!(!is_missing("container rootfs is marked read-only"));
    }
}
