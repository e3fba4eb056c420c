//! Commands as users of the command line see them: how they end, what is kept of them, and who may repeat a request.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cli::terminal::Terminal;
use crate::support::engine::busybox_image;
use crate::support::{World, until};

fn world() -> Option<World> {
    let world = World::new()?;
    world.start("a");
    Some(world)
}

fn spawn(world: &World, args: &[&str]) -> Child {
    let mut command = world.abx();
    // The tests start the daemons.
    command.arg("--no-autostart").args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("abx runs")
}

fn start(world: &World, more: &[&str], script: &str) -> String {
    let args = [&["exec", "-d"], more, &["a", "--", "sh", "-c", script]].concat();
    world.text(&args).trim().to_owned()
}

fn wait(world: &World, id: &str) -> (Option<i32>, String) {
    let output = world.run(&["exec", "wait", id]);
    (output.status.code(), text(&output.stderr))
}

fn row(world: &World, id: &str) -> Value {
    let list = world.call("exec.list", json!({"session": "a"}));
    list.as_array().expect("a list").iter().find(|row| row["id"] == id).expect("its row").clone()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_reads_a_terminal_to_its_end_ends_behind_the_input_that_was_given() {
    let Some(world) = world() else { return };
    for (input, shown) in [("one\n", "one\r\none\r\n"), ("one", "oneone"), ("", "")] {
        let asked = json!({"session": "a", "cmd": ["cat"], "tty": true, "stdin": input, "timeout": 60_000});
        let ran = world.call("exec.run", asked);
        assert_eq!((&ran["exit_code"], &ran["stdout"]), (&json!(0), &json!(shown)), "{input:?}");
    }
}

#[test]
fn arguments_that_are_too_long_together_are_told_as_such() {
    let Some(world) = world() else { return };
    let argument = "v".repeat(130_000);
    let mut asked = json!({"session": "a", "cmd": ["true"]});
    asked["cmd"].as_array_mut().expect("a list").extend(vec![json!(argument); 16]);
    asked["env"] = (0..8).map(|n| (format!("V{n}"), json!(argument))).collect();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "exec.run", "params": asked}).to_string();
    let refused = world.connect().send(request + "\n").line();
    assert_eq!(refused["error"]["data"]["kind"], "limit", "{refused}");
    let text = refused["error"]["message"].as_str().expect("text");
    assert!(text.contains("argument list too long"), "{text}");
}

/// Waits until it has written its first line.
fn up(child: &mut Child) {
    child.stdout.as_mut().expect("piped").read_exact(&mut [0; 3]).expect("it runs");
}

fn runs(world: &World, what: &str) -> bool {
    world.sh("a", "ps")["stdout"].as_str().expect("text").contains(what)
}

/// Time that a process has had a processor for, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn logs_end_though_the_command_writes_on_and_tell_what_is_no_longer_kept() {
    let Some(world) = world() else { return };
    let id = start(&world, &[], "yes | head -c 3000000; echo end; exec yes");
    until("the ring to be full", || {
        let logs = world.call("exec.logs", json!({"id": id, "stdout_from": 3_000_000}));
        (logs["dropped_bytes"].as_u64() > Some(0)).then_some(())
    });
    let logs = world.run(&["exec", "logs", &id]);
    assert!(logs.status.success() && !logs.stdout.is_empty());
    assert!(text(&logs.stderr).contains("bytes dropped"), "{}", text(&logs.stderr));
    let document: Value = serde_json::from_str(&world.text(&["--json", "exec", "logs", &id])).expect("one");
    assert_eq!(document["ended"], false);
    world.text(&["exec", "kill", "-s", "KILL", &id]);
    assert_eq!(wait(&world, &id).0, Some(137));
    world.text(&["stop", "a"]);
    let gone = world.run(&["exec", "logs", &id]);
    let line = text(&gone.stderr);
    assert_eq!(gone.status.code(), Some(4), "{line}");
    assert!(line.contains("sandbox") && line.contains(&format!("Hint: abx exec wait {id}")), "{line}");
}

#[test]
fn a_start_that_the_daemons_end_cuts_off_is_repeated_and_runs_once() {
    let Some(mut world) = world() else { return };
    for (point, args) in [
        ("exec.noted", &["exec"][..]),
        ("exec.started", &["exec"]),
        ("exec.noted", &["exec", "-i"]),
        ("exec.started", &["exec", "-i"]),
    ] {
        world.restart(Some(point));
        let script = ["a", "--", "sh", "-c", "echo once >>/tmp/ran; cat; echo out; exit 7"];
        let child = spawn(&world, &[args, &script].concat());
        world.daemon().wait();
        world.restart(None);
        let ran = child.wait_with_output().expect("it ends");
        let seen = (ran.status.code(), text(&ran.stdout));
        assert_eq!(seen, (Some(7), "out\n".to_owned()), "{point} {args:?}: {}", text(&ran.stderr));
        assert_eq!(world.sh("a", "cat /tmp/ran; rm /tmp/ran")["stdout"], "once\n", "{point} {args:?}");
    }
}

#[test]
fn a_terminal_whose_start_the_daemons_end_cuts_off_is_opened_all_the_same() {
    let Some(mut world) = world() else { return };
    for point in ["exec.noted", "exec.started"] {
        world.restart(Some(point));
        let terminal = Terminal::new();
        let mut command = world.abx();
        let script = "echo once >>/tmp/ran; echo up; exit 7";
        command.args(["--no-autostart", "attach", "a", "--", "sh", "-c", script]);
        let mut child = terminal.spawn(command);
        world.daemon().wait();
        world.restart(None);
        assert_eq!(child.wait().expect("it ends").code(), Some(7), "{point}");
        terminal.wait_for("abx: the program ended with code 7");
        assert_eq!(world.sh("a", "cat /tmp/ran; rm /tmp/ran")["stdout"], "once\n", "{point}");
    }
}

#[test]
fn time_runs_out_though_the_daemon_that_counted_it_is_gone() {
    let Some(mut world) = world() else { return };
    let early = start(&world, &["--timeout", "1"], "exec sleep 4321");
    let late = start(&world, &["--timeout", "4"], "trap '' TERM; (sleep 4321); exec sleep 4321");
    let mut followed =
        spawn(&world, &["exec", "--timeout", "4", "a", "--", "sh", "-c", "echo up; sleep 4321"]);
    up(&mut followed);
    world.restart(None);
    for id in [early, late] {
        let (code, line) = wait(&world, &id);
        assert_eq!((code, line.as_str()), (Some(124), "abx: its time ran out\n"));
        assert_eq!(
            (&row(&world, &id)["exit_code"], &row(&world, &id)["signal"]),
            (&json!(124), &Value::Null)
        );
    }
    assert_eq!(followed.wait().expect("ended").code(), Some(124));
    until("all of it to be gone", || (!runs(&world, "4321")).then_some(()));
}

#[test]
fn how_a_command_ended_is_the_same_for_everyone_who_asks() {
    let Some(world) = world() else { return };
    for (script, more, code, signal) in [
        ("exit 143", &[][..], 143, Value::Null),
        ("kill -TERM $$", &[], 143, json!(15)),
        ("sleep 4321", &["--timeout", "1"], 124, Value::Null),
        ("trap 'exit 0' TERM; while :; do sleep 1; done", &["--timeout", "1"], 124, Value::Null),
    ] {
        let args = [&["exec"], more, &["a", "--", "sh", "-c", script]].concat();
        assert_eq!(world.run(&args).status.code(), Some(code), "{script}");
        let list = world.call("exec.list", json!({"session": "a"}));
        let last = list.as_array().expect("a list").last().expect("one").clone();
        assert_eq!((&last["exit_code"], &last["signal"]), (&json!(code), &signal), "{script}: {last}");
        assert_eq!(wait(&world, last["id"].as_str().expect("an id")).0, Some(code), "{script}");
    }
}

#[test]
fn a_command_that_ignores_an_interrupt_is_ended_without_a_second_one() {
    let Some(world) = world() else { return };
    let deaf = ["exec", "a", "--", "sh", "-c", "trap '' INT; echo up; while :; do sleep 4321; done"];
    let mut client = spawn(&world, &deaf);
    up(&mut client);
    kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGINT).expect("signalled");
    assert_eq!(client.wait().expect("ended").code(), Some(143));
    until("all of it to be gone", || (!runs(&world, "4321")).then_some(()));
}

#[test]
fn input_that_has_ended_leaves_a_long_silence_and_the_last_line() {
    let Some(world) = world() else { return };
    let script = "cat; sleep 5; echo late; exit 5";
    let ran = spawn(&world, &["exec", "-i", "a", "--", "sh", "-c", script]).wait_with_output().expect("ends");
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(5), "late\n".to_owned()));
}

#[test]
fn input_that_is_closed_keeps_neither_client_nor_daemon_busy() {
    // A tick is 10 ms: what spins has a processor for all of the two seconds, or for what others leave of it.
    const IDLE_TICKS: u64 = 20;
    let Some(mut world) = world() else { return };
    let daemon = u32::try_from(world.daemon().pid()).expect("a process");
    for (flag, redirection) in [("-i", "</dev/null"), ("-i", "<&-"), ("", "<&-")] {
        let script = "echo up; sleep 2; echo up; sleep 4321";
        let line = format!("exec \"$0\" --no-autostart exec {flag} a -- sh -c '{script}' {redirection}");
        let template = world.abx();
        let mut command = world.home.command("/bin/sh");
        command.args(["-c", &line]).arg(template.get_program()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut client = command.spawn().expect("sh runs");
        up(&mut client);
        let before = [client.id(), daemon].map(ticks);
        up(&mut client);
        let after = [client.id(), daemon].map(ticks);
        let spent: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(spent.iter().all(|ticks| *ticks < IDLE_TICKS), "{line}: client and daemon spent {spent:?}");
        client.kill().expect("ours");
        client.wait().expect("ours");
    }
    let refused = spawn(&world, &["attach", "a"]).wait_with_output().expect("ends");
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("needs a terminal"), "{}", text(&refused.stderr));
}

#[test]
fn a_refused_request_has_a_reason_and_an_id_that_stands_in_the_daemons_log() {
    let Some(world) = world() else { return };
    world.text(&["stop", "a"]);
    let request = |output: &Output| {
        let text = text(&output.stderr);
        assert!(text.starts_with("Error: "), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("Request: ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no id: {text}"))
    };
    for args in [&["exec", "--no-resume", "a", "--", "true"][..], &["exec", "nobody", "--", "true"]] {
        let refused = world.run(args);
        assert_eq!(refused.status.code(), Some(125), "{args:?}");
        let id = request(&refused);
        assert!(world.home.log().contains(&id), "{id} is not in the log");
    }
    let terminal = Terminal::new();
    let mut command = world.abx();
    command.args(["attach", "nobody"]);
    let mut child = terminal.spawn(command);
    assert_eq!(child.wait().expect("it ends").code(), Some(125));
    let shown = terminal.wait_for("Request:");
    assert!(shown.contains("Error:"), "{shown}");
}

#[test]
fn stop_and_delete_end_who_is_inside_with_one_line_why() {
    let Some(world) = world() else { return };
    for verb in [&["stop", "a"][..], &["delete", "-y", "a"]] {
        if verb[0] == "delete" {
            world.text(&["resume", "a"]);
        }
        let mut inside = spawn(&world, &["exec", "a", "--", "sh", "-c", "echo up; sleep 4321"]);
        up(&mut inside);
        let terminal = Terminal::new();
        let mut command: Command = world.abx();
        command.args(["attach", "a", "--", "sh", "-c", "echo in''side; sleep 4321"]);
        let mut attached = terminal.spawn(command);
        terminal.wait_for("inside");
        world.text(verb);
        let ended = inside.wait_with_output().expect("ends");
        assert!(matches!(ended.status.code(), Some(137 | 143)), "{verb:?}: {}", ended.status);
        let line = text(&ended.stderr);
        assert!(line.starts_with("abx: session 'a' ") && line.lines().count() == 1, "{verb:?}: {line}");
        assert!(matches!(attached.wait().expect("ends").code(), Some(137 | 143)), "{verb:?}");
        terminal.wait_for("abx: session 'a' ");
    }
}

#[test]
fn who_is_thrown_out_is_told_by_what() {
    let Some(world) = World::new() else { return };
    let image = busybox_image();
    world.text(&["start", "user", "--image", &image]);
    world.text(&["start", "expired", "--image", &image]);
    let limits = json!({"memory_bytes": 32 << 20});
    world.call("session.start", json!({"name": "memory", "image": image, "limits": limits}));
    let attach = |name: &str, script: &str| {
        let terminal = Terminal::new();
        let mut command = world.abx();
        command.args(["attach", name, "--", "sh", "-c", script]);
        let child = terminal.spawn(command);
        terminal.wait_for("inside");
        (terminal, child)
    };
    let sleeps = "echo in''side; exec sleep 4321";
    let (user, mut thrown) = attach("user", sleeps);
    world.text(&["stop", "user"]);
    user.wait_for("abx: session 'user' is being stopped by its user");
    thrown.wait().expect("ends");
    let (expired, mut thrown) = attach("expired", sleeps);
    world.text(&["update", "expired", "--timeout", "1"]);
    expired.wait_for("abx: session 'expired' is being stopped: its timeout ran out");
    thrown.wait().expect("ends");
    let (memory, mut thrown) = attach("memory", "echo in''side; exec tail /dev/zero");
    memory.wait_for("abx: killed: the sandbox ran out of memory, which is limited to 32 MiB");
    assert_eq!(thrown.wait().expect("ends").code(), Some(137));
}

#[test]
fn three_hundred_commands_thirty_at_once_have_their_codes_and_all_their_output() {
    const AT_ONCE: usize = 30;
    let Some(world) = world() else { return };
    let lines: String = (1..=2000).map(|n| format!("{n}\n")).collect();
    thread::scope(|scope| {
        for lane in 0..AT_ONCE {
            let (world, lines) = (&world, &lines);
            scope.spawn(move || {
                for round in 0..10 {
                    let code = (lane * 10 + round) % 120;
                    let script = format!("seq 1 2000; seq 1 2000 >&2; exit {code}");
                    let ran = world.run(&["exec", "a", "--", "sh", "-c", &script]);
                    assert_eq!(ran.status.code(), Some(i32::try_from(code).expect("small")));
                    assert!(text(&ran.stdout) == *lines && text(&ran.stderr) == *lines, "{lane} {round}");
                }
            });
        }
    });
    assert_eq!(world.field("a", "exec_count"), 300);
}
