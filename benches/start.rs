//! `abx start` as a whole process until the session runs, beside the engine's own create and start of the same image.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::{Row, median, timed};

/// The image of the built-in template, which `tests/engine.sh` provides.
const IMAGE: &str = "debian:stable-slim";

/// Runs of each, in turn; the first only warms up.
const RUNS: usize = 20;

/// The promise.
const LIMIT: f64 = 1.15;

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let name = format!("bench-{run}");
        let time = timed(|| abx(&daemon, &["start", &name]));
        abx(&daemon, &["delete", "-y", &name]);
        let mut id = String::new();
        let bare = timed(|| id = create_and_start());
        engine("DELETE", &format!("/containers/{id}?force=true"), &Value::Null);
        if run > 0 {
            ours.push(time);
            peer.push(bare);
        }
    }
    vec![Row::times("`abx start` until running, bare create + start", median(ours), median(peer), LIMIT)]
}

fn abx(daemon: &Daemon, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abx"));
    command.args(arguments).env("ABX_HOME", daemon.home()).env_remove("ABX_SOCKET");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().expect("abx runs");
    assert!(status.success(), "abx {arguments:?}: {status}");
}

/// Makes a container as abx does, bare of labels and rows, and starts it.
fn create_and_start() -> String {
    let spec = json!({
        "Image": IMAGE,
        "Entrypoint": ["sleep", "2147483647"],
        "HostConfig": {
            "Init": true,
            "NetworkMode": "bridge",
            "Memory": 8_u64 << 30,
            "PidsLimit": 4096,
            "CapDrop": ["NET_RAW"],
            "SecurityOpt": ["no-new-privileges"],
        },
    });
    let made = engine("POST", "/containers/create", &spec);
    let id = made["Id"].as_str().unwrap_or_else(|| panic!("no container: {made}")).to_owned();
    engine("POST", &format!("/containers/{id}/start"), &Value::Null);
    id
}

/// One call to the engine, on a connection of its own as all its clients do.
fn engine(verb: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = UnixStream::connect(engine_socket()).expect("an engine listens");
    let length = body.len();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("the engine reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the engine answers");
    assert!(answer.starts_with("HTTP/1.1 2"), "{verb} {path}: {answer}");
    let start = answer.find('{').unwrap_or(answer.len());
    let end = answer.rfind('}').map_or(start, |at| at + 1);
    if start >= end { Value::Null } else { serde_json::from_str(&answer[start..end]).expect("JSON") }
}

fn engine_socket() -> String {
    #[expect(clippy::disallowed_methods, reason = "the engine that abx would find, for the peer")]
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock").to_owned()
}
