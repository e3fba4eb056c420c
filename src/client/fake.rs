//! A daemon for tests: a thread on a temporary socket that answers with canned lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{Client, Connector};
use crate::paths::Home;
use crate::proto::stream::PREFACE;

/// What a greeting answers.
pub(crate) const HELLO: &str =
    r#"{"server":"abxd","version":"VERSION","protocol":1,"pid":4242,"home":"/h","notice":null}"#;

/// One fake daemon. Each request after the greeting gets the next script; then the connection closes.
pub(crate) struct Fake {
    dir: tempfile::TempDir,
    requests: Arc<Mutex<Vec<String>>>,
}

/// What to answer.
#[derive(Clone, Default)]
pub(crate) struct Script {
    /// The greeting's result; none hangs.
    pub(crate) hello: Option<String>,
    /// Per request, the bytes to answer with; `ID` stands for the request's id. A null byte at the end closes.
    pub(crate) answers: Vec<Vec<u8>>,
    /// What follows the opening of a raw stream.
    pub(crate) raw: Vec<u8>,
}

impl Fake {
    /// Answers each request in its turn with one result or error object, such as `"result":[]`.
    pub(crate) fn answers(answers: &[&str]) -> Self {
        let answers =
            answers.iter().map(|a| format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,{a}}}\n").into_bytes()).collect();
        Self::start(Script { hello: Some(HELLO.to_owned()), answers, raw: Vec::new() })
    }

    /// Answers the first request with these lines, then closes.
    pub(crate) fn lines(lines: &[&str]) -> Self {
        let mut bytes: Vec<u8> = lines.iter().flat_map(|l| [l.as_bytes(), b"\n"].concat()).collect();
        bytes.push(0);
        Self::start(Script { hello: Some(HELLO.to_owned()), answers: vec![bytes], raw: Vec::new() })
    }

    /// Answers the first request with these bytes, then closes.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        let bytes = [bytes, &[0]].concat();
        Self::start(Script { hello: Some(HELLO.to_owned()), answers: vec![bytes], raw: Vec::new() })
    }

    /// Answers the opening of a raw stream with these bytes, then closes.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self::start(Script { hello: Some(HELLO.to_owned()), answers: Vec::new(), raw: bytes.to_vec() })
    }

    /// Greets like this and answers nothing else.
    pub(crate) fn hello(hello: &str) -> Self {
        Self::start(Script { hello: Some(hello.to_owned()), ..Script::default() })
    }

    /// Serves a script.
    pub(crate) fn start(script: Script) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let listener = UnixListener::bind(dir.path().join("daemon.sock")).expect("bind");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (script.clone(), seen.clone());
                let stream = stream.expect("accept");
                std::thread::spawn(move || serve(&stream, &script, &seen));
            }
        });
        Self { dir, requests }
    }

    /// Its home.
    pub(crate) fn home(&self) -> Home {
        Home::find(Some(self.dir.path()), Some(&self.dir.path().join("daemon.sock"))).expect("a home")
    }

    /// Its home's directory.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Every request so far, without the greetings.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// A connector to it that starts nothing.
pub(crate) fn connector(fake: &Fake) -> Connector {
    Connector::new(fake.home(), false)
}

/// A connection to it.
pub(crate) fn client(fake: &Fake) -> Client {
    connector(fake).connect().expect("connects")
}

fn serve(mut stream: &std::os::unix::net::UnixStream, script: &Script, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut answers = script.answers.iter();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        if line.as_bytes() == PREFACE {
            line.clear();
            reader.read_line(&mut line).expect("an opening");
            seen.lock().expect("no panic").push(line.trim_end().to_owned());
            stream.write_all(&script.raw).expect("write");
            return;
        }
        let request: serde_json::Value = serde_json::from_str(&line).expect("a request");
        let id = request["id"].to_string();
        if request["method"] == "daemon.hello" {
            let Some(hello) = &script.hello else {
                // Hangs until the client gives up.
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            };
            let hello = hello.replace("VERSION", crate::proto::version::VERSION);
            let member = if hello.starts_with("\"error\"") { hello } else { format!("\"result\":{hello}") };
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{member}}}\n");
            stream.write_all(answer.as_bytes()).expect("write");
        } else {
            seen.lock().expect("no panic").push(line.trim_end().to_owned());
            let Some(answer) = answers.next() else { return };
            let closes = answer.ends_with(&[0]);
            let text = String::from_utf8_lossy(answer.strip_suffix(&[0]).unwrap_or(answer)).into_owned();
            if stream.write_all(text.replace("ID", &id).as_bytes()).is_err() || closes {
                return;
            }
        }
        line.clear();
    }
}
