//! A daemon with a home of its own, and a plain connection to it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for the daemon to listen.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Rows per batch: half of what the daemon takes.
const BATCH: usize = 500;

/// A spawned `abxd`; ended, with what it made in the engine, when dropped.
pub(crate) struct Daemon {
    home: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    /// Starts it and waits until it listens.
    pub(crate) fn spawn() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_abxd"));
        command
            .arg("--home")
            .arg(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("abxd starts");
        let daemon = Self { home, child };
        let begun = Instant::now();
        while UnixStream::connect(daemon.socket()).is_err() {
            assert!(begun.elapsed() < START_LIMIT, "abxd does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home().join("daemon.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a connection for one call after the other.
    pub(crate) fn caller(&self) -> Caller {
        let stream = self.connect();
        Caller { answers: BufReader::new(stream.try_clone().expect("a second handle")), stream }
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).expect("abxd listens")
    }

    /// Puts `count` rows into the table. They name sandboxes of another program, so no engine is needed.
    pub(crate) fn fill(&self, count: usize) {
        let mut stream = self.connect();
        let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
        let row = |n: usize| {
            json!({"jsonrpc": "2.0", "id": n, "method": "store.save", "params": {
                "name": format!("session-number-{n}"),
                "sandbox_id": format!("{n:064x}"),
                "template": "base",
                "metadata": {"ticket": n.to_string()},
            }})
        };
        let rows: Vec<Value> = (0..count).map(row).collect();
        for batch in rows.chunks(BATCH) {
            writeln!(stream, "{}", Value::from(batch)).expect("abxd reads");
            let mut line = String::new();
            answers.read_line(&mut line).expect("abxd answers");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            let answers = line.as_array().unwrap_or_else(|| panic!("not a batch: {line}"));
            assert!(answers.iter().all(|a| a.get("result").is_some()), "{}", answers[0]);
        }
    }
}

/// A connection on which calls are made.
pub(crate) struct Caller {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Caller {
    /// Makes a call, which must succeed, and gives its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.stream, "{request}").expect("abxd reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("abxd answers");
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }
}

impl Daemon {
    /// Removes what the engine lists of this home.
    fn remove(&self, of: &str, list: &[&str], remove: &[&str]) {
        let filter = format!("label=dev.abx.{of}.home={}", self.home.path().display());
        let Ok(listed) = Command::new("docker").args(list).args(["--filter", &filter]).output() else {
            return;
        };
        for id in String::from_utf8_lossy(&listed.stdout).lines() {
            let _ = Command::new("docker").args(remove).arg(id).output();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing can be done here about what fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.remove("session", &["ps", "-aq"], &["rm", "-f"]);
        self.remove("snapshot", &["images", "-q", "--no-trunc"], &["rmi", "-f"]);
    }
}
