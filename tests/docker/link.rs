//! The connection to an engine: away, broken, too old, hung. These engines are made up; none need be there.

use abx::engine::address::Settings;
use abx::engine::docker::DockerEngine;
use abx::engine::{Engine, EngineError, RunState};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn at(address: String) -> DockerEngine {
    DockerEngine::new(Settings { address: Some((address, "test".to_owned())), ..Settings::default() })
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_unavailable_by_its_address_and_found_when_it_comes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    let engine = at(path.to_str().expect("text").to_owned());
    let error = engine.list("home").await.expect_err("nothing is there");
    let EngineError::Unavailable { tried } = &error else { panic!("{error}") };
    assert_eq!(tried.len(), 1);
    assert!(tried[0].contains("engine.sock (from test): No such file"), "{tried:?}");
    // A socket that nobody listens on any more.
    drop(tokio::net::UnixListener::bind(&path).expect("binds"));
    let error = engine.list("home").await.expect_err("nobody listens");
    assert!(error.to_string().contains("refused"), "{error}");
    std::fs::remove_file(&path).expect("removed");
    serve(&path, "1.41", "[]");
    assert!(engine.list("home").await.expect("found").is_empty());
}

#[tokio::test]
async fn an_engine_that_is_too_old_or_no_engine_is_said_so() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("old.sock");
    serve(&path, "1.39", "[]");
    let error = at(path.to_str().expect("text").to_owned()).list("home").await.expect_err("too old");
    assert!(matches!(error, EngineError::Version { .. }), "{error}");
    let path = dir.path().join("other.sock");
    serve(&path, "", "[]");
    let error = at(path.to_str().expect("text").to_owned()).list("home").await.expect_err("no engine");
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_engine_that_accepts_and_never_answers_is_asked_once_for_all_who_wait() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("hung.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("binds");
    let accepted = tokio::spawn(async move {
        let (_first, _) = listener.accept().await.expect("accepted");
        listener.accept().await.map(|_| ())
    });
    let engine = at(path.to_str().expect("text").to_owned());
    let calls = (0..20).map(|_| engine.list("home"));
    for answer in futures_util::future::join_all(calls).await {
        assert!(matches!(answer, Err(EngineError::Unavailable { .. })), "{answer:?}");
    }
    assert!(!accepted.is_finished(), "one search must do for all");
}

#[tokio::test]
async fn while_the_engine_is_away_no_other_takes_its_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let socket = |name: &str| dir.path().join(name);
    for (at, name) in ["one", "two"].iter().enumerate() {
        let meta = dir.path().join(format!("contexts/meta/{at}"));
        std::fs::create_dir_all(&meta).expect("create");
        let host = format!("unix://{}", socket(name).display());
        let text = format!("{{\"Name\":\"{name}\",\"Endpoints\":{{\"docker\":{{\"Host\":\"{host}\"}}}}}}");
        std::fs::write(meta.join("meta.json"), text).expect("write");
    }
    let choose = |name: &str| {
        std::fs::write(dir.path().join("config.json"), format!("{{\"currentContext\":\"{name}\"}}"))
            .expect("write");
    };
    let one = serve(&socket("one"), "1.41", "[]");
    let _two = serve(&socket("two"), "1.41", "[]");
    choose("one");
    let engine =
        DockerEngine::new(Settings { docker_config: Some(dir.path().to_owned()), ..Settings::default() });
    engine.list("home").await.expect("one answers");
    choose("two");
    one.abort();
    std::fs::remove_file(socket("one")).expect("removed");
    for _ in 0..2 {
        let error = engine.list("home").await.expect_err("one is away");
        let EngineError::Unavailable { tried } = &error else { panic!("{error}") };
        assert!(tried.len() == 1 && tried[0].contains("/one "), "{tried:?}");
    }
    let _one = serve(&socket("one"), "1.41", "[]");
    engine.list("home").await.expect("one is back");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_engine_away_and_the_next_call_looks_anew() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    let broken = serve_raw(&path, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{");
    let engine = at(path.to_str().expect("text").to_owned());
    let error = engine.list("home").await.expect_err("it breaks off");
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");
    broken.abort();
    std::fs::remove_file(&path).expect("removed");
    serve(&path, "1.41", "[]");
    engine.list("home").await.expect("found");
}

#[tokio::test]
async fn a_tag_is_asked_to_go_again_when_the_engine_came_upon_an_image_that_others_removed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    let body = r#"{"message":"unrecognized image ID sha256:4624fb7f"}"#;
    let failed =
        format!("HTTP/1.1 500 Internal Server Error\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let removals = std::sync::atomic::AtomicUsize::new(0);
    serve_each(&path, move |asked| {
        Some(match asked {
            "/version" => ok(&version("1.41")),
            _ if removals.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 => failed.clone(),
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        })
    });
    let engine = at(path.to_str().expect("text").to_owned());
    let snapshot = abx::model::id::SnapshotId::new("0192");
    engine.remove_snapshot(&snapshot).await.expect("the second answer says that it is gone");
}

#[tokio::test]
async fn a_container_in_a_state_that_nobody_knows_hides_no_other() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    serve_each(&path, |asked| match asked {
        "/version" => Some(ok(&version("1.41"))),
        "/v1.41/containers/json" => Some(ok(r#"[
            {"Id": "one", "Names": ["/one"], "State": "stopped", "Status": "Exited (3) now"},
            {"Id": "two", "Names": ["/two"], "State": "running"},
            {"Id": "three", "Names": ["/three"], "State": "novel"}
        ]"#)),
        "/v1.41/containers/three/json" => Some(ok(r#"{"Id": "three", "State": {"Status": "initialized"}}"#)),
        _ => None,
    });
    let all = at(path.to_str().expect("text").to_owned()).list("home").await.expect("lists");
    let states: Vec<_> = all.iter().map(|seen| (seen.id.as_str(), seen.state)).collect();
    assert_eq!(states, [("one", RunState::Exited), ("two", RunState::Running), ("three", RunState::Created)]);
}

#[tokio::test]
async fn events_that_ended_stay_ended_however_often_they_are_asked_for() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (name, body, errors) in [("whole", "", 0), ("cut", "{", 1)] {
        let path = dir.path().join(name);
        serve_raw(
            &path,
            &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len() + errors),
        );
        let mut hints = at(path.to_str().expect("text").to_owned()).hints().await.expect("follows");
        for _ in 0..errors {
            hints.next().await.expect("an error").expect_err("it breaks off");
        }
        for _ in 0..3 {
            assert!(hints.next().await.is_none(), "{name}");
        }
    }
}

#[tokio::test]
async fn an_engine_that_is_known_is_asked_what_it_is_without_being_looked_for_anew() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    let asked = std::sync::atomic::AtomicUsize::new(0);
    serve_each(&path, move |request| match request {
        // It is too busy to be found a second time.
        "/version" if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 => None,
        "/version" => Some(ok(&version("1.41"))),
        _ => Some(ok("{}")),
    });
    let engine = at(path.to_str().expect("text").to_owned());
    for _ in 0..2 {
        assert_eq!(engine.about().await.expect("tells").api_version, "1.41");
    }
}

#[tokio::test]
async fn an_engine_that_is_slow_to_tell_what_it_is_is_late_and_not_away() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("engine.sock");
    let asked = std::sync::atomic::AtomicUsize::new(0);
    serve_each(&path, move |request| match request {
        "/version" if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => {
            Some(ok(&version("1.41")))
        }
        "/version" | "/v1.41/info" => None,
        _ => Some(ok("[]")),
    });
    let engine = at(path.to_str().expect("text").to_owned());
    engine.list("home").await.expect("found");
    tokio::time::pause();
    let late = engine.about().await;
    assert!(matches!(late, Err(EngineError::Timeout { call: "about", .. })), "{late:?}");
    tokio::time::resume();
    engine.list("home").await.expect("still known");
}

/// Answers like an engine of this API version: to `/version`, and to everything else with `body`.
fn serve(path: &std::path::Path, api: &str, body: &str) -> tokio::task::JoinHandle<()> {
    serve_both(path, api, ok(body))
}

/// The same, but for a whole answer in place of a body.
fn serve_raw(path: &std::path::Path, answer: &str) -> tokio::task::JoinHandle<()> {
    serve_both(path, "1.41", answer.to_owned())
}

fn serve_both(path: &std::path::Path, api: &str, answer: String) -> tokio::task::JoinHandle<()> {
    let version = ok(&version(api));
    serve_each(path, move |asked| Some(if asked == "/version" { version.clone() } else { answer.clone() }))
}

/// Answers each path as `answer` says; where it says nothing, the connection stays open and silent.
fn serve_each(
    path: &std::path::Path,
    answer: impl Fn(&str) -> Option<String> + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::UnixListener::bind(path).expect("binds");
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let length = stream.read(&mut request).await.expect("a request");
            let head = String::from_utf8_lossy(&request[..length]);
            let asked = head.split([' ', '?']).nth(1).expect("a path");
            match answer(asked) {
                Some(answer) => stream.write_all(answer.as_bytes()).await.expect("answered"),
                None => silent.push(stream),
            }
        }
    })
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn version(api: &str) -> String {
    format!("{{\"Version\":\"1\",\"ApiVersion\":\"{api}\",\"MinAPIVersion\":\"1.12\"}}")
}
