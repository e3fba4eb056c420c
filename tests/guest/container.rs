//! As PID 1 of a container, where there is nothing but `abx-init`, or a small system. Needs an engine.

use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use abx::guest::wire::{Failed, Kind, Payload, Run};

use super::talk::{Talk, command, sh};
use super::{ABX_INIT, until};

/// An image with a small system, which other tests of containers use, too.
const BUSYBOX: &str = "busybox";

struct Container {
    name: String,
    directory: tempfile::TempDir,
    listener: UnixListener,
    image: Option<String>,
}

fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).output().expect("docker runs")
}

impl Container {
    /// None where there is no engine.
    fn start(image: Option<&str>, more: &[&str]) -> Option<Self> {
        if !docker(&["info"]).status.success() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(ABX_INIT, directory.path().join("abx-init")).unwrap();
        let listener = UnixListener::bind(directory.path().join("sock")).unwrap();
        let name = format!("abx-guest-{:x}", rand());
        let empty = image.is_none().then(|| empty_image(&name));
        let image = empty.clone().or(image.map(str::to_owned))?;
        let mount = format!("{}:/dev/.abx:ro", directory.path().display());
        let mut arguments = vec!["run", "-d", "--read-only", "--name", &name, "-v", &mount];
        arguments.extend(more);
        arguments.extend(["--entrypoint", "/dev/.abx/abx-init", &image, "init", "--dial", "/dev/.abx/sock"]);
        let output = docker(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { name, directory, listener, image: empty })
    }

    fn connect(&self) -> Talk {
        Talk::agree(self.listener.accept().unwrap().0)
    }

    fn inspect(&self, what: &str) -> String {
        let output = docker(&["inspect", "-f", what, &self.name]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.name]);
        if let Some(image) = &self.image {
            docker(&["rmi", "-f", image]);
        }
        assert!(self.directory.path().exists());
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
    assert!(talk.hello.any_user);
    assert_eq!(talk.refused(Kind::Run, &sh("1", "true").encode()).why, Failed::NOT_FOUND);
    assert_eq!(
        talk.refused(Kind::Run, &Run { user: Some("x".to_owned()), ..sh("2", "") }.encode()).why,
        Failed::NO_USER
    );
    let version = talk.run(&command("3", &["/dev/.abx/abx-init", "--version"]));
    assert_eq!(version.text(), format!("abx-init {}\n", env!("CARGO_PKG_VERSION")));
    let before = Instant::now();
    assert!(docker(&["stop", "-t", "30", &container.name]).status.success());
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    assert_eq!(container.inspect("{{.State.ExitCode}}"), "0");
}

#[test]
fn as_pid_1_it_reaps_orphans_and_ends_everything_on_term() {
    let Some(image) = busybox() else { return };
    let Some(container) = Container::start(Some(&image), &[]) else { return };
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
    let mut shell = super::talk::terminal("3", "main", "");
    shell.argv = vec![b"sh".to_vec()];
    let (shell, _) = talk.start(&shell);
    talk.send(Kind::Input, shell, b"echo is-$((40+2))\n");
    talk.read_past(shell, "is-42\r\n");
    let before = Instant::now();
    assert!(docker(&["stop", "-t", "30", &container.name]).status.success());
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    assert_eq!(container.inspect("{{.State.ExitCode}}"), "0");
    let done = talk.finish(stream);
    assert_eq!(done.exited.code, 143);
}

#[test]
fn a_signal_for_all_reaches_a_user_whose_processes_may_not_be_traced() {
    let Some(image) = busybox() else { return };
    let Some(container) = Container::start(Some(&image), &[]) else { return };
    let mut talk = container.connect();
    // Its parent is gone, and so are its session and its group: only the mark in its environment is left.
    let script = "(setsid sh -c 'echo go; exec sleep 300' &) ; sleep 300";
    let (stream, _) = talk.start(&Run { user: Some("1234:1234".to_owned()), ..sh("1", script) });
    talk.read_to(stream, b"go\n");
    talk.signal("1", 9, true);
    assert_eq!(talk.finish(stream).exited.signal, 9);
    until("nothing sleeps", || {
        let run = Run { id: format!("p{}", rand()), ..sh("", "pidof sleep; true") };
        talk.run(&run).text().trim().is_empty().then_some(())
    });
}

#[test]
fn a_command_that_the_kernel_kills_for_want_of_memory_is_told_apart() {
    let Some(image) = busybox() else { return };
    let Some(container) = Container::start(Some(&image), &["-m", "64m", "--memory-swap", "64m"]) else {
        return;
    };
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

fn busybox() -> Option<String> {
    let output = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}"]);
    let images = String::from_utf8(output.stdout).ok()?;
    images.lines().find(|image| image.contains(BUSYBOX)).map(str::to_owned)
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
