//! Events to many who follow them, beside a program that writes the same lines to as many bare sockets.
//!
//! The peer has nothing to decide, to keep or to encode: it writes each line to each socket, as whoever tells each
//! follower at once does at least. Both sides are read by the same threads, one for each socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::{Row, timed};

const SUBSCRIBERS: usize = 100;
const EVENTS: usize = 100_000;

/// Changes of which the answers are waited for before the next: what the daemon has under way for one connection.
const AT_ONCE: usize = 100;

/// The time over that of the peer. Nobody promised it: it is there to be seen when it grows. A debug build took 6.0 times
/// the peer's for 2,000 events, with 37 MB resident.
const LIMIT: f64 = 8.0;

/// Most memory, resident, that the daemon has meanwhile: twice what is promised for one with nothing to do.
const MAX_PEAK_KIB: u64 = 64 * 1024;

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    daemon.fill(1);
    let line = line_of(&daemon);
    let followers: Vec<_> = (0..SUBSCRIBERS).map(|_| Follower::subscribe(&daemon)).collect();
    let ours = timed(|| {
        let reading: Vec<_> = followers.into_iter().map(|one| thread::spawn(move || one.read())).collect();
        change(&daemon, EVENTS);
        reading.into_iter().for_each(|one| one.join().expect("it got everything"));
    });
    let peak = peak_kib(daemon.pid());
    drop(daemon);
    let what = format!("{EVENTS} events to {SUBSCRIBERS} subscribers");
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let ratio = peak as f64 / MAX_PEAK_KIB as f64;
    let (ours_kib, most_kib) = (format!("{peak} KiB"), format!("{MAX_PEAK_KIB} KiB"));
    vec![
        Row::times(what.clone(), ours, bare(&line), LIMIT),
        Row { what: format!("{what}: peak resident"), ours: ours_kib, peer: most_kib, ratio, limit: 1.0 },
    ]
}

/// One who follows.
struct Follower(BufReader<UnixStream>);

impl Follower {
    fn subscribe(daemon: &Daemon) -> Self {
        let mut stream = daemon.connect();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {}});
        writeln!(stream, "{request}").expect("abxd reads");
        let mut reader = BufReader::with_capacity(64 * 1024, stream);
        for want in ["\"result\"", "\"subscribed\""] {
            let mut line = String::new();
            reader.read_line(&mut line).expect("abxd answers");
            assert!(line.contains(want), "{line}");
        }
        Self(reader)
    }

    /// Reads every event. They are told apart by their ends alone, so that reading costs little.
    fn read(mut self) {
        assert_eq!(lines(&mut self.0, EVENTS), EVENTS, "the daemon closed the connection");
    }
}

/// Reads so many lines, or to the end, and gives how many there were.
fn lines(reader: &mut impl Read, most: usize) -> usize {
    let (mut chunk, mut seen) = (vec![0; 64 * 1024], 0);
    while seen < most {
        let read = reader.read(&mut chunk).expect("open");
        if read == 0 {
            break;
        }
        seen += chunk[..read].iter().filter(|byte| **byte == b'\n').count();
    }
    seen
}

/// Makes so many changes, each of which is one event.
fn change(daemon: &Daemon, count: usize) {
    let mut stream = daemon.connect();
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    for begun in (0..count).step_by(AT_ONCE) {
        let row = |n: usize| {
            let metadata = json!({"n": n.to_string()});
            let params = json!({"name": "session-number-0", "metadata": metadata});
            json!({"jsonrpc": "2.0", "id": n, "method": "store.save", "params": params})
        };
        let batch: Vec<Value> = (begun..begun + AT_ONCE).map(row).collect();
        writeln!(stream, "{}", Value::from(batch)).expect("abxd reads");
        let mut line = String::new();
        answers.read_line(&mut line).expect("abxd answers");
        assert!(!line.contains("\"error\""), "{line}");
    }
}

/// The line that a subscriber gets for such a change.
fn line_of(daemon: &Daemon) -> Vec<u8> {
    let mut follower = Follower::subscribe(daemon);
    let mut stream = daemon.connect();
    let params = json!({"name": "session-number-0", "metadata": {"n": "first"}});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "store.save", "params": params});
    writeln!(stream, "{request}").expect("abxd reads");
    let mut line = Vec::new();
    follower.0.read_until(b'\n', &mut line).expect("an event");
    assert!(String::from_utf8_lossy(&line).contains("session.changed"), "{line:?}");
    line
}

/// The time that bare sockets take.
fn bare(line: &[u8]) -> Duration {
    let pairs = (0..SUBSCRIBERS).map(|_| UnixStream::pair().expect("a pair"));
    let (mut ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
    timed(|| {
        let reading: Vec<_> = theirs
            .into_iter()
            .map(|mut one| thread::spawn(move || assert_eq!(lines(&mut one, EVENTS), EVENTS)))
            .collect();
        for _ in 0..EVENTS {
            ours.iter_mut().for_each(|socket| socket.write_all(line).expect("it is read"));
        }
        reading.into_iter().for_each(|one| one.join().expect("it got everything"));
    })
}

/// What the daemon's memory was at most.
fn peak_kib(pid: u32) -> u64 {
    super::idle::kib(pid, "VmHWM:")
}
