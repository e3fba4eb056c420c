//! `session.list` of many rows, from the request to the last byte, beside encoding the same JSON.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};

use abx::proto::types::Session;
use serde::Deserialize;

use super::daemon::Daemon;
use super::{Row, median, timed};

/// Rows in the table.
const ROWS: usize = 10_000;

/// Times that each side is measured, in turn.
const TURNS: usize = 25;

/// The promise.
const LIMIT: f64 = 1.5;

#[derive(Deserialize)]
struct Answer {
    result: Vec<Session>,
}

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    daemon.fill(ROWS);
    let mut stream = daemon.connect();
    let mut answers = BufReader::with_capacity(1 << 20, stream.try_clone().expect("a second handle"));
    let mut line = Vec::with_capacity(32 << 20);
    let mut sessions = Vec::new();
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        line.clear();
        let time = timed(|| {
            stream
                .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session.list\",\"params\":{}}\n")
                .expect("abxd reads");
            answers.read_until(b'\n', &mut line).expect("an answer");
        });
        if turn == 0 {
            // The first turn warms up, and shows that the answer is whole.
            sessions = serde_json::from_slice::<Answer>(&line).expect("a list").result;
            assert_eq!(sessions.len(), ROWS, "all rows are listed");
            continue;
        }
        ours.push(time);
        peer.push(timed(|| {
            black_box(serde_json::to_vec(black_box(&sessions)).expect("sessions can be written"));
        }));
    }
    vec![Row::times(format!("list of {ROWS} sessions"), median(ours), median(peer), LIMIT)]
}
