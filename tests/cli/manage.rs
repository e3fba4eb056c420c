//! What is asked, told and checked before something cannot be undone.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::abx;
use super::daemon::Daemon;
use super::terminal::Terminal;

#[test]
fn an_interrupted_operation_is_said_to_go_on_and_a_save_to_be_given_up() {
    for (words, name) in [
        (&["start", "a"][..], "a"),
        (&["save", "it's"], "'it'\\''s'"),
        (&["resume", "a"], "a"),
        (&["connect", "a"], "a"),
        (&["stop", "a"], "a"),
        (&["fork", "a", "b"], "b"),
    ] {
        let daemon = Daemon::busy();
        let mut command = abx(daemon.home());
        // What is shown after a second shows that the call is under way.
        let mut child = command.args(words).stderr(Stdio::piped()).spawn().expect("spawn");
        let mut err = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut err, &mut line).expect("read");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("small"));
        kill(pid, Signal::SIGINT).expect("signalled");
        let said = std::io::read_to_string(err).expect("text");
        let what = match words[0] {
            "save" => "The save is given up; to see how the session is left",
            _ => "The operation goes on in abxd; to see how it ends",
        };
        let want = format!("{what}: abx session get {name}\n");
        assert_eq!(said, want, "{words:?}");
        assert_eq!(child.wait().expect("ended").signal(), Some(2));
    }
}

#[test]
fn deleting_snapshots_asks_on_a_terminal_unless_told_not_to() {
    let daemon = Daemon::answering("[\"s1\",\"s2\"]");
    for (words, key, deleted) in [
        (&["snapshot", "delete", "s1", "s2"][..], &b"n\n"[..], false),
        (&["snapshot", "rm", "s1", "s2"], b"y\n", true),
        (&["snapshot", "delete", "-y", "s1", "s2"], b"", true),
    ] {
        let mut terminal = Terminal::new();
        let mut command = abx(daemon.home());
        command.args(words);
        let mut child = terminal.spawn(command);
        if !key.is_empty() {
            terminal.wait_for("Delete 2 snapshots: 's1', 's2'? Nothing brings them back. [y/N] ");
            terminal.press(key);
        }
        let shown = terminal.wait_for(if deleted { "Snapshot 's2' deleted." } else { "nothing was deleted" });
        assert_eq!(shown.contains("[y/N]"), !key.is_empty(), "{shown}");
        assert_eq!(child.wait().expect("ended").code(), Some(i32::from(!deleted)));
    }
    // A program is not asked.
    let output = abx(daemon.home()).args(["snapshot", "delete", "s1"]).output().expect("output");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
#[cfg(target_os = "linux")]
fn an_install_without_a_service_manager_changes_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tool = dir.path().join("systemctl");
    std::fs::write(&tool, "#!/bin/sh\necho no bus >&2; exit 1\n").expect("write");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let mut command = abx(&dir.path().join(".abx"));
    command.env("HOME", dir.path()).env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()));
    let output = command.args(["daemon", "install"]).output().expect("output");
    let error = String::from_utf8(output.stderr).expect("text");
    let want = "Error: no service manager answers for this user: systemctl --user show-environment failed: no bus\n\
                Hint: in a login session of this user, run: abx daemon install\n";
    assert_eq!((output.status.code(), error.as_str()), (Some(1), want));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("read").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn wrong_usage_under_json_is_a_document_with_the_whole_message() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (words, want) in [
        (&["--json", "lst"][..], "similar"),
        (&["--json", "start", "x", "--profile", "none"], "restrictive"),
        (&["--json", "completions", "bash"], "script"),
        (&["--json", "daemon", "logs", "-f"], "--follow"),
        (&["--json"], "missing"),
        (&["--json", "session"], "missing"),
    ] {
        let output = abx(dir.path()).args(words).output().expect("output");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
        let message = document["message"].as_str().expect("a message");
        assert!(message.contains(want), "{words:?}: {message}");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(2), &b""[..]), "{words:?}");
    }
}

#[test]
fn the_log_is_a_document_under_json() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir(dir.path().join("log")).expect("create");
    std::fs::write(dir.path().join("log/abxd.log"), "one\ntwo\nthree\n").expect("write");
    let output = abx(dir.path()).args(["daemon", "logs", "--json", "--tail", "2"]).output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"lines\":[\"two\",\"three\"]}\n");
}

#[test]
fn a_restart_with_broken_settings_leaves_the_daemon_alone() {
    let daemon = Daemon::busy();
    std::fs::write(daemon.home().join("config.toml"), "[templates.py]\nmemory = \"lots\"\n").expect("write");
    let output = abx(daemon.home()).args(["daemon", "restart"]).output().expect("output");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("Error: abxd was not restarted: failed to understand "), "{error}");
    assert!(error.contains("Caused by: templates.py.memory must be a size of at least 6m"), "{error}");
}
