//! The daemon's life: one per home, its socket, its signals.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Home, until};

fn output_of(mut child: Child) -> (Option<i32>, String) {
    let status = until("a daemon to give up", || child.try_wait().expect("a child"));
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    (status.code(), text)
}

#[test]
fn of_twenty_daemons_at_once_exactly_one_stays() {
    let home = Home::new();
    drop(UnixListener::bind({
        std::fs::create_dir(home.root()).expect("home");
        home.socket()
    }));
    let start = || home.abxd().arg("--spawned").stderr(Stdio::piped()).spawn().expect("starts");
    let mut children: Vec<Child> = (0..20).map(|_| start()).collect();
    until("all but one to end", || {
        let running =
            children.iter_mut().map(|child| child.try_wait().expect("a child")).filter(Option::is_none);
        (running.count() == 1).then_some(())
    });
    let survivor = children.iter_mut().position(|child| child.try_wait().expect("a child").is_none());
    let mut survivor = children.swap_remove(survivor.expect("one"));
    let pid = until("the survivor to listen", || {
        UnixStream::connect(home.socket()).ok()?;
        Some(crate::support::Socket::connect(&home.socket()).call("daemon.info", json!({}))["pid"].clone())
    });
    assert_eq!(pid, survivor.id());
    for child in children {
        let (code, text) = output_of(child);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with("abxd is already running"), "{text}");
    }
    survivor.kill().expect("kill");
    survivor.wait().expect("wait");
}

#[test]
fn a_second_daemon_by_hand_fails_and_names_the_first() {
    let home = Home::new();
    let mut first = Daemon::start(&home);
    let output = home.abxd().output().expect("runs");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(&format!("(process {})", first.pid())), "{text}");
    assert!(text.contains("Hint: abx daemon status"), "{text}");
    assert_eq!(first.connect().call("debug.echo", json!({})), json!({}));
    first.signal(Signal::SIGTERM);
    assert!(first.wait().success());
}

#[test]
fn directory_and_socket_and_files_are_private() {
    let home = Home::new();
    let _daemon = Daemon::start(&home);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(home.root()), 0o700);
    assert_eq!(mode(&home.socket()), 0o600);
    assert_eq!(mode(&home.root().join("daemon.lock")), 0o600);
    assert_eq!(mode(&home.root().join("log/abxd.log")), 0o600);
}

#[test]
fn a_killed_daemons_socket_is_taken_over() {
    let home = Home::new();
    let mut first = Daemon::start(&home);
    first.signal(Signal::SIGKILL);
    first.wait();
    assert!(home.socket().exists());
    let second = Daemon::start(&home);
    assert_eq!(second.connect().call("daemon.info", json!({}))["pid"], second.pid());
}

#[test]
fn a_socket_that_was_removed_or_replaced_comes_back() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut before = daemon.connect();
    before.call("debug.echo", json!({}));
    std::fs::remove_file(home.socket()).expect("remove");
    until("the socket to come back", || UnixStream::connect(home.socket()).ok());
    assert_eq!(daemon.connect().call("daemon.info", json!({}))["pid"], daemon.pid());
    assert_eq!(before.call("debug.echo", json!({})), json!({}));
    std::fs::remove_file(home.socket()).expect("remove");
    let usurper = UnixListener::bind(home.socket()).expect("bind");
    let taken = std::fs::metadata(home.socket()).expect("there").ino();
    until("the socket to be taken back", || {
        (std::fs::metadata(home.socket()).ok()?.ino() != taken).then_some(())
    });
    drop(usurper);
    assert_eq!(daemon.connect().call("daemon.info", json!({}))["pid"], daemon.pid());
}

#[test]
fn a_deep_home_is_served_at_the_short_socket_that_clients_compute() {
    let home = Home::at(std::path::PathBuf::from("d".repeat(100)).join("e".repeat(100)));
    assert!(!home.socket().starts_with(home.dir()));
    let mut daemon = Daemon::start(&home);
    let info = daemon.connect().call("daemon.info", json!({}));
    assert_eq!(info["socket"], home.socket().to_str().expect("text"));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert!(!home.socket().exists());
}

#[test]
fn a_service_managers_socket_is_used_and_left_and_the_lock_still_counts() {
    let home = Home::new();
    std::fs::create_dir(home.root()).expect("home");
    let mut command = home.command("systemd-socket-activate");
    let passed = ["PATH", "HOME", "ABX_HOME", "ABX_FAULT_METHODS"].map(|name| format!("--setenv={name}"));
    command.env("ABX_FAULT_METHODS", "1").arg("--listen").arg(home.socket()).args(passed);
    command.arg(env!("CARGO_BIN_EXE_abxd")).stderr(Stdio::null());
    let mut daemon = Daemon::spawn(&home, &mut command);
    let inode = std::fs::metadata(home.socket()).expect("there").ino();
    assert_eq!(daemon.connect().call("daemon.info", json!({}))["pid"], daemon.pid());
    let second = home.abxd().output().expect("runs");
    assert_eq!(second.status.code(), Some(1));
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert_eq!(std::fs::metadata(home.socket()).expect("left in its place").ino(), inode);
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let home = Home::new();
    let path = home.dir().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("bind");
    manager.set_read_timeout(Some(crate::support::LIMIT)).expect("a timeout");
    let mut daemon = Daemon::spawn(&home, home.abxd().env("NOTIFY_SOCKET", &path));
    let told = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).expect("a state");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    daemon.wait();
}

#[test]
fn a_spawned_daemon_gives_up_stderr_when_it_is_ready_and_outlives_the_terminal() {
    let home = Home::new();
    let mut child = home.abxd().arg("--spawned").stderr(Stdio::piped()).spawn().expect("starts");
    let mut text = String::new();
    // The end of the stream is the sign that a client waits for.
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(text, "");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut socket = crate::support::Socket::connect(&home.socket());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGHUP).expect("ours");
    assert_eq!(socket.call("daemon.info", json!({}))["pid"], pid);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let session = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(3).expect("a session");
    assert_eq!(session, pid.to_string(), "it leads a session of its own");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).expect("a process"), std::path::Path::new("/"));
    socket.call("daemon.shutdown", json!({}));
    until("its end", || child.try_wait().expect("a child"));
}

#[test]
fn what_keeps_it_from_starting_is_said_with_its_causes_and_a_code() {
    let home = Home::new();
    std::fs::create_dir(home.root()).expect("home");
    std::fs::write(home.root().join("log"), "a file").expect("write");
    let output = home.abxd().output().expect("runs");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("Error: failed to prepare the home\nCaused by: "), "{text}");
    let usage = home.abxd().arg("--no-such-option").output().expect("runs");
    assert_eq!(usage.status.code(), Some(2));
    let other = Home::new();
    let output = other.abxd().args(["--log", "abx=loud"]).output().expect("runs");
    assert!(String::from_utf8(output.stderr).expect("text").contains("Hint: abxd --log info"));
}

#[test]
fn a_home_that_is_removed_ends_its_daemon_and_the_next_one_starts_in_a_new_one() {
    let home = Home::new();
    let mut first = Daemon::start(&home);
    std::fs::remove_dir_all(home.root()).expect("remove");
    assert!(first.wait().success());
    let second = Daemon::start(&home);
    assert_eq!(second.connect().call("daemon.info", json!({}))["pid"], second.pid());
}

#[test]
fn another_user_is_shut_out_even_where_the_socket_is_open_to_all() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can become somebody else.
        return;
    }
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let open = std::fs::Permissions::from_mode(0o777);
    for path in [home.dir(), home.root(), &home.socket()] {
        std::fs::set_permissions(path, open.clone()).expect("chmod");
    }
    let client = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}')
    print(s.recv(1000))
except OSError:
    print(b"")
"#;
    let mut command = home.command("setpriv");
    command.args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", client, daemon.socket()]);
    let output = command.output().expect("setpriv is part of util-linux");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "b''", "{output:?}");
    assert!(home.log().contains("a connection of another user; closed uid=65534"));
    assert_eq!(daemon.connect().call("debug.echo", json!({})), json!({}));
}

#[test]
fn another_process_that_holds_the_table_makes_changes_wait_for_a_while_and_loses_none_that_was_acknowledged()
{
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let row = |name: &str| json!({"name": name, "sandbox_id": name});
    daemon.connect().call("store.save", row("before"));
    let other = rusqlite::Connection::open(home.root().join("sessions.db")).expect("open");
    other.execute_batch("BEGIN EXCLUSIVE").expect("lock");
    let mut waits = daemon.connect();
    waits.request(1, "store.save", row("refused"));
    let list = || daemon.connect().call("session.list", json!({})).as_array().map(Vec::len);
    assert_eq!(list(), Some(1), "reads go on");
    let refused = waits.line();
    assert_eq!(refused["error"]["data"]["kind"], "store_busy", "{refused}");
    let hint = refused["error"]["data"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("sessions.db"), "{refused}");
    // One that is under way when the lock goes is kept.
    waits.request(2, "store.save", row("kept"));
    other.execute_batch("COMMIT").expect("unlock");
    assert_eq!(waits.line()["result"]["name"], "kept");
    drop(daemon);
    let again = Daemon::start(&home).connect().call("session.list", json!({}));
    let mut names: Vec<_> = again.as_array().expect("rows").iter().map(|row| row["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["before", "kept"]);
}
