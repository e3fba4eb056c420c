//! Many programs of others at once, on each framing, that follow events, while one of each kind is frozen.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::clients::{node_modules, script};
use super::wire::change;
use crate::support::{Daemon, Home, until};

/// Events while some are frozen: many times what a socket holds.
const EVENTS: u64 = 3_000;

/// Each is started with the socket and a file. It follows sessions from the beginning, makes the file when it knows that
/// it does, and writes there the numbers of the events when it has seen the one that ends it.
struct Kind {
    name: &'static str,
    program: &'static str,
    text: &'static str,
    count: usize,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "lines.py",
        program: "python3",
        count: 12,
        text: r#"
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
params = {"since": 0, "kinds": ["session."]}
s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": params}).encode())
seen = []
for line in s.makefile():
    event = json.loads(line).get("params")
    if event is None:
        continue
    if event["kind"] == "subscribed":
        open(sys.argv[2], "w").close()
        continue
    seen.append(event["seq"])
    if event["session"] == "end":
        break
json.dump(seen, open(sys.argv[2], "w"))
"#,
    },
    Kind {
        name: "websocket.js",
        program: "node",
        count: 10,
        text: r#"
const fs = require("fs");
const WebSocket = require("ws");
const socket = new WebSocket("ws+unix:" + process.argv[2] + ":/");
const params = { since: 0, kinds: ["session."] };
const request = { jsonrpc: "2.0", id: 1, method: "event.subscribe", params };
const seen = [];
socket.on("open", () => socket.send(JSON.stringify(request)));
socket.on("message", (data) => {
    const event = JSON.parse(data).params;
    if (!event) return;
    if (event.kind === "subscribed") return fs.writeFileSync(process.argv[3], "");
    seen.push(event.seq);
    if (event.session === "end") socket.close();
});
socket.on("close", () => fs.writeFileSync(process.argv[3], JSON.stringify(seen)));
"#,
    },
    Kind {
        name: "lengths.js",
        program: "node",
        count: 10,
        text: r#"
const fs = require("fs");
const rpc = require("vscode-jsonrpc/node");
const stream = require("net").connect(process.argv[2]);
const connection = rpc.createMessageConnection(new rpc.StreamMessageReader(stream), new rpc.StreamMessageWriter(stream));
const seen = [];
connection.onNotification("event", (event) => {
    if (event.kind === "subscribed") return fs.writeFileSync(process.argv[3], "");
    seen.push(event.seq);
    if (event.session === "end") connection.dispose(), stream.end();
});
stream.on("close", () => fs.writeFileSync(process.argv[3], JSON.stringify(seen)));
connection.listen();
connection.sendRequest("event.subscribe", { since: 0, kinds: ["session."] });
"#,
    },
];

/// One of them; ended when dropped.
struct Client {
    child: Child,
    file: PathBuf,
}

impl Client {
    fn start(home: &Home, daemon: &Daemon, kind: &Kind, modules: &Path, number: usize) -> Self {
        let file = home.dir().join(format!("{number}-{}.out", kind.name));
        let mut command: Command = home.command(kind.program);
        command.env("NODE_PATH", modules).arg(home.dir().join(kind.name)).arg(daemon.socket()).arg(&file);
        let child = command.stdin(Stdio::null()).spawn().expect("it is installed");
        Self { child, file }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")), signal).expect("it is ours");
    }

    fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        until("it to be stopped", || std::fs::read_to_string(&stat).ok()?.contains(") T ").then_some(()));
    }

    /// The numbers of the events that it got, once it has ended.
    fn seen(&mut self) -> Vec<u64> {
        let ended = until("it to end", || self.child.try_wait().expect("a child"));
        assert!(ended.success(), "{}: {ended}", self.file.display());
        serde_json::from_str(&std::fs::read_to_string(&self.file).expect("a result")).expect("JSON")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn thirty_two_programs_of_others_get_every_event_while_one_of_each_kind_is_frozen() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let modules = node_modules().join("node_modules");
    let mut writer = daemon.connect();
    change(&mut writer, "a", 0..100);
    let (mut free, mut frozen) = (Vec::new(), Vec::new());
    for kind in &KINDS {
        script(&home, kind.name, kind.text);
        let mut all = (0..kind.count).map(|n| Client::start(&home, &daemon, kind, &modules, n));
        frozen.extend(all.next());
        free.extend(all);
    }
    assert_eq!(free.len() + frozen.len(), 32);
    for client in free.iter().chain(&frozen) {
        until("it to follow", || client.file.exists().then_some(()));
    }
    frozen.iter().for_each(Client::freeze);
    change(&mut writer, "a", 100..100 + EVENTS);
    change(&mut writer, "end", 0..1);
    let kept = writer.call("event.list", json!({"kinds": ["session."], "limit": 10}));
    let last = kept.as_array().and_then(|kept| kept.last()?["seq"].as_u64()).expect("an event");
    let seen: Vec<_> = free.iter_mut().map(Client::seen).collect();
    let want = &seen[0];
    assert_eq!((want.len() as u64, want.last()), (EVENTS + 101, Some(&last)));
    assert!(seen.iter().all(|seen| seen == want));
    assert_eq!(&all_kept(&daemon), want);
    // Those that thaw go on where they were, unless this took so long that they were given up.
    for client in &mut frozen {
        client.signal(Signal::SIGCONT);
        let seen = client.seen();
        assert!(want.starts_with(&seen) && !seen.is_empty(), "{seen:?}");
    }
}

/// The numbers of all events of sessions, as a list has them.
fn all_kept(daemon: &Daemon) -> Vec<u64> {
    let (mut socket, mut all) = (daemon.connect(), Vec::new());
    loop {
        let since = all.last().copied().unwrap_or(0);
        let page = socket.call("event.list", json!({"since": since, "kinds": ["session."]}));
        let page: Vec<Value> = serde_json::from_value(page).expect("a list");
        if page.is_empty() {
            return all;
        }
        all.extend(page.iter().filter_map(|event| event["seq"].as_u64()));
    }
}
