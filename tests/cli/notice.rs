//! What a daemon wants the user to know once, from a real one.

use serde_json::{Value, json};

use super::abx;
use crate::support::{Daemon, Home};

fn hello(daemon: &Daemon, client: &str) -> Value {
    daemon.connect().call("daemon.hello", json!({"client": client, "version": "1", "protocol": 1}))["notice"]
        .clone()
}

fn old_session(home: &Home, name: &str) {
    let dir = home.dir().join(".local/share/agentkernel/sessions");
    std::fs::create_dir_all(&dir).expect("create");
    std::fs::write(dir.join(format!("{name}.json")), "{}").expect("write");
}

/// What a command says on standard error.
fn said(home: &Home, words: &[&str]) -> String {
    let output = abx(home.root()).args(words).output().expect("abx runs");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn old_session_files_are_told_of_until_somebody_was_told() {
    let home = Home::new();
    old_session(&home, "a");
    let words = "1 old session files (agentkernel in ";
    for _ in 0..2 {
        // Nobody heard it of the daemon before.
        let daemon = Daemon::start(&home);
        for other in ["an editor", "abx probe"] {
            assert_eq!(hello(&daemon, other), Value::Null);
        }
    }
    let daemon = Daemon::start(&home);
    assert!(said(&home, &["daemon", "status", "--json"]).starts_with(words));
    for command in [&["ls"][..], &["--version"], &["doctor"], &["daemon", "start"]] {
        assert!(!said(&home, command).contains(words), "{command:?}");
    }
    drop(daemon);
    let daemon = Daemon::start(&home);
    assert_eq!(hello(&daemon, "abx"), Value::Null);
    drop(daemon);
    // What is new is news.
    old_session(&home, "b");
    let daemon = Daemon::start(&home);
    let notice = hello(&daemon, "abx");
    assert!(notice.as_str().is_some_and(|notice| notice.starts_with("2 old session files")), "{notice}");
}
