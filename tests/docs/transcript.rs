//! Replays the transcripts of `proto-docs/transcripts/` against a daemon on the real engine.
//!
//! A line is `{"note": ..}`, `{"send": MESSAGE}` or `{"expect": MESSAGE}`. An expected object may leave fields out,
//! since additions do not break the protocol; arrays must match in full. `"$any"` stands for any value that is there,
//! `"$id"` for a UUID, `"$time"` for a time in RFC 3339 with milliseconds and `Z`. `"$=NAME"` is any value, too, and
//! `"$NAME"` the same one from then on. Notifications may come before an answer that is expected first.
//!
//! `{"container": NAME}` makes a container that is nobody's. `{"open": OPENING, "expect": ANSWER, "until": TEXT}` opens a raw stream beside it, and waits for this text on it.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{files_under, read, variable};

/// Longest wait for the daemon to listen, and for one answer: far beyond what a loaded machine needs.
const LIMIT: Duration = Duration::from_secs(120);

/// The image of the built-in template, which `tests/engine.sh` provides.
const BASE_IMAGE: &str = "debian:stable-slim";

#[test]
fn the_transcripts_are_what_the_daemon_says() {
    if !engine_is_ready() {
        return;
    }
    for transcript in files_under("proto-docs/transcripts", ".jsonl") {
        let mut daemon = Daemon::spawn();
        let mut replay = Replay::on(daemon.connect());
        // Another home's session of the same name would have the sandbox's name.
        let text = read(&transcript).replace("feature-x", &format!("feature-x-{}", std::process::id()));
        let file = daemon.home.path().join("every-one.abx").display().to_string();
        let text = text.replace("/home/me/every-one.abx", &file);
        for (at, line) in text.lines().enumerate() {
            let place = format!("{transcript}:{}", at + 1);
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{place}: {e}"));
            if let Err(why) = replay.line(&line, &mut daemon) {
                panic!("{place}: {why}");
            }
        }
    }
}

/// A transcript under way.
struct Replay {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    /// Notifications that came before the answer that was expected.
    told: VecDeque<Value>,
    /// Values by the name that they were given.
    known: Known,
    /// Raw streams, which stay open.
    raw: Vec<BufReader<UnixStream>>,
    /// Containers that were nobody's.
    containers: Vec<String>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        for name in &self.containers {
            // It may be gone, as it should.
            let _ = Command::new("docker").args(["rm", "-fv", name]).stderr(Stdio::null()).output();
        }
    }
}

type Known = HashMap<String, Value>;

impl Replay {
    fn on(stream: UnixStream) -> Self {
        let replies = BufReader::new(stream.try_clone().expect("a second handle"));
        let (told, known) = (VecDeque::new(), Known::new());
        Self { stream, replies, told, known, raw: Vec::new(), containers: Vec::new() }
    }

    fn line(&mut self, line: &Value, daemon: &mut Daemon) -> Result<(), String> {
        if let Some(opening) = line.get("open") {
            return self.open(opening, line, daemon.connect());
        }
        if let Some(name) = line["container"].as_str() {
            self.containers.push(name.to_owned());
            let made =
                Command::new("docker").args(["create", "--name", name, BASE_IMAGE, "sleep", "600"]).output();
            return made.map_err(|error| error.to_string()).and_then(|made| {
                made.status
                    .success()
                    .then_some(())
                    .ok_or_else(|| String::from_utf8_lossy(&made.stderr).into_owned())
            });
        }
        if let Some(message) = line.get("send") {
            let message = fill(message, &self.known);
            return writeln!(self.stream, "{message}").map_err(|error| error.to_string());
        }
        let Some(wanted) = line.get("expect") else {
            return line.get("note").map(drop).ok_or_else(|| "neither send, expect nor note".to_owned());
        };
        let got = self.next(wanted["method"].as_str())?;
        compare(wanted, &got, "$", &mut self.known)
            .map_err(|difference| format!("{difference}\nthe whole message: {got}"))
    }

    /// The next notification of this method, or the next message that is none.
    fn next(&mut self, method: Option<&str>) -> Result<Value, String> {
        let wanted = |told: &Value| told["method"].as_str() == method;
        if method.is_some()
            && let Some(at) = self.told.iter().position(wanted)
        {
            return Ok(self.told.remove(at).expect("it is there"));
        }
        loop {
            let got = read_json(&mut self.replies)?;
            if wanted(&got) {
                return Ok(got);
            }
            if method.is_some() && got.get("method").is_none() {
                return Err(format!("an answer where a notification was expected: {got}"));
            }
            self.told.push_back(got);
        }
    }

    fn open(&mut self, opening: &Value, line: &Value, mut stream: UnixStream) -> Result<(), String> {
        let opening = fill(opening, &self.known);
        write!(stream, "abx-stream/1\n{opening}\n").map_err(|error| error.to_string())?;
        let mut stream = BufReader::new(stream);
        compare(&line["expect"], &read_json(&mut stream)?, "$", &mut self.known)?;
        let until = line["until"].as_str().unwrap_or_default().as_bytes();
        let (mut seen, mut one) = (Vec::new(), [0]);
        while !seen.ends_with(until) {
            stream.read_exact(&mut one).map_err(|error| error.to_string())?;
            seen.push(one[0]);
        }
        self.raw.push(stream);
        Ok(())
    }
}

fn read_json(from: &mut impl BufRead) -> Result<Value, String> {
    let mut text = String::new();
    from.read_line(&mut text).map_err(|error| format!("no answer: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{error}: {text:?}"))
}

/// The message with the values that were kept.
fn fill(message: &Value, known: &Known) -> Value {
    match message {
        Value::String(word) => {
            word.strip_prefix('$').and_then(|name| known.get(name)).unwrap_or(message).clone()
        }
        Value::Array(items) => items.iter().map(|item| fill(item, known)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), fill(value, known))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn a_difference_is_found_wherever_it_is() {
    let compare = |wanted: &str, got: &str| {
        let parse = |text| serde_json::from_str(text).expect("JSON");
        compare(&parse(wanted), &parse(got), "$", &mut Known::new())
    };
    assert_eq!(compare(r#"{"a": ["$any", 1]}"#, r#"{"a": [null, 1], "b": 2}"#), Ok(()));
    assert_eq!(compare(r#""$time""#, r#""2026-02-01T10:20:30.123Z""#), Ok(()));
    assert_eq!(compare(r#"["$=x", "$x"]"#, "[1, 1]"), Ok(()));
    assert_eq!(compare(r#""$id""#, r#""01920000-0000-7000-8000-0000deadbeef""#), Ok(()));
    for (wanted, got) in [
        (r#"{"a": 1}"#, r#"{"a": 2}"#),
        (r#"{"a": "$any"}"#, "{}"),
        ("[1]", "[1, 2]"),
        ("[]", "{}"),
        (r#""$time""#, r#""2026-02-01T10:20:30Z""#),
        (r#""$time""#, "7"),
        (r#""$id""#, r#""feature-x""#),
        (r#"["$=x", "$x"]"#, "[1, 2]"),
        (r#""$nobody""#, "1"),
    ] {
        assert!(compare(wanted, got).is_err(), "{wanted} {got}");
    }
}

fn compare(wanted: &Value, got: &Value, place: &str, known: &mut Known) -> Result<(), String> {
    let fits = match (wanted, got) {
        (Value::String(word), _) if word == "$any" => true,
        (Value::String(word), got) if word == "$time" => got.as_str().is_some_and(is_time),
        (Value::String(word), got) if word == "$id" => {
            got.as_str().is_some_and(|text| text.len() == 36 && uuid::Uuid::parse_str(text).is_ok())
        }
        (Value::String(word), got) if word.starts_with("$=") => {
            known.insert(word[2..].to_owned(), got.clone());
            true
        }
        (Value::String(word), got) if word.len() > 1 && word.starts_with('$') => {
            known.get(&word[1..]) == Some(got)
        }
        (Value::Object(wanted), Value::Object(got)) => {
            for (name, wanted) in wanted {
                let place = format!("{place}.{name}");
                let got = got.get(name).ok_or_else(|| format!("{place} is missing"))?;
                compare(wanted, got, &place, known)?;
            }
            true
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            for (at, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                compare(wanted, got, &format!("{place}[{at}]"), known)?;
            }
            true
        }
        (wanted, got) => wanted == got,
    };
    if fits { Ok(()) } else { Err(format!("{place} should be {wanted}, is {got}")) }
}

fn is_time(text: &str) -> bool {
    text.len() == "2026-02-01T10:20:30.123Z".len()
        && text.ends_with('Z')
        && text.as_bytes()[19] == b'.'
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// Whether there is an engine with the base image.
///
/// # Panics
/// If there is none although the test run was told to use one.
fn engine_is_ready() -> bool {
    let output = Command::new("docker").args(["image", "inspect", BASE_IMAGE]).output();
    if output.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let must = variable("ABX_TEST_ENGINE").is_some_and(|v| v == "1") || variable("CI").is_some();
    assert!(!must, "no engine with {BASE_IMAGE}: run tests/engine.sh first");
    // The harness shows it with --nocapture; tests/all.sh sets the variable above, so there it cannot happen.
    #[expect(clippy::print_stdout, reason = "says that the test did not run")]
    {
        println!("skipped: no engine");
    }
    false
}

/// A daemon with a home of its own; ended, with all that it made in the engine, when dropped.
struct Daemon {
    home: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn spawn() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_abxd"));
        command.arg("--home").arg(home.path()).env_clear().env("HOME", home.path());
        for name in ["PATH", "DOCKER_HOST"] {
            if let Some(value) = variable(name) {
                command.env(name, value);
            }
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().expect("abxd starts");
        Self { home, child }
    }

    fn connect(&mut self) -> UnixStream {
        let socket = self.home.path().join("daemon.sock");
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(LIMIT)).expect("a limit on reads");
                    return stream;
                }
                Err(error) => {
                    let log = self.home.path().join("log/abxd.log");
                    let log = std::fs::read_to_string(log).unwrap_or_default();
                    let ended = self.child.try_wait().expect("our own child");
                    assert!(ended.is_none(), "abxd ended at once: {ended:?}\n{log}");
                    assert!(begun.elapsed() < LIMIT, "abxd does not listen: {error}\n{log}");
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Failing here would hide the failure that led here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_what_is_left(["ps", "-aq"], "session", "rm", self.home.path());
        remove_what_is_left(["images", "-q"], "snapshot", "rmi", self.home.path());
    }
}

/// Removes containers or images whose label names this home.
fn remove_what_is_left(list: [&str; 2], noun: &str, remove: &str, home: &Path) {
    let filter = format!("label=dev.abx.{noun}.home={}", home.display());
    let Ok(output) = Command::new("docker").args(list).args(["--filter", &filter]).output() else { return };
    for id in String::from_utf8_lossy(&output.stdout).lines() {
        let _ = Command::new("docker").args([remove, "-f", id]).output();
    }
}
