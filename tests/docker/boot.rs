//! A machine that comes up anew.

use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::support::engine::{busybox_image, docker};
use crate::support::{World, until};

#[test]
fn after_a_reboot_sessions_say_why_they_stopped_and_come_back_where_that_is_wanted() {
    let Some(mut world) = World::new() else { return };
    let image = busybox_image();
    world.text(&["start", "back", "--on-boot", "resume", "--image", &image]);
    world.text(&["start", "rests", "--image", &image]);
    world.text(&["exec", "back", "--", "sh", "-c", "echo kept >/root/f"]);
    world.call("daemon.shutdown", json!({}));
    until("the daemon to be gone", || UnixStream::connect(world.home.socket()).is_err().then_some(()));
    for (id, _) in world.containers() {
        docker(&["kill", &id]);
    }
    // As if all of that had been in another boot.
    let table = rusqlite::Connection::open(world.home.root().join("sessions.db")).expect("a table");
    let changed = table.execute("UPDATE meta SET value = 'another-boot' WHERE key = 'engine.life'", []);
    assert_eq!(changed.expect("updated"), 1, "the last life is known");
    drop(table);
    world.restart(None);
    world.until_field("back", "status", "running");
    world.until_field("rests", "status", "stopped");
    assert_eq!(world.field("rests", "reason"), "engine");
    assert_eq!(world.text(&["exec", "back", "--", "cat", "/root/f"]), "kept\n");
}
