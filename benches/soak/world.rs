//! The daemon, its sessions, and where each of them belongs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::super::{daemon::Daemon, print, timed};
use super::Plan;
use super::line::Line;
use super::sample::Sample;

/// How much is asked of the engine at once.
const AT_ONCE: usize = 6;

/// The world.
pub(super) struct World {
    pub(super) daemon: Daemon,
    pub(super) sessions: u64,
    /// Those before this number run between rounds, those from it on do not.
    pub(super) running: u64,
    at_the_engine: AtomicUsize,
}

/// The right to ask much of the engine; given back when dropped.
pub(super) struct Turn<'w>(&'w AtomicUsize);

impl World {
    /// Starts the daemon and makes all sessions.
    pub(super) fn new(plan: &Plan) -> Self {
        let daemon = Daemon::spawn();
        let (sessions, running) = (plan.sessions, plan.running);
        let world = Self { daemon, sessions, running, at_the_engine: AtomicUsize::new(0) };
        let took = timed(|| world.with_each(|line, number| make(line, number, plan)));
        print(&format!("{sessions} sessions, {running} of them running, were made in {took:.0?}\n"));
        world
    }

    /// The name of a session.
    pub(super) fn name(number: u64) -> String {
        format!("soak-{number}")
    }

    /// Takes a turn at the engine, unless too many have one.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let turn = Turn(&self.at_the_engine);
        (self.at_the_engine.fetch_add(1, Ordering::Relaxed) < AT_ONCE).then_some(turn)
    }

    /// Brings every session back to where it belongs.
    pub(super) fn settle(&self) {
        self.with_each(|line, number| {
            let name = json!({"name": Self::name(number)});
            let runs = line.must("session.get", name.clone())["status"] == "running";
            match (runs, number < self.running) {
                (false, true) => line.must("session.resume", name),
                (true, false) => line.must("session.stop", name),
                _ => Value::Null,
            };
        });
    }

    /// Takes a sample, when so much has been done.
    pub(super) fn measure(&self, operations: u64) -> Sample {
        Sample::take(&self.daemon, &Self::name(0), operations)
    }

    /// Deletes all sessions, and what was saved of them.
    pub(super) fn end(self) {
        self.with_each(|line, number| {
            line.must("session.delete", json!({"name": Self::name(number)}));
        });
    }

    /// Does something with each session, several at once.
    fn with_each(&self, act: impl Fn(&mut Line, u64) + Sync) {
        let next = AtomicU64::new(0);
        let some = || {
            let mut line = Line::connect(&self.daemon);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.sessions {
                    return;
                }
                act(&mut line, number);
            }
        };
        thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(some))));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn make(line: &mut Line, number: u64, plan: &Plan) {
    let name = World::name(number);
    line.must("session.start", json!({"name": name, "image": plan.image, "network": "none", "keep": 1}));
    match number.checked_sub(plan.running) {
        None => {}
        Some(at_rest) if at_rest % 10 == 0 => drop(line.must("session.save", json!({"name": name}))),
        Some(_) => drop(line.must("session.stop", json!({"name": name}))),
    }
}
