//! Other people's programs on the socket: curl, Python, Node's `ws` and `vscode-jsonrpc`, Neovim, Vim, Emacs.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use crate::support::{Daemon, Home};

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"debug.echo","params":{"from":"a client"}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"from":"a client"}}"#;

/// Runs a program to its end, within a minute, and gives what it printed.
#[track_caller]
fn output(home: &Home, program: &str, change: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = home.command("timeout");
    command.args(["--kill-after=5", "60", program]);
    let output = change(&mut command).output().expect("timeout is part of coreutils");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} ended with {}\n{text}\n{errors}", output.status);
    text.into_owned()
}

/// Writes a file of this name.
pub(super) fn script(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.dir().join(name);
    std::fs::write(&path, text).expect("write");
    path
}

/// A directory with the two Node packages, installed once for all test runs.
pub(super) fn node_modules() -> PathBuf {
    const PACKAGES: [&str; 2] = ["ws@8.18.3", "vscode-jsonrpc@8.2.1"];
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-clients");
    std::fs::create_dir_all(&dir).expect("a directory");
    let lock = std::fs::File::create(dir.join("lock")).expect("a file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("a lock");
    let done = dir.join("installed");
    let wanted = PACKAGES.join(" ");
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return dir;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"])
        .arg(&dir)
        .args(PACKAGES);
    let output = npm.output().expect("npm is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(done, wanted).expect("write");
    dir
}

fn node(home: &Home, daemon: &Daemon, text: &str) -> String {
    let modules = node_modules().join("node_modules");
    let file = script(home, "client.js", text);
    output(home, "node", |c| c.env("NODE_PATH", modules).arg(file).arg(daemon.socket()).arg(home.dir()))
}

#[test]
fn curl_posts() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let json = ["-H", "Content-Type: application/json"];
    for extra in [&[][..], &json, &["-H", "Expect: 100-continue"], &["-H", "Transfer-Encoding: chunked"]] {
        let text = output(&home, "curl", |c| {
            c.args(["-sS", "--fail", "--unix-socket", daemon.socket(), "-d", REQUEST])
                .args(extra)
                .arg("http://abx/")
        });
        assert_eq!(text, ANSWER, "{extra:?}");
    }
    let big = script(&home, "big", &"x".repeat(9 * 1024 * 1024));
    for expect in ["Expect:", "Expect: 100-continue"] {
        let text = output(&home, "curl", |c| {
            c.args(["-sS", "-w", " %{http_code}", "--unix-socket", daemon.socket(), "-H", expect]);
            c.arg("--data-binary").arg(format!("@{}", big.display())).arg("http://abx/")
        });
        assert!(text.contains("over the limit of 8388608") && text.ends_with(" 413"), "{text}");
    }
}

#[test]
fn python_speaks_websocket_with_its_standard_library_alone() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = script(
        &home,
        "client.py",
        r#"
import base64, os, socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
key = base64.b64encode(os.urandom(16)).decode()
s.sendall(f"GET / HTTP/1.1\r\nHost: abx\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
f = s.makefile("rb")
assert b"101" in f.readline()
while f.readline() != b"\r\n": pass
def send(payload, opcode=1):
    mask = os.urandom(4)
    length = len(payload)
    head = struct.pack("!BB", 0x80 | opcode, 0x80 | length) if length < 126 else struct.pack("!BBH", 0x80 | opcode, 0xfe, length)
    s.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))
def receive():
    a, b = f.read(2)
    length = b & 0x7f
    if length == 126: length = struct.unpack("!H", f.read(2))[0]
    return a & 0xf, f.read(length)
send(sys.argv[2].encode())
print(receive()[1].decode())
send(struct.pack("!H", 1000), 8)
assert receive() == (8, struct.pack("!H", 1000))
assert f.read() == b""
"#,
    );
    let text = output(&home, "python3", |c| c.arg(file).args([daemon.socket(), REQUEST]));
    assert_eq!(text.trim_end(), ANSWER);
}

#[test]
fn nodes_ws_calls_pings_and_closes() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let text = node(
        &home,
        &daemon,
        r#"
const WebSocket = require("ws");
const socket = new WebSocket("ws+unix:" + process.argv[2] + ":/");
const request = (id) => JSON.stringify({ jsonrpc: "2.0", id, method: "debug.echo", params: { id } });
socket.on("open", () => { socket.send(request(1)); socket.send(Buffer.from(request(2))); socket.send(`[${request(3)},${request(4)}]`); });
const seen = [];
socket.on("message", (data) => {
    seen.push(JSON.parse(data));
    if (seen.length === 3) socket.ping("are you there");
});
socket.on("pong", (data) => socket.send("x".repeat(9 * 1024 * 1024)) || console.log(String(data)));
socket.on("close", (code) => {
    console.log(JSON.stringify([seen[0].result, seen[1].result, seen[2].map((answer) => answer.result), seen[3].error.code, code]));
});
socket.on("error", (error) => { console.error(error); process.exit(1); });
"#,
    );
    assert_eq!(text, "are you there\n[{\"id\":1},{\"id\":2},[{\"id\":3},{\"id\":4}],-32600,1009]\n");
}

#[test]
fn vscode_jsonrpc_calls_by_name_and_position_cancels_and_is_notified() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let text = node(
        &home,
        &daemon,
        r#"
const net = require("net");
const rpc = require("vscode-jsonrpc/node");
const stream = net.connect(process.argv[2]);
const connection = rpc.createMessageConnection(new rpc.StreamMessageReader(stream), new rpc.StreamMessageWriter(stream));
connection.listen();
(async () => {
    const said = [];
    connection.onNotification("event", (params) => said.push(params.number));
    said.push(await connection.sendRequest("debug.echo", { a: 1 }));
    said.push(await connection.sendRequest("debug.echo", [{ a: 2 }]));
    said.push(await connection.sendRequest("debug.echo"));
    const source = new rpc.CancellationTokenSource();
    const waiting = connection.sendRequest("debug.wait", { file: process.argv[3] + "/never" }, source.token);
    said.push(await connection.sendRequest("debug.echo", { while: "waiting" }));
    source.cancel();
    said.push(await waiting.catch((error) => error.code));
    said.push(await connection.sendRequest("no.such").catch((error) => error.code));
    await connection.sendRequest("debug.notify", { method: "event", count: 2 });
    while (said.length < 8) await new Promise(setImmediate);
    console.log(JSON.stringify(said));
    stream.end();
})().catch((error) => { console.error(error); process.exit(1); });
"#,
    );
    assert_eq!(text, "[{\"a\":1},{\"a\":2},{},{\"while\":\"waiting\"},-32800,-32601,0,1]\n");
}

#[test]
fn neovim_speaks_through_a_pipe() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let result = home.dir().join("result");
    let file = script(
        &home,
        "client.lua",
        r#"
local socket, file, request = os.getenv("CLIENT_SOCKET"), os.getenv("CLIENT_RESULT"), os.getenv("CLIENT_REQUEST")
local pipe, got, failed = vim.loop.new_pipe(false), "", nil
pipe:connect(socket, function(err)
  if err then failed = err return end
  pipe:read_start(function(err, data)
    if err or not data then failed = err or "closed" return end
    got = got .. data
  end)
  pipe:write("Content-Length: " .. #request .. "\r\n\r\n" .. request)
end)
vim.wait(30000, function() return failed or got:match("}}$") end, 10)
local out = io.open(file, "w")
out:write(failed or got)
out:close()
vim.cmd("qall!")
"#,
    );
    output(&home, "nvim", |c| {
        c.env("CLIENT_SOCKET", daemon.socket()).env("CLIENT_RESULT", &result).env("CLIENT_REQUEST", REQUEST);
        c.args(["--headless", "-u", "NONE", "-i", "NONE", "-n", "-c"])
            .arg(format!("luafile {}", file.display()))
    });
    let text = std::fs::read_to_string(result).expect("a result");
    assert_eq!(text, format!("Content-Length: {}\r\n\r\n{ANSWER}", ANSWER.len()));
}

#[test]
fn vim_channels_speak_with_lengths() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let result = home.dir().join("result");
    let file = script(
        &home,
        "client.vim",
        r#"
let s:channel = ch_open('unix:' .. $CLIENT_SOCKET, #{mode: 'lsp', timeout: 30000})
let s:answer = ch_evalexpr(s:channel, #{method: 'debug.echo', params: #{from: 'a client'}}, #{timeout: 30000})
call writefile([json_encode(s:answer.result)], $CLIENT_RESULT)
qall!
"#,
    );
    output(&home, "vim", |c| {
        c.env("CLIENT_SOCKET", daemon.socket()).env("CLIENT_RESULT", &result).env("TERM", "dumb");
        c.args(["-N", "-u", "NONE", "-i", "NONE", "-n", "-es", "-S"]).arg(file)
    });
    assert_eq!(std::fs::read_to_string(result).expect("a result").trim_end(), r#"{"from":"a client"}"#);
}

#[test]
fn emacs_speaks_with_its_own_jsonrpc() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let file = script(
        &home,
        "client.el",
        r#"
(require 'jsonrpc)
(let* ((process (make-network-process :name "abx" :family 'local :service (getenv "CLIENT_SOCKET") :coding 'utf-8-emacs-unix))
       (connection (make-instance 'jsonrpc-process-connection :name "abx" :process process)))
  (princ (plist-get (jsonrpc-request connection 'debug.echo '(:from "a client")) :from))
  (princ (condition-case error (jsonrpc-request connection 'no.such nil)
           (jsonrpc-error (format " %s" (alist-get 'jsonrpc-error-code (cdr error)))))))
"#,
    );
    let text = output(&home, "emacs", |c| {
        c.env("CLIENT_SOCKET", daemon.socket()).args(["--batch", "-Q", "-l"]).arg(file)
    });
    assert_eq!(text, "a client -32601");
}

#[test]
fn vscode_jsonrpc_and_emacs_speak_through_a_process() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let bridge = |text: &str| text.replace("ABX", env!("CARGO_BIN_EXE_abx"));
    let text = node(
        &home,
        &daemon,
        &bridge(
            r#"
const rpc = require("vscode-jsonrpc/node");
const child = require("child_process").spawn("ABX", ["rpc", "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
const reader = new rpc.StreamMessageReader(child.stdout);
const connection = rpc.createMessageConnection(reader, new rpc.StreamMessageWriter(child.stdin));
const told = new Promise((resolve) => connection.onNotification("event", (event) => resolve(event.kind)));
connection.listen();
child.on("exit", (code) => console.log("exit", code));
(async () => {
    await connection.sendRequest("event.subscribe", {});
    console.log(await told, (await connection.sendRequest("debug.echo", { a: "ü" })).a);
    child.stdin.end();
})();
"#,
        ),
    );
    assert_eq!(text, "subscribed ü\nexit 0\n");
    let file = script(
        &home,
        "bridge.el",
        &bridge(
            r#"
(require 'jsonrpc)
(let ((abx (jsonrpc-process-connection
            :name "abx"
            :process (make-process :name "abx" :command '("ABX" "rpc" "--stdio") :connection-type 'pipe
                                   :coding 'utf-8-emacs-unix :noquery t))))
  (princ (plist-get (jsonrpc-request abx :debug.echo '(:a "through a process")) :a)))
"#,
        ),
    );
    let text = output(&home, "emacs", |c| c.args(["-Q", "--batch", "-l"]).arg(file));
    assert_eq!(text, "through a process");
}
