//! Calls side by side: slow and fast, cancelled, abandoned, panicking, notifying.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Home, until};

#[test]
fn a_slow_call_never_holds_up_a_fast_one_on_its_connection() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = daemon.connect();
    socket.request("slow", "debug.wait", json!({"file": gate})).request("fast", "debug.echo", json!({}));
    assert_eq!(socket.line()["id"], "fast");
    std::fs::write(&gate, "").expect("write");
    assert_eq!(socket.line()["id"], "slow");
}

#[test]
fn a_call_goes_on_when_its_client_has_gone() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let (gate, made) = (home.dir().join("gate"), home.dir().join("made"));
    let touch = json!({"file": made, "after": gate});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "debug.touch", "params": touch}).to_string();
    let length = request.len();
    for stream in [
        request.clone(),
        format!("Content-Length: {length}\r\n\r\n{request}"),
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{request}"),
        format!("[{request}]"),
    ] {
        let mut socket = daemon.connect();
        socket.send(&stream);
        // A second connection's answer shows that the first one's request was read.
        for _ in 0..100 {
            daemon.connect().call("debug.echo", json!({}));
        }
        drop(socket);
        daemon.connect().call("debug.echo", json!({}));
        assert!(!made.exists());
        std::fs::write(&gate, "").expect("write");
        until("the file", || made.exists().then_some(()));
        std::fs::remove_file(&gate).expect("remove");
        std::fs::remove_file(&made).expect("remove");
    }
}

#[test]
fn a_call_hears_of_it_when_nobody_waits_for_its_answer_any_more() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let made = home.dir().join("made");
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "debug.left", "params": {"file": made}}).to_string();
    let length = request.len();
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#;
    for (stream, leaves) in [
        (request.clone(), true),
        (format!("Content-Length: {length}\r\n\r\n{request}"), true),
        (format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{request}"), true),
        (format!("{request}{cancel}"), false),
    ] {
        let mut socket = daemon.connect();
        socket.send(&stream);
        // A second connection's answer shows that the first one's request was read.
        for _ in 0..100 {
            daemon.connect().call("debug.echo", json!({}));
        }
        let stays = (!leaves).then_some(socket);
        until("the call to hear of it", || made.exists().then_some(()));
        drop(stays);
        std::fs::remove_file(&made).expect("remove");
    }
}

#[test]
fn cancelling_answers_at_once_and_drops_only_the_waiting() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let (gate, made) = (home.dir().join("gate"), home.dir().join("made"));
    let mut socket = daemon.connect();
    socket.request("a\"b", "debug.touch", json!({"file": made, "after": gate}));
    socket.request(1, "debug.wait", json!({"file": gate}));
    socket.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"\u0061\"b"}}"#);
    let answer = socket.line();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a\"b"), &json!(-32800)));
    // An id that is not under way, and no id at all, are nothing to complain about.
    socket.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"1"}}"#);
    socket.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest"}"#);
    assert_eq!(socket.call("debug.echo", json!({})), json!({}));
    std::fs::write(&gate, "").expect("write");
    assert_eq!(socket.line()["result"], true);
    until("the cancelled call's file", || made.exists().then_some(()));
    assert!(socket.is_silent());
}

#[test]
fn a_panic_is_an_answer_a_line_in_the_log_and_nothing_else() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    for later in [false, true] {
        let answer = socket.request(1, "debug.panic", json!({"later": later})).line();
        assert_eq!(answer["error"]["data"]["kind"], "internal", "{answer}");
    }
    assert_eq!(socket.call("debug.echo", json!({})), json!({}));
    assert_eq!(home.log().matches("panic: as asked for").count(), 2);
    assert!(home.log().contains("method=\"debug.panic\""), "the call is named beside it");
}

#[test]
fn notifications_come_on_the_calls_own_connection_in_order_and_are_bounded() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut other = daemon.connect();
    let mut socket = daemon.connect();
    socket.request(1, "debug.notify", json!({"method": "event", "count": 3}));
    let lines: Vec<_> = (0..4).map(|_| socket.line()).collect();
    let numbers: Vec<_> =
        lines.iter().filter(|line| line["method"] == "event").map(|l| &l["params"]["number"]).collect();
    assert_eq!(numbers, [&json!(0), &json!(1), &json!(2)]);
    assert!(lines.iter().any(|line| line["id"] == 1 && line["result"] == 3));
    assert!(other.is_silent());
    // More than may wait are refused, not kept.
    other.request(2, "debug.notify", json!({"method": "event", "count": 100_000}));
    let answer = std::iter::repeat_with(|| other.line()).find(|line| line["id"] == 2).expect("an answer");
    assert_eq!(answer["result"], 32);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"debug.notify","params":{"method":"event","count":3}}"#;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        request.len()
    );
    let rest = daemon.connect().send(head).send(request).rest();
    assert!(rest.ends_with("\"result\":0}"), "plain HTTP has no way to notify: {rest}");
}

#[test]
fn a_stop_answers_what_is_under_way_and_refuses_what_is_new() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = daemon.connect();
    socket.request("running", "debug.wait", json!({"file": gate}));
    socket.call("debug.echo", json!({}));
    daemon.signal(Signal::SIGTERM);
    let refused = until("the stop to begin", || {
        let answer = socket.request("new", "debug.echo", json!({})).line();
        (!answer["error"].is_null()).then_some(answer)
    });
    assert_eq!(refused["error"]["data"]["kind"], "shutting_down");
    let mut late = daemon.connect();
    assert_eq!(late.request(1, "debug.echo", json!({})).line()["error"]["data"]["kind"], "shutting_down");
    std::fs::write(&gate, "").expect("write");
    let answer = socket.line();
    assert_eq!((&answer["id"], &answer["result"]), (&json!("running"), &json!(true)));
    assert_eq!(socket.rest(), "");
    assert!(daemon.wait().success());
    assert!(!home.socket().exists());
}

#[test]
fn the_call_that_asks_for_the_stop_is_answered_on_every_framing() {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"daemon.shutdown"}"#;
    let length = request.len();
    for stream in [
        request.to_owned(),
        format!("Content-Length: {length}\r\n\r\n{request}"),
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{request}"),
    ] {
        let home = Home::new();
        let mut daemon = Daemon::start(&home);
        let rest = daemon.connect().send(stream).rest();
        assert!(rest.contains(r#""result":{"done":true}"#), "{rest}");
        assert!(daemon.wait().success());
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.request(1, "debug.wait", json!({"file": home.dir().join("never")}));
    socket.request(2, "debug.echo", json!({}));
    assert_eq!(socket.line()["id"], 2);
    daemon.signal(Signal::SIGINT);
    until("the stop to begin", || home.log().contains("asked to stop").then_some(()));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(!home.socket().exists());
}

#[test]
fn a_call_that_does_not_end_is_answered_at_the_stops_deadline() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    let wait = json!({"file": home.dir().join("never")});
    let mut socket = daemon.connect();
    socket.request(1, "debug.wait", wait.clone()).request(2, "debug.echo", json!({}));
    assert_eq!(socket.line()["id"], 2);
    let request = json!({"jsonrpc": "2.0", "id": 3, "method": "debug.wait", "params": wait}).to_string();
    let mut http = daemon.connect();
    http.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{request}", request.len()));
    for _ in 0..100 {
        daemon.connect().call("debug.echo", json!({}));
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(socket.line()["error"]["data"]["kind"], "shutting_down");
    assert!(http.rest().contains("\"shutting_down\""));
    assert!(daemon.wait().success());
}

#[test]
fn a_wrong_word_is_answered_with_the_words_there_are_and_not_repeated() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.call("store.save", json!({"name": "a", "status": "running"}));
    for (method, params, want) in [
        (
            "session.wait",
            json!({"name": "a", "for": "s3cret"}),
            "for: expected one of working, waiting, idle, done,",
        ),
        (
            "session.notify",
            json!({"name": "a", "state": "s3cret"}),
            "state: expected one of working, waiting,",
        ),
        ("session.start", json!({"name": "b", "profile": "s3cret"}), "profile: expected one of permissive,"),
        ("session.start", json!({"name": "b", "template": "s3cret"}), "template: expected one of base"),
        (
            "store.save",
            json!({"name": "b", "created_at": "s3cret"}),
            "created_at: expected a time in RFC 3339",
        ),
        ("exec.run", json!({"session": "a", "cmd": 7}), "cmd: expected an array"),
    ] {
        let answer = socket.request(1, method, params).line();
        assert_eq!(answer["error"]["data"]["kind"], "invalid_params", "{answer}");
        assert!(answer.to_string().contains(want) && !answer.to_string().contains("s3cret"), "{answer}");
    }
}
