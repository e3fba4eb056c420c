//! Sandboxes whose commands abx-init runs: in any image, with any rights, and across daemons.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cli::terminal::Terminal;
use crate::support::engine::{busybox_image, docker};
use crate::support::{World, until};

/// Prints 1 where abx-init is the parent; the engine's commands have a parent outside.
const PARENT: &str = "echo $PPID";

/// Gives a program namespaces of its own, also where it is not root's.
const UNSHARE: &str = "unshare $([ $(id -u) = 0 ] || echo --map-current-user --keep-caps)";

/// An image of this test's own, which goes with it.
struct Image(String);

impl Image {
    /// What `docker commit` with these instructions makes of the test image.
    fn with(name: &str, changes: &[&str]) -> Self {
        let id = docker(&["create", &busybox_image()]);
        let name = format!("abx-test-{name}:{}", std::process::id());
        let mut arguments = vec!["commit"];
        arguments.extend(changes.iter().flat_map(|change| ["-c", change]));
        arguments.extend([id.as_str(), &name]);
        assert!(!docker(&arguments).is_empty(), "the image was not made");
        docker(&["rm", &id]);
        Self(name)
    }

    /// One that holds nothing at all.
    fn empty() -> Self {
        let name = format!("abx-test-empty:{}", std::process::id());
        let mut archive = Command::new("tar")
            .args(["-cf", "-", "-T", "/dev/null"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar runs");
        let import = Command::new("docker")
            .args(["import", "-c", "CMD [\"/nothing\"]", "-", &name])
            .stdin(archive.stdout.take().expect("piped"))
            .stdout(Stdio::null())
            .status();
        assert!(archive.wait().expect("tar ends").success(), "no archive was made");
        assert!(import.expect("docker runs").success(), "the image was not made");
        Self(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        docker(&["rmi", "-f", &self.0]);
    }
}

fn start(world: &World, name: &str, image: &str, more: Value) {
    let mut params = json!({"name": name, "image": image});
    params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    world.call("session.start", params);
}

fn says(world: &World, name: &str, script: &str) -> String {
    let result = world.sh(name, script);
    assert_eq!(result["exit_code"], 0, "{script}: {result}");
    result["stdout"].as_str().expect("text").trim().to_owned()
}

/// The code that the session's container ended with: 137 where it had to be killed.
fn ended_with(world: &World, name: &str) -> String {
    let id = world.field(name, "sandbox_id");
    docker(&["inspect", "-f", "{{.State.ExitCode}}", id.as_str().expect("a container")])
}

#[test]
fn a_daemon_that_was_killed_finds_its_running_sandboxes_again() {
    let Some(mut world) = World::new() else { return };
    world.start("a");
    assert_eq!(world.field("a", "runtime"), "init");
    assert_eq!(says(&world, "a", PARENT), "1");
    for _ in 0..3 {
        world.restart(None);
        assert_eq!(says(&world, "a", PARENT), "1");
    }
    world.call("session.pause", json!({"name": "a"}));
    world.restart(None);
    world.call("session.unpause", json!({"name": "a"}));
    assert_eq!(says(&world, "a", PARENT), "1");
}

#[test]
fn the_images_user_directory_and_environment_hold_and_its_own_program_runs() {
    let Some(world) = World::new() else { return };
    let image = Image::with(
        "kept",
        &[
            "USER dev",
            "WORKDIR /tmp",
            "ENV COLOUR=green",
            "ENTRYPOINT [\"/bin/sh\", \"-c\", \"echo $COLOUR $(id -un) $PWD $0 >/tmp/main; exec sleep 1000\"]",
            "CMD [\"argument\"]",
        ],
    );
    start(&world, "a", &image.0, json!({}));
    until("the image's own program to run", || {
        (says(&world, "a", "cat /tmp/main || true") == "green dev /tmp argument").then_some(())
    });
    assert_eq!(says(&world, "a", "echo $COLOUR $(id -un) $PWD $PPID $HOME"), "green dev /tmp 1 /home/dev");
    let root = json!({"session": "a", "cmd": ["id", "-un"], "user": "root"});
    assert_eq!(world.call("exec.run", root)["stdout"], "root\n");
    let saved = world.call("session.save", json!({"name": "a"}));
    assert_eq!(ended_with(&world, "a"), "0", "TERM was not heard");
    let excluded = saved["snapshot"]["excluded"].to_string();
    assert!(!excluded.contains(".abx") && !excluded.contains("abx-init"), "{excluded}");
    let id = saved["snapshot"]["image_id"].as_str().expect("an id").to_owned();
    for field in
        [".Config.User", ".Config.WorkingDir", ".Config.Entrypoint", ".Config.Cmd", ".Config.StopSignal"]
    {
        let read = |image: &str| docker(&["inspect", "-f", &format!("{{{{json {field}}}}}"), image]);
        assert_eq!(read(&id), read(&image.0), "{field}");
    }
    // Going back makes a container from the snapshot.
    let snapshot = saved["snapshot"]["name"].clone();
    world.call("session.resume", json!({"name": "a", "snapshot": snapshot}));
    assert_eq!(says(&world, "a", "echo $(id -un) $PWD $PPID"), "dev /tmp 1");
}

#[test]
fn an_image_that_holds_nothing_makes_a_sandbox_all_the_same() {
    let Some(world) = World::new() else { return };
    let image = Image::empty();
    start(&world, "a", &image.0, json!({}));
    let refused = world.refuse("exec.run", json!({"session": "a", "cmd": ["sh"]}));
    assert_eq!(refused["data"]["kind"], "command_not_found", "{refused}");
    world.call("session.stop", json!({"name": "a"}));
    assert_eq!(ended_with(&world, "a"), "0", "TERM was not heard");
    world.call("session.resume", json!({"name": "a"}));
    assert_eq!((world.field("a", "status"), world.field("a", "runtime")), (json!("running"), json!("init")));
}

#[test]
fn a_sandbox_without_any_rights_runs_commands_as_its_images_user() {
    let Some(world) = World::new() else { return };
    let image = Image::with("rights", &["USER dev"]);
    start(&world, "a", &image.0, json!({"profile": "restrictive"}));
    assert_eq!(says(&world, "a", "echo $(id -un) $PPID"), "dev 1");
    // That needs more than abx-init has.
    let root = json!({"session": "a", "cmd": ["id", "-un"], "user": "root"});
    assert_eq!(world.call("exec.run", root)["stdout"], "root\n");
    start(&world, "b", &busybox_image(), json!({"profile": "restrictive"}));
    assert_eq!(says(&world, "b", "echo $(id -un) $PPID"), "root 1");
}

#[test]
fn a_sandbox_that_was_made_without_abx_init_has_its_commands_run_by_the_engine() {
    let Some(mut world) = World::new() else { return };
    let home = format!("dev.abx.session.home={}", world.home.root().display());
    let made = docker(&[
        "run",
        "-d",
        "--init",
        "--name",
        &format!("session-old-{}", std::process::id()),
        "--label",
        &home,
        "--label",
        "dev.abx.session.id=01920000-0000-7000-8000-00000000c0de",
        "--label",
        "dev.abx.session.name=old",
        &busybox_image(),
        "sleep",
        "2147483647",
    ]);
    assert!(!made.is_empty(), "the container was not made");
    // Its row is made again from its labels.
    world.restart(None);
    let name = until("the row to come back", || {
        let all = world.call("session.list", json!({}));
        Some(all.as_array()?.first()?["name"].as_str()?.to_owned())
    });
    assert_eq!(world.field(&name, "runtime"), "engine");
    assert_eq!(says(&world, &name, PARENT), "0");
    world.call("session.stop", json!({"name": name}));
    world.call("session.resume", json!({"name": name}));
    assert_eq!(says(&world, &name, PARENT), "0");
}

#[test]
fn a_programs_connection_is_refused_and_the_daemons_files_stay_out_of_reach() {
    let Some(world) = World::new() else { return };
    world.start("a");
    for script in ["touch /dev/.abx/x", "rm /dev/.abx/sock", "ls /dev/.abx/.."] {
        let result = world.sh("a", &format!("{script} 2>&1"));
        assert!(script.starts_with("ls") || result["exit_code"] != 0, "{script}: {result}");
    }
    let run = world.home.root().join("run");
    let mount = json!({"name": "b", "image": busybox_image(), "mounts": [{"source": run, "target": "/x"}]});
    assert_eq!(world.refuse("session.start", mount)["data"]["kind"], "workspace_missing");
    let directories =
        |run: &Path| fs::read_dir(run).expect("there").flatten().filter(|e| e.path().is_dir()).count();
    assert_eq!(directories(&run), 1);
    world.call("session.delete", json!({"name": "a"}));
    assert_eq!(directories(&run), 0);
}

#[test]
fn a_command_that_eats_its_memory_is_told_so_and_counted_once() {
    let Some(world) = World::new() else { return };
    start(&world, "a", &busybox_image(), json!({"limits": {"memory_bytes": 32 << 20}}));
    let result = world.sh("a", "exec tail /dev/zero");
    assert_eq!((&result["exit_code"], &result["signal"]), (&json!(137), &json!(9)), "{result}");
    until("the kill to be counted", || (world.field("a", "oom_events") == 1).then_some(()));
    world.call("session.stop", json!({"name": "a"}));
    assert_eq!(world.field("a", "oom_events"), 1);
}

#[test]
fn a_main_program_that_stands_still_keeps_nothing_from_being_stopped() {
    let Some(world) = World::new() else { return };
    world.start("a");
    assert_eq!(says(&world, "a", PARENT), "1");
    let id = world.field("a", "sandbox_id");
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", id.as_str().expect("a container")]);
    let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a process"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
    let refused = world.refuse("exec.run", json!({"session": "a", "cmd": ["true"], "timeout": 1000}));
    assert_eq!(refused["data"]["kind"], "engine_timeout", "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("abx-init")), "{refused}");
    // The engine runs what comes next, and the rest goes on without abx-init.
    assert_eq!(says(&world, "a", PARENT), "0");
    assert_eq!(world.call("session.pause", json!({"name": "a"}))["status"], "paused");
    world.call("session.unpause", json!({"name": "a"}));
    assert_eq!(world.call("session.stop", json!({"name": "a", "grace_ms": 0}))["status"], "stopped");
    world.call("session.resume", json!({"name": "a"}));
    assert_eq!(says(&world, "a", PARENT), "1");
}

#[test]
fn a_disk_without_room_for_abx_init_is_said_and_not_filled_further() {
    // No file may be longer than a MiB, which abx-init is.
    let Some(mut world) = World::with(|home| home.abxd_by("trap '' XFSZ; ulimit -f 2048; exec \"$@\""))
    else {
        return;
    };
    let mut abx = world.home.command(env!("CARGO_BIN_EXE_abx"));
    let started = abx.args(["start", "a", "--image", &busybox_image()]).output().expect("abx runs");
    let text = String::from_utf8_lossy(&started.stderr);
    assert!(started.status.success() && text.contains("Without abx-init"), "{text}");
    assert_eq!(world.field("a", "runtime"), "engine");
    assert_eq!(says(&world, "a", PARENT), "0");
    assert!(world.home.log().contains("a sandbox goes without abx-init"));
    let run = world.home.root().join("run");
    assert_eq!(fs::read_dir(&run).expect("there").count(), 0, "something is left");
    fs::write(run.join("abx-init.new"), "half").expect("written");
    world.restart(None);
    assert!(!run.join("abx-init.new").exists());
}

#[test]
fn sandboxes_whose_directories_were_removed_are_called_through_the_engine() {
    let Some(mut world) = World::new() else { return };
    world.start("a");
    assert_eq!(says(&world, "a", PARENT), "1");
    let run = world.home.root().join("run");
    fs::remove_dir_all(&run).expect("removed");
    assert_eq!(says(&world, "a", PARENT), "1");
    world.call("session.stop", json!({"name": "a"}));
    world.call("session.resume", json!({"name": "a"}));
    assert_eq!(says(&world, "a", PARENT), "1");
    fs::remove_dir_all(&run).expect("removed");
    world.restart(None);
    assert_eq!(says(&world, "a", PARENT), "1");
    assert_eq!(world.call("terminal.list", json!({"session": "a"})), json!([]));
    world.call("session.stop", json!({"name": "a"}));
    world.call("session.resume", json!({"name": "a"}));
    assert_eq!(says(&world, "a", PARENT), "1");
    assert!(run.is_dir(), "it was not made anew");
}

#[test]
fn a_daemon_that_cannot_tell_processes_apart_lets_nobody_in_and_calls_its_sandboxes() {
    // The numbers of a sandbox's processes mean nothing there.
    let Some(mut world) =
        World::with(|home| home.abxd_by(&format!("exec {UNSHARE} --pid --fork --kill-child \"$@\"")))
    else {
        return;
    };
    world.start("a");
    for _ in 0..2 {
        assert_eq!(says(&world, "a", PARENT), "1");
        world.restart(None);
    }
}

#[test]
fn a_sandbox_of_an_engine_that_does_not_see_our_files_is_called_through_it() {
    // What is mounted in the daemon's own namespace the engine does not see.
    let Some(mut world) = World::with(|home| {
        let mount = "umask 077; run=$ABX_HOME/run; mkdir -p $run && mount -t tmpfs none $run && exec \"$@\"";
        home.abxd_by(&format!("exec {UNSHARE} --mount sh -c '{mount}' sh \"$@\""))
    }) else {
        return;
    };
    world.start("a");
    assert_eq!(world.field("a", "runtime"), "init");
    let id = world.field("a", "sandbox_id");
    let mounts = ["inspect", "-f", "{{range .Mounts}}{{.Type}}:{{.Destination}} {{end}}"];
    let mounts = docker(&[&mounts[..], &[id.as_str().expect("a container")]].concat());
    assert!(mounts.contains("volume:/dev/.abx"), "{mounts}");
    assert_eq!(says(&world, "a", PARENT), "1");
    let script = "echo before; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo after; exit 7";
    let started = world.call("exec.start", json!({"session": "a", "cmd": ["sh", "-c", script]}));
    world.restart(None);
    assert_eq!(says(&world, "a", "touch /tmp/go; echo $PPID"), "1");
    let ended = world.call("exec.wait", json!({"id": started["id"]}));
    assert_eq!(ended["exit_code"], 7, "{ended}");
    let logs = world.call("exec.logs", json!({"id": started["id"]}));
    assert_eq!(logs["stdout"], "before\nafter\n", "{logs}");
    let mut terminal = Terminal::new();
    let mut abx = world.home.command(env!("CARGO_BIN_EXE_abx"));
    abx.args(["--no-autostart", "attach", "a"]);
    let mut abx = terminal.spawn(abx);
    terminal.press(b"echo $((40 + 2))-$PPID\r");
    terminal.wait_for("42-1");
    abx.kill().expect("killed");
    abx.wait().expect("ended");
    world.restart(None);
    let shown = world.call("terminal.peek", json!({"session": "a", "terminal": "main"}));
    assert!(shown.to_string().contains("42-1"), "{shown}");
    for _ in 0..2 {
        world.call("session.stop", json!({"name": "a"}));
        assert_eq!(ended_with(&world, "a"), "0", "TERM was not heard");
        world.call("session.resume", json!({"name": "a"}));
        assert_eq!(says(&world, "a", PARENT), "1");
    }
    let saved = world.call("session.save", json!({"name": "a"}));
    let excluded = saved["snapshot"]["excluded"].to_string();
    assert!(!excluded.contains(".abx"), "{excluded}");
}
