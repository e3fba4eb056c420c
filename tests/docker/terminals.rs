//! Terminals and commands that outlive client and daemon, as users of the command line see them.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::shown::Viewer;
use crate::support::{World, until};

pub(super) fn world() -> Option<World> {
    let world = World::new()?;
    world.start("a");
    Some(world)
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("abx runs")
}

fn exec(world: &World, script: &str) -> Child {
    let mut command = world.abx();
    command.args(["--no-autostart", "exec", "a", "--", "sh", "-c", script]);
    spawn(command)
}

fn runs(world: &World, what: &str) -> bool {
    world.sh("a", "ps")["stdout"].as_str().expect("text").contains(what)
}

pub(super) fn terminals(world: &World) -> Vec<Value> {
    let listed = world.call("terminal.list", json!({"session": "a"}));
    listed.as_array().expect("a list").clone()
}

pub(super) fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("signalled");
}

#[test]
fn a_terminal_is_as_it_was_after_its_client_was_killed() {
    let Some(world) = world() else { return };
    let mut first = Viewer::attach(&world, (90, 30), &[]);
    first.types("kept=wor; printf '\\033[?1049h\\033[2J\\033[5;5Hpa''inted'");
    first.terminal.wait_for("painted");
    first.kill();
    until("nobody to be there", || (terminals(&world)[0]["clients"] == 0).then_some(()));
    let mut second = Viewer::attach(&world, (90, 30), &[]);
    assert!(second.terminal.wait_for("painted").contains("\x1b[?1049h"), "the other screen is shown");
    second.types("echo ${kept}king");
    second.terminal.wait_for("working");
    second.terminal.press(b"\x1dd");
    let shown = second.terminal.wait_for("Detached from a.");
    assert!(shown.contains("\x1b[?1049l"), "the user's own screen is back: {shown:?}");
    assert_eq!(second.code(), Some(0));
}

#[test]
fn those_at_a_terminal_do_not_notice_that_the_daemon_was_killed() {
    let Some(mut world) = world() else { return };
    let mut viewer = Viewer::attach(&world, (80, 24), &[]);
    viewer.types("kept=wor; echo re''ady");
    viewer.terminal.wait_for("\nready");
    for round in 0..3 {
        world.restart(None);
        until("it to be back", || (terminals(&world).first()?["clients"] == 1).then_some(()));
        viewer.types(&format!("echo ${{kept}}king {round}"));
        viewer.terminal.wait_for(&format!("working {round}"));
    }
    viewer.types("exit 7");
    assert_eq!(viewer.code(), Some(7));
}

#[test]
fn all_see_a_terminal_and_who_may_only_read_neither_types_nor_sizes() {
    let Some(world) = world() else { return };
    let mut wide = Viewer::attach(&world, (100, 30), &["--terminal", "t"]);
    wide.types("echo re''ady");
    wide.terminal.wait_for("\nready");
    let mut narrow = Viewer::attach(&world, (60, 20), &["--terminal", "t"]);
    narrow.terminal.wait_for("ready");
    let mut reader = Viewer::attach(&world, (70, 22), &["--terminal", "t", "--read-only"]);
    reader.terminal.wait_for("ready");
    reader.types("echo never");
    narrow.types("stty size");
    for viewer in [&wide, &narrow, &reader] {
        viewer.terminal.wait_for("20 60");
    }
    wide.types("stty size");
    for viewer in [&wide, &narrow, &reader] {
        let shown = viewer.terminal.wait_for("30 100");
        assert!(!shown.contains("never") && !shown.contains("22 70"), "{shown:?}");
    }
    world.text(&["terminal", "kill", "a", "t"]);
    for viewer in [&mut wide, &mut narrow, &mut reader] {
        assert!(viewer.code().is_some_and(|code| code != 0));
    }
    until("the terminal to be gone", || terminals(&world).is_empty().then_some(()));
}

#[test]
fn who_may_only_read_does_not_type_in_the_terminal_that_it_opens() {
    let Some(world) = world() else { return };
    let mut reader = Viewer::attach(&world, (80, 24), &["--read-only"]);
    reader.terminal.wait_for("/ #");
    reader.types("echo nev''er");
    let mut other = Viewer::attach(&world, (80, 24), &[]);
    other.types("echo b''oth");
    for viewer in [&reader, &other] {
        let shown = viewer.terminal.wait_for("\nboth");
        assert!(!shown.contains("\nnever"), "{shown:?}");
    }
}

#[test]
fn terminals_are_listed_and_looked_at_without_attaching() {
    let Some(world) = world() else { return };
    let mut viewer = Viewer::attach(&world, (50, 10), &[]);
    viewer.types("printf '\\033]2;named\\007'; echo lo''ok");
    viewer.terminal.wait_for("\x07look");
    let listed = world.text(&["terminal", "list", "a"]);
    assert!(listed.contains("50x10") && listed.contains("-sh") && !listed.contains("command -v"), "{listed}");
    assert!(world.text(&["exec", "list", "a"]).lines().any(|line| line.trim_end().ends_with("-sh")));
    assert!(world.text(&["terminal", "peek", "a"]).lines().any(|line| line == "look"));
    let seen: Value = serde_json::from_str(&world.text(&["--json", "terminal", "peek", "a"])).expect("JSON");
    assert_eq!(
        (&seen["size"]["cols"], &seen["size"]["rows"], &seen["title"]),
        (&json!(50), &json!(10), &json!("named"))
    );
    assert_eq!(world.run(&["terminal", "peek", "a", "other"]).status.code(), Some(3));
}

#[test]
fn a_flood_is_whole_and_its_code_right_though_the_daemon_is_killed_in_the_midst() {
    const NUMBERS: usize = 1_000_000;
    let Some(mut world) = world() else { return };
    let mut flood = exec(&world, &format!("seq 1 {NUMBERS}; exit 6"));
    let mut out = flood.stdout.take().expect("piped");
    // What was read so far shows that it flows; what waits fills every buffer on the way.
    let mut all = vec![0; 100_000];
    out.read_exact(&mut all).expect("output");
    for _ in 0..3 {
        world.restart(None);
        let mut more = vec![0; 500_000];
        out.read_exact(&mut more).expect("output");
        all.extend(more);
    }
    out.read_to_end(&mut all).expect("output");
    let whole: String = (1..=NUMBERS).map(|n| format!("{n}\n")).collect();
    assert!(all == whole.as_bytes(), "{} bytes of {}", all.len(), whole.len());
    assert_eq!(flood.wait().expect("ended").code(), Some(6));
}

#[test]
fn a_signal_to_the_client_leaves_nothing_behind_whatever_ignores_it() {
    let Some(world) = world() else { return };
    let deaf = "(trap '' TERM; while :; do sleep 4321; done) & echo up; exec sleep 4321";
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut client = exec(&world, deaf);
        client.stdout.as_mut().expect("piped").read_exact(&mut [0; 3]).expect("it runs");
        send(&client, signal);
        let ended = client.wait().expect("ended");
        assert_eq!(ended.code(), (signal != Signal::SIGKILL).then_some(128 + signal as i32));
        until("all of it to be gone", || (!runs(&world, "4321")).then_some(()));
    }
}

#[test]
fn commands_that_were_started_are_listed_read_ended_and_waited_for() {
    let Some(world) = world() else { return };
    let start = |script: &str| world.text(&["exec", "-d", "a", "--", "sh", "-c", script]).trim().to_owned();
    let id = start("echo out; echo err >&2; exit 9");
    assert_eq!(world.run(&["exec", "wait", &id]).status.code(), Some(9));
    let logs = world.run(&["exec", "logs", &id]);
    assert_eq!((&*logs.stdout, &*logs.stderr), (&b"out\n"[..], &b"err\n"[..]));
    let id = start("(trap '' TERM; while :; do sleep 1234; done) & sleep 1234");
    until("it to run", || runs(&world, "1234").then_some(()));
    assert_eq!(world.run(&["exec", "wait", "--timeout", "1", &id]).status.code(), Some(124));
    assert!(world.text(&["exec", "list", "a"]).lines().any(|l| l.contains(&id) && l.contains("running")));
    world.text(&["exec", "kill", &id]);
    assert_eq!(world.run(&["exec", "wait", &id]).status.code(), Some(143));
    until("what ignored it to be gone, too", || (!runs(&world, "1234")).then_some(()));
}

#[test]
fn one_key_is_one_command_however_it_is_started() {
    let Some(mut world) = world() else { return };
    let params = json!({"session": "a", "cmd": ["sh", "-c", "echo once >>/tmp/ran; sleep 1000"], "key": "k"});
    let first = world.call("exec.start", params.clone());
    world.restart(None);
    assert_eq!(world.call("exec.start", params)["id"], first["id"]);
    let open = json!({"version": "1", "protocol": 1, "session": "a", "cmd": ["true"], "key": "k"});
    let mut socket = world.connect();
    let opened: Value =
        serde_json::from_str(socket.send(format!("abx-stream/1\n{open}\n")).up_to("\n").trim())
            .expect("JSON");
    assert_eq!((&opened["exec"], &opened["followed"]), (&first["id"], &json!(true)));
    assert_eq!(world.sh("a", "cat /tmp/ran")["stdout"], "once\n");
    world.call("exec.kill", json!({"id": first["id"], "signal": 9}));
    assert_eq!(world.call("exec.wait", json!({"id": first["id"]}))["exit_code"], 137);
}
