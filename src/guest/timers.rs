//! What is to be done later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::poller::Key;

/// What is to be done. Whether it still is, whoever does it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A command was held long enough.
    Orphan(Key),
    /// A command was asked to end and had its time.
    Kill(Key),
    /// A terminal wrote something that was not told yet.
    Active(Key),
    /// A terminal's screen was given something to work on.
    Look(Key),
    /// A terminal's program has ended and the terminal has not.
    HangUp(Key),
    /// What a command's followers got has arrived, or will be asked for no more.
    Lower(Key),
    /// The kernel may have killed a process that is no child of ours.
    Oom,
    /// What is still to be sent before the end has had its time.
    Leave,
}

/// All that is to be done later.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    /// Adds one.
    pub(super) fn add(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes one that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(due)| due)
    }
}
