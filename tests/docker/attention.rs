//! Which session needs its user: a stand-in for an agent, on real terminals, and those who wait for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::shown::Viewer;
use super::terminals::world;
use crate::support::{World, until};

/// An agent that does what it is told, a line each time.
const AGENT: &str = "stty -echo; echo ready; while read -r line; do echo ok; eval \"$line\"; done; exit 4";

/// Somebody who attaches with the agent.
fn agent(world: &World) -> Viewer {
    let viewer = Viewer::attach(world, (80, 24), &["--", "sh", "-c", AGENT]);
    viewer.terminal.wait_for("ready");
    viewer
}

fn wait(world: &World, what: &str) -> Child {
    let mut command: Command = world.abx();
    command.args(["--no-autostart", "--verbose", "wait", "--timeout", "5m", "a", "--for", what]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("abx runs");
    // It is connected once it says to whom.
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    said.read_line(&mut String::new()).expect("a line");
    child
}

/// What a wait printed, which must succeed.
fn waited(child: Child) -> String {
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn told(world: &World) -> Vec<Value> {
    let asked = json!({"session": "a", "kinds": ["session.attention"]});
    let events = world.call("event.list", asked);
    events.as_array().expect("a list").iter().map(|event| event["data"].clone()).collect()
}

#[test]
fn each_thing_that_an_agent_does_is_what_somebody_waits_for() {
    let Some(world) = world() else { return };
    assert_eq!(world.field("a", "attention"), Value::Null);
    let working = wait(&world, "working");
    let mut agent = agent(&world);
    assert_eq!(waited(working), "working");
    assert_eq!(waited(wait(&world, "idle")), "idle");
    let says: [(&str, &str); 4] = [
        (r"printf '\a'", "waiting"),
        (r"printf '\033]9;which?\033\\'", "waiting: which?"),
        (r"printf '\033]99;;and now?\a'", "waiting: and now?"),
        (r"printf '\033]777;notify;agent;go on?\a'", "waiting: agent: go on?"),
    ];
    for (says, seen) in says {
        // A bell right after a key would answer that key.
        agent.types(&format!("sleep 2; {says}"));
        until("it to work again", || (world.field("a", "attention") != "waiting").then_some(()));
        assert_eq!(waited(wait(&world, "attention")), seen, "{says}");
    }
    assert!(world.text(&["ls", "-o", "wide"]).contains("waiting"), "the wide list tells it");
    assert!(!world.text(&["ls"]).contains("waiting"), "and the other one is as it was");
    agent.types(r"printf '\033]9;4;3\a'");
    waited(wait(&world, "working"));
    let exit = wait(&world, "exit");
    agent.types("exit 4");
    assert_eq!(waited(exit), "done: exit code 4");
    waited(wait(&world, "attention"));
    let last = told(&world).pop().expect("events");
    assert_eq!(
        (&last["to"], &last["note"], &last["source"]),
        (&json!("done"), &json!("exit code 4"), &json!("ended"))
    );
    world.call("session.stop", json!({"name": "a"}));
    assert_eq!(world.field("a", "attention"), Value::Null, "nothing of it runs any more");
}

#[test]
fn an_agents_own_hook_says_it_whoever_it_runs_as() {
    let Some(world) = world() else { return };
    for (user, state) in [("root", "waiting"), ("dev", "working"), ("12345", "idle")] {
        let text = format!("from {user}");
        let cmd = json!(["abx", "notify", "--state", state, text]);
        let done = world.call("exec.run", json!({"session": "a", "cmd": cmd, "user": user}));
        assert_eq!(done["exit_code"], 0, "{done}");
        // What says it has ended by then, or ends right after it; and who works no more is done.
        let stands = if state == "working" { json!(["waiting", "done"]) } else { json!([state]) };
        until(state, || {
            let seen = world.field("a", "attention");
            stands.as_array().expect("a list").contains(&seen).then_some(())
        });
    }
    let work = "abx notify --state working; read -r x";
    let id = world
        .call("exec.start", json!({"session": "a", "cmd": ["sh", "-c", format!("{work}; sleep 1000")]}))["id"]
        .clone();
    assert_eq!(waited(wait(&world, "working")), "working");
    world.call("exec.kill", json!({"id": id, "signal": 9}));
    until("it to be done", || (world.field("a", "attention") == "done").then_some(()));
    let refused = world.sh("a", "abx ls");
    assert_eq!(refused["exit_code"], 2);
    assert!(
        refused["stderr"]
            .as_str()
            .is_some_and(|text| text.starts_with("abx: in a sandbox, abx knows this alone"))
    );
}

#[test]
fn output_that_flows_writes_nothing_and_is_told_once() {
    let Some(world) = world() else { return };
    let mut agent = agent(&world);
    agent.types("i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; head -c 4000 /dev/zero | tr '\\0' x; done; echo e''nd");
    agent.terminal.wait_for("end");
    let before = world.field("a", "revision");
    agent.types("i=0; while [ $i -lt 12 ]; do i=$((i+1)); echo still $i; sleep 0.3; done; echo all-s''aid");
    agent.terminal.wait_for("all-said");
    assert_eq!(world.field("a", "revision"), before, "{:?}", told(&world));
    assert_eq!(told(&world).len(), 1, "{:?}", told(&world));
}

#[test]
fn what_a_program_says_in_escapes_can_do_nothing_to_who_reads_it() {
    let Some(world) = world() else { return };
    let mut agent = agent(&world);
    agent.types(r"printf '\033]9;\001\002one\ntwo\302\2332J\342\200\256three\a'");
    waited(wait(&world, "waiting"));
    assert_eq!(world.field("a", "attention_note"), "one two 2J three");
    agent.types(
        r"printf '\033]9;'; head -c 100000 /dev/zero | tr '\0' y; printf '\a'; printf '\033]9;still here\a'",
    );
    until("it to be heard", || (world.field("a", "attention_note") == "still here").then_some(()));
}

#[test]
fn who_waits_is_told_when_the_time_is_up_and_when_there_is_nothing_to_wait_for() {
    let Some(mut world) = world() else { return };
    let code = |world: &World, args: &[&str]| world.run(args).status.code();
    assert_eq!(code(&world, &["wait", "a", "--for", "running"]), Some(0));
    assert_eq!(code(&world, &["wait", "a", "--for", "idle", "--timeout", "1"]), Some(124));
    assert_eq!(code(&world, &["wait", "b", "--for", "idle"]), Some(3));
    assert_eq!(code(&world, &["wait", "a", "--for", "lunch"]), Some(2));
    let saved = wait(&world, "saved");
    world.call("session.notify", json!({"name": "a", "state": "waiting"}));
    assert_eq!(waited(wait(&world, "running")), "running", "the session was waited for, not its agent");
    let [idle, exit, deleted] = ["idle", "exit", "deleted"].map(|what| wait(&world, what));
    // Who waits does not keep the daemon from ending, and waits on for the next one.
    world.text(&["daemon", "stop"]);
    world.restart(None);
    world.call("session.save", json!({"name": "a"}));
    waited(saved);
    waited(exit);
    world.call("session.delete", json!({"name": "a"}));
    assert_eq!(idle.wait_with_output().expect("ended").status.code(), Some(3));
    assert_eq!(waited(deleted), "");
}

#[test]
fn what_somebody_outside_says_holds_until_it_is_answered() {
    let Some(world) = world() else { return };
    let mut agent = agent(&world);
    let said = world.text(&["notify", "a", "--state", "waiting", "look", "here"]);
    assert_eq!(said, "Session 'a' is waiting.\n");
    agent.terminal.press(b"\x1b[I\x1b[O");
    assert_eq!(world.field("a", "attention_note"), "look here");
    agent.types("echo ans''wered");
    until("it to work", || (world.field("a", "attention") == "working").then_some(()));
    world.call("session.stop", json!({"name": "a"}));
    let refused = world.refuse("session.notify", json!({"name": "a"}));
    assert_eq!(refused["data"]["kind"], "wrong_state", "{refused}");
    let refused = world.refuse("session.notify", json!({"name": "a", "state": "asleep"}));
    assert_eq!(refused["data"]["kind"], "invalid_params", "{refused}");
}
