//! Idle sessions, on the command line and a real engine.

use serde_json::json;

use super::shown::Viewer;
use crate::support::engine::busybox_image;
use crate::support::{World, until};

/// Starts a session that may be idle for two seconds.
fn start(world: &World, name: &str, options: &[&str]) {
    let image = busybox_image();
    let mut args = vec!["start", name, "--idle", "2", "--image", &image];
    args.extend(options);
    world.text(&args);
}

fn is_busy(world: &World, name: &str, why: &str) -> Option<()> {
    let busy = world.field(name, "busy");
    busy.as_array().is_some_and(|all| all.iter().any(|word| word == why)).then_some(())
}

#[test]
fn a_busy_loop_that_nobody_watches_keeps_its_session_until_it_ends() {
    let Some(world) = World::new() else { return };
    start(&world, "x", &[]);
    let script = "(while [ ! -e /tmp/stop ]; do :; done) >/dev/null 2>&1 </dev/null & echo started";
    world.text(&["exec", "x", "--", "sh", "-c", script]);
    until("its CPU to count", || is_busy(&world, "x", "cpu"));
    let wide = world.text(&["ls", "-o", "wide"]);
    assert!(wide.contains("IDLE") && wide.contains("cpu"), "{wide}");
    // Three times its idle time, and no stop was even warned of.
    let looked = std::time::Instant::now();
    until("time to pass", || (looked.elapsed().as_secs() >= 6).then_some(()));
    assert_eq!(world.field("x", "status"), "running");
    world.call("file.write", json!({"session": "x", "path": "/tmp/stop", "content": ""}));
    world.until_field("x", "status", "stopped");
    assert_eq!(world.field("x", "reason"), "idle");
    let told = world.call("event.list", json!({"session": "x"}));
    let warned = |event: &&serde_json::Value| event["kind"] == "session.idle";
    assert_eq!(told.as_array().map(|all| all.iter().filter(warned).count()), Some(1), "{told}");
}

#[test]
fn whoever_is_attached_keeps_a_session_and_what_is_done_afterwards_is_chosen() {
    let Some(world) = World::new() else { return };
    for action in ["pause", "save"] {
        start(&world, action, &["--idle-action", action]);
    }
    start(&world, "a", &[]);
    let viewer = Viewer::attach(&world, (80, 24), &[]);
    until("the client to count", || is_busy(&world, "a", "client"));
    for (action, status) in [("pause", "paused"), ("save", "saved")] {
        world.until_field(action, "status", status);
        assert_eq!(world.field(action, "reason"), "idle");
    }
    assert_eq!(world.field("a", "status"), "running");
    viewer.kill();
    world.until_field("a", "status", "stopped");
    let line = world.run(&["exec", "pause", "--", "true"]);
    assert_eq!(String::from_utf8_lossy(&line.stderr), "Resuming 'pause' (was paused: idle) ...\n");
}
