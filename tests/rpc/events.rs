//! Events: in their order, on every framing, after what makes them known, and bounded whoever does not read.

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Socket};

/// Something that changes the table and needs no engine.
fn save(socket: &mut Socket, name: &str) {
    socket.call("store.save", json!({"name": name, "status": "running"}));
}

fn next(socket: &mut Socket) -> Value {
    let notification = socket.line();
    assert_eq!(notification["method"], "event", "{notification}");
    notification["params"].clone()
}

#[test]
fn what_happens_comes_in_order_from_where_the_subscriber_was() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut other = daemon.connect();
    save(&mut other, "before");
    let mut socket = daemon.connect();
    let id = socket.call("event.subscribe", json!({"since": 0, "kinds": ["session."]}));
    let first = next(&mut socket);
    assert_eq!((&first["kind"], &first["subscription"]), (&json!("subscribed"), &id));
    assert_eq!(first["data"]["missed"], 0);
    save(&mut other, "after");
    other.call("store.delete", json!({"name": "before"}));
    let (a, b, c) = (next(&mut socket), next(&mut socket), next(&mut socket));
    let what = |event: &Value| {
        (
            event["kind"].as_str().expect("text").to_owned(),
            event["session"].as_str().expect("text").to_owned(),
        )
    };
    let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    assert_eq!(what(&a), pair("session.created", "before"));
    assert_eq!(what(&b), pair("session.created", "after"));
    assert_eq!(what(&c), pair("session.deleted", "before"));
    assert!(c["seq"].as_u64() > b["seq"].as_u64());
    assert_eq!(b["by"]["pid"], std::process::id());
    // Nothing that came is missing from what is kept, and nothing else is there.
    let kept = other.call("event.list", json!({"since": first["seq"], "kinds": ["session."]}));
    let kept: Vec<&Value> = kept.as_array().expect("a list").iter().map(|event| &event["seq"]).collect();
    assert_eq!(kept, [&a["seq"], &b["seq"], &c["seq"]]);
    socket.request(2, "event.unsubscribe", json!({"subscription": id}));
    assert_eq!(socket.line()["result"], json!({"done": true}));
    save(&mut other, "unheard");
    socket.call("daemon.hello", json!({"client": "x", "version": "1", "protocol": 1}));
    assert!(socket.is_silent());
}

#[test]
fn a_session_is_followed_through_its_names_and_one_that_is_not_there_is_refused() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    let refused = socket.request(1, "event.subscribe", json!({"session": "nobody"})).line();
    assert_eq!(refused["error"]["data"]["kind"], "session_not_found");
    let mut other = daemon.connect();
    save(&mut other, "mine");
    save(&mut other, "other");
    socket.call("event.subscribe", json!({"session": "mine"}));
    assert_eq!(next(&mut socket)["kind"], "subscribed");
    other.call("store.delete", json!({"name": "other"}));
    other.call("store.delete", json!({"name": "mine"}));
    let event = next(&mut socket);
    assert_eq!((&event["kind"], &event["session"]), (&json!("session.deleted"), &json!("mine")));
    let history = other.call("event.list", json!({"session": "mine"}));
    assert_eq!(history.as_array().expect("a list").len(), 2, "a name that is gone still has its history");
}

#[test]
fn a_greeting_names_who_asks() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    socket.call("daemon.hello", json!({"client": "my-editor", "version": "1", "protocol": 1}));
    save(&mut socket, "a");
    let events = socket.call("event.list", json!({"session": "a"}));
    assert_eq!(events[0]["by"], json!({"client": "my-editor", "pid": std::process::id()}));
}

#[test]
fn the_base_protocol_of_language_servers_carries_them() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let framed = |text: String| format!("Content-Length: {}\r\n\r\n{text}", text.len());
    let mut socket = daemon.connect();
    let params = json!({"kinds": ["session."]});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": params});
    socket.send(framed(request.to_string()));
    assert_eq!(socket.message()["result"], 1);
    assert_eq!(socket.message()["params"]["kind"], "subscribed");
    save(&mut daemon.connect(), "a");
    assert_eq!(socket.message()["params"]["kind"], "session.created");
}

#[test]
fn a_post_is_told_that_it_carries_none() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {}}).to_string();
    let mut socket = daemon.connect();
    let head =
        format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = socket.send(head + &body).rest();
    assert!(answer.contains("invalid_params") && answer.contains("WebSocket"), "{answer}");
}

#[test]
fn what_a_call_tells_comes_before_its_answer_also_where_the_client_has_much_to_read() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    // More than the socket takes, and less than stops the daemon from answering.
    let requests = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "debug.fill", "params": {"bytes": 2_000_000}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "debug.notify", "params": {"method": "event", "count": 3}}),
    ];
    socket.send(requests.map(|request| format!("{request}\n")).concat());
    assert_eq!(socket.line()["id"], 1);
    let numbers: Vec<_> = (0..3).map(|_| next(&mut socket)["number"].clone()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!((socket.line()["id"].clone(), socket.is_silent()), (json!(2), true));
}

#[test]
fn a_batch_holds_its_subscriptions_and_not_what_its_calls_tell() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = daemon.connect();
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {"since": 0}},
        {"jsonrpc": "2.0", "id": 2, "method": "debug.notify", "params": {"method": "event", "count": 2}},
        {"jsonrpc": "2.0", "id": 3, "method": "debug.wait", "params": {"file": gate}},
    ]);
    socket.send(format!("{batch}\n"));
    assert_eq!(
        (next(&mut socket)["number"].clone(), next(&mut socket)["number"].clone()),
        (json!(0), json!(1))
    );
    assert!(socket.is_silent());
    std::fs::write(&gate, "").expect("write");
    assert!(socket.line().is_array(), "the batch is answered first");
    assert_eq!(next(&mut socket)["kind"], "subscribed");
}

#[test]
fn a_session_is_found_by_its_id_under_another_name_and_when_it_is_gone() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut other = daemon.connect();
    save(&mut other, "mine");
    let id = other.call("session.get", json!({"name": "mine"}))["id"].clone();
    other.call("session.rename", json!({"name": "mine", "new_name": "yours"}));
    other.call("store.delete", json!({"name": "yours"}));
    let listed = other.call("event.list", json!({"session": id}));
    let mut socket = daemon.connect();
    socket.call("event.subscribe", json!({"session": id, "since": 0}));
    assert_eq!(next(&mut socket)["kind"], "subscribed");
    for event in listed.as_array().expect("a list") {
        assert_eq!(next(&mut socket)["seq"], event["seq"]);
    }
    let kinds: Vec<_> = listed.as_array().expect("a list").iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["session.created", "session.renamed", "session.deleted"]);
}

#[test]
fn a_long_list_comes_in_pages_none_of_which_is_longer_than_a_message() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    let count = 4000;
    for n in 0..count {
        let row = json!({"name": format!("{n}-{}", "x".repeat(50)), "status": "running"});
        socket.request(n, "store.save", row);
    }
    for _ in 0..count {
        assert!(socket.line()["error"].is_null());
    }
    let (mut since, mut numbers, mut pages) = (json!(0), Vec::new(), 0);
    loop {
        let page = socket.call("event.list", json!({"since": since}));
        assert!(page.to_string().len() <= 1024 * 1024);
        let Some(last) = page.as_array().expect("a list").last() else { break };
        since = last["seq"].clone();
        numbers.extend(page.as_array().expect("a list").iter().map(|event| event["seq"].as_i64()));
        pages += 1;
    }
    assert!(pages > 1, "{pages}");
    let last = numbers.last().copied().flatten().expect("events");
    assert_eq!(numbers, (1..=last).map(Some).collect::<Vec<_>>());
    let newest = socket.call("event.list", json!({"limit": 2}));
    assert_eq!((&newest[0]["seq"], &newest[1]["seq"]), (&json!(last - 1), &json!(last)));
}

#[test]
fn every_kind_is_in_the_document() {
    let document = include_str!("../../proto-docs/events.md");
    for kind in abx::model::event::EventKind::ALL {
        let cell = format!("`{}`", kind.as_str());
        let row = document.lines().find(|line| line.starts_with('|') && line.contains(&cell));
        assert!(row.is_some(), "{cell} has no row");
    }
}

#[test]
fn numbers_go_on_after_the_daemon_was_killed() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    save(&mut daemon.connect(), "a");
    let before = daemon.connect().call("event.list", json!({}));
    let before = before.as_array().expect("a list").clone();
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    let daemon = Daemon::start(&home);
    save(&mut daemon.connect(), "b");
    let after = daemon.connect().call("event.list", json!({}));
    let after = after.as_array().expect("a list");
    assert_eq!(after[..before.len()], before[..]);
    let numbers: Vec<u64> = after.iter().map(|event| event["seq"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn an_import_tells_its_rows_before_its_answer_to_who_named_it() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = daemon.connect();
    let rows: Vec<Value> =
        ["a", "b"].iter().map(|name| json!({"origin": "agent-sandbox", "row": {"name": name}})).collect();
    socket.request(1, "session.import", json!({"op": "mine", "rows": rows}));
    for text in ["importing 'a' (1 of 2)", "importing 'b' (2 of 2)"] {
        let step = next(&mut socket);
        assert_eq!((&step["kind"], &step["session"]), (&json!("progress"), &Value::Null));
        assert_eq!(step["data"], json!({"op": "mine", "text": text}));
    }
    assert_eq!(socket.line()["id"], 1);
}
