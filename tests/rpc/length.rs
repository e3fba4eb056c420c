//! The base protocol of language servers.

use serde_json::{Value, json};

use crate::support::{Daemon, Home};

fn framed(text: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{text}", text.len())
}

#[test]
fn messages_are_told_apart_by_their_lengths_however_they_are_cut() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let request = r#"{"jsonrpc":"2.0","id":"é","method":"debug.echo"}"#;
    let length = request.len();
    let stream = format!(
        "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nCONTENT-LENGTH:{length}\r\nX-A: b\r\n\r\n{request}{}content-length: {length}\n\n{request}",
        framed("[]")
    );
    for piece in [1, 2, 3, 7, 64, stream.len()] {
        let mut socket = daemon.connect();
        for part in stream.as_bytes().chunks(piece) {
            socket.send(part);
        }
        assert_eq!(socket.message(), json!({"jsonrpc": "2.0", "id": "é", "result": {}}));
        assert_eq!(socket.message()["error"]["code"], -32600);
        assert_eq!(socket.message()["id"], "é");
        assert_eq!(socket.end().rest(), "", "pieces of {piece}");
    }
}

#[test]
fn a_bad_body_is_answered_and_a_bad_header_ends_the_connection() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.send(framed("{nonsense}")).send(framed(""));
    assert_eq!(socket.message()["error"]["code"], -32700);
    assert_eq!(socket.message()["error"]["code"], -32700);
    socket.send(framed(r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo"}"#));
    assert_eq!(socket.message()["id"], 1);
    for header in [
        "Content-Type: x",
        "Content-Length: -5",
        "Content-Length: many",
        "Content-Length:",
        "Content-Length: 1\r\nContent-Length: 2",
    ] {
        let mut socket = daemon.connect();
        socket.send(format!("{header}\r\n\r\n{{}}"));
        let answer = socket.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{header}");
        assert_eq!(socket.rest(), "");
    }
}

#[test]
fn a_client_that_has_closed_its_side_still_gets_its_answers() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = home.dir().join("made");
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "debug.wait", "params": {"file": file}});
    let mut socket = daemon.connect();
    socket.send(framed(&wait.to_string())).end();
    daemon.connect().call("debug.echo", json!({}));
    assert!(socket.has_nothing());
    std::fs::write(&file, "").expect("write");
    assert_eq!(socket.message()["result"], true);
    assert_eq!(socket.rest(), "");
}
