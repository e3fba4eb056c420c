//! Many who follow events at once, some of whom read nothing.

use serde_json::{Value, json};

use super::wire::{AT_ONCE, KEPT, change, last_event, settled};
use crate::support::{Daemon, Home, Socket};

/// One who follows, and the number of the last event that it got.
struct Subscriber {
    socket: Socket,
    last: u64,
    missed: u64,
}

impl Subscriber {
    /// Subscribes, and reads no further than where the events begin.
    fn new(daemon: &Daemon, params: Value) -> Self {
        let mut socket = daemon.connect();
        socket.call("event.subscribe", params);
        let mut subscriber = Self { socket, last: 0, missed: 0 };
        let begun = subscriber.next();
        assert_eq!(begun["kind"], "subscribed", "{begun}");
        subscriber.missed = begun["data"]["missed"].as_u64().expect("a number");
        subscriber.last = begun["seq"].as_u64().expect("a number");
        subscriber
    }

    fn next(&mut self) -> Value {
        self.socket.line()["params"].clone()
    }

    /// Reads the event that must be next.
    fn expect(&mut self, seq: u64) {
        let event = self.next();
        assert_eq!(event["seq"], seq, "after {}: {event}", self.last);
        self.last = seq;
    }

    /// Reads the next event of a subscription that nobody has read for some time: it is the one after the last, unless it
    /// tells that some are missing. None on a machine so slow that this took longer than a client may take nothing: then
    /// its connection has ended.
    fn resume(&mut self) -> Option<Value> {
        let event = self.socket.try_line()?["params"].clone();
        if event["kind"] != "lagged" {
            assert_eq!(event["seq"], self.last + 1, "{event}");
            self.last += 1;
        }
        Some(event)
    }

    /// Reads on to where the subscription is told to be over.
    fn ends(mut self) {
        loop {
            let Some(event) = self.resume() else { return };
            if event["kind"] == "lagged" {
                assert_eq!(event["seq"], self.last, "{event}");
                assert!(event["data"]["missed"].as_u64() > Some(0), "{event}");
                break;
            }
        }
        let id = self.socket.call("event.subscribe", json!({}));
        assert_eq!(self.next()["subscription"], id, "nothing came after it");
    }

    /// Reads on to this event.
    fn goes_on(mut self, last: u64) {
        while self.last < last {
            let Some(event) = self.resume() else { return };
            assert_ne!(event["kind"], "lagged", "what it has not read is kept: {event}");
        }
    }
}

/// What the daemon's memory was at most, in KiB.
fn peak_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a size");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn a_thousand_subscribers_half_of_whom_read_nothing_cost_bounded_memory_and_nobody_an_event() {
    // Of those who read, some follow everything, and others one event of each round: a thousand that follow everything
    // would make this a test of how fast they are. Of the others, most have all that is kept to come.
    const FULL: usize = 5;
    const PARTLY: usize = 495;
    const FROZEN: usize = 450;
    const FROZEN_FROM_NOW: usize = 50;
    const ROUNDS: u64 = 16;
    let home = Home::new();
    let daemon = settled(&home);
    let (mut writer, mut asking) = (daemon.connect(), daemon.connect());
    change(&mut writer, "a", 0..KEPT + 100);
    let before = peak_kib(&daemon);
    let follow = |count, params: Value| -> Vec<_> {
        (0..count).map(|_| Subscriber::new(&daemon, params.clone())).collect()
    };
    let (mut full, mut partly) =
        (follow(FULL, json!({})), follow(PARTLY, json!({"kinds": ["session.deleted"]})));
    let (frozen, late) = (follow(FROZEN, json!({"since": 0})), follow(FROZEN_FROM_NOW, json!({})));
    let mut last = full[0].last;
    for _ in 0..ROUNDS {
        change(&mut writer, "b", 0..AT_ONCE);
        // It is answered while all of them are told.
        asking.call("session.get", json!({"name": "a"}));
        writer.call("store.delete", json!({"name": "b"}));
        let newest = last_event(&mut writer);
        assert_eq!(newest, last + AT_ONCE + 1);
        for subscriber in &mut full {
            (last + 1..=newest).for_each(|seq| subscriber.expect(seq));
        }
        partly.iter_mut().for_each(|subscriber| subscriber.expect(newest));
        last = newest;
    }
    // What waits for each that does not read: 32 notifications of some 350 bytes, as many events in hand that may be kept
    // nowhere else, 16 KiB on its connection, and what any connection takes.
    let (grown, bound) = (peak_kib(&daemon) - before, 48 * 1_000);
    assert!(grown < bound, "{grown} KiB");
    frozen.into_iter().for_each(Subscriber::ends);
    late.into_iter().for_each(|subscriber| subscriber.goes_on(last));
}
