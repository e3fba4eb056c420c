//! `abx-init` as PID 1 of a container, where there is nothing else, or a small system; spoken to in the words of its
//! protocol.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::net::UnixListener;
use std::process::Command;

use abx::guest::wire::{Failed, Kind, Payload, Run};

use crate::guest::ABX_INIT;
use crate::guest::talk::{Talk, command, sh, terminal};
use crate::support::engine::{busybox_image, docker, has_engine};
use crate::support::until;

struct Container {
    name: String,
    /// What is mounted; it goes with the container.
    _directory: tempfile::TempDir,
    listener: UnixListener,
    image: Option<String>,
}

impl Container {
    /// Of this image, or of one that holds nothing. None where there is no engine, and none is insisted on.
    fn start(image: Option<fn() -> String>, more: &[&str]) -> Option<Self> {
        if !has_engine() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(ABX_INIT, directory.path().join("abx-init")).unwrap();
        let listener = UnixListener::bind(directory.path().join("sock")).unwrap();
        let name = format!("abx-guest-{:x}", rand());
        let empty = image.is_none().then(|| empty_image(&name));
        let image = image.map_or_else(|| empty.clone().unwrap_or_default(), |image| image());
        let mount = format!("{}:/dev/.abx:ro", directory.path().display());
        let mut arguments = vec!["run", "-d", "--read-only", "--name", &name, "-v", &mount];
        arguments.extend(more);
        arguments.extend(["--entrypoint", "/dev/.abx/abx-init", &image, "init", "--dial", "/dev/.abx/sock"]);
        assert!(!docker(&arguments).is_empty(), "the container starts");
        Some(Self { name, _directory: directory, listener, image: empty })
    }

    fn connect(&self) -> Talk {
        Talk::agree(self.listener.accept().unwrap().0)
    }

    /// Stops it, with more time than any test has: it must end by itself. Gives the code that it ended with.
    fn stop(&self) -> String {
        docker(&["stop", "-t", "600", &self.name]);
        docker(&["inspect", "-f", "{{.State.ExitCode}}", &self.name])
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.name]);
        if let Some(image) = &self.image {
            docker(&["rmi", "-f", image]);
        }
    }
}

/// An image that holds nothing.
fn empty_image(name: &str) -> String {
    let image = format!("{name}:empty");
    let script = format!("tar -cf - -T /dev/null | docker import - {image}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    image
}

#[test]
fn it_is_pid_1_of_a_container_that_holds_nothing_and_stops_at_once() {
    let Some(container) = Container::start(None, &[]) else { return };
    let mut talk = container.connect();
    assert_eq!(talk.hello.uid, 0);
    assert_eq!(talk.refused(Kind::Run, &sh("1", "true").encode()).why, Failed::NOT_FOUND);
    assert_eq!(
        talk.refused(Kind::Run, &Run { user: Some("x".to_owned()), ..sh("2", "") }.encode()).why,
        Failed::NO_USER
    );
    let mut version = command("3", &["/dev/.abx/abx-init", "--version"]);
    version.env.push(b"HOME=/".to_vec());
    let version = talk.run(&Run { user: Some("7:8".to_owned()), ..version });
    assert_eq!(version.text(), format!("abx-init {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(container.stop(), "0");
}

#[test]
fn as_pid_1_it_reaps_orphans_and_ends_everything_on_term() {
    let Some(container) = Container::start(Some(busybox_image), &[]) else { return };
    let mut talk = container.connect();
    assert_eq!(
        talk.run(&sh("1", "for i in $(seq 50); do (sleep 0.05 &) ; done; cat /proc/1/comm")).text(),
        "abx-init\n"
    );
    until("no zombie is left", || {
        let zombies = talk.run(&Run {
            id: format!("z{}", rand()),
            ..sh("", "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l")
        });
        (zombies.text().trim() == "0").then_some(())
    });
    let (stream, _) = talk.start(&sh("2", "setsid sleep 300 & echo ready; wait"));
    talk.read_to(stream, b"ready\n");
    let mut shell = terminal("3", "main", "");
    shell.argv = vec![b"sh".to_vec()];
    let (shell, _) = talk.start(&shell);
    talk.send(Kind::Input, shell, b"echo is-$((40+2))\n");
    talk.read_past(shell, "is-42\r\n");
    assert_eq!(container.stop(), "0");
    let done = talk.finish(stream);
    assert_eq!(done.exited.code, 143);
}

#[test]
fn a_signal_for_all_reaches_a_user_whose_processes_may_not_be_traced() {
    let Some(container) = Container::start(Some(busybox_image), &[]) else { return };
    let mut talk = container.connect();
    // Its parent is gone, and so are its session and its group: only the mark in its environment is left.
    let script = "(setsid sh -c 'echo go; exec sleep 300' &) ; sleep 300";
    let (stream, _) = talk.start(&Run { user: Some("1234:1234".to_owned()), ..sh("1", script) });
    talk.read_to(stream, b"go\n");
    talk.signal("1", 9);
    assert_eq!(talk.finish(stream).exited.signal, 9);
    until("nothing sleeps", || {
        let run = Run { id: format!("p{}", rand()), ..sh("", "ps | grep '[s]leep 300'; true") };
        talk.run(&run).text().trim().is_empty().then_some(())
    });
}

#[test]
fn a_crowd_of_small_programs_takes_itself_down_and_not_the_sandbox() {
    let limits = ["-m", "32m", "--memory-swap", "32m", "--pids-limit", "3000"];
    let Some(container) = Container::start(Some(busybox_image), &limits) else { return };
    let mut talk = container.connect();
    let scores = talk.run(&sh("1", "cat /proc/1/oom_score_adj /proc/self/oom_score_adj"));
    let scores: Vec<i32> = scores.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(scores[1], (scores[0] + 500).min(1000));
    // The kernel has to choose many times, and none of them is as large as abx-init.
    let crowd = "for i in $(seq 1000); do sleep 300 & done; exec tail /dev/zero";
    assert_ne!(talk.run(&sh("3", crowd)).exited.code, 0);
    assert_eq!(talk.run(&sh("4", "cat /proc/1/comm")).text(), "abx-init\n");
    assert_eq!(docker(&["inspect", "-f", "{{.State.Running}}", &container.name]), "true");
}

#[test]
fn a_command_that_the_kernel_kills_for_want_of_memory_is_told_apart() {
    let memory = ["-m", "64m", "--memory-swap", "64m"];
    let Some(container) = Container::start(Some(busybox_image), &memory) else { return };
    let mut talk = container.connect();
    let killed = talk.run(&sh("1", "kill -9 $$")).exited;
    assert_eq!((killed.code, killed.oom), (137, false));
    let eaten = talk.run(&sh("2", "exec tail /dev/zero")).exited;
    assert_eq!((eaten.code, eaten.signal, eaten.oom), (137, 9, true));
    let (kind, payload) = loop {
        let frame = talk.receive(0);
        if frame.0 != Kind::Ended {
            break frame;
        }
    };
    assert_eq!(kind, Kind::Oom);
    assert_eq!(abx::guest::wire::Oom::decode(&payload).unwrap().kills, 1);
    assert_eq!(talk.run(&sh("3", "echo on")).text(), "on\n");
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
