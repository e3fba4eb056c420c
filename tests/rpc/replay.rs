//! No event is missing, comes twice or comes too early: on every framing, from wherever a subscriber was, and over
//! restarts of the daemon.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::wire::{Busy, Framing, KEPT, Wire, change, last_event, settled};
use crate::support::{Daemon, Home};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Changes a row on and on, each time to something else.
fn changing(daemon: &Daemon) -> Busy {
    let mut next = 1_000;
    Busy::with(daemon, move |writer| {
        change(writer, "a", next..next + 10);
        next += 10;
    })
}

#[test]
fn no_event_comes_before_the_answer_that_makes_its_subscription_known() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for framing in Framing::ALL {
        let gate = home.dir().join(format!("{framing:?}"));
        let mut wire = Wire::connect(&daemon, framing);
        wire.send(&json!([
            {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": {"since": 0}},
            {"jsonrpc": "2.0", "id": 2, "method": "debug.wait", "params": {"file": gate}},
        ]));
        // A call that is answered shows that the subscription was begun.
        wire.request(3, "debug.echo", &json!({}));
        assert_eq!(wire.receive()["id"], 3);
        change(&mut daemon.connect(), &format!("{framing:?}"), 0..10);
        assert!(wire.socket.has_nothing(), "{framing:?}");
        std::fs::write(&gate, "").expect("write");
        assert!(wire.receive().is_array(), "{framing:?}: the batch is answered first");
        assert_eq!(wire.event()["kind"], "subscribed");
        assert_eq!(wire.event()["seq"], 1);
    }
}

#[test]
fn what_was_comes_before_what_is_while_more_and_more_happens() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    change(&mut daemon.connect(), "a", 0..500);
    let writing = changing(&daemon);
    for framing in Framing::ALL {
        let mut wire = Wire::connect(&daemon, framing);
        let begun = wire.subscribe(&json!({"since": 100}));
        assert_eq!((&begun["seq"], &begun["data"]["missed"]), (&json!(100), &json!(0)));
        let there = last_event(&mut daemon.connect());
        // Far enough that what is kept has come, and what happened meanwhile.
        for seq in 101..there + 500 {
            assert_eq!(wire.event()["seq"], seq, "{framing:?}");
        }
    }
    writing.end();
}

#[test]
fn a_row_that_is_got_after_subscribing_and_the_events_after_it_are_all_that_happened() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    change(&mut daemon.connect(), "a", 0..1);
    let writing = changing(&daemon);
    for framing in Framing::ALL {
        let mut wire = Wire::connect(&daemon, framing);
        wire.subscribe(&json!({"session": "a"}));
        wire.request(2, "session.get", &json!({"name": "a"}));
        let (mut row, mut revisions) = (None, Vec::new());
        while revisions.len() < 300 {
            let message = wire.receive();
            match message["method"].as_str() {
                Some(_) => revisions.push(number(&message["params"]["revision"])),
                None => row = Some(number(&message["result"]["revision"])),
            }
        }
        let row = row.expect("it was answered among the events");
        let first = revisions[0];
        assert!(first <= row + 1, "{framing:?}: revisions from {first} on after {row}");
        assert!(row < first + 300, "{framing:?}: the row is older than the last events");
        assert_eq!(revisions, (first..first + 300).collect::<Vec<_>>(), "{framing:?}");
    }
    writing.end();
}

#[test]
fn a_restart_and_what_is_no_longer_kept_are_told_and_the_rest_comes() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    change(&mut daemon.connect(), "a", 0..KEPT + 50);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let daemon = settled(&home);
    for framing in Framing::ALL {
        let last = last_event(&mut daemon.connect());
        let oldest = last - KEPT + 1;
        let follow = |since: u64| {
            let mut wire = Wire::connect(&daemon, framing);
            let begun = wire.subscribe(&json!({"since": since}));
            (wire, number(&begun["seq"]), number(&begun["data"]["missed"]))
        };
        let (mut from_all, seq, missed) = follow(0);
        assert_eq!((seq, missed), (oldest - 1, oldest - 1), "{framing:?}");
        for seq in oldest..=last {
            assert_eq!(from_all.event()["seq"], seq, "{framing:?}");
        }
        let (mut from_oldest, seq, missed) = follow(oldest - 1);
        assert_eq!((seq, missed, &from_oldest.event()["seq"]), (oldest - 1, 0, &json!(oldest)));
        let (mut from_few, seq, missed) = follow(last - 2);
        assert_eq!((seq, missed), (last - 2, 0));
        assert_eq!([from_few.event(), from_few.event()].map(|event| number(&event["seq"])), [last - 1, last]);
        // Whoever knows of more than there is knows another table: it is told where this one is.
        let (from_ahead, seq, missed) = follow(last + 1_000);
        assert_eq!((seq, missed), (last, 0), "{framing:?}");
        change(&mut daemon.connect(), "a", last + KEPT..last + KEPT + 1);
        for mut wire in [from_all, from_few, from_ahead] {
            assert_eq!(wire.event()["seq"], last + 1, "{framing:?}");
        }
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_told_that_it_lagged_and_may_begin_where_it_was() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut frozen = Framing::ALL.map(|framing| Wire::connect(&daemon, framing));
    let begun = frozen.each_mut().map(|wire| number(&wire.subscribe(&json!({}))["seq"]));
    // More than the socket and the connection hold beside what is kept.
    change(&mut daemon.connect(), "a", 0..KEPT + 2_000);
    for (mut wire, mut last) in frozen.into_iter().zip(begun) {
        let lagged = loop {
            let event = wire.event();
            if event["kind"] == "lagged" {
                break event;
            }
            assert_eq!(event["seq"], last + 1, "{:?}: up to there none is missing", wire.framing);
            last += 1;
        };
        assert_eq!(lagged["seq"], last, "from here on it may begin again");
        let again = wire.subscribe(&json!({"since": last}));
        // What it missed is no longer kept, and that is why it was told.
        let (seq, missed) = (number(&again["seq"]), number(&again["data"]["missed"]));
        assert_eq!(seq, last + missed, "{again}");
        assert!(missed >= number(&lagged["data"]["missed"]) && missed > 0, "{again} after {lagged}");
        assert_eq!(wire.event()["seq"], seq + 1);
    }
}
