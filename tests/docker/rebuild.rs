//! A session table that was lost, on a real engine: every session is there again, and what is not is said.

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use serde_json::{Value, json};

use crate::support::World;

/// Sessions of every kind.
fn fill(world: &World) {
    for name in ["runs", "stopped", "saved", "rests", "old", "kept"] {
        let params = json!({
            "name": name, "image": crate::support::engine::busybox_image(),
            "env": {"TOKEN": "s3cret"}, "metadata": {"team": "x"}, "timeout_ms": 3_600_000, "idle_ms": 1_800_000,
        });
        world.call("session.start", params);
        world.sh(name, "echo kept > /root/file");
    }
    world.call("session.stop", json!({"name": "stopped"}));
    world.call("session.save", json!({"name": "rests"}));
    world.call("session.save", json!({"name": "saved"}));
    let container = world.field("saved", "sandbox_id");
    crate::support::engine::docker(&["rm", "-fv", container.as_str().expect("an id")]);
    world.call("session.rename", json!({"name": "old", "new_name": "new"}));
    world.call("session.save", json!({"name": "kept"}));
    world.call("session.delete", json!({"name": "kept", "keep_snapshots": true}));
}

/// Loses the table, and every copy of it, in between two lives.
fn lose(world: &mut World, damage: impl FnOnce(&std::path::Path)) {
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    forget_copies(world);
    damage(&world.home.root().join("sessions.db"));
    world.restart(None);
}

/// Removes the copies that a daemon made by itself, if it has made any yet.
fn forget_copies(world: &World) {
    let copies = world.home.root().join("backups");
    if copies.exists() {
        fs::remove_dir_all(copies).expect("removed");
    }
}

/// Everything is there and obeys; the words about it come once.
fn check(world: &World, damaged: bool) {
    let listed = world.run(&["ls"]);
    let (out, err) = (
        String::from_utf8_lossy(&listed.stdout).into_owned(),
        String::from_utf8_lossy(&listed.stderr).into_owned(),
    );
    for name in ["runs", "stopped", "saved", "rests", "new"] {
        assert!(out.contains(name), "{name}: {out}");
    }
    assert_eq!(err.contains("is kept as"), damaged, "{err}");
    assert!(err.contains("environment") && err.contains("lost"), "{err}");
    assert!(world.run(&["ls"]).stderr.is_empty(), "it is said once");
    assert!(world.text(&["daemon", "status"]).contains("came back from the labels"));
    for (name, status) in [
        ("runs", "running"),
        ("stopped", "stopped"),
        ("saved", "saved"),
        ("rests", "saved"),
        ("new", "running"),
    ] {
        let row = world.call("session.get", json!({"name": name}));
        assert_eq!(row["status"], status, "{name}");
        assert_eq!(
            (&row["metadata"]["team"], &row["timeout_ms"]),
            (&json!("x"), &json!(3_600_000)),
            "{name}"
        );
        assert_eq!(row["idle_ms"], 1_800_000, "{name}");
        world.call("session.resume", json!({"name": name}));
        assert_eq!(world.sh(name, "cat /root/file")["stdout"], "kept\n", "{name}");
        assert_eq!(world.sh(name, "echo $TOKEN")["stdout"], "\n", "no value is in a label");
    }
    let snapshots = world.call("snapshot.list", json!({}));
    assert_eq!(snapshots.as_array().map(Vec::len), Some(3), "{snapshots}");
    let kinds = world.call("event.list", json!({"kinds": ["session.rebuilt"]}));
    assert!(kinds.as_array().is_some_and(|all| all.len() >= 4), "{kinds}");
    assert!(world.home.log().contains("made a row again from its container's labels"));
}

#[test]
fn sessions_of_a_deleted_table_come_back() {
    let Some(mut world) = World::new() else { return };
    fill(&world);
    lose(&mut world, |table| fs::remove_file(table).expect("remove"));
    check(&world, false);
}

#[test]
fn sessions_of_a_damaged_table_come_back() {
    let Some(mut world) = World::new() else { return };
    fill(&world);
    lose(&mut world, |table| {
        let mut file = fs::OpenOptions::new().write(true).open(table).expect("open");
        let length = file.metadata().expect("its length").len();
        file.seek(SeekFrom::Start(length / 2 / 4096 * 4096)).expect("seek");
        file.write_all(&[0xA5; 2048]).expect("write");
    });
    check(&world, true);
}

#[test]
fn a_copy_of_the_table_brings_the_environment_back_too() {
    let Some(mut world) = World::new() else { return };
    fill(&world);
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    forget_copies(&world);
    let copies = world.home.root().join("backups");
    fs::create_dir_all(&copies).expect("made");
    let table = world.home.root().join("sessions.db");
    fs::copy(&table, copies.join("sessions-20260201-093000-v1.db")).expect("copied");
    fs::write(&table, "noise").expect("write");
    world.restart(None);
    let said = world.run(&["ls"]).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("sessions-20260201-093000-v1.db took its place"), "{said}");
    for name in ["runs", "new"] {
        assert_eq!(world.sh(name, "echo $TOKEN")["stdout"], "s3cret\n", "{name}");
    }
    let replaced = world.call("event.list", json!({"kinds": ["table.replaced"]}));
    assert_eq!(replaced[0]["data"]["copy"], "sessions-20260201-093000-v1.db");
    assert_eq!(
        world.call("session.list", json!({})).as_array().map(Vec::len),
        Some(5),
        "none is deleted twice"
    );
    assert_eq!(world.field("saved", "status"), "saved");
}

#[test]
fn a_table_of_a_newer_abx_is_left_alone_and_the_way_out_is_named() {
    let home = crate::support::Home::new();
    let abx = |args: &[&str]| home.command(env!("CARGO_BIN_EXE_abx")).args(args).output().expect("abx runs");
    assert!(abx(&["ls"]).status.success());
    assert!(abx(&["daemon", "stop"]).status.success());
    let table = home.root().join("sessions.db");
    let conn = rusqlite::Connection::open(&table).expect("open");
    conn.execute_batch("PRAGMA user_version = 900").expect("raise");
    drop(conn);
    let bytes = fs::read(&table).expect("read");
    let refused = abx(&["ls"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(said.contains("has format 900"), "{said}");
    assert!(said.contains("Hint: install the newer abx again, or use another --home"), "{said}");
    let document: Value = serde_json::from_slice(&abx(&["ls", "--json"]).stdout).expect("JSON");
    assert!(document.to_string().contains("install the newer abx"), "{document}");
    assert_eq!(fs::read(&table).expect("read"), bytes, "it is as it was");
}

#[test]
fn what_runs_is_found_again_with_its_terminal_when_the_table_is_gone() {
    let Some(mut world) = World::new() else { return };
    world.call("session.start", json!({"name": "a", "image": crate::support::engine::busybox_image()}));
    let opened = world.connect().call(
        "terminal.open",
        json!({"session": "a", "cmd": ["sh", "-c", "echo here; exec cat"], "size": {"cols": 80, "rows": 24}}),
    );
    let started = world.call("exec.start", json!({"session": "a", "cmd": ["sleep", "1000"]}));
    lose(&mut world, |table| fs::remove_file(table).expect("there"));
    let running = crate::support::until("both to be found", || {
        let all = world.call("exec.list", json!({"session": "a"}));
        let all = all.as_array().expect("a list").clone();
        (all.iter().filter(|exec| exec["status"] == "running").count() == 2).then_some(all)
    });
    for (id, cmd) in [(&opened["exec"], "sh"), (&started["id"], "sleep")] {
        let found = running.iter().find(|exec| exec["id"] == *id);
        assert_eq!(found.map(|exec| &exec["cmd"][0]), Some(&json!(cmd)), "{running:?}");
    }
    let again = world.connect().call("terminal.open", json!({"session": "a"}));
    assert_eq!((&again["exec"], &again["followed"]), (&opened["exec"], &json!(true)));
    let screen = world.call("terminal.peek", json!({"session": "a"}));
    assert_eq!(screen["lines"][0], "here");
    world.call("exec.kill", json!({"id": started["id"], "signal": 9}));
    let ended = world.call("exec.wait", json!({"id": started["id"], "timeout": 60_000}));
    assert_eq!(ended["exit_code"], 137, "its end is noted");
}

#[test]
fn what_runs_now_is_found_again_although_it_did_not_when_the_table_was_copied() {
    let Some(mut world) = World::new() else { return };
    world.start("a");
    world.call("session.stop", json!({"name": "a", "grace_ms": 0}));
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    forget_copies(&world);
    let (table, copies) = (world.home.root().join("sessions.db"), world.home.root().join("backups"));
    fs::create_dir_all(&copies).expect("made");
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    fs::copy(&table, copies.join(format!("sessions-{stamp}-v1.db"))).expect("copied");
    world.restart(None);
    world.call("session.resume", json!({"name": "a"}));
    let started = world.call("exec.start", json!({"session": "a", "cmd": ["sleep", "1000"]}));
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    fs::remove_file(&table).expect("removed");
    world.restart(None);
    crate::support::until("it to be found", || {
        let all = world.call("exec.list", json!({"session": "a"}));
        let found = |exec: &Value| exec["id"] == started["id"] && exec["status"] == "running";
        all.as_array().expect("a list").iter().any(found).then_some(())
    });
    assert_eq!(world.field("a", "status"), "running");
    assert_eq!(world.sh("a", "echo here")["stdout"], "here\n");
}
