//! `abx ls` as a whole process, beside `docker ps`.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::daemon::Daemon;
use super::{Row, median, timed};

/// Rows in the table.
const ROWS: usize = 100;

/// Runs of each, in turn.
const RUNS: usize = 60;

/// The promise.
const LIMIT: f64 = 0.2;

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    daemon.fill(ROWS);
    let mut abx = Command::new(env!("CARGO_BIN_EXE_abx"));
    abx.arg("ls").env("ABX_HOME", daemon.home()).env_remove("ABX_SOCKET");
    let mut docker = Command::new("docker");
    docker.arg("ps");
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(whole(&mut abx));
        peer.push(whole(&mut docker));
    }
    vec![Row::times(format!("`abx ls` of {ROWS} sessions, `docker ps`"), median(ours), median(peer), LIMIT)]
}

fn whole(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    timed(|| {
        let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(status.success(), "{command:?}: {status}");
    })
}
