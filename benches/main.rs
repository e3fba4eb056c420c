//! Speed, always beside a peer measured in the same run: `cargo bench --bench speed [-- NAME...]`.
//!
//! Prints a Markdown table and fails when a ratio is over what the project promises. NAME is one of `round_trip`, `list`,
//! `ls`, `start`, `exec`, `idle`, `events`, `rounds`; all of them without one. `ls`, `start`, `exec` and `rounds` need an
//! engine. So does `soak`, which runs for half an hour, and only when it is named.

mod daemon;
mod events;
mod exec;
mod idle;
mod list;
mod ls;
mod round_trip;
mod rounds;
mod soak;
mod start;

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The option under which this program is the bare echo that round trips are compared with.
const ECHO: &str = "--echo";

/// A line of the table.
struct Row {
    what: String,
    ours: String,
    peer: String,
    ratio: f64,
    /// The largest ratio that keeps the promise.
    limit: f64,
}

impl Row {
    /// Compares two times.
    fn times(what: impl Into<String>, ours: Duration, peer: Duration, limit: f64) -> Self {
        let ratio = ours.as_secs_f64() / peer.as_secs_f64();
        Self { what: what.into(), ours: format!("{ours:.1?}"), peer: format!("{peer:.1?}"), ratio, limit }
    }
}

/// A name and what it measures.
type Bench = (&'static str, fn() -> Vec<Row>);

const BENCHES: &[Bench] = &[
    ("round_trip", round_trip::run),
    ("list", list::run),
    ("ls", ls::run),
    ("start", start::run),
    ("exec", exec::run),
    ("idle", idle::run),
    ("events", events::run),
    ("rounds", rounds::run),
];

/// Those that run only when they are named.
const LONG: &[Bench] = &[("soak", soak::run)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|a| a == ECHO) {
        round_trip::echo(&arguments[at + 1]);
        return ExitCode::SUCCESS;
    }
    // Cargo adds options of its own, such as `--bench`.
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut head = Some("| what | ours | peer | ratio | must be |\n| --- | ---: | ---: | ---: | ---: |");
    let mut kept = true;
    let is_named = |bench: &&Bench| wanted.iter().any(|name| *name == bench.0);
    let all = BENCHES.iter().filter(|bench| wanted.is_empty() || is_named(bench));
    for (_, run) in all.chain(LONG.iter().filter(is_named)) {
        for row in run() {
            head.take().into_iter().for_each(print);
            kept &= row.ratio <= row.limit;
            let Row { what, ours, peer, ratio, limit } = row;
            print(&format!("| {what} | {ours} | {peer} | {ratio:.2} | <= {limit:.2} |"));
        }
    }
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "the table is the result")]
fn print(line: &str) {
    println!("{line}");
}

/// The time that `act` takes.
fn timed(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

/// The median.
fn median(mut times: Vec<Duration>) -> Duration {
    assert!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    times[times.len() / 2]
}
