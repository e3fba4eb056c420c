//! Sessions of a real daemon on a real engine, through the socket.

use std::fs;

use serde_json::{Value, json};

use crate::support::engine::{busybox_image, docker};
use crate::support::{World, until};

fn named(name: &str) -> Value {
    json!({"name": name})
}

#[test]
fn files_outlive_five_stops_in_the_same_container_with_its_workspace() {
    let Some(world) = World::new() else { return };
    let work = world.home.dir().join("work, with: odd \"name\"");
    fs::create_dir(&work).expect("create");
    let started = world.call(
        "session.start",
        json!({"name": "a", "image": busybox_image(), "workspace": {"source": work, "target": ""}}),
    );
    assert_eq!(started["workspace"]["target"], "/workspace");
    for round in 0..5 {
        world.sh("a", &format!("echo {round} >> /root/log; echo {round} > /workspace/round"));
        assert_eq!(world.call("session.stop", named("a"))["status"], "stopped");
        let resumed = world.call("session.resume", named("a"));
        assert_eq!(resumed["sandbox_id"], started["sandbox_id"]);
        assert_eq!(fs::read_to_string(work.join("round")).expect("written inside"), format!("{round}\n"));
    }
    assert_eq!(world.sh("a", "cat /root/log")["stdout"], "0\n1\n2\n3\n4\n");
    assert_eq!(world.field("a", "exec_count"), 6);
}

#[test]
fn variables_reach_every_command_and_stand_nowhere_else() {
    let Some(mut world) = World::new() else { return };
    let odd = "a && b > c <d> \"e\" 'f' $g\nh";
    world.call(
        "session.start",
        json!({"name": "a", "image": busybox_image(), "env": {"TOKEN": "hunter2", "ODD": odd}}),
    );
    let inside = |world: &World| world.sh("a", "printf '%s|%s' \"$TOKEN\" \"$ODD\"")["stdout"].clone();
    assert_eq!(inside(&world), format!("hunter2|{odd}"));
    let over = json!({"session": "a", "cmd": ["sh", "-c", "printf %s $TOKEN"], "env": {"TOKEN": "other"}});
    assert_eq!(world.call("exec.run", over)["stdout"], "other");
    world.call("session.save", json!({"name": "a", "keep_running": true}));
    world.restart(None);
    assert_eq!(inside(&world), format!("hunter2|{odd}"));
    assert_eq!(world.field("a", "env")["TOKEN"], "***");
    let id = world.field("a", "sandbox_id");
    let shown = docker(&["inspect", id.as_str().expect("an id")]) + &docker(&["inspect", &world.images()[0]]);
    assert!(!shown.contains("hunter2"), "a value stands in the engine's configuration");
    assert!(!world.home.log().contains("hunter2"), "a value stands in the log");
}

#[test]
fn what_happens_outside_shows_without_being_asked() {
    let Some(world) = World::new() else { return };
    for name in ["killed", "frozen", "removed"] {
        world.start(name);
    }
    let id = |name: &str| world.field(name, "sandbox_id").as_str().expect("an id").to_owned();
    docker(&["kill", &id("killed")]);
    docker(&["pause", &id("frozen")]);
    docker(&["rm", "-f", &id("removed")]);
    world.until_field("killed", "status", "stopped");
    world.until_field("frozen", "status", "paused");
    world.until_field("removed", "status", "lost");
    assert_eq!(
        (world.field("killed", "reason"), world.field("removed", "reason")),
        (json!("exited"), json!("removed"))
    );
    docker(&["unpause", &id("frozen")]);
    world.until_field("frozen", "status", "running");
    docker(&["start", &id("killed")]);
    world.until_field("killed", "status", "running");
    let refused = world.refuse("session.resume", named("removed"));
    assert_eq!(refused["data"]["kind"], "sandbox_lost");
}

#[test]
fn a_vanished_container_comes_back_from_exactly_its_snapshot_or_not_at_all() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.sh("a", "echo precious > /root/file; chown dev:dev /root/file");
    let saved = world.call("session.save", json!({"name": "a", "note": "before"}));
    assert_eq!(saved["snapshot"]["note"], "before");
    let remove = || docker(&["rm", "-f", world.field("a", "sandbox_id").as_str().expect("an id")]);
    remove();
    let resumed = world.call("session.resume", named("a"));
    assert_eq!(resumed["image_id"], saved["snapshot"]["image_id"]);
    assert_eq!(
        world.sh("a", "cat /root/file; stat -c %U /root/file 2>/dev/null || ls -l /root/file")["exit_code"],
        0
    );
    assert_eq!(world.sh("a", "cat /root/file")["stdout"], "precious\n");
    world.call("session.stop", named("a"));
    remove();
    for image in world.images() {
        docker(&["rmi", "-f", &image]);
    }
    let refused = world.refuse("session.resume", named("a"));
    assert_eq!(refused["data"]["kind"], "snapshot_not_found");
    assert!(refused.to_string().contains(saved["snapshot"]["name"].as_str().expect("a name")), "{refused}");
    assert!(world.containers().is_empty(), "a blank container was made");
}

#[test]
fn a_save_says_what_it_does_not_hold_and_its_image_tells_nothing_of_the_host() {
    let Some(world) = World::new() else { return };
    let work = world.home.dir().join("secret-place");
    fs::create_dir(&work).expect("create");
    world.call(
        "session.start",
        json!({"name": "a", "image": busybox_image(), "workspace": {"source": work, "target": "/w"}}),
    );
    let saved = world.call("session.save", json!({"name": "a", "keep_running": true}));
    assert_eq!(saved["snapshot"]["excluded"], json!([{"kind": "bind", "target": "/w"}]));
    assert_eq!(saved["session"]["status"], "running");
    let id = saved["snapshot"]["image_id"].as_str().expect("an id");
    let whole = docker(&["inspect", id]);
    assert!(!whole.contains("secret-place"), "{whole}");
    let config = docker(&["inspect", "--format", "{{json .Config}}", id]);
    assert!(!config.contains("2147483647"), "the keep-alive is baked in: {config}");
}

#[test]
fn what_may_not_be_mounted_is_refused_before_anything_is_made() {
    let Some(world) = World::new() else { return };
    let home = world.home.root().to_owned();
    let link = world.home.dir().join("link");
    std::os::unix::fs::symlink("/", &link).expect("link");
    let sources = ["/", "/var/run/docker.sock", "/nonexistent/x"].map(std::path::PathBuf::from);
    for source in sources.into_iter().chain([home, link]) {
        let mounts = json!([{"source": source, "target": "/m"}]);
        let refused =
            world.refuse("session.start", json!({"name": "a", "image": busybox_image(), "mounts": mounts}));
        assert_eq!(refused["data"]["kind"], "workspace_missing", "{source:?}");
    }
    assert!(world.containers().is_empty());
    assert_eq!(world.call("session.list", json!({})), json!([]));
}

#[test]
fn a_workspace_that_is_gone_at_resume_is_not_replaced_by_an_empty_one() {
    let Some(world) = World::new() else { return };
    let work = world.home.dir().join("work");
    fs::create_dir(&work).expect("create");
    world.call(
        "session.start",
        json!({"name": "a", "image": busybox_image(), "workspace": {"source": work, "target": ""}}),
    );
    world.call("session.stop", named("a"));
    fs::rename(&work, work.with_extension("away")).expect("move");
    assert_eq!(world.refuse("session.resume", named("a"))["data"]["kind"], "workspace_missing");
    assert!(!work.exists());
    fs::rename(work.with_extension("away"), &work).expect("move back");
    world.call("session.resume", named("a"));
}

#[test]
fn each_profile_forbids_what_it_says_as_seen_from_inside() {
    let Some(world) = World::new() else { return };
    let status = "grep -E '^(NoNewPrivs|CapEff)' /proc/self/status; ls /sys/class/net";
    let look = |profile: &str| {
        world.call("session.start", json!({"name": profile, "image": busybox_image(), "profile": profile}));
        world.sh(profile, status)["stdout"].as_str().expect("text").to_owned()
    };
    let capabilities = |text: &str| {
        let hex = text.lines().find_map(|l| l.strip_prefix("CapEff:")).expect("a line").trim().to_owned();
        u64::from_str_radix(&hex, 16).expect("hex")
    };
    const NET_RAW: u64 = 1 << 13;
    let permissive = look("permissive");
    assert!(
        permissive.contains("NoNewPrivs:\t0") && capabilities(&permissive) & NET_RAW != 0,
        "{permissive}"
    );
    let moderate = look("moderate");
    assert!(moderate.contains("NoNewPrivs:\t1") && capabilities(&moderate) & NET_RAW == 0, "{moderate}");
    assert!(moderate.contains("eth0"));
    let restrictive = look("restrictive");
    assert!(restrictive.contains("NoNewPrivs:\t1") && capabilities(&restrictive) == 0, "{restrictive}");
    assert!(!restrictive.contains("eth0"), "{restrictive}");
}

#[test]
fn ports_are_on_loopback_only_and_fork_without_a_clash() {
    let Some(world) = World::new() else { return };
    let started = world
        .call("session.start", json!({"name": "a", "image": busybox_image(), "ports": [{"container": 80}]}));
    let host = started["ports"][0]["host"].as_u64().expect("a port was chosen");
    let shown = docker(&["port", started["sandbox_id"].as_str().expect("an id")]);
    assert_eq!(shown, format!("80/tcp -> 127.0.0.1:{host}"));
    let fork = world.call("session.fork", json!({"name": "a", "new_name": "b"}));
    assert_ne!(fork["ports"][0]["host"], started["ports"][0]["host"]);
}

#[test]
fn ten_sessions_start_stop_and_list_side_by_side() {
    let Some(world) = World::new() else { return };
    std::thread::scope(|scope| {
        for n in 0..10 {
            let world = &world;
            scope.spawn(move || {
                let name = format!("s{}", n % 5);
                let answer = world
                    .connect()
                    .request(1, "session.start", json!({"name": name, "image": busybox_image()}))
                    .line();
                let kind = answer["error"]["data"]["kind"].as_str();
                assert!(
                    answer["result"]["status"] == "running" || kind == Some("session_exists"),
                    "{answer}"
                );
                world.call("session.list", json!({}));
                world.call("session.stop", named(&name));
                world.call("session.resume", named(&name));
            });
        }
    });
    assert_eq!(world.call("session.list", json!({})).as_array().map(Vec::len), Some(5));
    assert_eq!(world.containers().len(), 5);
    assert!(world.containers().iter().all(|(_, state)| state == "running"));
}

#[test]
fn a_lost_database_is_set_aside_and_made_again_from_labels() {
    let Some(mut world) = World::new() else { return };
    let work = world.home.dir().join("work");
    fs::create_dir(&work).expect("create");
    let workspace = json!({"source": work, "target": ""});
    let started = world
        .call("session.start", json!({"name": "数据 one", "image": busybox_image(), "workspace": workspace}));
    world.sh("数据 one", "echo kept > /root/file");
    world.call("session.save", json!({"name": "数据 one", "snapshot": "s"}));
    world.daemon().signal(nix::sys::signal::Signal::SIGTERM);
    world.daemon().wait();
    fs::write(world.home.root().join("sessions.db"), b"this is not a database at all").expect("write");
    world.restart(None);
    until("the row to come back", || {
        let rows = world.call("session.list", json!({}));
        (rows[0]["name"] == "数据 one" && rows[0]["snapshots"] == 1).then_some(())
    });
    assert_eq!(world.field("数据 one", "workspace"), started["workspace"]);
    let info = world.call("daemon.info", json!({}));
    assert!(info["notices"].to_string().contains("damaged"), "{info}");
    let kept = fs::read_dir(world.home.root()).expect("a directory").flatten();
    assert!(kept.into_iter().any(|e| e.file_name().to_string_lossy().contains("damaged")));
    world.call("session.resume", named("数据 one"));
    assert_eq!(world.sh("数据 one", "cat /root/file")["stdout"], "kept\n");
}

#[test]
fn programs_are_asked_to_end_and_have_their_grace_before_they_are_killed() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let tidy =
        "trap 'sleep 0.3; echo tidied > /root/tidied; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let mut call = world.connect();
    let cmd = json!(["sh", "-c", format!("({tidy}) > /root/up")]);
    call.request(1, "exec.run", json!({"session": "a", "cmd": cmd}));
    until("the program to run", || (world.sh("a", "cat /root/up")["stdout"] == "up\n").then_some(()));
    world.call("session.stop", json!({"name": "a", "grace_ms": 20_000}));
    world.call("session.resume", named("a"));
    assert_eq!(world.sh("a", "cat /root/tidied")["stdout"], "tidied\n");
    let stubborn = "trap '' TERM; echo up > /root/stubborn; while :; do sleep 0.1; done";
    let mut call = world.connect();
    call.request(2, "exec.run", json!({"session": "a", "cmd": ["sh", "-c", stubborn]}));
    until("the program to run", || (world.sh("a", "cat /root/stubborn")["stdout"] == "up\n").then_some(()));
    assert_eq!(world.call("session.stop", json!({"name": "a", "grace_ms": 1_000}))["status"], "stopped");
    assert_eq!(call.line()["result"]["exit_code"], 137);
}
