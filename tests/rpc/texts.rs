//! JSON texts one after the other, and JSON-RPC to the letter.

use serde_json::{Value, json};

use crate::support::{Daemon, Home};

/// Sends a stream, closes that side, and gives every line that comes back.
fn answers(daemon: &Daemon, stream: &[u8]) -> Vec<Value> {
    let rest = daemon.connect().send(stream).end().rest();
    rest.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn codes(answers: &[Value]) -> Vec<(Value, Value)> {
    answers.iter().map(|answer| (answer["id"].clone(), answer["error"]["code"].clone())).collect()
}

#[test]
fn every_kind_of_id_comes_back_as_it_was_written() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let ids = ["1", "-7", "1.50", "1e3", "123456789012345678901234567890", "\"a\\u00e9\\n\"", "\"\"", "null"];
    for id in ids {
        let request =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"debug.echo\",\"params\":{{}}}}\n");
        let answer = daemon.connect().send(request).end().rest();
        assert_eq!(answer, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"));
    }
}

#[test]
fn what_is_not_a_request_is_answered_with_the_id_that_it_has() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for (text, id, code) in [
        (r#"{"jsonrpc":"2.0","id":1}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":"x","method":1}"#, json!("x"), -32600),
        (r#"{"jsonrpc":"1.0","id":2,"method":"debug.echo"}"#, json!(2), -32600),
        (r#"{"id":3,"method":"debug.echo"}"#, json!(3), -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"debug.echo"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"debug.echo"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":4,"id":5,"method":"debug.echo"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":6,"method":"debug.echo","method":"x"}"#, json!(6), -32600),
        (r#"{"jsonrpc":"2.0","id":7,"result":1}"#, json!(7), -32600),
        (r#"{"jsonrpc":"2.0","id":8,"method":"no.such"}"#, json!(8), -32601),
        (r#"{"jsonrpc":"2.0","id":9,"method":"daemon.hello","params":{}}"#, json!(9), -32602),
        (r#"{"jsonrpc":"2.0","id":10,"method":"daemon.info","params":[1,2]}"#, json!(10), -32602),
        (r#"{"jsonrpc":"2.0","id":11,"method":"daemon.info","params":"x"}"#, json!(11), -32602),
        (r"{}", json!(null), -32600),
        (r"[]", json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a",}"#, json!(null), -32700),
        (r#"{"jsonrpc":nope,"id":1,"method":"a"}"#, json!(null), -32700),
        ("{\"a\":\"\\ud8", json!(null), -32700),
    ] {
        let answers = answers(&daemon, text.as_bytes());
        assert_eq!(codes(&answers), [(id, json!(code))], "{text}: {answers:?}");
        if code == -32602 {
            assert_eq!(answers[0]["error"]["data"]["kind"], "invalid_params");
        }
    }
}

#[test]
fn a_null_id_is_a_request_and_an_absent_one_a_notification_that_is_carried_out() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = home.dir().join("made");
    let touch = json!({"jsonrpc": "2.0", "method": "debug.touch", "params": {"file": file}});
    let request = json!({"jsonrpc": "2.0", "id": null, "method": "debug.echo"});
    let answers = answers(&daemon, format!("{touch}{request}").as_bytes());
    assert_eq!(answers, [json!({"jsonrpc": "2.0", "id": null, "result": {}})]);
    assert!(file.exists());
}

#[test]
fn notifications_are_never_answered_whatever_is_wrong_with_them() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let stream = r#"{"jsonrpc":"2.0","method":"no.such"}{"jsonrpc":"2.0","method":"daemon.hello","params":[1,2]}
        {"jsonrpc":"2.0","method":"debug.panic"}[{"jsonrpc":"2.0","method":"debug.echo"}]{"jsonrpc":"2.0","method":"$/setTrace"}"#;
    assert_eq!(daemon.connect().send(stream).end().rest(), "");
}

#[test]
fn batches_are_answered_in_the_order_of_their_entries() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = home.dir().join("made");
    // The first entry ends only when the third has run: entries run side by side.
    let batch = json!([
        {"jsonrpc": "2.0", "id": "slow", "method": "debug.wait", "params": {"file": file}},
        {"jsonrpc": "2.0", "method": "debug.echo"},
        {"jsonrpc": "2.0", "id": 2, "method": "debug.touch", "params": {"file": file}},
        7,
        {"jsonrpc": "2.0", "id": 3, "method": "no.such"},
    ]);
    let answers = answers(&daemon, batch.to_string().as_bytes());
    let answers = answers[0].as_array().expect("one array");
    assert_eq!(
        codes(answers),
        [
            (json!("slow"), json!(null)),
            (json!(2), json!(null)),
            (json!(null), json!(-32600)),
            (json!(3), json!(-32601))
        ]
    );
}

#[test]
fn a_batch_is_empty_or_wrong_or_too_long_as_the_specification_has_it() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    assert_eq!(codes(&answers(&daemon, b"[]")), [(json!(null), json!(-32600))]);
    let wrong = answers(&daemon, b"[1,2]");
    assert_eq!(codes(wrong[0].as_array().expect("array")), vec![(json!(null), json!(-32600)); 2]);
    assert_eq!(codes(&answers(&daemon, b"[1,2")), [(json!(null), json!(-32700))]);
    let entry = r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo"}"#;
    let full = answers(&daemon, format!("[{}]", vec![entry; 1_000].join(",")).as_bytes());
    assert_eq!(full[0].as_array().expect("array").len(), 1_000);
    let over = answers(&daemon, format!("[{}]", vec![entry; 1_001].join(",")).as_bytes());
    assert_eq!(codes(&over), [(json!(null), json!(-32600))]);
}

#[test]
fn params_may_be_wrapped_by_clients_that_only_send_positions() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for (params, want) in [
        (r#"{"a":1}"#, json!({"a": 1})),
        (r#"[{"a":1}]"#, json!({"a": 1})),
        (r#"[[{"a":1}]]"#, json!({"a": 1})),
        ("[]", json!({})),
        ("[[]]", json!({})),
        ("null", json!({})),
        ("[null]", json!({})),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"debug.echo","params":{params}}}"#);
        assert_eq!(answers(&daemon, text.as_bytes())[0]["result"], want, "{params}");
    }
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let stream = "\u{feff}\r\n {\"jsonrpc\":\"2.0\",\n\t\"id\":1, \"method\":\"debug.echo\",\"params\":{\"t\":\"}\\\"é\"}}{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"debug.echo\"}\ngarbage\n{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"debug.echo\"}";
    let whole = answers(&daemon, stream.as_bytes());
    assert_eq!(
        codes(&whole),
        [
            (json!(1), json!(null)),
            (json!(2), json!(null)),
            (json!(null), json!(-32700)),
            (json!(3), json!(null))
        ]
    );
    for cut in 1..stream.len() {
        let mut socket = daemon.connect();
        socket.send(&stream.as_bytes()[..cut]);
        let rest = socket.send(&stream.as_bytes()[cut..]).end().rest();
        assert_eq!(rest.lines().count(), whole.len(), "cut at {cut}: {rest}");
    }
    let mut socket = daemon.connect();
    for byte in stream.as_bytes() {
        socket.send([*byte]);
    }
    assert_eq!(socket.end().rest().lines().count(), whole.len());
}

#[test]
fn a_connection_outlives_garbage_and_deep_nesting() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.send("{]\n");
    assert_eq!(socket.line()["error"]["code"], -32700);
    socket.send([b"{\"a\":\"", &[0xff, 0xfe][..], b"\"}\n"].concat());
    assert_eq!(socket.line()["error"]["code"], -32700);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let known = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"daemon.hello","params":{{"client":{deep}}}}}"#);
    assert_eq!(socket.send(known).line()["error"]["code"], -32602);
    let batch = socket.send(deep).line();
    assert_eq!(batch[0]["error"]["code"], -32600);
    assert_eq!(socket.call("debug.echo", json!({"still": "here"})), json!({"still": "here"}));
}

#[test]
fn what_speaks_nothing_known_gets_one_line_and_the_end() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for stream in ["hello\n", "\u{0}\u{1}", "abx-stream/9\n", "123\n", "\"text\"\n", "content?"] {
        let answers = daemon.connect().send(stream).rest();
        let answer: Value = serde_json::from_str(&answers).expect("one line");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{stream:?}");
    }
}
