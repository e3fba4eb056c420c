//! The timeline as a user has it: what differs between its snapshots, and what becomes of too many.

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
    world.text(&["stop", "a"]);
    let back = world.run(&["resume", "a", "--snapshot", "three", "--discard"]);
    assert!(back.status.success());
    let said = String::from_utf8_lossy(&back.stderr);
    assert!(
        said.contains("Discarding all files of session 'a' that no snapshot holds (the newest: three)."),
        "{said}"
    );
    assert_eq!(world.text(&["-q", "snapshot", "list", "a"]), "three\n", "nothing was saved first");
    let kept = world.text(&["snapshot", "prune", "--keep", "0", "-y"]);
    assert_eq!(kept, "No snapshot is too many.\n", "the container came from it");
}
