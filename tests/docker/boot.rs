//! A machine that comes up anew.

use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::support::engine::{busybox_image, docker};
use crate::support::{OwnEngine, World, until};

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

/// How the engine of a test ends.
#[derive(Debug, Clone, Copy)]
enum End {
    InOrder,
    AtOnce,
}

#[test]
fn sessions_come_back_as_configured_after_their_engine_was_stopped_or_killed_and_started() {
    let Some(mut engine) = OwnEngine::new() else { return };
    let mut world = World::on(&engine);
    let start = |name: &str, on_boot: Option<&str>| json!({"name": name, "image": busybox_image(), "on_boot": on_boot});
    for (name, on_boot) in [("back", Some("resume")), ("rests", Some("stopped")), ("as-set", None)] {
        world.call("session.start", start(name, on_boot));
        world.sh(name, &format!("echo {name} > /root/file"));
    }
    world.call("session.start", start("idle", Some("resume")));
    world.call("session.stop", json!({"name": "idle"}));
    // With the daemon beside it all the time, and with one that ended before and came up after.
    for (end, daemon_stays) in
        [(End::InOrder, true), (End::AtOnce, true), (End::InOrder, false), (End::AtOnce, false)]
    {
        let what = format!("{end:?}, the daemon {}", if daemon_stays { "stays" } else { "goes too" });
        if !daemon_stays {
            world.call("daemon.shutdown", json!({}));
            world.daemon().wait();
        }
        match end {
            End::InOrder => engine.stop(),
            End::AtOnce => engine.kill(),
        }
        engine.start();
        if !daemon_stays {
            world.restart(None);
        }
        until(&format!("sessions to be as configured: {what}"), || {
            let is = |name: &str, status: &str| world.field(name, "status") == status;
            (is("back", "running") && is("rests", "stopped") && is("as-set", "stopped")).then_some(())
        });
        assert_eq!(
            (world.field("rests", "reason"), world.field("idle", "reason")),
            (json!("engine"), json!("user")),
            "{what}"
        );
        assert_eq!(world.field("idle", "status"), "stopped", "it did not run: {what}");
        assert_eq!(world.sh("back", "cat /root/file")["stdout"], "back\n", "{what}");
        for name in ["rests", "as-set"] {
            world.call("session.resume", json!({"name": name}));
            assert_eq!(world.sh(name, "cat /root/file")["stdout"], format!("{name}\n"), "{what}");
        }
    }
}
