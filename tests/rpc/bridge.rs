//! `abx rpc --stdio`: every framing through a process's standard streams, and how that ends.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, Home, until};

fn command(home: &Home) -> Command {
    let mut command = home.command(env!("CARGO_BIN_EXE_abx"));
    command.args(["rpc", "--stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A bridge that a test talks through.
struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
}

impl Bridge {
    fn open(home: &Home) -> Self {
        let mut child = command(home).spawn().expect("abx starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Self { child, input, output }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let input = self.input.as_mut().expect("open");
        input.write_all(bytes.as_ref()).and_then(|()| input.flush()).expect("it reads");
        self
    }

    fn request(&mut self, id: u64, method: &str, params: Value) -> &mut Self {
        self.send(line(id, method, params))
    }

    fn end(&mut self) -> &mut Self {
        self.input = None;
        self
    }

    /// Reads up to the end of this text.
    fn up_to(&mut self, text: &str) -> String {
        let (mut read, mut one) = (Vec::new(), [0]);
        while !read.ends_with(text.as_bytes()) {
            self.output.as_mut().expect("open").read_exact(&mut one).expect("more of it");
            read.push(one[0]);
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    fn answer(&mut self) -> Value {
        serde_json::from_str(&self.up_to("\n")).expect("JSON")
    }

    /// Waits for the end: code, the rest of the output, the errors.
    fn finish(mut self) -> (ExitStatus, String, String) {
        let (mut rest, mut errors) = (String::new(), String::new());
        if let Some(mut output) = self.output.take() {
            output.read_to_string(&mut rest).expect("text");
        }
        self.child.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
        (until("abx to end", || self.child.try_wait().expect("a child")), rest, errors)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(id: u64, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Sends all of this, ends the input, and gives what came of it.
fn pass(home: &Home, input: &[u8]) -> Output {
    let mut child = command(home).spawn().expect("abx starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

#[track_caller]
fn passes(home: &Home, input: impl AsRef<[u8]>) -> String {
    let output = pass(home, input.as_ref());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_framing_goes_through_and_is_answered_after_the_input_has_ended() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo","params":{"a":"ü"}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"a":"ü"}}"#;
    assert_eq!(passes(&home, format!("{request}\n{request}\n")), format!("{answer}\n{answer}\n"));
    let framed = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
    assert_eq!(passes(&home, framed(request)), framed(answer));
    let post = format!("POST / HTTP/1.1\r\nHost: abx\r\nContent-Length: {}\r\n\r\n{request}", request.len());
    let posted = passes(&home, post);
    assert!(posted.starts_with("HTTP/1.1 200 OK\r\n") && posted.ends_with(answer), "{posted}");
    let raw = passes(&home, "abx-stream/1\n{\"version\":\"0.1.0\",\"protocol\":1,\"session\":\"nobody\"}\n");
    assert!(raw.contains("session_not_found"), "{raw}");
    assert_eq!(passes(&home, ""), "");
}

#[test]
fn a_websocket_goes_through() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let mut bridge = Bridge::open(&home);
    bridge.send("GET / HTTP/1.1\r\nHost: abx\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
    bridge.send("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    let head = bridge.up_to("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let text = line(1, "debug.echo", json!({}));
    // A mask of zeros leaves the bytes as they are.
    bridge.send(
        [&[0x81, 0x80 | u8::try_from(text.len()).expect("short"), 0, 0, 0, 0], text.as_bytes()].concat(),
    );
    assert!(bridge.up_to("}}").ends_with(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    let (status, _, errors) = {
        bridge.end();
        bridge.finish()
    };
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn events_come_as_they_happen_and_the_end_of_the_input_ends_the_subscription() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut bridge = Bridge::open(&home);
    // Without those of the engine, which is found meanwhile.
    bridge.request(1, "event.subscribe", json!({"kinds": ["session."]}));
    let mut seen = vec![bridge.answer(), bridge.answer()];
    seen.sort_by_key(|message| message["id"].is_null());
    assert!(seen[0]["result"].is_u64() && seen[1]["params"]["kind"] == "subscribed", "{seen:?}");
    daemon.connect().call("store.save", json!({"name": "elsewhere"}));
    assert_eq!(bridge.answer()["params"]["session"], "elsewhere");
    bridge.end();
    let (status, rest, errors) = bridge.finish();
    assert_eq!((status.code(), rest.as_str(), errors.as_str()), (Some(0), "", ""));
}

#[test]
fn a_daemon_that_is_killed_ends_the_bridge_and_nothing_is_invented() {
    let home = Home::new();
    for input_ended in [false, true] {
        let mut daemon = Daemon::start(&home);
        let mut bridge = Bridge::open(&home);
        bridge.request(1, "debug.echo", json!({})).answer();
        bridge.request(2, "debug.wait", json!({"file": home.dir().join("never")}));
        bridge.request(3, "debug.echo", json!({})).answer();
        if input_ended {
            bridge.end();
        }
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let (status, rest, errors) = bridge.finish();
        assert_eq!((status.code(), rest.as_str()), (Some(6), ""));
        let hint = "Hint: abx daemon status\n";
        assert!(errors.starts_with("Error: abxd went away") && errors.ends_with(hint), "{errors}");
        assert_eq!(errors.contains("answers may be missing"), input_ended, "{errors}");
    }
}

#[test]
fn a_connection_that_the_daemon_closes_says_why_and_the_bridge_says_that_it_did() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let mut bridge = Bridge::open(&home);
    bridge.send("this is no JSON\n");
    assert_eq!(bridge.answer()["error"]["code"], -32700);
    let (status, rest, errors) = bridge.finish();
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
    assert_eq!(errors, "abx: abxd closed the connection\n");
}

#[test]
fn the_daemon_is_started_unless_that_is_not_wanted_and_standard_output_stays_the_protocols() {
    let home = Home::new();
    let output =
        command(&home).args(["--no-autostart", "--json"]).stdin(Stdio::null()).output().expect("runs");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(6), &b""[..]));
    let error: Value = serde_json::from_slice(&output.stderr).expect("a document");
    assert_eq!(error["data"]["kind"], "daemon_unreachable");
    assert!(!home.root().exists());
    let mut bridge = Bridge::open(&home);
    assert!(bridge.request(1, "daemon.info", json!({})).answer()["result"]["pid"].is_u64());
    assert_eq!(bridge.request(2, "daemon.shutdown", json!({})).answer()["result"]["done"], true);
    let (status, rest, errors) = bridge.finish();
    assert_eq!((status.code(), rest.as_str()), (Some(6), ""));
    assert!(errors.starts_with("Error: abxd went away\n"), "{errors}");
}

#[test]
fn sixty_four_mebibytes_go_both_ways_unharmed() {
    const CALLS: u64 = 16;
    const BYTES: usize = 4 * 1024 * 1024;
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let mut bridge = Bridge::open(&home);
    let mut input = bridge.input.take().expect("open");
    let writer = thread::spawn(move || {
        for id in 0..CALLS {
            let text = format!("{id:04}").repeat(BYTES / 4);
            input.write_all(line(id, "debug.echo", json!({"text": text})).as_bytes()).expect("it reads");
        }
    });
    let mut answers = String::new();
    bridge.output.take().expect("open").read_to_string(&mut answers).expect("text");
    writer.join().expect("all sent");
    let mut seen: Vec<u64> = answers
        .lines()
        .map(|line| {
            let answer: Value = serde_json::from_str(line).expect("JSON");
            let id = answer["id"].as_u64().expect("its id");
            assert!(
                answer["result"]["text"] == format!("{id:04}").repeat(BYTES / 4),
                "answer {id} is not what was sent"
            );
            id
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..CALLS).collect::<Vec<_>>());
    assert_eq!(bridge.finish().0.code(), Some(0));
}

#[test]
fn a_reader_that_went_away_ends_the_bridge_though_nothing_is_said() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let mut bridge = Bridge::open(&home);
    bridge.request(1, "debug.echo", json!({})).answer();
    bridge.output = None;
    let (status, _, errors) = bridge.finish();
    assert_eq!((status.signal(), errors.as_str()), (Some(13), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn waiting_takes_no_time_of_the_processor() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    for input_ended in [false, true] {
        let mut bridge = Bridge::open(&home);
        let file = home.dir().join(format!("file-{input_ended}"));
        bridge.request(1, "debug.echo", json!({})).answer();
        bridge.request(2, "debug.wait", json!({"file": file}));
        if input_ended {
            bridge.end();
        }
        let stat = format!("/proc/{}/stat", bridge.child.id());
        // User and system time, in hundredths of a second, of all threads.
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(&stat).expect("it runs");
            let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
            fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
        };
        let (before, started) = (ticks(), std::time::Instant::now());
        until("a second to pass", || (started.elapsed().as_millis() > 1_000).then_some(()));
        assert!(ticks() - before < 50, "it was busy while it waited");
        std::fs::write(&file, "").expect("write");
        assert_eq!(bridge.answer()["result"], true);
    }
}
