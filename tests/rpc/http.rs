//! HTTP, with bytes written by hand where curl would not write them.

use serde_json::{Value, json};

use crate::support::{Daemon, Home};

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo"}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

fn post(headers: &str, body: &str) -> String {
    format!("POST /any/path HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).expect("a status")
}

#[test]
fn a_connection_is_kept_and_requests_may_be_sent_ahead() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.send(post("Content-Type: application/json; charset=utf-8\r\n", REQUEST));
    let first = socket.up_to(ANSWER);
    assert_eq!(status(&first), "200");
    assert!(first.to_ascii_lowercase().contains("content-type: application/json\r\n"));
    socket.send([post("", REQUEST), post("", "{nope"), post("", REQUEST)].concat());
    socket.up_to(ANSWER);
    assert_eq!(status(&socket.up_to("}}")), "200");
    socket.up_to(ANSWER);
    socket.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for part in [&REQUEST[..10], &REQUEST[10..]] {
        socket.send(format!("{:x}\r\n{part}\r\n", part.len()));
    }
    socket.send("0\r\n\r\n").up_to(ANSWER);
    socket.send(post("Expect: 100-continue\r\n", "")).up_to("\r\n\r\n");
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.send(format!(
        "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        REQUEST.len()
    ));
    assert_eq!(status(&socket.up_to("\r\n\r\n")), "100");
    assert_eq!(status(&socket.send(REQUEST).up_to(ANSWER)), "200");
}

#[test]
fn what_has_no_answer_has_no_content() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    for body in [r#"{"jsonrpc":"2.0","method":"x"}"#, r#"[{"jsonrpc":"2.0","method":"x"}]"#] {
        assert_eq!(status(&socket.send(post("", body)).up_to("\r\n\r\n")), "204");
    }
}

#[test]
fn what_is_not_a_post_of_json_is_refused_with_the_reason() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for method in ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"] {
        let answer = daemon
            .connect()
            .send(format!("{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
            .rest();
        assert_eq!(status(&answer), "405", "{method}");
        assert!(answer.to_ascii_lowercase().contains("allow: post\r\n"));
    }
    let close = "Connection: close\r\n";
    for (kind, want) in [
        ("application/json", "200"),
        ("Application/JSON-RPC", "200"),
        ("application/vnd.x+json", "200"),
        ("application/x-www-form-urlencoded", "200"),
        ("text/plain", "415"),
        ("text/html", "415"),
        ("multipart/form-data; boundary=x", "415"),
    ] {
        let stream = post(&format!("{close}Content-Type: {kind}\r\n"), REQUEST);
        assert_eq!(status(&daemon.connect().send(stream).rest()), want, "{kind}");
    }
    let web = post(&format!("{close}Origin: http://evil.example\r\n"), REQUEST);
    assert_eq!(status(&daemon.connect().send(web).rest()), "403");
    assert_eq!(status(&daemon.connect().send("HELLO\r\n\r\n").rest()), "400");
}

#[test]
fn a_body_that_is_too_long_is_told_so_to_a_client_that_sends_it_all_first() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let body = "x".repeat(20 * 1024 * 1024);
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for stream in [post("", &body), chunked] {
        let answer = daemon.connect().send(stream).rest();
        assert_eq!(status(&answer), "413");
        let (_, text) = answer.split_once("\r\n\r\n").expect("a body");
        let error: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32600)));
    }
    let mut socket = daemon.connect();
    socket.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n");
    assert_eq!(status(&socket.rest()), "413");
}

#[test]
fn a_client_that_has_closed_its_side_still_gets_its_answer() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = home.dir().join("made");
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "debug.wait", "params": {"file": file}});
    let mut socket = daemon.connect();
    socket.send(post("", &wait.to_string())).end();
    for _ in 0..100 {
        daemon.connect().call("debug.echo", json!({}));
    }
    std::fs::write(&file, "").expect("write");
    assert!(socket.rest().ends_with("\"result\":true}"));
}
