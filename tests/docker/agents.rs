//! Agents on a real engine: a stand-in that keeps its conversation in the sandbox, and the user's terminal before it.

use std::process::Child;

use serde_json::json;

use crate::cli::terminal::Terminal;
use crate::support::World;
use crate::support::engine::{busybox_image, docker};

/// Begins a conversation, or goes on with it as the real one does; ends with a line that is typed.
const AGENT: &str = r#"#!/bin/sh
if [ "$1" = --continue ]; then
    echo "goes on with [$(cat "$HOME/conversation")] by [$ANTHROPIC_API_KEY]"
else
    echo "$1$ABX_EXEC_ID" >"$HOME/conversation"
    echo "begins [$(cat "$HOME/conversation")] by [$ANTHROPIC_API_KEY]"
fi
read -r line
exit 7
"#;

/// What a user has exported.
const KEY: &str = "sk-test-0123456789";

fn install(world: &World, session: &str) {
    let write = json!({"session": session, "cmd": ["sh", "-c", "cat >/bin/claude; chmod 755 /bin/claude"], "stdin": AGENT});
    assert_eq!(world.call("exec.run", write)["exit_code"], 0);
}

fn attach(world: &World, terminal: &Terminal, more: &[&str]) -> Child {
    let mut command = world.home.command(env!("CARGO_BIN_EXE_abx"));
    command.env("TERM", "xterm-256color").env("ANTHROPIC_API_KEY", KEY).arg("attach").args(more);
    terminal.spawn(command)
}

/// The conversation that the agent says it has, in `[]` behind `word`; then the agent's end.
fn talk(world: &World, word: &str, more: &[&str]) -> String {
    let mut terminal = Terminal::new();
    let mut child = attach(world, &terminal, more);
    let shown = terminal.wait_for(&format!("by [{KEY}]"));
    terminal.press(b"\r");
    assert_eq!(child.wait().expect("ended").code(), Some(7), "{shown:?}");
    let said = shown.split_once(&format!("{word} [")).unwrap_or_else(|| panic!("no {word:?} in {shown:?}"));
    said.1.split(']').next().expect("a part").to_owned()
}

#[test]
fn a_conversation_goes_on_after_a_stop_a_save_and_in_a_fork() {
    let Some(world) = World::new() else { return };
    world.start("a");
    install(&world, "a");
    let begun = talk(&world, "begins", &["a", "--agent"]);
    assert!(!begun.is_empty());
    assert_eq!(talk(&world, "goes on with", &["a", "--agent"]), begun);
    for verb in ["session.stop", "session.save"] {
        world.call(verb, json!({"name": "a"}));
        world.call("session.resume", json!({"name": "a"}));
        assert_eq!(talk(&world, "goes on with", &["a", "--agent"]), begun, "{verb}");
    }
    world.call("session.fork", json!({"name": "a", "new_name": "b"}));
    assert_eq!(talk(&world, "goes on with", &["b", "--agent"]), begun);
    let other = talk(&world, "begins", &["a", "--fresh"]);
    assert_ne!(other, begun);
}

#[test]
fn an_attach_comes_back_to_the_agent_that_was_left_and_a_second_one_is_refused() {
    let Some(world) = World::new() else { return };
    world.start("a");
    install(&world, "a");
    let mut terminal = Terminal::new();
    let mut child = attach(&world, &terminal, &["a", "--agent"]);
    terminal.wait_for("begins [");
    terminal.press(b"\x1dd");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    let mut again = Terminal::new();
    let mut child = attach(&world, &again, &["a", "--agent"]);
    let shown = again.wait_for(&format!("by [{KEY}]"));
    assert!(shown.contains("begins [") && !shown.contains("goes on with"), "{shown:?}");
    let refused = Terminal::new();
    let mut fresh = attach(&world, &refused, &["a", "--agent", "--fresh"]);
    assert_eq!(fresh.wait().expect("ended").code(), Some(125));
    refused.wait_for("runs claude already");
    again.press(b"\r");
    assert_eq!(child.wait().expect("ended").code(), Some(7));
}

#[test]
fn a_template_opens_the_agent_and_other_terminals_stay_shells() {
    let Some(mut world) = World::new() else { return };
    let settings = "[templates.work]\nattach = \"agent\"\n";
    std::fs::write(world.home.root().join("config.toml"), settings).expect("written");
    world.restart(None);
    world.call("session.start", json!({"name": "a", "template": "work", "image": busybox_image()}));
    install(&world, "a");
    let begun = talk(&world, "begins", &["a"]);
    assert_eq!(talk(&world, "goes on with", &["a"]), begun);
    let mut shell = Terminal::new();
    let mut child = attach(&world, &shell, &["a", "--terminal", "other"]);
    shell.wait_for("Detach with");
    shell.press(b"echo $((6 * 7)) $0; exit 3\r");
    shell.wait_for("42 ");
    assert_eq!(child.wait().expect("ended").code(), Some(3));
}

#[test]
fn an_agent_that_is_not_in_the_image_is_named_with_what_to_do() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let terminal = Terminal::new();
    let mut child = attach(&world, &terminal, &["a", "--agent"]);
    assert_eq!(child.wait().expect("ended").code(), Some(127));
    let shown = terminal.wait_for("Hint: ");
    assert!(shown.contains("abx: claude: command not found in the sandbox"), "{shown:?}");
    // It has not run, and begins when it is there.
    install(&world, "a");
    talk(&world, "begins", &["a", "--agent"]);
}

/// What is looked at shows this word, so that it was the right thing to look at, and not the key.
fn keeps_secret(place: &str, text: &[u8], word: &str) {
    let has = |wanted: &str| text.windows(wanted.len()).any(|part| part == wanted.as_bytes());
    assert!(has(word), "{place} has no {word:?}: {}", String::from_utf8_lossy(text));
    assert!(!has(KEY), "{place} has the key");
}

#[test]
fn credentials_are_in_no_table_log_or_configuration() {
    let Some(world) = World::new() else { return };
    world.start("a");
    install(&world, "a");
    talk(&world, "begins", &["a", "--agent"]);
    world.call("session.save", json!({"name": "a"}));
    for (method, shows) in [("session.list", "\"a\""), ("exec.list", "claude"), ("snapshot.list", "a-2")] {
        keeps_secret(method, world.call(method, json!({})).to_string().as_bytes(), shows);
    }
    keeps_secret("the log", world.home.log().as_bytes(), "a sandbox is connected");
    let (id, _) = world.containers().into_iter().next().expect("its container is there");
    let images = world.images();
    for id in [&id, images.first().expect("its snapshot's image is there")] {
        keeps_secret("the engine", docker(&["inspect", id]).as_bytes(), "dev.abx.session.id");
    }
    // What was written last may be in either file.
    let files = ["sessions.db", "sessions.db-wal"].map(|file| world.home.root().join(file));
    let bytes: Vec<u8> = files.iter().flat_map(|file| std::fs::read(file).unwrap_or_default()).collect();
    keeps_secret("the table", &bytes, "claude");
}
