//! `session.get` on each framing, beside a bare echo of the same bytes by a process of its own.
//!
//! Client, daemon and echo share one core where the system can be told so. On two, each wait of one for the other
//! includes waking an idle core, which takes between 3 and 60 µs as it comes, and the ratio says nothing of abx.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::daemon::Daemon;
use super::{ECHO, Row, median, timed};

/// Rounds in which every framing gets its turn, so that a busy moment of the machine hits all alike.
const ROUNDS: usize = 20;

/// Calls per turn; the first tenth only warms up.
const CALLS: usize = 500;

/// The promise: p50 over that of the echo.
const LIMIT: f64 = 2.5;

const REQUEST: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"session.get","params":{"name":"session-number-0"}}"#;

/// One way to ask.
struct Framing {
    name: &'static str,
    stream: UnixStream,
    request: Vec<u8>,
    is_whole: fn(&[u8]) -> bool,
    times: Vec<Duration>,
}

impl Framing {
    fn turn(&mut self) {
        let mut answer = Vec::with_capacity(64 * 1024);
        for call in 0..CALLS {
            let time = timed(|| {
                self.stream.write_all(&self.request).expect("the peer reads");
                read_whole(&mut self.stream, &mut answer, self.is_whole);
            });
            if call >= CALLS / 10 {
                self.times.push(time);
            }
        }
    }
}

/// Measures all framings.
pub(crate) fn run() -> Vec<Row> {
    let _one_core = OneCore::hold();
    let daemon = Daemon::spawn();
    daemon.fill(1);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let echo = Echo::spawn(&dir.path().join("echo.sock"));
    let mut framings = framings(&daemon);
    let mut peer = framing("echo", echo.stream(), format!("{REQUEST}\n"), ends_in_newline);
    check_answers(&mut framings);
    for _ in 0..ROUNDS {
        peer.turn();
        for framing in &mut framings {
            framing.turn();
        }
    }
    let peer = median(peer.times);
    let row = |f: Framing| Row::times(format!("round trip, {}", f.name), median(f.times), peer, LIMIT);
    framings.into_iter().map(row).collect()
}

fn framing(name: &'static str, stream: UnixStream, request: String, is_whole: fn(&[u8]) -> bool) -> Framing {
    Framing { name, stream, request: request.into_bytes(), is_whole, times: Vec::new() }
}

fn framings(daemon: &Daemon) -> Vec<Framing> {
    let length = REQUEST.len();
    let http = format!(
        "POST / HTTP/1.1\r\nHost: abx\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{REQUEST}"
    );
    let lsp = format!("Content-Length: {length}\r\n\r\n{REQUEST}");
    vec![
        framing("JSON lines", daemon.connect(), format!("{REQUEST}\n"), ends_in_newline),
        framing("Content-Length", daemon.connect(), lsp, has_its_length),
        framing("HTTP", daemon.connect(), http, has_its_length),
        web_socket(daemon),
    ]
}

fn web_socket(daemon: &Daemon) -> Framing {
    let mut stream = daemon.connect();
    let hello = "GET / HTTP/1.1\r\nHost: abx\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(hello.as_bytes()).expect("abxd reads");
    let mut answer = Vec::new();
    read_whole(&mut stream, &mut answer, |bytes| bytes.ends_with(b"\r\n\r\n"));
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    // A final text frame with a mask of zeros, which leaves the bytes as they are.
    let length = u8::try_from(REQUEST.len()).expect("a short request");
    assert!(length < 126, "a short request");
    let mut request = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    request.extend_from_slice(REQUEST.as_bytes());
    Framing { name: "WebSocket", stream, request, is_whole: is_whole_frame, times: Vec::new() }
}

/// What is measured must be the answer, not an error.
fn check_answers(framings: &mut [Framing]) {
    for framing in framings {
        framing.stream.write_all(&framing.request).expect("abxd reads");
        let mut answer = Vec::new();
        read_whole(&mut framing.stream, &mut answer, framing.is_whole);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(r#""revision":"#), "{}: {answer}", framing.name);
    }
}

fn read_whole(stream: &mut UnixStream, answer: &mut Vec<u8>, is_whole: fn(&[u8]) -> bool) {
    answer.clear();
    let mut chunk = [0; 16 * 1024];
    while !is_whole(answer) {
        let count = stream.read(&mut chunk).expect("an answer");
        assert!(count > 0, "the peer closed: {}", String::from_utf8_lossy(answer));
        answer.extend_from_slice(&chunk[..count]);
    }
}

fn ends_in_newline(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n")
}

fn has_its_length(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    bytes.len() >= end + 4 + length.expect("a Content-Length")
}

fn is_whole_frame(bytes: &[u8]) -> bool {
    match bytes {
        [_, 126, high, low, rest @ ..] => rest.len() >= usize::from(u16::from_be_bytes([*high, *low])),
        [_, length @ ..=125, rest @ ..] => rest.len() >= usize::from(*length),
        _ => false,
    }
}

/// Keeps this thread, and the processes that it starts meanwhile, on one core.
struct OneCore {
    #[cfg(target_os = "linux")]
    before: rustix::thread::CpuSet,
}

impl OneCore {
    #[cfg(target_os = "linux")]
    fn hold() -> Self {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let before = sched_getaffinity(None).expect("the cores of this process");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).expect("a core"));
        sched_setaffinity(None, &one).expect("one of its own cores");
        Self { before }
    }

    #[cfg(not(target_os = "linux"))]
    fn hold() -> Self {
        Self {}
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // The other rows would be measured on one core; their peers, too.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
    }
}

/// The bare echo; ended when dropped.
struct Echo {
    child: Child,
    socket: std::path::PathBuf,
}

impl Echo {
    fn spawn(socket: &Path) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program).arg(ECHO).arg(socket).spawn().expect("the echo starts");
        Self { child, socket: socket.to_owned() }
    }

    fn stream(&self) -> UnixStream {
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return stream,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers one connection with what it sends, until it closes.
pub(crate) fn echo(socket: &str) {
    let listener = UnixListener::bind(socket).expect("a free path");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut chunk = [0; 16 * 1024];
    while let Ok(count) = stream.read(&mut chunk) {
        if count == 0 || stream.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
}
