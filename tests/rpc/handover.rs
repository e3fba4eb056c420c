//! One daemon goes on for another: nobody who connects notices.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, Home, Socket, until};

fn abx(home: &Home) -> Command {
    let mut command = home.command(env!("CARGO_BIN_EXE_abx"));
    command.arg("--no-autostart").stdin(Stdio::null());
    command
}

fn started_at(socket: &Path) -> Value {
    Socket::connect(socket).call("daemon.hello", json!({"client": "test", "version": "0", "protocol": 1}))
        ["started_at"]
        .clone()
}

/// Does something again and again beside `meanwhile`, which is given how often it was done.
fn beside<T>(again: impl Fn() + Sync, meanwhile: impl FnOnce(&AtomicUsize) -> T) -> T {
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let repeat = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                again();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let value = meanwhile(&done);
        over.store(true, Ordering::Relaxed);
        repeat.join().expect("each of them succeeded");
        value
    })
}

#[test]
fn ten_restarts_under_a_loop_of_clients_refuse_none_and_keep_process_and_socket() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    daemon.connect().call("store.save", json!({"name": "kept"}));
    let socket_file = || std::fs::metadata(home.socket()).expect("there").ino();
    let inode = socket_file();
    let list = || {
        let output = abx(&home).args(["ls", "-q"]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\n");
    };
    let call =
        || assert_eq!(Socket::connect(&home.socket()).call("session.list", json!({}))[0]["name"], "kept");
    beside(list, |listed| {
        beside(call, |called| {
            for _ in 0..10 {
                let (before, seen) =
                    (started_at(&home.socket()), [listed, called].map(|n| n.load(Ordering::Relaxed)));
                let restart = abx(&home).args(["daemon", "restart"]).output().expect("runs");
                assert!(restart.status.success(), "{}", String::from_utf8_lossy(&restart.stderr));
                let said = String::from_utf8_lossy(&restart.stdout).into_owned();
                assert!(said.starts_with(&format!("abxd restarted (process {}", daemon.pid())), "{said}");
                assert_ne!(started_at(&home.socket()), before, "another daemon answers");
                until("clients of the next daemon", || {
                    let now = [listed, called].map(|n| n.load(Ordering::Relaxed));
                    (now[0] > seen[0] + 1 && now[1] > seen[1] + 1).then_some(())
                });
            }
        });
    });
    assert_eq!(socket_file(), inode);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!home.socket().exists(), "the last one removes the socket as if it had bound it");
}

#[test]
fn what_changes_something_is_done_once_by_one_of_both() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let saved = AtomicUsize::new(0);
    let save = || {
        let name = format!("n{}", saved.fetch_add(1, Ordering::Relaxed));
        let params = json!({"name": name}).to_string();
        let output = abx(&home).args(["rpc", "store.save", &params]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    beside(save, |_| {
        for _ in 0..5 {
            let seen = saved.load(Ordering::Relaxed);
            let restart = abx(&home).args(["daemon", "restart"]).output().expect("runs");
            assert!(restart.status.success(), "{}", String::from_utf8_lossy(&restart.stderr));
            until("more to be saved", || (saved.load(Ordering::Relaxed) > seen + 2).then_some(()));
        }
    });
    let kept = daemon.connect().call("store.list_all", json!({}));
    assert_eq!(kept.as_array().map(Vec::len), Some(saved.load(Ordering::Relaxed)));
}

#[test]
fn a_program_that_would_not_start_here_leaves_the_daemon_as_it_is() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let before = started_at(&home.socket());
    let script = |name: &str, text: &str| {
        let path = home.dir().join(name);
        std::fs::write(&path, text).expect("write");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
        path
    };
    let other = script("other", "#!/bin/sh\necho 'another program'\n");
    let failing = script("failing", "#!/bin/sh\necho 'Error: no such setting' >&2\nexit 1\n");
    let missing = home.dir().join("missing");
    let refused = |program: &Path| {
        let answer = daemon.connect().request(1, "daemon.restart", json!({"program": program})).line();
        (answer["error"]["data"]["kind"].clone(), answer["error"]["message"].to_string())
    };
    for (program, kind, says) in [
        (other.as_path(), "wrong_state", "it is no abxd"),
        (&failing, "wrong_state", "no such setting"),
        (&missing, "wrong_state", "No such file"),
        (Path::new("abxd"), "invalid_params", "an absolute path"),
    ] {
        let (found, message) = refused(program);
        assert!(found == kind && message.contains(says), "{program:?}: {found} {message}");
    }
    for wrong in ["log = 7", "[log]\nlevel = \"=====,,\"\n"] {
        std::fs::write(home.root().join("config.toml"), wrong).expect("write");
        let (kind, message) = refused(Path::new(env!("CARGO_BIN_EXE_abxd")));
        assert!(kind == "wrong_state" && message.contains("would not start"), "{wrong}: {message}");
    }
    // The daemon's refusal is one of its state; what the command itself finds wrong it need not ask for.
    for (wrong, code) in [("log = 7", 1), ("[log]\nlevel = \"=====,,\"\n", 4)] {
        std::fs::write(home.root().join("config.toml"), wrong).expect("write");
        let restart = abx(&home).args(["daemon", "restart"]).output().expect("runs");
        assert_eq!(restart.status.code(), Some(code), "{wrong}");
    }
    assert_eq!(started_at(&home.socket()), before);
}

#[test]
fn the_service_manager_keeps_its_process_and_its_socket_and_hears_of_a_reload() {
    let home = Home::new();
    std::fs::create_dir(home.root()).expect("home");
    let path = home.dir().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("bind");
    manager.set_read_timeout(Some(crate::support::LIMIT)).expect("a timeout");
    let mut command = home.command("systemd-socket-activate");
    // An hour: only the first of each daemon comes within a test.
    command.env("WATCHDOG_USEC", "3600000000");
    let passed =
        ["PATH", "HOME", "ABX_HOME", "NOTIFY_SOCKET", "WATCHDOG_USEC"].map(|name| format!("--setenv={name}"));
    command.env("NOTIFY_SOCKET", &path).arg("--listen").arg(home.socket()).args(passed);
    command.arg(env!("CARGO_BIN_EXE_abxd")).stderr(Stdio::null());
    let mut daemon = Daemon::spawn(&home, &mut command);
    let told = || {
        let mut text = [0; 128];
        let length = manager.recv(&mut text).expect("a state");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let inode = std::fs::metadata(home.socket()).expect("there").ino();
    assert_eq!(told(), "READY=1");
    assert_eq!(told(), "WATCHDOG=1", "it lives, from the start");
    for _ in 0..3 {
        assert_eq!(daemon.connect().call("daemon.restart", json!({}))["pid"], daemon.pid());
        let reload = told();
        assert!(reload.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reload}");
        assert_eq!(told(), "READY=1");
        assert_eq!(told(), "WATCHDOG=1", "the next one lives in the same process");
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    assert!(daemon.wait().success());
    assert_eq!(std::fs::metadata(home.socket()).expect("left in its place").ino(), inode);
}
