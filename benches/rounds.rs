//! Save and resume, again and again: a session that was saved many times is saved as fast as a new one.
//!
//! Two ways: the same sandbox each time, and a new one made from the newest snapshot each time, whose image would have a
//! layer more with every round. `ABX_BENCH_ROUNDS` says how many rounds; with few of them the ratio says little.

use std::time::Duration;

use serde_json::{Value, json};

use super::daemon::{Caller, Daemon};
use super::{Row, median, timed};

/// Rounds where nobody says how many.
const ROUNDS: usize = 30;

/// The image: small, so that what is measured are the rounds.
const IMAGE: &str = "abx-test-busybox:1";

/// The promise: the last tenth beside the first.
const LIMIT: f64 = 2.0;

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    #[expect(clippy::disallowed_methods, reason = "how long the bench may take is the caller's to say")]
    let said = std::env::var("ABX_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: usize = said.unwrap_or(ROUNDS).max(10);
    let daemon = Daemon::spawn();
    let mut caller = daemon.caller();
    [("the same sandbox", false), ("a new one from each snapshot", true)]
        .into_iter()
        .map(|(what, anew)| measure(&mut caller, what, anew, rounds))
        .collect()
}

fn measure(caller: &mut Caller, what: &str, anew: bool, rounds: usize) -> Row {
    let name = if anew { "anew" } else { "same" };
    caller.call("session.start", json!({"name": name, "image": IMAGE}));
    let times: Vec<Duration> = (0..rounds).map(|round| timed(|| once(caller, name, anew, round))).collect();
    let ran = caller.call("exec.run", json!({"session": name, "cmd": ["sh", "-c", "cat /round-*"]}));
    let lines = ran["stdout"].as_str().unwrap_or_default().lines().count();
    assert_eq!(lines, rounds, "every round's file is there");
    caller.call("session.delete", json!({"name": name}));
    let tenth = rounds / 10;
    let (first, last) = (median(times[..tenth].to_vec()), median(times[rounds - tenth..].to_vec()));
    Row::times(format!("{rounds} save/resume rounds, {what}: last tenth, first tenth"), last, first, LIMIT)
}

/// Writes a file, saves, and resumes.
fn once(caller: &mut Caller, name: &str, anew: bool, round: usize) {
    let script = format!("echo {round} > /round-{round}");
    let ran: Value = caller.call("exec.run", json!({"session": name, "cmd": ["sh", "-c", script]}));
    assert_eq!(ran["exit_code"], 0, "{ran}");
    let saved = caller.call("session.save", json!({"name": name}));
    let snapshot = anew.then(|| saved["snapshot"]["name"].clone());
    caller.call("session.resume", json!({"name": name, "snapshot": snapshot}));
}
