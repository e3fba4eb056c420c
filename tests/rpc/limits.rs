//! What is too long, too many or too slow.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, until};

const LIMIT: usize = 8 * 1024 * 1024;

fn request_of(length: usize) -> String {
    let empty = r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo","params":{"t":""}}"#;
    let fill = "x".repeat(length - empty.len());
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"debug.echo","params":{{"t":"{fill}"}}}}"#)
}

fn assert_too_long(answer: &Value) {
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)), "{answer}");
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.ends_with("is over the limit of 8388608"), "{message}");
}

#[test]
fn a_message_of_the_limit_is_answered() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let text = request_of(LIMIT);
    let mut socket = daemon.connect();
    let answer = socket.send(&text).send("\n").line();
    assert_eq!(answer["id"], 1);
    let mut socket = daemon.connect();
    let answer = socket.send(format!("Content-Length: {LIMIT}\r\n\r\n{text}")).message();
    assert_eq!(answer["id"], 1);
}

#[test]
fn a_longer_text_is_told_so_even_to_a_client_that_sends_it_all_first() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for stream in [request_of(LIMIT + 1), request_of(3 * LIMIT), "x".repeat(2 * LIMIT)] {
        // What begins like nothing known never gets to be a text.
        let stream = if stream.starts_with('{') { stream } else { format!("{{}}\n{stream}") };
        let answers = daemon.connect().send(stream).rest();
        assert_too_long(&serde_json::from_str(answers.lines().last().expect("a line")).expect("JSON"));
    }
    let mut socket = daemon.connect();
    socket.send(format!("Content-Length: {}\r\n\r\n{}", 2 * LIMIT, request_of(2 * LIMIT)));
    assert_too_long(&socket.message());
    assert_eq!(socket.rest(), "");
}

#[test]
fn a_stream_without_end_is_cut_off() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.send("[");
    let chunk = "1,".repeat(512 * 1024);
    for _ in 0..100 {
        socket.send_what_it_takes(chunk.as_bytes());
    }
    assert_too_long(&socket.line());
    assert!(memory_kib(daemon.pid()) < 64 * 1024, "{} KiB", memory_kib(daemon.pid()));
}

#[test]
fn a_client_may_send_many_requests_before_it_reads_an_answer() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    for id in 0..10_000 {
        socket.request(id, "debug.echo", json!({"text": "some text of a usual length"}));
    }
    for id in 0..10_000 {
        assert_eq!(socket.line()["id"], id);
    }
}

#[test]
fn a_client_that_reads_nothing_fills_neither_memory_nor_the_way_of_others() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut stuck = daemon.connect();
    let request = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": 1, "method": "debug.fill", "params": {"bytes": 100_000}})
    );
    let sent = stuck.send_until_full(request.as_bytes());
    assert!(sent < LIMIT, "{sent} bytes of requests were taken");
    assert!(memory_kib(daemon.pid()) < 64 * 1024, "{} KiB", memory_kib(daemon.pid()));
    assert_eq!(daemon.connect().call("debug.echo", json!({})), json!({}));
}

#[test]
fn at_most_128_calls_wait_on_one_connection_and_the_next_one_waits_unread() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = daemon.connect();
    for id in 0..128 {
        socket.request(id, "debug.wait", json!({"file": gate}));
    }
    let made = home.dir().join("made");
    socket.request(128, "debug.touch", json!({"file": made}));
    // Another connection shows that the daemon has had its time.
    for _ in 0..100 {
        daemon.connect().call("debug.echo", json!({}));
    }
    assert!(!made.exists() && socket.has_nothing());
    std::fs::write(&gate, "").expect("write");
    let mut ids: Vec<_> = (0..129).map(|_| socket.line()["id"].as_u64().expect("an id")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..129).collect::<Vec<_>>());
    assert!(made.exists());
}

#[test]
fn a_batch_whose_answers_are_too_long_together_leaves_some_out_and_says_so() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let made = home.dir().join("made");
    let fill = |id| json!({"jsonrpc": "2.0", "id": id, "method": "debug.fill", "params": {"bytes": LIMIT}});
    let mut entries: Vec<Value> = (0..1_000).map(fill).collect();
    entries[999]["method"] = json!("debug.touch");
    entries[999]["params"] = json!({"file": made});
    let text = daemon.connect().send(serde_json::to_string(&entries).expect("JSON")).end().rest();
    let answers: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answers.len(), 1_000);
    assert!(answers.iter().enumerate().all(|(id, answer)| answer["id"] == id));
    let whole = answers.iter().filter(|answer| answer["error"].is_null()).count();
    assert_eq!(whole, 7, "as many as go into 64 MiB with what stands around them");
    assert!(answers[whole..].iter().all(|answer| answer["error"]["data"]["kind"] == "limit"));
    assert!(!made.exists());
    assert!(memory_kib(daemon.pid()) < 256 * 1024, "{} KiB", memory_kib(daemon.pid()));
}

#[test]
fn a_client_that_has_gone_makes_room_even_while_its_calls_go_on() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let wait = json!({"file": home.dir().join("never")});
    let mut socket = daemon.connect();
    for id in 0..200 {
        socket.request(id, "debug.wait", wait.clone());
    }
    drop(socket);
    let mut ended = daemon.connect();
    ended.call("debug.echo", json!({}));
    assert!(accepted(&home.socket()) > 0);
    ended.request(1, "debug.wait", wait).end();
    daemon.connect().call("debug.echo", json!({}));
    assert!(ended.has_nothing());
    drop(ended);
    daemon.connect().call("debug.echo", json!({}));
    until("the connections to be given up", || (accepted(&home.socket()) == 0).then_some(()));
}

/// The connections that the daemon has, by the kernel's table (unix(7), proc(5)): state 03 is a connected socket, and it
/// has the name under which the socket was bound, before it was put in its place.
fn accepted(socket: &Path) -> usize {
    let bound = format!("{}.new", socket.display());
    let table = std::fs::read_to_string("/proc/net/unix").expect("the table");
    let of_it = |line: &&str| line.split_whitespace().nth(5) == Some("03") && line.ends_with(&bound);
    table.lines().filter(of_it).count()
}

#[test]
fn calls_that_nobody_waits_for_are_bounded_too() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let wait = json!({"jsonrpc": "2.0", "method": "debug.wait", "params": {"file": gate}});
    let batch = serde_json::to_string(&vec![wait; 1_000]).expect("JSON");
    // Each connection goes at once; what it asked for stays.
    for _ in 0..9 {
        daemon.connect().send(&batch);
    }
    let mut socket = daemon.connect();
    let refused = until("the calls to be counted", || {
        let answer = socket.request(1, "debug.echo", json!({})).line();
        (!answer["error"].is_null()).then_some(answer)
    });
    assert_eq!(refused["error"]["data"]["kind"], "limit", "{refused}");
    std::fs::write(&gate, "").expect("write");
    until("the calls to end", || {
        let answer = socket.request(1, "debug.echo", json!({})).line();
        answer["error"].is_null().then_some(())
    });
}

#[test]
fn past_the_limit_of_connections_one_more_is_told_so_in_its_own_framing() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut held: Vec<_> = (0..1_024).map(|_| daemon.connect()).collect();
    let request = r#"{"jsonrpc":"2.0","id":5,"method":"debug.echo"}"#;
    let answer = until("the connections to be counted", || {
        let answer: Value = serde_json::from_str(&daemon.connect().send(request).end().rest()).expect("JSON");
        (!answer["error"].is_null()).then_some(answer)
    });
    assert_eq!((&answer["id"], &answer["error"]["data"]["kind"]), (&json!(5), &json!("limit")));
    let mut framed = daemon.connect();
    framed.send(format!("Content-Length: {}\r\n\r\n{request}", request.len()));
    assert_eq!(framed.message()["error"]["data"]["kind"], "limit");
    let http = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{request}", request.len());
    let rest = daemon.connect().send(http).rest();
    assert!(rest.contains("connection: close") && rest.contains("\"limit\""), "{rest}");
    let stream = daemon.connect().send("abx-stream/1\n").rest();
    assert!(stream.contains("\"limit\""), "{stream}");
    assert_eq!(held[0].call("debug.echo", json!({})), json!({}));
    drop(held);
    until("room", || {
        let answer = daemon.connect().send(request).end().rest();
        answer.contains("result").then_some(())
    });
}

#[test]
fn a_daemon_without_a_descriptor_left_says_so_once_and_serves_on_when_there_is_one() {
    let home = Home::new();
    let mut command = home.command("sh");
    command.env("ABX_FAULT_METHODS", "1").args([
        "-c",
        "ulimit -n 40; exec \"$0\"",
        env!("CARGO_BIN_EXE_abxd"),
    ]);
    let daemon = Daemon::spawn(&home, &mut command);
    let held: Vec<_> = (0..60).map(|_| daemon.connect()).collect();
    until("the last descriptor to be taken", || home.log().contains("no descriptor is left").then_some(()));
    drop(held);
    assert_eq!(daemon.connect().call("debug.echo", json!({})), json!({}));
    assert_eq!(home.log().matches("no descriptor is left").count(), 1);
}

#[test]
fn a_daemon_without_a_descriptor_left_keeps_what_it_is_told_and_takes_no_core() {
    /// Ticks of the processor's time, of which there are a hundred in a second, that an idle daemon may use while it
    /// waits `WAITS` times: one that spins uses them all.
    const TICKS: u64 = 100;
    const WAITS: usize = 40;
    let home = Home::new();
    let mut command = home.abxd_by("ulimit -n 48; exec \"$@\"");
    let daemon = Daemon::spawn(&home, &mut command);
    let mut first = daemon.connect();
    let row = |name: &str| json!({"name": name, "sandbox_id": name});
    first.call("store.save", row("before"));
    let held: Vec<_> = (0..80).map(|_| daemon.connect()).collect();
    until("the last descriptor to be taken", || home.log().contains("no descriptor is left").then_some(()));
    let before = ticks(daemon.pid());
    for n in 0..WAITS {
        // Nobody new comes in, and who is in is served.
        first.call("store.save", row(&format!("during-{n}")));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(ticks(daemon.pid()) - before < TICKS, "it spins");
    assert_eq!(first.call("session.list", json!({})).as_array().map(Vec::len), Some(WAITS + 1));
    drop(held);
    assert_eq!(daemon.connect().call("session.get", json!({"name": "during-0"}))["name"], "during-0");
    drop(daemon);
    let again = Daemon::start(&home);
    assert_eq!(again.connect().call("session.list", json!({})).as_array().map(Vec::len), Some(WAITS + 1));
}

/// Processor time that a process has used.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    // The name, which stands in brackets before, may hold anything; the 14th and 15th fields are what it used (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

fn memory_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn the_name_of_an_operation_is_bounded_wherever_it_is_given() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let op = "o".repeat(129);
    let mut calls = vec![
        ("session.start", json!({"name": "a"})),
        ("session.resume", json!({"name": "a"})),
        ("session.connect", json!({"name": "a"})),
        ("session.save", json!({"name": "a"})),
        ("session.fork", json!({"name": "a", "new_name": "b"})),
        ("session.import", json!({"rows": []})),
        ("snapshot.export", json!({"snapshot": "s", "path": "/nowhere/s"})),
        ("snapshot.import", json!({"path": "/nowhere/s"})),
        ("table.import", json!({"document": {"abx_table": 1, "sessions": []}})),
    ];
    for (method, params) in &mut calls {
        params["op"] = json!(op);
        let answer = daemon.connect().request(1, method, params.clone()).line();
        assert_eq!(answer["error"]["data"]["kind"], "invalid_params", "{method}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.starts_with("op: expected 1 to 128 bytes"), "{method}: {message}");
    }
}
