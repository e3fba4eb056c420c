//! Clients, each of which does one thing after the other at random, the same for the same seed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::thread;
use std::time::{Duration, Instant};

use abx::proto::stream::{self, FrameKind, Open};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

use super::Plan;
use super::line::Line;
use super::world::World;

/// Longest time between two acts of a client, in milliseconds.
const MAX_PAUSE_MS: u64 = 1_000;

/// Output of a command on a raw stream, in bytes.
const FLOOD_BYTES: usize = 100_000;

/// What an act ends in: the error where it is refused.
type Outcome = Result<(), Value>;

/// Something to do: how often, by what name, and how.
type Act = (u64, &'static str, fn(&mut Client, &World) -> Outcome);

const ACTS: &[Act] = &[
    (30, "get", Client::get),
    (8, "list", Client::list),
    (20, "exec", Client::exec),
    (8, "raw stream", Client::stream),
    (8, "terminal", Client::terminal),
    (8, "events", Client::events),
    (6, "label", Client::label),
    (4, "leave", Client::leave),
    (5, "resume and stop", Client::power),
    (3, "save", Client::save),
];

/// Refusals that come of others who act on the same session.
const FAIR: [&str; 2] = ["busy", "wrong_state"];

/// One client.
pub(super) struct Client {
    number: u64,
    random: TestRng,
    line: Line,
}

impl Client {
    pub(super) fn new(world: &World, plan: &Plan, number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&number.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Self { number, random, line: Line::connect(&world.daemon) }
    }

    /// Acts until the time is over.
    pub(super) fn act_until(&mut self, world: &World, end: Instant) -> Done {
        let mut done = Done::default();
        while Instant::now() < end {
            let (name, act) = self.choose();
            match act(self, world) {
                Ok(()) => *done.acts.entry(name).or_default() += 1,
                Err(error) => {
                    let kind = error["data"]["kind"].as_str().unwrap_or_default();
                    assert!(FAIR.contains(&kind), "{name} was refused: {error}");
                    *done.refused.entry(kind.to_owned()).or_default() += 1;
                }
            }
            thread::sleep(Duration::from_millis(self.below(MAX_PAUSE_MS)));
        }
        done
    }

    fn choose(&mut self) -> (&'static str, fn(&mut Self, &World) -> Outcome) {
        let mut left = self.below(ACTS.iter().map(|(often, ..)| often).sum());
        for (often, name, act) in ACTS {
            match left.checked_sub(*often) {
                Some(less) => left = less,
                None => return (name, *act),
            }
        }
        unreachable!("it is below their sum")
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn anyone(&mut self, world: &World) -> Value {
        World::name(self.below(world.sessions)).into()
    }

    fn running(&mut self, world: &World) -> String {
        World::name(self.below(world.running))
    }

    fn at_rest(&mut self, world: &World) -> String {
        World::name(world.running + self.below(world.sessions - world.running))
    }

    fn get(&mut self, world: &World) -> Outcome {
        let name = self.anyone(world);
        self.line.call("session.get", json!({"name": name})).map(drop)
    }

    fn list(&mut self, _: &World) -> Outcome {
        self.line.call("session.list", json!({})).map(drop)
    }

    fn exec(&mut self, world: &World) -> Outcome {
        let params = json!({"session": self.running(world), "cmd": ["echo", self.number.to_string()]});
        let result = self.line.must("exec.run", params);
        assert_eq!(result["stdout"], format!("{}\n", self.number), "{result}");
        Ok(())
    }

    /// A command on a connection of its own; one in four goes away before the end.
    fn stream(&mut self, world: &World) -> Outcome {
        let cmd = ["head", "-c", &FLOOD_BYTES.to_string(), "/dev/zero"].map(str::to_owned).to_vec();
        let open = Open { session: self.running(world), cmd, ..Open::default() };
        let mut stream = world.daemon.connect();
        stream.write_all(stream::PREFACE).expect("abxd reads");
        writeln!(stream, "{}", serde_json::to_string(&open).expect("JSON")).expect("abxd reads");
        if self.below(4) == 0 {
            return Ok(());
        }
        assert_eq!(output_of(&mut BufReader::new(stream)), FLOOD_BYTES, "the output of a command");
        Ok(())
    }

    /// A terminal of its own: opened, typed at, and closed or left.
    fn terminal(&mut self, world: &World) -> Outcome {
        let terminal = json!({"session": self.running(world), "terminal": format!("of-{}", self.number)});
        let with = |more: Value| {
            let mut params = terminal.clone();
            let object = params.as_object_mut().expect("it is one");
            object.extend(more.as_object().expect("it is one").clone());
            params
        };
        let opened = self.line.must("terminal.open", with(json!({"cmd": ["cat"]})));
        let subscription = &opened["subscription"];
        self.line.must("terminal.write", with(json!({"data": "typed\r"})));
        while !self.line.news(subscription)["result"]["data"]
            .as_str()
            .is_some_and(|data| data.contains("typed"))
        {}
        self.line.must("terminal.close", terminal);
        while self.line.news(subscription)["result"]["kind"] != "ended" {}
        Ok(())
    }

    /// Follows what happens until something has.
    fn events(&mut self, world: &World) -> Outcome {
        let subscription = self.line.must("event.subscribe", json!({}));
        self.label(world)?;
        while self.line.news(&subscription)["kind"] == "subscribed" {}
        self.line.must("event.unsubscribe", json!({"subscription": subscription}));
        Ok(())
    }

    fn label(&mut self, world: &World) -> Outcome {
        let params =
            json!({"name": self.anyone(world), "metadata": {"ticket": self.random.next_u64().to_string()}});
        self.line.call("session.update", params).map(drop)
    }

    /// Goes away in the middle of a message, with a subscription and an answer that nobody reads, and comes again.
    fn leave(&mut self, world: &World) -> Outcome {
        let mut stream = world.daemon.connect();
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "session.list", "params": {}});
        let follow = json!({"jsonrpc": "2.0", "id": 2, "method": "event.subscribe", "params": {"since": 0}});
        write!(stream, "{list}\n{follow}\n{{\"jsonrpc\":").expect("abxd reads");
        drop(stream);
        self.line = Line::connect(&world.daemon);
        Ok(())
    }

    fn power(&mut self, world: &World) -> Outcome {
        let Some(_turn) = world.turn() else { return self.get(world) };
        let name = json!({"name": self.at_rest(world)});
        self.line.call("session.resume", name.clone())?;
        self.line.call("session.stop", name).map(drop)
    }

    fn save(&mut self, world: &World) -> Outcome {
        let Some(_turn) = world.turn() else { return self.get(world) };
        let name = json!({"name": self.at_rest(world)});
        self.line.call("session.save", name).map(drop)
    }
}

/// Reads a raw stream to the end of its command; gives how much that wrote.
fn output_of(stream: &mut impl BufRead) -> usize {
    let mut opened = String::new();
    stream.read_line(&mut opened).expect("an answer");
    let mut bytes = 0;
    loop {
        let mut header = [0; stream::HEADER_BYTES];
        stream
            .read_exact(&mut header)
            .unwrap_or_else(|error| panic!("{error} after {bytes} bytes and {opened}"));
        let (kind, length) = stream::parse_header(header).expect("a frame");
        stream.read_exact(&mut vec![0; length]).expect("its payload");
        match kind {
            Some(FrameKind::Stdout) => bytes += length,
            Some(FrameKind::Exit) => return bytes,
            _ => {}
        }
    }
}

/// What was done, and what was refused.
#[derive(Default)]
pub(super) struct Done {
    acts: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
}

impl Done {
    /// How much was done.
    pub(super) fn count(&self) -> u64 {
        self.acts.values().sum()
    }

    pub(super) fn add(&mut self, other: Self) {
        for (name, count) in other.acts {
            *self.acts.entry(name).or_default() += count;
        }
        for (kind, count) in other.refused {
            *self.refused.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\ndone: {:?}; refused, as others acted on the same session: {:?}\n",
            self.acts, self.refused
        )
    }
}
