//! Subscriptions of terminals, as far as they need no engine.

use serde_json::json;

use crate::support::{Daemon, Home};

#[test]
fn a_post_is_told_that_it_carries_no_terminal_and_what_serves_instead() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "terminal.open", "params": {"session": "a"}});
    let body = request.to_string();
    let head =
        format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = daemon.connect().send(head + &body).rest();
    assert!(answer.contains("invalid_params") && answer.contains("WebSocket"), "{answer}");
    assert!(answer.contains("terminal.peek"), "{answer}");
}

#[test]
fn a_terminal_that_is_not_opened_takes_no_place_among_the_subscriptions() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    for id in 0..100 {
        let refused = socket.request(id, "terminal.open", json!({"session": "nobody"})).line();
        assert_eq!(refused["error"]["data"]["kind"], "session_not_found", "{refused}");
    }
    let ended = socket.request(1, "terminal.unsubscribe", json!({"subscription": 1})).line();
    assert_eq!(ended["result"], json!({"done": true}));
}

#[test]
fn what_a_client_names_is_bounded_where_it_is_taken_and_never_repeated_whole() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    let long = "t".repeat(300_000);
    for name in ["", "a\nb", "a\u{0}b", "\u{1b}[2J", &long] {
        let asked = json!({"session": "a", "terminal": name});
        let refused = socket.request(1, "terminal.open", asked).line();
        assert_eq!(refused["error"]["data"]["kind"], "invalid_params", "{refused}");
        let text = refused["error"]["message"].as_str().expect("text");
        assert!(text.starts_with("terminal: expected 1 to 128 bytes"), "{text}");
    }
    for (method, params, start) in [
        ("event.subscribe", json!({"kinds": [&long]}), "kinds[0]: expected"),
        ("event.list", json!({"kinds": vec!["exec."; 1000]}), "kinds: expected"),
        ("exec.wait", json!({"id": &long}), "id: expected"),
        ("exec.logs", json!({"id": &long}), "id: expected"),
        ("session.get", json!({"name": &long}), "no session is named 'ttt"),
        ("exec.run", json!({"session": &long, "cmd": ["true"]}), "no session is named 'ttt"),
        ("snapshot.delete", json!({"snapshots": [&long]}), "no snapshot is named 'ttt"),
    ] {
        let refused = socket.request(1, method, params).line();
        let text = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(text.starts_with(start) && refused.to_string().len() < 1000, "{method}: {text}");
    }
    let mode = json!({"session": "a", "path": "/x", "content": "", "mode": 0o10644});
    let refused = socket.request(1, "file.write", mode).line();
    assert_eq!(refused["error"]["message"], "mode: expected permission bits, from 0 to 4095");
    let data = json!({"session": "a", "data": "s3cret!", "encoding": "base64"});
    let refused = socket.request(1, "terminal.write", data).line();
    assert_eq!(refused["error"]["message"], "data: expected base64");
}

#[test]
fn what_waits_for_its_answer_keeps_no_other_subscription_from_beginning() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = daemon.connect();
    let slow = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {}},
        {"jsonrpc": "2.0", "id": 2, "method": "debug.wait", "params": {"file": gate}},
    ]);
    socket.send(format!("{slow}\n"));
    socket.request(3, "event.subscribe", json!({}));
    assert_eq!(socket.line()["id"], 3);
    assert_eq!(socket.line()["params"]["subscription"], 2, "its first notification comes at once");
    std::fs::write(&gate, "").expect("opened");
    // What happens meanwhile comes to the one that has begun, and to no other.
    let mut next =
        || std::iter::from_fn(|| Some(socket.line())).find(|line| line["params"]["subscription"] != 2);
    assert!(next().expect("an answer").is_array());
    assert_eq!(next().expect("a notification")["params"]["subscription"], 1);
}
