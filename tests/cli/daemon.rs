//! A daemon of canned answers on a temporary socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use abx::proto::stream::{Exit, FrameKind, HEADER_BYTES, Open, PREFACE, header, parse_header};

/// How long a test waits for what must come. Far beyond any machine's slowness.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One fake daemon.
pub(crate) struct Daemon {
    dir: tempfile::TempDir,
    streams: Receiver<Stream>,
}

/// A raw stream that a client opened.
pub(crate) struct Stream {
    /// What the client wants to run.
    pub(crate) open: Open,
    socket: BufReader<UnixStream>,
}

impl Daemon {
    /// Greets; answers every other request with this result; hands over raw streams.
    pub(crate) fn answering(result: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let listener = UnixListener::bind(dir.path().join("daemon.sock")).expect("bind");
        let (send, streams) = channel();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let send = send.clone();
                let socket = socket.expect("accept");
                thread::spawn(move || serve(socket, result, &send));
            }
        });
        Self { dir, streams }
    }

    /// Greets, and answers no other request.
    pub(crate) fn busy() -> Self {
        Self::answering("")
    }

    /// Its home.
    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    /// The next raw stream, which waits for its answer.
    pub(crate) fn opening(&self) -> Stream {
        self.streams.recv_timeout(LONG).expect("a raw stream")
    }

    /// The next raw stream, already told that it runs.
    pub(crate) fn stream(&self) -> Stream {
        let mut stream = self.opening();
        stream
            .write(format!("{{\"exec\":\"e1\",\"version\":\"{}\",\"protocol\":1}}\n", version()).as_bytes());
        stream
    }
}

impl Stream {
    /// The next frame of the client; none when it has gone.
    pub(crate) fn next(&mut self) -> Option<(FrameKind, Vec<u8>)> {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).ok()?;
        let (kind, length) = parse_header(head).expect("a frame within the limit");
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).ok()?;
        Some((kind.expect("a known kind"), payload))
    }

    /// Reads input until it has this many bytes, passing over other frames.
    pub(crate) fn input(&mut self, bytes: usize) -> Vec<u8> {
        let mut input = Vec::new();
        while input.len() < bytes {
            match self.next() {
                Some((FrameKind::Input, payload)) if !payload.is_empty() => input.extend(payload),
                Some((FrameKind::Input, _)) | None => break,
                Some(_) => {}
            }
        }
        input
    }

    /// Waits for a frame of this kind, passing over others.
    pub(crate) fn wait_for(&mut self, kind: FrameKind) -> Vec<u8> {
        loop {
            let (seen, payload) = self.next().expect("the client is there");
            if seen == kind {
                return payload;
            }
        }
    }

    /// Sends a frame. Gives whether the client was there.
    pub(crate) fn send(&mut self, kind: FrameKind, payload: &[u8]) -> bool {
        let frame = [&header(kind, payload.len())[..], payload].concat();
        self.socket.get_mut().write_all(&frame).is_ok()
    }

    /// Ends the command.
    pub(crate) fn exit(&mut self, exit_code: i32, reason: Option<&str>) {
        let exit = Exit { exit_code, reason: reason.map(str::to_owned) };
        self.send(FrameKind::Exit, &serde_json::to_vec(&exit).expect("JSON"));
    }

    /// Answers the opening with an error.
    pub(crate) fn refuse(&mut self, kind: &str, message: &str) {
        let error = serde_json::json!({"code": 1, "message": message, "data": {"kind": kind}});
        self.write(format!("{}\n", serde_json::json!({ "error": error })).as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).expect("the client is there");
    }
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn serve(socket: UnixStream, result: &str, streams: &Sender<Stream>) {
    let mut writer = socket.try_clone().expect("clone");
    let mut socket = BufReader::new(socket);
    let mut line = String::new();
    while socket.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line.as_bytes() == PREFACE {
            line.clear();
            socket.read_line(&mut line).expect("an opening");
            let open = serde_json::from_str(&line).expect("an opening");
            // The test may be over.
            let _ = streams.send(Stream { open, socket });
            return;
        }
        let request: serde_json::Value = serde_json::from_str(&line).expect("a request");
        let result = if request["method"] == "daemon.hello" {
            format!(
                "{{\"server\":\"abxd\",\"version\":\"{}\",\"protocol\":1,\"pid\":1,\"home\":\"/\"}}",
                version()
            )
        } else if result.is_empty() {
            line.clear();
            continue;
        } else {
            result.to_owned()
        };
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", request["id"]);
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}
