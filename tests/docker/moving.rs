//! Sessions and a second engine: carried there in a file, and left alone where a home is pointed to another engine.

use serde_json::{Value, json};

use crate::support::{OwnEngine, World, until};

/// Waits until the daemon has found its engine, and gives what it tells its user.
fn notices(world: &World) -> Vec<String> {
    until("the engine to be found", || {
        let info = world.call("daemon.info", json!({}));
        (info["engines"][0]["health"] == "ok").then(|| {
            let all = info["notices"].as_array().expect("a list");
            all.iter().map(|one| one.as_str().expect("text").to_owned()).collect()
        })
    })
}

fn named(name: &str) -> Value {
    json!({"name": name})
}

#[test]
fn a_session_that_is_exported_from_one_engine_is_resumed_on_another() {
    let Some(there) = OwnEngine::new() else { return };
    let Some(from) = World::new() else { return };
    let to = World::on(&there);
    from.start("a");
    from.sh("a", "echo carried > /root/file; ln -s file /root/link; chmod 600 /root/file");
    from.call("session.save", json!({"name": "a", "snapshot": "first", "note": "to go"}));
    let file = from.home.dir().join("first.abx");
    from.text(&["snapshot", "export", "first", file.to_str().expect("text")]);
    to.text(&["snapshot", "import", file.to_str().expect("text"), "--session", "a"]);
    assert_eq!(to.field("a", "status"), "saved");
    to.call("session.resume", named("a"));
    let seen = to.sh("a", "ls -l /root/file; cat /root/link")["stdout"].as_str().expect("text").to_owned();
    assert!(seen.starts_with("-rw-------") && seen.ends_with("\ncarried\n"), "{seen}");
    let (one, other) = (from.field("a", "sandbox_id"), to.field("a", "sandbox_id"));
    assert_ne!(one, other);
    from.call("session.delete", named("a"));
    assert_eq!(to.sh("a", "cat /root/file")["stdout"], "carried\n", "neither needs the other");
}

#[test]
fn a_home_that_is_pointed_to_another_engine_and_back_has_lost_nothing() {
    let (Some(first), Some(second)) = (OwnEngine::new(), OwnEngine::new()) else { return };
    let mut world = World::on(&first);
    for name in ["runs", "rests", "saved"] {
        world.start(name);
        world.sh(name, &format!("echo {name} > /root/file"));
    }
    world.call("session.stop", named("rests"));
    world.call("session.save", json!({"name": "saved", "snapshot": "kept"}));
    let before = rows(&world);

    world.move_to(&second);
    let told = notices(&world);
    assert!(
        told.iter().any(|one| one.contains("3 of the sessions") && one.contains("another engine")),
        "{told:?}"
    );
    for (method, params) in [
        ("session.stop", named("runs")),
        ("session.resume", named("rests")),
        ("session.resume", named("saved")),
        ("session.save", named("rests")),
        ("session.delete", named("saved")),
        ("session.fork", json!({"name": "saved", "new_name": "new", "snapshot": "kept"})),
        ("snapshot.delete", json!({"snapshots": ["kept"]})),
    ] {
        let refused = world.refuse(method, params);
        assert_eq!(refused["data"]["kind"], "engine_unavailable", "{method}: {refused}");
        let hint = refused["data"]["hint"].as_str().expect("says what to do");
        assert!(hint.contains(&first.address()) && hint.contains("--forget"), "{method}: {hint}");
    }
    world.start("new");
    world.call("session.delete", named("new"));
    assert_eq!(rows(&world), before, "nothing is said of what this engine does not have");

    world.move_to(&first);
    assert_eq!(notices(&world), Vec::<String>::new());
    for name in ["rests", "saved"] {
        world.call("session.resume", named(name));
    }
    for name in ["runs", "rests", "saved"] {
        assert_eq!(world.sh(name, "cat /root/file")["stdout"], format!("{name}\n"));
    }
}

#[test]
fn a_session_of_an_engine_that_is_gone_for_good_can_be_forgotten_and_comes_back_with_its_engine() {
    let (Some(first), Some(second)) = (OwnEngine::new(), OwnEngine::new()) else { return };
    let mut world = World::on(&first);
    world.start("a");
    world.call("session.save", json!({"name": "a", "snapshot": "kept", "keep_running": true}));
    world.move_to(&second);
    notices(&world);
    let refused = world.run(&["delete", "a", "-y"]);
    assert_eq!(refused.status.code(), Some(5), "{}", String::from_utf8_lossy(&refused.stderr));
    world.text(&["delete", "a", "--forget", "-y"]);
    assert_eq!(world.call("session.list", json!({})), json!([]));
    assert_eq!(world.call("snapshot.list", json!({})), json!([]));
    world.start("a");
    world.call("session.delete", named("a"));
    world.move_to(&first);
    until("the session to come back with its engine", || {
        let all = world.call("session.list", json!({}));
        let row = all.as_array()?.first()?;
        (row["status"] == "running" && row["snapshot"] == "kept").then_some(())
    });
}

/// All rows, without what changes by being used.
fn rows(world: &World) -> Vec<(Value, Value, Value, Value, Value)> {
    let all = world.call("session.list", json!({}));
    let all = all.as_array().expect("an array").iter();
    let what = |row: &Value| {
        let field = |name: &str| row[name].clone();
        (field("name"), field("status"), field("sandbox_id"), field("reason"), field("snapshots"))
    };
    all.map(what).collect()
}
