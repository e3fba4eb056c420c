//! The timeline as a user has it: what differs between its snapshots, and what becomes of too many.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::json;

use crate::support::World;
use crate::support::engine::busybox_image;

/// Runs a shell's line in the session `a`.
fn sh(world: &World, line: &str) {
    world.text(&["exec", "a", "--", "sh", "-c", line]);
}

#[test]
fn a_diff_tells_what_was_added_changed_and_deleted_between_any_two_states() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    sh(&world, "mkdir -p /work/old; echo 1 > /work/a; echo 2 > /work/old/b; echo same > /work/same");
    world.text(&["save", "a", "--snapshot", "one", "--keep-running"]);
    assert_eq!(
        world.text(&["snapshot", "diff", "one"]),
        "No differences.\n",
        "it runs on, with the same files"
    );
    sh(&world, "echo new > /work/a; rm -r /work/old; echo 3 > '/work/c\u{1b}[31m'; echo same > /work/same");
    let want = "C /work/a\nA /work/c\\u{1b}[31m\nD /work/old\n";
    assert_eq!(world.text(&["snapshot", "diff", "one"]), want);
    world.text(&["save", "a", "--snapshot", "two"]);
    assert_eq!(world.text(&["snapshot", "diff", "one", "two"]), want);
    let back = "C /work/a\nD /work/c\\u{1b}[31m\nA /work/old\nA /work/old/b\n";
    assert_eq!(world.text(&["snapshot", "diff", "two", "one"]), back);
    // Now the snapshot is what the container was made from.
    world.text(&["resume", "a", "--snapshot", "one"]);
    assert_eq!(world.text(&["snapshot", "diff", "one"]), "No differences.\n");
    assert_eq!(world.text(&["snapshot", "diff", "two"]), back);
    sh(&world, "echo newer > /work/a; rm -r /work/old; mkdir /work/d");
    assert_eq!(world.text(&["snapshot", "diff", "one"]), "C /work/a\nA /work/d\nD /work/old\n");
    let refused = world.run(&["snapshot", "diff", "one", "none"]);
    assert_eq!(refused.status.code(), Some(3));
}

#[test]
fn pruning_leaves_the_way_back_and_the_engine_without_the_rest() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    for name in ["one", "two", "three"] {
        sh(&world, &format!("echo {name} > /{name}"));
        world.text(&["save", "a", "--snapshot", name, "--keep-running"]);
    }
    let told = world.text(&["snapshot", "prune", "a", "--keep", "1", "--dry-run"]);
    assert!(
        told.starts_with("Snapshot 'one' would be deleted.\nSnapshot 'two' would be deleted.\n"),
        "{told}"
    );
    let done = world.text(&["snapshot", "prune", "a", "--keep", "1", "-y"]);
    assert_eq!(done, told.replace("would be ", ""));
    assert_eq!(world.text(&["-q", "snapshot", "list", "a"]), "three\n");
    let refused = world.run(&["resume", "a", "--snapshot", "three", "--discard"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), said.contains("iscard")), (Some(4), false), "{said}");
    world.text(&["stop", "a"]);
    let back = world.run(&["resume", "a", "--snapshot", "three", "--discard"]);
    assert!(back.status.success());
    let said = String::from_utf8_lossy(&back.stderr);
    assert!(
        said.contains("Discarded all files of session 'a' that no snapshot holds (the newest: three)."),
        "{said}"
    );
    assert_eq!(world.text(&["-q", "snapshot", "list", "a"]), "three\n", "nothing was saved first");
    let kept = world.text(&["snapshot", "prune", "--keep", "0", "-y"]);
    assert_eq!(kept, "No snapshot is too many.\n", "the container came from it");
}

#[test]
fn an_exported_snapshot_comes_up_on_another_machine_as_it_was() {
    let (Some(here), Some(there)) = (World::new(), World::new()) else { return };
    let port =
        std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a port");
    let fixed = format!("{}:81", port.port());
    let own =
        ["-p", "80", "-p", &fixed, "--timeout", "8h", "--idle", "1h", "--keep", "3", "--on-boot", "resume"];
    let start = ["start", "a", "--image", &busybox_image(), "--meta", "team=x", "-e", "TOKEN=hunter2"];
    here.text(&[&start[..], &own].concat());
    sh(&here, "echo kept > /root/file");
    here.text(&["save", "a", "--snapshot", "one", "--note", "a reason"]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("one.abx");
    let path = file.to_str().expect("text");
    here.text(&["snapshot", "export", "one", path]);
    assert_eq!(here.run(&["snapshot", "export", "one", path]).status.code(), Some(2), "it is there already");
    let bytes = std::fs::read(&file).expect("a file");
    assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"));
    assert_eq!(std::fs::read_dir(directory.path()).expect("a list").count(), 1, "nothing is beside it");
    here.text(&["delete", "a", "-y"]);

    let said = there.text(&["snapshot", "import", path, "--session", "b"]);
    assert_eq!(said, "Snapshot 'one' imported as session 'b'.\nResume with: abx resume b\n");
    let list = there.text(&["snapshot", "list", "b"]);
    assert!(list.contains("one ") && list.ends_with("a reason\n"), "{list}");
    let row = there.call("session.get", json!({"name": "b"}));
    let times = [&row["timeout_ms"], &row["idle_ms"], &row["keep"], &row["on_boot"]];
    assert_eq!(times, [&json!(28_800_000), &json!(3_600_000), &json!(3), &json!("resume")]);
    let ports = json!([
        {"container": 80, "host": null, "protocol": "tcp"}, {"container": 81, "host": port.port(), "protocol": "tcp"},
    ]);
    assert_eq!(row["ports"], ports);
    there.text(&["resume", "b"]);
    assert_eq!(there.field("b", "ports")[1]["host"], port.port());
    assert_eq!(there.text(&["exec", "b", "--", "cat", "/root/file"]), "kept\n");
    assert!(there.text(&["get", "b"]).contains("team=x"));
    // Without a session, and beside the first.
    assert_eq!(there.text(&["snapshot", "import", path]), "Snapshot 'one-2' imported.\n");
    there.text(&["snapshot", "import", path, "--session", "second"]);
    assert_eq!(there.field("second", "ports")[1]["host"], json!(null), "b has it");

    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("cut off");
    let refused = there.run(&["snapshot", "import", path, "--session", "c"]);
    assert_ne!(refused.status.code(), Some(0));
    assert_eq!(there.run(&["get", "c"]).status.code(), Some(3), "nothing of it is kept");
    assert_eq!(there.text(&["-q", "snapshot", "list"]).lines().count(), 3);
}

#[test]
fn a_file_that_cannot_be_used_is_told_as_what_it_is() {
    let Some(world) = World::new() else { return };
    world.text(&["start", "a", "--image", &busybox_image()]);
    world.text(&["save", "a", "--snapshot", "one"]);
    let directory = world.home.dir().join("missing");
    let path = directory.join("one.abx").display().to_string();
    let export = json!({"snapshot": "one", "path": path});
    assert_eq!(world.refuse("snapshot.export", export)["data"]["kind"], "file_not_found");
    let refused = world.run(&["snapshot", "export", "one", &path]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot write {path}: ")), "{said}");
    assert!(!directory.exists(), "no directory is made for it");
    assert_eq!(world.refuse("snapshot.import", json!({"path": path}))["data"]["kind"], "file_not_found");

    let mut import =
        world.abx().args(["snapshot", "import", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let import = import.as_mut().expect("abx runs");
    import.stdin.take().expect("piped").write_all(b"noise").expect("written");
    let mut said = String::new();
    import.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_ne!(import.wait().expect("it ends").code(), Some(0));
    assert!(said.contains("cannot import the standard input: ") && !said.contains("/tmp"), "{said}");
}
