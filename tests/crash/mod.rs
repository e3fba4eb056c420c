//! The daemon is killed at every fault point of every verb, on a real engine; a second one must explain everything. The
//! engine is killed, frozen and restarted likewise.

mod engine;

mod flatten;

use serde_json::{Value, json};

use crate::support::{World, until};

/// What a session goes through before the verb.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Running,
    Paused,
    Stopped,
    /// Stopped, with an older snapshot to go back to.
    Snapshot,
    Saved,
}

struct Case {
    verb: &'static str,
    params: fn() -> Value,
    before: Before,
    points: &'static [&'static str],
}

const START: &[&str] = &[
    "start.row",
    "create.before",
    "create.after",
    "start.before",
    "start.after",
    "running.before",
    "running.after",
];

fn named() -> Value {
    json!({"name": "a"})
}

fn prepare(world: &World, before: Before) {
    if before == Before::Nothing {
        return;
    }
    world.start("a");
    world.sh("a", "echo kept > /root/file");
    match before {
        Before::Nothing | Before::Running => {}
        Before::Paused => drop(world.call("session.pause", named())),
        Before::Stopped => drop(world.call("session.stop", named())),
        Before::Saved => drop(world.call("session.save", json!({"name": "a", "snapshot": "first"}))),
        Before::Snapshot => {
            world.call("session.save", json!({"name": "a", "snapshot": "first", "keep_running": true}));
            world.call("session.stop", named());
        }
    }
}

/// Kills at each point and checks the second life.
fn check(case: &Case) {
    for point in case.points {
        let Some(mut world) = World::new() else { return };
        prepare(&world, case.before);
        world.restart(Some(point));
        let answer = world.connect().request(1, case.verb, (case.params)()).rest();
        assert!(!answer.contains("\"error\""), "{} at {point}: {answer}", case.verb);
        let ended = world.daemon().wait();
        assert!(!ended.success(), "{} never came to {point}", case.verb);
        world.restart(None);
        settled(&world, case.verb, point);
        usable(&world, case);
    }
}

/// Every row is explained by its container and every container by its row; nothing is left paused or half made.
fn settled(world: &World, verb: &str, point: &str) {
    let what = format!("{verb} cut off at {point} to be explained");
    until(&what, || {
        let rows = world.call("session.list", json!({}));
        let rows = rows.as_array().expect("an array");
        let containers = world.containers();
        let explained = containers.iter().all(|(id, state)| {
            rows.iter()
                .any(|row| row["sandbox_id"] == *id && fits(row["status"].as_str().unwrap_or(""), state))
        });
        let calm = rows.iter().all(|row| row["operation"].is_null() && row["status"] != "starting");
        let snapshots = world.call("snapshot.list", json!({})).as_array().map_or(0, Vec::len);
        (calm && explained && snapshots == world.images().len() && containers.len() == rows.len())
            .then_some(())
    });
}

fn fits(status: &str, state: &str) -> bool {
    match state {
        "running" => status == "running",
        "paused" => status == "paused",
        _ => matches!(status, "stopped" | "saved"),
    }
}

/// No name is blocked, no file lost, and the session obeys.
fn usable(world: &World, case: &Case) {
    let gone = world.connect().request(1, "session.get", named()).line()["error"].is_object();
    if gone {
        assert!(
            matches!(case.verb, "session.start" | "session.delete" | "session.rename"),
            "{} lost it",
            case.verb
        );
        if case.verb == "session.rename" {
            assert_eq!(world.field("b", "sandbox"), "session-b");
            return;
        }
        world.start("a");
    } else {
        world.call("session.resume", named());
        if case.before != Before::Nothing {
            assert_eq!(world.sh("a", "cat /root/file")["stdout"], "kept\n", "{}", case.verb);
        }
    }
    world.call("session.save", json!({"name": "a", "keep_running": true}));
    world.call("session.delete", named());
    assert!(
        world
            .containers()
            .iter()
            .all(|(id, _)| world.call("session.list", json!({})).to_string().contains(id))
    );
}

#[test]
fn a_start_that_is_cut_off_is_finished_or_taken_back() {
    let params = || json!({"name": "a", "image": crate::support::engine::busybox_image()});
    check(&Case { verb: "session.start", params, before: Before::Nothing, points: START });
}

#[test]
fn a_stop_that_is_cut_off_leaves_a_session_that_can_be_resumed() {
    let points = &["intent", "stop.before", "stop.after", "stopped.before"];
    check(&Case { verb: "session.stop", params: named, before: Before::Running, points });
}

#[test]
fn a_save_that_is_cut_off_leaves_no_half_snapshot() {
    let points = &["intent", "stop.before", "stop.after", "commit.before", "commit.after", "save.outcome"];
    check(&Case { verb: "session.save", params: named, before: Before::Running, points });
}

#[test]
fn a_save_under_a_pause_that_is_cut_off_leaves_nothing_paused() {
    let params = || json!({"name": "a", "keep_running": true});
    let points =
        &["pause.before", "pause.after", "commit.before", "commit.after", "unpause.before", "unpause.after"];
    check(&Case { verb: "session.save", params, before: Before::Running, points });
}

#[test]
fn a_resume_that_is_cut_off_can_be_repeated() {
    let points = &["intent", "start.before", "start.after", "running.before"];
    check(&Case { verb: "session.resume", params: named, before: Before::Stopped, points });
    check(&Case { verb: "session.resume", params: named, before: Before::Saved, points });
}

#[test]
fn a_going_back_that_is_cut_off_ends_with_one_container_and_its_files() {
    let params = || json!({"name": "a", "snapshot": "first"});
    let points =
        &["commit.after", "replace.before", "create.before", "create.after", "start.after", "replace.remove"];
    check(&Case { verb: "session.resume", params, before: Before::Snapshot, points });
}

#[test]
fn a_pause_and_an_unpause_that_are_cut_off_are_what_the_engine_shows() {
    let points = &["intent", "pause.before", "pause.after"];
    check(&Case { verb: "session.pause", params: named, before: Before::Running, points });
    let points = &["intent", "unpause.before", "unpause.after"];
    check(&Case { verb: "session.unpause", params: named, before: Before::Paused, points });
}

#[test]
fn a_deletion_that_is_cut_off_is_carried_to_its_end() {
    let points = &[
        "intent",
        "delete.before",
        "delete.container",
        "snapshot.remove.before",
        "snapshot.remove.after",
        "delete.snapshots",
        "delete.after",
    ];
    check(&Case { verb: "session.delete", params: named, before: Before::Saved, points });
}

#[test]
fn a_rename_that_is_cut_off_takes_the_container_along_later() {
    let params = || json!({"name": "a", "new_name": "b"});
    check(&Case { verb: "session.rename", params, before: Before::Running, points: &["rename.row"] });
}

#[test]
fn a_fork_that_is_cut_off_leaves_its_source_alone() {
    let params = || json!({"name": "a", "new_name": "b"});
    let points = &["pause.after", "commit.after", "start.row", "create.after", "running.before"];
    check(&Case { verb: "session.fork", params, before: Before::Running, points });
}
