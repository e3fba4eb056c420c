//! What users of such tools have run into, as they would see it here.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::cli::terminal::Terminal;
use crate::support::World;
use crate::support::engine::busybox_image;

#[test]
fn the_end_of_what_a_terminal_runs_is_told_and_the_next_attach_begins_anew() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let attach = |more: &[&str]| {
        let terminal = Terminal::new();
        let mut command = world.abx();
        command.args(["attach", "a"]).args(more);
        let child = terminal.spawn(command);
        (terminal, child)
    };
    let (mut terminal, mut child) = attach(&["--", "sh", "-c", "echo up; read -r line; exit 7"]);
    terminal.wait_for("up");
    assert_eq!(world.call("terminal.list", json!({"session": "a"}))[0]["terminal"], "main");
    terminal.press(b"\r");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
    assert_eq!(world.call("terminal.list", json!({"session": "a"})), json!([]), "it is not open any more");
    let ended = world.call("exec.list", json!({"session": "a"}))[0].clone();
    assert_eq!((&ended["terminal"], &ended["exit_code"]), (&json!("main"), &json!(7)));
    assert_eq!(world.field("a", "status"), "running", "the sandbox goes on without it");
    let (mut terminal, mut child) = attach(&[]);
    terminal.wait_for("Detach with");
    terminal.press(b"echo fresh $((6 * 7)); exit 3\r");
    terminal.wait_for("fresh 42");
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
}

#[test]
fn a_directory_that_is_not_there_is_named_with_126_and_a_relative_one_is_refused() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let says = |dir: &str, code: i32, words: &str| {
        let output = world.run(&["exec", "-w", dir, "a", "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    says("/no/such/directory", 126, "/no/such/directory");
    says("src", 125, "expected an absolute path");
}

#[test]
fn git_works_in_a_workspace_whoever_owns_it() {
    let Some(world) = World::new() else { return };
    let work = world.home.dir().join("repository");
    fs::create_dir(&work).expect("made");
    let git = || {
        let mut git = Command::new("git");
        // Git's own switch for its tests: whoever runs it owns nothing.
        git.env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
        git.current_dir(&work);
        git
    };
    let output = |mut git: Command| git.output().expect("git runs");
    let mut init = git();
    init.env_remove("GIT_TEST_ASSUME_DIFFERENT_OWNER").args(["init", "-q"]);
    assert!(output(init).status.success());
    let mut status = git();
    status.args(["status"]);
    let refused = output(status);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("dubious ownership"), "{refused:?}");
    let workspace = json!({"source": work, "target": work});
    world.call("session.start", json!({"name": "a", "image": busybox_image(), "workspace": workspace}));
    // The image has no git: what commands in it find is given to the one outside.
    let found = world.sh("a", "env")["stdout"].as_str().expect("text").to_owned();
    let mut status = git();
    status
        .args(["status"])
        .envs(found.lines().filter(|l| l.starts_with("GIT_")).filter_map(|l| l.split_once('=')));
    let allowed = output(status);
    assert!(allowed.status.success(), "{allowed:?}\n{found}");
}
