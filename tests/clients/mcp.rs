//! `abx mcp`, driven by the Model Context Protocol's own Python SDK, and by hand where there is no daemon.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::support::engine::busybox_image;
use crate::support::{Home, World, until};

/// The SDK, and what checks results against schemas.
const PACKAGES: [&str; 2] = ["mcp==2.3.0", "jsonschema==4.26.0"];

/// A Python with the SDK, installed once for all test runs.
fn python() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-client");
    std::fs::create_dir_all(&dir).expect("a directory");
    let lock = std::fs::File::create(dir.join("lock")).expect("a file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("a lock");
    let (done, wanted) = (dir.join("installed"), PACKAGES.join(" "));
    let python = dir.join("venv/bin/python");
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(dir.join("venv"));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    for step in [&mut venv, &mut pip] {
        let output = step.output().expect("python3 is installed");
        assert!(output.status.success(), "{step:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::write(done, wanted).expect("write");
    python
}

#[track_caller]
fn drives(mode: &str) {
    let Some(world) = World::new() else { return };
    let work = world.home.dir().join("work/below");
    std::fs::create_dir_all(&work).expect("a directory");
    let mut command = world.home.command("timeout");
    command.args(["--kill-after=10", "400"]).arg(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/drive_mcp.py"));
    command.args([env!("CARGO_BIN_EXE_abx"), &busybox_image()]).arg(&work).arg(mode);
    let output = command.output().expect("timeout is part of coreutils");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "it ended with {}\n{text}\n{errors}", output.status);
    assert_eq!(text, "all held\n");
    let events = world.call("event.list", json!({"kinds": ["session.created", "exec.started"]}));
    let events = events.as_array().expect("a list");
    let by = |event: &Value| event["by"]["client"].as_str().is_some_and(|name| name.starts_with("abx mcp ("));
    let kinds = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert!(kinds("session.created") > 0 && kinds("exec.started") > 0, "{events:?}");
    assert!(events.iter().all(by), "the client's name is not in the history: {events:?}");
}

#[test]
fn pythons_sdk_drives_sandboxes_with_the_handshake_that_every_client_knows() {
    drives("legacy");
}

#[test]
fn pythons_sdk_drives_sandboxes_with_the_newest_protocol_that_both_know() {
    drives("auto");
}

/// How a client begins.
fn greeting() -> [Value; 2] {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ]
}

/// What a server answers to these messages when its input is closed after them and after `before_end`, and its exit code.
fn exchange(home: &Home, messages: &[Value], before_end: impl FnOnce()) -> (Vec<Value>, Option<i32>) {
    let mut command = home.command(env!("CARGO_BIN_EXE_abx"));
    command.args(["--no-autostart", "mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("abx starts");
    let mut input = child.stdin.take().expect("piped");
    messages.iter().for_each(|message| writeln!(input, "{message}").expect("it reads"));
    before_end();
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("text");
    (text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), output.status.code())
}

#[test]
fn the_server_answers_without_a_daemon_and_a_call_says_that_there_is_none() {
    let home = Home::new();
    assert_eq!(exchange(&home, &[], || ()), (Vec::new(), Some(0)));
    let call = json!({"name": "session_list", "arguments": {}});
    let asked = [
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}),
    ];
    let wrong = json!({"name": "session_list", "arguments": ["x"]});
    let wrong = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": wrong});
    let (answers, code) = exchange(&home, &[&greeting()[..], &asked, &[wrong]].concat(), || ());
    let refused = answers.iter().find(|answer| answer["id"] == 4).expect("an answer");
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let of = |id: u64| &answers.iter().find(|answer| answer["id"] == id).expect("an answer")["result"];
    assert_eq!(code, Some(0));
    assert_eq!(
        (&of(1)["protocolVersion"], &of(1)["serverInfo"]["name"]),
        (&json!("2025-06-18"), &json!("abx"))
    );
    assert!(of(2)["tools"].as_array().is_some_and(|tools| tools.len() > 10));
    assert_eq!(of(3)["isError"], true);
    let error: Value =
        serde_json::from_str(of(3)["content"][0]["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(error["data"]["kind"], "daemon_unreachable");
    assert!(
        error["data"]["hint"].as_str().is_some_and(|hint| hint.starts_with("abx daemon start")),
        "{error}"
    );
    assert!(!home.root().exists());
}

#[test]
fn a_client_that_closes_its_side_ends_the_commands_that_it_waits_for_and_is_told() {
    let Some(world) = World::new() else { return };
    world.start("mcp");
    let run = |id: u64, script: &str| {
        let arguments = json!({"session": "mcp", "cmd": ["sh", "-c", script], "timeout": 0});
        let params = json!({"name": "exec_run", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let states = || {
        let execs = world.call("exec.list", json!({"session": "mcp"}));
        let states = execs.as_array().expect("a list").iter().map(|exec| exec["status"].clone());
        states.collect::<Vec<_>>()
    };
    let begun = || until("the command to run", || (states() == ["running"]).then_some(()));
    let asked = [&greeting()[..], &[run(2, "sleep 1000")]].concat();
    let (answers, code) = exchange(&world.home, &asked, begun);
    let of = |id: u64| &answers.iter().find(|answer| answer["id"] == id).expect("an answer")["result"];
    assert_eq!((code, &of(2)["isError"]), (Some(0), &json!(true)));
    until("the command to have ended", || (states() == ["exited"]).then_some(()));
}
