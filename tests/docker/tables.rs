//! `abx export`, `abx import FILE` and `abx adopt` on a real engine.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::World;
use crate::support::engine::{busybox_image, docker};

/// Removes the table, and the copies of it that a daemon made by itself.
fn lose_table(world: &World) {
    std::fs::remove_file(world.home.root().join("sessions.db")).expect("removed");
    let copies = world.home.root().join("backups");
    if copies.exists() {
        std::fs::remove_dir_all(copies).expect("removed");
    }
}

#[test]
fn an_exported_table_comes_back_in_the_place_of_a_new_one() {
    let Some(mut world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image(), "-e", "KEY=s3cret", "--idle", "1h"]);
    world.text(&["exec", "a", "--", "sh", "-c", "echo kept > /root/file"]);
    let file = world.home.dir().join("table.json");
    let path = file.to_str().expect("text");
    let said = world.text(&["export", path]);
    assert_eq!(said, format!("Exported 1 sessions and 0 snapshots to {path}.\n"));
    let read = || std::fs::read_to_string(&file).expect("read");
    assert!(!read().contains("s3cret"));
    world.text(&["export", "--with-secrets", path]);
    assert!(read().contains("s3cret"));
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let unchanged = world.text(&["import", path]);
    assert_eq!(
        unchanged,
        "0 imported, 0 adopted, 1 unchanged, 0 in conflict, 0 not imported. Nothing changed.\n"
    );

    // Nothing looks for containers meanwhile.
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    lose_table(&world);
    let container = docker(&["ps", "-aq", "--no-trunc", "--filter", "name=^session-a$"]);
    docker(&["rename", &container, "aside"]);
    world.restart(None);
    docker(&["rename", &container, "session-a"]);
    let mut import = world.abx().args(["import", "-"]).stdin(Stdio::piped()).spawn().expect("abx runs");
    import.stdin.take().expect("piped").write_all(read().as_bytes()).expect("written");
    assert!(import.wait().expect("it ends").success());
    assert_eq!(world.field("a", "status"), "running");
    assert_eq!(world.field("a", "idle_ms"), 3_600_000);
    assert_eq!(world.sh("a", "cat /root/file; echo $KEY")["stdout"], "kept\ns3cret\n");
}

#[test]
fn what_is_no_table_is_refused_with_the_way_on() {
    let Some(world) = World::new() else { return };
    let file = world.home.dir().join("old.json");
    std::fs::write(&file, r#"{"name": "a", "agent": "claude"}"#).expect("written");
    let output = world.run(&["import", file.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("is no table that abx exported") && said.contains("name their directory"),
        "{said}"
    );
}

/// A container of somebody else. Gone with the test.
struct Theirs(String);

impl Theirs {
    fn run(args: &[&str]) -> Self {
        let name = format!("abx-test-theirs-{}", std::process::id());
        let image = busybox_image();
        let all = [&["create", "--name", &name][..], args, &[&image, "sleep", "600"]].concat();
        assert!(!docker(&all).is_empty(), "the container is made");
        Self(name)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        docker(&["rm", "-fv", &self.0]);
    }
}

#[test]
fn a_container_that_somebody_else_made_is_a_session_from_then_on() {
    let Some(world) = World::new() else { return };
    let shared = world.home.dir().join("shared");
    std::fs::create_dir(&shared).expect("made");
    let mount = format!("{}:/shared:ro", shared.display());
    let theirs = Theirs::run(&["-v", &mount, "--memory", "256m", "--pids-limit", "64", "--network", "none"]);
    docker(&["start", &theirs.0]);
    let said = world.text(&["adopt", "mine", &theirs.0]);
    assert!(
        said.contains("is session 'mine' now (running)") && said.contains("abx delete removes"),
        "{said}"
    );
    let row = world.call("session.get", json!({"name": "mine"}));
    assert_eq!((&row["runtime"], &row["network"]), (&json!("engine"), &json!("none")));
    assert_eq!(row["limits"], json!({"cpus": null, "memory_bytes": 256 << 20, "pids": 64}));
    assert_eq!(row["mounts"], json!([{"source": shared, "target": "/shared", "read_only": true}]));
    assert_eq!(
        world.text(&["exec", "mine", "--", "sh", "-c", "echo kept > /root/file; echo done"]),
        "done\n"
    );
    world.text(&["stop", "mine", "--grace", "1"]);
    world.text(&["save", "mine"]);
    docker(&["rm", "-fv", &theirs.0]);
    world.until_field("mine", "status", "saved");
    world.text(&["resume", "mine"]);
    assert_eq!(world.text(&["exec", "mine", "--", "cat", "/root/file"]), "kept\n");
    assert_eq!(world.refuse("session.adopt", json!({"name": "x", "container": "nobody"}))["code"], -32602);
    world.text(&["delete", "mine", "-y"]);
    let left: Value = world.call("session.list", json!({}));
    assert_eq!((left, world.containers().len()), (json!([]), 0));
}

#[test]
fn what_was_adopted_is_there_again_when_the_table_is_gone() {
    let Some(mut world) = World::new() else { return };
    let theirs = Theirs::run(&["--network", "none"]);
    docker(&["start", &theirs.0]);
    world.text(&["adopt", "mine", &theirs.0, "--agent", "codex"]);
    let before = world.call("session.get", json!({"name": "mine"}));
    world.call("daemon.shutdown", json!({}));
    world.daemon().wait();
    lose_table(&world);
    world.restart(None);
    let after = world.call("session.get", json!({"name": "mine"}));
    for field in ["id", "sandbox", "sandbox_id", "agent", "status", "runtime", "network"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let doctor = world.text(&["doctor"]);
    assert!(doctor.contains("every container and image of this home has a row"), "{doctor}");
    world.text(&["delete", "mine", "-y"]);
    assert_eq!(docker(&["ps", "-aq", "--filter", &format!("name=^{}$", theirs.0)]), "");
}
