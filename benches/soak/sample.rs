//! What a daemon holds, and how fast it answers, at a moment when nobody else asks. Linux only: reads `/proc`.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde_json::json;

use super::super::daemon::Daemon;
use super::super::{idle, timed};
use super::line::Line;

/// Calls of which the median and the hundredth are taken.
const GETS: usize = 1_000;
const LISTS: usize = 100;

/// The columns.
pub(super) const TITLE: &str = "\
| done | KiB resident | KiB at most | descriptors | threads | round trip: p50 | p99 | list: p50 | p99 |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

/// Times of many calls.
pub(super) struct Times {
    pub(super) median: Duration,
    pub(super) tail: Duration,
}

impl Times {
    fn of(count: usize, mut act: impl FnMut()) -> Self {
        let mut times: Vec<Duration> = (0..count).map(|_| timed(&mut act)).collect();
        times.sort_unstable();
        Self { median: times[count / 2], tail: times[count * 99 / 100] }
    }
}

/// A moment.
pub(super) struct Sample {
    /// What clients have had done until then.
    pub(super) operations: u64,
    pub(super) resident_kib: u64,
    peak_kib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    pub(super) get: Times,
    pub(super) list: Times,
}

impl Sample {
    /// Takes one, with `name` for the session that is asked for.
    pub(super) fn take(daemon: &Daemon, name: &str, operations: u64) -> Self {
        let mut line = Line::connect(daemon);
        let mut ask = |method, params: serde_json::Value| {
            line.call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"));
        };
        let get = Times::of(GETS, || ask("session.get", json!({"name": name})));
        let list = Times::of(LISTS, || ask("session.list", json!({})));
        drop(line);
        let pid = daemon.pid();
        Self {
            operations,
            resident_kib: idle::kib(pid, "VmRSS:"),
            peak_kib: idle::kib(pid, "VmHWM:"),
            descriptors: at_rest(pid),
            threads: entries(pid, "task"),
            get,
            list,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, resident_kib, peak_kib, descriptors, threads, get, list } = self;
        write!(f, "| {operations} | {resident_kib} | {peak_kib} | {descriptors} | {threads} |")?;
        write!(f, " {:.1?} | {:.1?} | {:.1?} | {:.1?} |", get.median, get.tail, list.median, list.tail)
    }
}

/// Descriptors, once their number has stayed the same for a while.
fn at_rest(pid: u32) -> u64 {
    const LOOKS: usize = 20;
    let (mut last, mut same) = (0, 0);
    // A daemon that never comes to rest is measured all the same.
    for _ in 0..30 * LOOKS {
        std::thread::sleep(Duration::from_millis(50));
        let now = entries(pid, "fd");
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same == LOOKS {
            break;
        }
    }
    last
}

fn entries(pid: u32, of: &str) -> u64 {
    fs::read_dir(format!("/proc/{pid}/{of}")).expect("Linux, and the daemon lives").count() as u64
}
