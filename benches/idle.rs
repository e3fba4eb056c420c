//! What a daemon costs that has many sessions and nothing to do. Linux only: reads `/proc`.

use std::fs;
use std::time::Duration;

use super::Row;
use super::daemon::Daemon;

/// Rows in the table.
const ROWS: usize = 1_000;

/// How long it is watched.
const WINDOW: Duration = Duration::from_secs(10);

/// The promise: resident memory.
const MAX_RESIDENT_KIB: u64 = 32 * 1024;

/// The promise: no CPU. One tick of 10 ms in the window is what the clock may round up to.
const MAX_TICKS: u64 = 1;

/// Measures it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    daemon.fill(ROWS);
    // What the filling began is over.
    std::thread::sleep(Duration::from_secs(2));
    let before = ticks(daemon.pid());
    std::thread::sleep(WINDOW);
    let ticks = ticks(daemon.pid()) - before;
    let resident = kib(daemon.pid(), "VmRSS:");
    vec![
        row(
            "resident",
            format!("{} KiB", resident),
            format!("{MAX_RESIDENT_KIB} KiB"),
            resident,
            MAX_RESIDENT_KIB,
        ),
        row("CPU in 10 s", format!("{ticks} ticks"), format!("{MAX_TICKS} tick"), ticks, MAX_TICKS),
    ]
}

fn row(what: &str, ours: String, peer: String, measured: u64, promised: u64) -> Row {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let ratio = measured as f64 / promised as f64;
    Row { what: format!("idle with {ROWS} sessions: {what}"), ours, peer, ratio, limit: 1.0 }
}

/// User and system time, in the kernel's ticks.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("Linux, and the daemon lives");
    // The name stands in parentheses and may hold spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum()
}

/// A size of the process, as its status has it.
pub(crate) fn kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("Linux, and the daemon lives");
    let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("a size of this name");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}
