//! Use brings a session back, on the command line.

use serde_json::json;

use crate::cli::terminal::Terminal;
use crate::support::World;

/// What a command says on standard error, and its code.
fn said(world: &World, args: &[&str]) -> (String, Option<i32>) {
    let output = world.run(args);
    (String::from_utf8(output.stderr).expect("text"), output.status.code())
}

#[test]
fn a_command_brings_a_session_back_and_says_so_on_standard_error_alone() {
    let Some(world) = World::new() else { return };
    world.start("x");
    world.text(&["exec", "x", "--", "sh", "-c", "echo kept >/root/f"]);
    for (verb, was) in [("stop", "stopped: user"), ("save", "saved"), ("pause", "paused")] {
        world.text(&[verb, "x"]);
        let output = world.run(&["exec", "x", "--", "cat", "/root/f"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("Resuming 'x' (was {was}) ...\n"));
    }
    world.text(&["stop", "x"]);
    assert_eq!(said(&world, &["-q", "exec", "x", "--", "true"]), (String::new(), Some(0)));
    world.text(&["stop", "x"]);
    let output = world.run(&["--json", "exec", "x", "--", "echo", "out"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["stdout"], "out\n");
}

#[test]
fn who_wants_no_resume_is_told_what_to_type() {
    let Some(world) = World::new() else { return };
    world.start("x");
    world.text(&["stop", "x"]);
    for verb in [&["exec", "--no-resume", "x", "--", "true"][..], &["connect", "--no-resume", "x"]] {
        let (text, code) = said(&world, verb);
        assert!(
            text.contains("it is stopped, not running") && text.contains("abx session resume x"),
            "{text}"
        );
        assert_eq!(code, Some(if verb[0] == "exec" { 125 } else { 4 }), "{verb:?}");
    }
    assert_eq!(world.field("x", "status"), "stopped");
}

#[test]
fn a_copy_and_a_connect_bring_a_session_back_too() {
    let Some(world) = World::new() else { return };
    world.start("x");
    let file = world.home.dir().join("f");
    std::fs::write(&file, "text").expect("write");
    let file = file.to_str().expect("text");
    let line = "Resuming 'x' (was stopped: user) ...\n";
    for args in [&["cp", file, "x:/root/f"][..], &["cp", "x:/root/f", file], &["connect", "x"]] {
        world.text(&["stop", "x"]);
        let (text, code) = said(&world, args);
        assert!(text.starts_with(line) && code == Some(0), "{args:?}: {text}");
        assert_eq!(world.field("x", "status"), "running", "{args:?}");
    }
    world.text(&["stop", "x"]);
    world.text(&["cp", "--no-resume", "x:/root/f", file]);
    assert_eq!(world.field("x", "status"), "stopped", "its files are at hand as they lie");
}

#[test]
fn a_terminal_of_a_stopped_session_is_opened_in_one_that_runs() {
    let Some(world) = World::new() else { return };
    world.start("x");
    world.text(&["stop", "x"]);
    let listed = world.refuse("terminal.write", json!({"session": "x", "data": "y"}));
    assert_eq!(
        listed["data"]["kind"], "wrong_state",
        "{listed}: a terminal that is not there is not brought back"
    );
    let mut terminal = Terminal::new();
    let mut command = world.abx();
    command.args(["attach", "x"]);
    let mut attached = terminal.spawn(command);
    let shown = terminal.wait_for("Detach with");
    assert!(shown.contains("Resuming 'x' (was stopped: user) ..."), "{shown}");
    terminal.press(b"exit\r");
    attached.wait().expect("ends");
}
