//! The engine is frozen, killed or started anew in the middle of each verb: the call ends, other sessions go on, and once
//! the engine answers everything is explained.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Before, Case, named, prepare, settled, usable};
use crate::support::{OwnEngine, Part, World, until};

/// The longest that an engine call takes while the engine stands still: a test does not wait for the real deadlines.
const PATIENCE: Duration = Duration::from_millis(500);

/// What happens to the engine.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It stands still until the call has ended.
    Frozen(Part),
    /// It dies, and is started again once the call has ended.
    Killed,
    /// It ends in order and is started again, all before the verb goes on.
    Restarted,
}

impl Fault {
    fn begins(self, engine: &mut OwnEngine, world: &World) {
        match self {
            Self::Frozen(part) => {
                world.shorten_deadlines(Some(PATIENCE));
                engine.freeze(part);
            }
            Self::Killed => engine.kill(),
            Self::Restarted => {
                engine.stop();
                engine.start();
            }
        }
    }

    fn ends(self, engine: &mut OwnEngine, world: &World) {
        match self {
            Self::Frozen(_) => {
                engine.thaw();
                world.shorten_deadlines(None);
            }
            Self::Killed => engine.start(),
            Self::Restarted => {}
        }
    }

    /// Whether the engine answers nothing while the verb goes on.
    fn is_silence(self) -> bool {
        !matches!(self, Self::Restarted)
    }
}

fn start() -> Value {
    json!({"name": "a", "image": crate::support::engine::busybox_image()})
}

/// Verbs that need the engine, each with the places in its middle.
fn verbs() -> Vec<Case> {
    use Before::{Nothing, Paused, Running, Saved, Snapshot, Stopped};
    let case = |verb, before, params, points| Case { verb, params, before, points };
    vec![
        case("session.start", Nothing, start as fn() -> Value, &["create.before", "start.before"]),
        case("session.stop", Running, named, &["stop.before"]),
        case("session.save", Running, named, &["commit.before"]),
        case(
            "session.save",
            Running,
            || json!({"name": "a", "keep_running": true}),
            &["pause.before", "commit.before", "unpause.before"],
        ),
        case("session.resume", Stopped, named, &["start.before"]),
        case("session.resume", Saved, named, &["intent"]),
        case(
            "session.resume",
            Snapshot,
            || json!({"name": "a", "snapshot": "first"}),
            &["replace.before", "start.before"],
        ),
        case("session.pause", Running, named, &["pause.before"]),
        case("session.unpause", Paused, named, &["unpause.before"]),
        case("session.delete", Saved, named, &["delete.before", "delete.container"]),
        case("session.fork", Running, || json!({"name": "a", "new_name": "b"}), &["commit.before"]),
    ]
}

/// Lets the fault come at each place of each verb.
fn check(fault: Fault, wanted: impl Fn(&Case) -> bool) {
    let Some(mut engine) = OwnEngine::new() else { return };
    for case in verbs().iter().filter(|case| wanted(case)) {
        for point in case.points {
            cut(&mut engine, fault, case, point);
        }
    }
}

fn cut(engine: &mut OwnEngine, fault: Fault, case: &Case, point: &str) {
    let what = format!("{} at {point}, the engine {fault:?}", case.verb);
    let mut world = World::on(engine);
    world.start("other");
    prepare(&world, case.before);
    let go = world.home.dir().join("go");
    world.restart(Some(&format!("{point}=pause:{}", go.display())));
    let mut caller = world.connect();
    caller.request(1, case.verb, (case.params)());
    reached(&go, &what);
    fault.begins(engine, &world);
    fs::write(&go, "").expect("written");
    others_go_on(&world, fault);
    let answer = caller.line();
    if fault.is_silence() {
        tells_of_the_engine(&answer, &what);
    }
    fault.ends(engine, &world);
    world.call("session.resume", json!({"name": "other"}));
    settled(&world, case.verb, &what);
    // A pause that was given up may come late, and is undone then.
    until(&format!("{what}: nothing to be left paused"), || (!is_left_paused(&world, case)).then_some(()));
    usable(&world, case);
}

fn reached(go: &Path, what: &str) {
    let mark = go.with_extension("reached");
    until(what, || mark.exists().then_some(()));
}

/// The table is read while nobody at the engine answers, and what runs in other sandboxes is reached.
fn others_go_on(world: &World, fault: Fault) {
    let rows = world.call("session.list", json!({}));
    assert!(rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["name"] == "other")), "{rows}");
    assert_eq!(world.field("other", "name"), "other");
    if matches!(fault, Fault::Frozen(_)) {
        assert_eq!(world.sh("other", "echo without it")["stdout"], "without it\n");
    }
}

fn tells_of_the_engine(answer: &Value, what: &str) {
    let data = &answer["error"]["data"];
    let kind = data["kind"].as_str().unwrap_or_default();
    assert!(matches!(kind, "engine_timeout" | "engine_unavailable"), "{what}: {answer}");
    assert!(data["hint"].is_string(), "{what} says not what to do: {answer}");
}

/// Whether a sandbox is frozen that nobody wanted so.
fn is_left_paused(world: &World, case: &Case) -> bool {
    let meant = case.before == Before::Paused || case.verb == "session.pause";
    !meant && world.containers().iter().any(|(_, state)| state == "paused")
}

#[test]
fn an_engine_that_freezes_in_the_middle_of_a_verb_holds_up_that_call_alone_and_not_for_ever() {
    check(Fault::Frozen(Part::Engine), |_| true);
}

#[test]
fn an_engine_that_freezes_with_all_its_parts_is_no_different() {
    let some = ["session.start", "session.stop", "session.resume"];
    check(Fault::Frozen(Part::EngineAndContainerd), |case| some.contains(&case.verb));
}

#[test]
fn an_engine_that_dies_in_the_middle_of_a_verb_leaves_nothing_unexplained() {
    check(Fault::Killed, |_| true);
}

#[test]
fn an_engine_that_restarts_in_the_middle_of_a_verb_leaves_nothing_unexplained() {
    check(Fault::Restarted, |_| true);
}

#[test]
fn what_needs_no_engine_works_while_it_stands_still_and_files_are_refused_in_time() {
    let Some(engine) = OwnEngine::new() else { return };
    let world = World::on(&engine);
    world.start("a");
    // Until its abx-init has called, a sandbox's commands are the engine's.
    world.until_field("a", "runtime", "init");
    world.sh("a", ":");
    world.shorten_deadlines(Some(PATIENCE));
    engine.freeze(Part::Engine);
    assert_eq!(world.sh("a", "echo kept > /root/file; cat /root/file")["stdout"], "kept\n");
    assert_eq!(world.call("session.rename", json!({"name": "a", "new_name": "b"}))["name"], "b");
    let wrote = json!({"session": "b", "path": "/root/other", "content": "x"});
    let answer = world.connect().request(1, "file.write", wrote.clone()).line();
    tells_of_the_engine(&answer, "file.write");
    engine.thaw();
    world.shorten_deadlines(None);
    until("the container to have its new name", || {
        (!engine.docker(&["inspect", "-f", "{{.Id}}", "session-b"]).is_empty()).then_some(())
    });
    world.call("file.write", wrote);
    assert_eq!(world.sh("b", "cat /root/file /root/other")["stdout"], "kept\nx");
}
