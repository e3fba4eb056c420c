//! A thousand sessions and two hundred clients for a while: what the daemon holds must not grow with what it has done.
//!
//! Only by name, for it takes half an hour: `cargo bench --bench speed -- soak`. The variables `ABX_SOAK_SESSIONS`,
//! `_RUNNING`, `_CLIENTS`, `_SECONDS`, `_SEED` and `_IMAGE` say otherwise than the constants here. Between rounds nobody
//! asks for anything, every session is brought back to where it belongs, and only then is the daemon measured.
//!
//! The rule: of three thirds the first warms up, and for each thing done the last may add half of what the second added,
//! and a slack in all. What a warm-up fills, or a bound holds, passes; what each call leaves behind does not.

mod crowd;
mod line;
mod sample;
mod world;

use std::thread;
use std::time::{Duration, Instant};

use self::crowd::{Client, Done};
use self::sample::Sample;
use self::world::World;
use super::{Row, print};

/// Sessions; a tenth of those at rest is saved, the others are stopped.
const SESSIONS: u64 = 1_000;

/// Sessions that run.
const RUNNING: u64 = 50;

/// Clients.
const CLIENTS: u64 = 200;

/// How long they are at it.
const SECONDS: u64 = 600;

/// Rounds of it: a third is three of them.
const ROUNDS: u32 = 9;

/// What the last third may add in any case to resident memory: the allocator keeps now more, now less.
const SLACK_KIB: u64 = 4 * 1024;

/// The same of descriptors and of threads: pools keep those that they used last.
const SLACK_COUNT: u64 = 8;

/// How much longer an answer may take at the end than at the start. Nobody promised it: it is there to be seen. Tails are
/// told and not judged, as they are the machine's.
const MEDIAN_LIMIT: f64 = 2.0;
const TAIL_LIMIT: f64 = f64::INFINITY;

/// What is asked for.
struct Plan {
    sessions: u64,
    running: u64,
    clients: u64,
    round: Duration,
    seed: u64,
    image: String,
}

impl Plan {
    fn read() -> Self {
        let text = |name: &str| abx::paths::variable(&format!("ABX_SOAK_{name}"));
        let number = |name: &str, default: u64| {
            text(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
        };
        let sessions = number("SESSIONS", SESSIONS).max(2);
        Self {
            sessions,
            running: number("RUNNING", RUNNING).clamp(1, sessions - 1),
            clients: number("CLIENTS", CLIENTS).max(1),
            round: Duration::from_secs(number("SECONDS", SECONDS)) / ROUNDS,
            seed: number("SEED", 1),
            image: text("IMAGE").unwrap_or_else(|| "debian:stable-slim".to_owned()),
        }
    }
}

/// Soaks a daemon.
pub(super) fn run() -> Vec<Row> {
    let plan = Plan::read();
    let world = World::new(&plan);
    let mut clients: Vec<Client> =
        (0..plan.clients).map(|number| Client::new(&world, &plan, number)).collect();
    let mut done = Done::default();
    let mut samples = vec![world.measure(0)];
    print(&format!("{}\n{}", sample::TITLE, samples[0]));
    for _ in 0..ROUNDS {
        done.add(round(&world, &mut clients, plan.round));
        world.settle();
        samples.push(world.measure(done.count()));
        print(&samples[samples.len() - 1].to_string());
    }
    print(&done.to_string());
    drop(clients);
    world.end();
    judged(&samples)
}

fn round(world: &World, clients: &mut [Client], length: Duration) -> Done {
    let end = Instant::now() + length;
    let mut done = Done::default();
    thread::scope(|scope| {
        let at_it: Vec<_> =
            clients.iter_mut().map(|one| scope.spawn(move || one.act_until(world, end))).collect();
        at_it.into_iter().for_each(|one| done.add(one.join().expect("it says above what is wrong")));
    });
    done
}

fn judged(samples: &[Sample]) -> Vec<Row> {
    let (start, end) = (&samples[0], &samples[samples.len() - 1]);
    let times = |what, of: fn(&Sample) -> Duration, limit| {
        Row::times(format!("soak: {what}, at the end and at the start"), of(end), of(start), limit)
    };
    vec![
        growth("KiB resident", samples, |sample| sample.resident_kib, SLACK_KIB),
        growth("descriptors", samples, |sample| sample.descriptors, SLACK_COUNT),
        growth("threads", samples, |sample| sample.threads, SLACK_COUNT),
        times("round trip, p50", |sample| sample.get.median, MEDIAN_LIMIT),
        times("round trip, p99", |sample| sample.get.tail, TAIL_LIMIT),
        times("list, p50", |sample| sample.list.median, MEDIAN_LIMIT),
        times("list, p99", |sample| sample.list.tail, TAIL_LIMIT),
    ]
}

/// Compares what the last third added with what it may.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn growth(what: &str, samples: &[Sample], of: fn(&Sample) -> u64, slack: u64) -> Row {
    let third = samples.len() / 3;
    let last = samples.len() - 1;
    // At its ends a third is as large as the smallest of its last two samples: what the allocator is about to give back
    // is not what a call left behind.
    let held = |at: usize| of(&samples[at]).min(of(&samples[at - 1]));
    let added = |from: usize, to: usize| held(to).saturating_sub(held(from));
    let operations = |from: usize, to: usize| samples[to].operations - samples[from].operations;
    let (second, third) = ((third, last - third), (last - third, last));
    let each = added(second.0, second.1) as f64 / operations(second.0, second.1).max(1) as f64;
    let may = slack as f64 + each / 2.0 * operations(third.0, third.1) as f64;
    let added = added(third.0, third.1);
    let (start, end) = (of(&samples[0]), of(&samples[last]));
    Row {
        what: format!("soak: {what}, {start} at the start and {end} at the end: added by the last third"),
        ours: added.to_string(),
        peer: format!("{may:.0}"),
        ratio: added as f64 / may,
        limit: 1.0,
    }
}
