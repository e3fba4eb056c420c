//! Terminals over JSON: opened, typed into and resized on every framing, beside those who have them as bytes.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::emulator::Emulator;
use super::shown::Viewer;
use super::terminals::{terminals, world};
use super::viewers::{init, peak};
use super::wire::Size;
use crate::support::{LIMIT, Socket, World, until};

/// How a client's messages travel.
enum Framing {
    Lines(Socket),
    Length(Socket),
    Web(Box<WebSocket<UnixStream>>),
}

/// A connection that may have subscriptions.
struct Client {
    framing: Framing,
    last: u64,
    /// Notifications that came before an answer.
    told: VecDeque<Value>,
    /// What its terminals wrote.
    shown: Vec<u8>,
}

impl Client {
    fn of(framing: Framing) -> Self {
        Self { framing, last: 0, told: VecDeque::new(), shown: Vec::new() }
    }

    fn lines(world: &World) -> Self {
        Self::of(Framing::Lines(world.connect()))
    }

    /// One on each framing that carries notifications.
    fn each(world: &World) -> [Self; 3] {
        let stream = UnixStream::connect(world.home.socket()).expect("somebody listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let (web, _) = tungstenite::client("ws://localhost/", stream).expect("accepted");
        [
            Self::lines(world),
            Self::of(Framing::Length(world.connect())),
            Self::of(Framing::Web(Box::new(web))),
        ]
    }

    fn send(&mut self, text: String) {
        match &mut self.framing {
            Framing::Lines(socket) => {
                socket.send(text + "\n");
            }
            Framing::Length(socket) => {
                socket.send(format!("Content-Length: {}\r\n\r\n{text}", text.len()));
            }
            Framing::Web(socket) => socket.send(Message::text(text)).expect("sent"),
        }
    }

    fn next(&mut self) -> Value {
        match &mut self.framing {
            Framing::Lines(socket) => socket.line(),
            Framing::Length(socket) => socket.message(),
            Framing::Web(socket) => {
                let message = socket.read().expect("a message");
                serde_json::from_str(message.to_text().expect("text")).expect("JSON")
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
            self.told.push_back(message);
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, &params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Opens a terminal of the session `a`; the answer has to come before what it shows.
    fn open(&mut self, params: Value) -> Value {
        let mut all = json!({"session": "a"});
        all.as_object_mut().expect("an object").extend(params.as_object().expect("an object").clone());
        let before = self.told.len();
        let opened = self.call("terminal.open", all);
        assert_eq!(self.told.len(), before, "something was told before the answer");
        opened
    }

    fn types(&mut self, terminal: &str, keys: &str) {
        let done = self.call("terminal.write", json!({"session": "a", "terminal": terminal, "data": keys}));
        assert_eq!(done, json!({"done": true}));
    }

    /// The next that a terminal tells.
    fn news(&mut self) -> Value {
        let told = self.told.pop_front().unwrap_or_else(|| self.next());
        assert_eq!(told["method"], "terminal", "{told}");
        let result = told["params"]["result"].clone();
        if result["kind"] == "output" {
            let data = result["data"].as_str().expect("text");
            match result["encoding"].as_str().expect("a word") {
                "utf-8" => self.shown.extend_from_slice(data.as_bytes()),
                other => {
                    assert_eq!(other, "base64");
                    self.shown.extend(STANDARD.decode(data).expect("base64"));
                }
            }
        }
        result
    }

    /// Reads until the terminal has written this.
    fn wait_for(&mut self, text: &str) {
        while !self.shown.windows(text.len()).any(|part| part == text.as_bytes()) {
            let news = self.news();
            assert_eq!(news["kind"], "output", "{text:?} never came: {news}");
        }
    }

    /// Reads to the end.
    fn end(&mut self) -> Value {
        loop {
            let news = self.news();
            if news["kind"] != "output" {
                return news;
            }
        }
    }
}

#[test]
fn on_each_framing_a_terminal_is_opened_typed_into_resized_and_seen_to_its_end() {
    let Some(world) = world() else { return };
    for (mut client, name) in Client::each(&world).into_iter().zip(["lines", "length", "web"]) {
        let opened = client.open(json!({"terminal": name, "size": {"cols": 90, "rows": 25}}));
        assert_eq!((&opened["followed"], &opened["note"]), (&json!(false), &Value::Null));
        client.wait_for("# ");
        client.types(name, "stty size\r");
        client.wait_for("25 90");
        let size = json!({"cols": 100, "rows": 30});
        client.call("terminal.resize", json!({"session": "a", "terminal": name, "size": size}));
        client.types(name, "stty size\r");
        client.wait_for("30 100");
        let mut raw = Viewer::attach(&world, (100, 30), &["--terminal", name]);
        raw.wait_for_line("30 100");
        raw.types("echo by-''bytes");
        client.wait_for("by-bytes");
        world.call(
            "terminal.write",
            json!({"session": "a", "terminal": name, "data": STANDARD.encode("echo by-''name\r"), "encoding": "base64"}),
        );
        client.wait_for("by-name");
        raw.wait_for_line("by-name");
        let mut second = Client::lines(&world);
        let again = second.open(json!({"terminal": name, "read_only": true, "size": {"cols": 9, "rows": 9}}));
        assert_eq!((&again["exec"], &again["followed"]), (&opened["exec"], &json!(true)));
        second.wait_for("by-name");
        client.types(name, "stty size; exit 7\r");
        assert_eq!(client.end(), json!({"kind": "ended", "exit_code": 7, "reason": null}));
        assert_eq!(second.end()["exit_code"], 7);
        assert!(String::from_utf8_lossy(&client.shown).matches("30 100").count() > 1);
        assert_eq!(raw.code(), Some(7));
        let gone = client.ask("terminal.write", &json!({"session": "a", "terminal": name, "data": "x"}));
        assert_eq!(gone["error"]["data"]["kind"], "exec_not_found", "{gone}");
    }
}

#[test]
fn a_program_goes_on_when_its_subscription_ends_or_its_connection_does() {
    let Some(world) = world() else { return };
    let mut client = Client::lines(&world);
    let first = client.open(json!({"cmd": ["sh", "-c", "echo up; exec cat"]}));
    client.wait_for("up");
    let other = client.open(json!({"terminal": "other", "cmd": ["cat"]}));
    assert_ne!(first["subscription"], other["subscription"]);
    let ended = json!({"subscription": first["subscription"]});
    assert_eq!(client.call("terminal.unsubscribe", ended.clone()), json!({"done": true}));
    assert_eq!(client.call("terminal.unsubscribe", ended), json!({"done": true}), "again is fine");
    let clients = |name: &str| {
        let listed = terminals(&world);
        let one = listed.iter().find(|one| one["terminal"] == name).expect("it is there");
        one["clients"].as_u64().expect("a number")
    };
    until("the first to be left", || (clients("main") == 0).then_some(()));
    assert_eq!(clients("other"), 1);
    drop(client);
    until("the other to be left", || (clients("other") == 0).then_some(()));
    let mut back = Client::lines(&world);
    assert_eq!(back.open(json!({}))["followed"], true);
    back.wait_for("up");
    back.types("main", "still here\r");
    back.wait_for("still here");
}

#[test]
fn a_frozen_client_costs_nobody_time_or_memory_and_is_shown_the_screen_when_it_reads() {
    const FLOOD_KB: u64 = 24 * 1024;
    let Some(mut world) = world() else { return };
    let script = format!(
        "stty -echo -opost; echo re''ady; read -r x; head -c {} /dev/zero | tr '\\0' 'x'; \
         printf '\\r\\nend-of-flood'; read -r x; printf '\\r\\nall is %s' well; exec sleep 1000",
        FLOOD_KB * 1024
    );
    let mut frozen = Client::lines(&world);
    frozen.open(json!({"cmd": ["sh", "-c", script], "size": {"cols": 80, "rows": 24}}));
    frozen.wait_for("ready");
    let mut quick = Client::lines(&world);
    quick.open(json!({}));
    quick.wait_for("ready");
    let mut raw = Viewer::attach(&world, (80, 24), &[]);
    raw.terminal.wait_for("ready");
    let (daemon, init) = (world.daemon().pid().to_string(), init(&world));
    let before = (peak(&daemon), peak(&init));
    quick.types("main", "\r");
    // It may have fallen behind, too, and then it is painted a screen on which more comes after this.
    while !String::from_utf8_lossy(&quick.shown).contains("end-of-flood") {
        let done = quick.shown.len().saturating_sub(1024);
        quick.shown.drain(..done);
        assert_eq!(quick.news()["kind"], "output");
    }
    raw.wait_for_line("end-of-flood");
    let after = (peak(&daemon), peak(&init));
    for (what, before, after) in [("abxd", before.0, after.0), ("abx-init", before.1, after.1)] {
        assert!(after - before < FLOOD_KB, "{what}: {before} kB, then {after} kB");
    }
    let mut emulator = Emulator::new(Size { cols: 80, rows: 24 });
    let mut bytes = 0;
    let mut see = |client: &mut Client, text: &str| {
        loop {
            bytes += client.shown.len();
            emulator.feed(&std::mem::take(&mut client.shown));
            if emulator.text(0).iter().any(|line| line.contains(text)) {
                return;
            }
            client.news();
        }
    };
    see(&mut frozen, "end-of-flood");
    frozen.types("main", "\r");
    see(&mut frozen, "all is well");
    assert!(bytes < 4 * 1024 * 1024, "it was not sent the flood: {bytes}");
}

#[test]
fn what_is_done_behind_the_end_of_a_subscription_reaches_the_terminal_like_anybody_elses() {
    let Some(world) = world() else { return };
    let mut client = Client::lines(&world);
    for round in 0..40 {
        let subscription = client.open(json!({"cmd": ["cat"]}))["subscription"].clone();
        let size = json!({"cols": 100 + round, "rows": 30});
        let calls = [
            ("terminal.unsubscribe", json!({"subscription": subscription})),
            ("terminal.write", json!({"session": "a", "data": "x\r"})),
            ("terminal.resize", json!({"session": "a", "size": size})),
        ];
        // All at once: the end is not waited for.
        let texts = calls.map(|(method, params)| {
            client.last += 1;
            json!({"jsonrpc": "2.0", "id": client.last, "method": method, "params": params}).to_string()
        });
        client.send(texts.join("\n"));
        let mut has_ended = false;
        for _ in 0..3 {
            let answer = loop {
                let told = client.next();
                if told["method"].is_null() {
                    break told;
                }
                assert!(!has_ended, "round {round}: told after the answer to the end: {told}");
            };
            has_ended |= answer["id"] == client.last - 2;
            assert_eq!(answer["result"], json!({"done": true}), "round {round}: {answer}");
        }
        assert_eq!(client.call("terminal.list", json!({"session": "a"}))[0]["size"], size, "round {round}");
        assert!(client.told.is_empty(), "round {round}: told after the end: {:?}", client.told);
    }
}

#[test]
fn whoever_has_a_terminal_open_hears_that_the_daemon_stops_and_finds_it_again() {
    let Some(mut world) = world() else { return };
    let mut clients = Client::each(&world);
    for client in &mut clients {
        client.open(json!({"cmd": ["sh", "-c", "echo up; exec cat"]}));
        client.wait_for("up");
    }
    world.call("daemon.shutdown", json!({}));
    for client in &mut clients {
        let news = client.end();
        assert_eq!(
            (&news["kind"], &news["error"]["data"]["kind"]),
            (&json!("error"), &json!("shutting_down"))
        );
    }
    world.restart(None);
    let mut back = Client::lines(&world);
    assert_eq!(back.open(json!({}))["followed"], true);
    back.wait_for("up");
}

#[test]
fn what_cannot_be_typed_or_resized_is_refused_and_says_why() {
    let Some(world) = world() else { return };
    let refused = |method: &str, params: Value| world.refuse(method, params)["data"]["kind"].clone();
    let write = |params: Value| refused("terminal.write", params);
    assert_eq!(write(json!({"session": "a", "data": "x"})), "exec_not_found");
    assert_eq!(write(json!({"session": "nobody", "data": "x"})), "session_not_found");
    assert_eq!(write(json!({"session": "a", "data": "?", "encoding": "base64"})), "invalid_params");
    assert_eq!(write(json!({"session": "a", "data": "x".repeat(64 * 1024 + 1)})), "limit");
    let size = json!({"cols": 80, "rows": 24});
    assert_eq!(refused("terminal.resize", json!({"session": "a", "size": size})), "exec_not_found");
    let mut client = Client::lines(&world);
    client.open(json!({"cmd": ["cat"]}));
    let other = client.ask("terminal.open", &json!({"session": "a", "cmd": ["top"]}));
    assert_eq!(other["error"]["data"]["kind"], "wrong_state", "{other}");
    let missing = client.open(json!({"terminal": "t", "cmd": ["no-such-program"]}));
    assert_eq!(missing["followed"], false);
    let news = client.end();
    assert_eq!(news["exit_code"], 127, "{news}");
    assert!(news["reason"].as_str().is_some_and(|reason| reason.contains("command not found")), "{news}");
    world.call("session.stop", json!({"name": "a", "grace": 0}));
    assert_eq!(write(json!({"session": "a", "data": "x"})), "wrong_state");
}

#[test]
fn much_is_typed_at_once_and_a_size_that_is_set_by_name_stays() {
    let Some(world) = world() else { return };
    let mut client = Client::lines(&world);
    client.open(json!({"cmd": ["sh", "-c", "stty raw -echo; echo go; exec head -c 65536 | wc -c"]}));
    client.wait_for("go");
    let resize = json!({"session": "a", "size": {"cols": 70, "rows": 20}});
    world.call("terminal.resize", resize);
    assert_eq!(terminals(&world)[0]["size"], json!({"cols": 70, "rows": 20}));
    world.call("terminal.write", json!({"session": "a", "data": "é".repeat(32 * 1024)}));
    client.wait_for("65536");
}

#[test]
fn a_command_that_is_started_reads_what_it_was_given_and_then_nothing() {
    let Some(world) = world() else { return };
    let text = "line\n".repeat(100_000);
    let params = json!({"session": "a", "cmd": ["sh", "-c", "wc -c; echo end"], "stdin": text});
    let id = world.call("exec.start", params)["id"].clone();
    assert_eq!(world.call("exec.wait", json!({"id": id}))["exit_code"], 0);
    assert_eq!(world.call("exec.logs", json!({"id": id}))["stdout"], "500000\nend\n");
}
