//! The daemon as a service of a user's systemd: installed, restarted, frozen, and taken out.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use abx::engine::labels;

use crate::support::engine::{busybox_image, docker, engine_socket, has_engine};
use crate::support::until;

/// What `tests/systemd.sh` builds.
const IMAGE: &str = "abx-test-systemd:1";

/// Boots the machine, with its own cgroups to write into.
const BOOT: &str = "for dir in /sys/fs/cgroup /sys/fs/cgroup/systemd; do
    ! mountpoint -q $dir || mount -o remount,rw $dir
done
exec /sbin/init";

/// Makes the user, who may use the engine, and their service manager.
const ADD_USER: &str = "useradd -m -s /bin/sh $1
getent group $2 >/dev/null || groupadd -g $2 engine
usermod -aG $2 $1
loginctl enable-linger $1
systemctl start user@$(id -u $1)";

/// A machine that runs systemd, and a user on it. Dropping it removes it with the user's sandboxes.
struct Machine {
    container: String,
    /// Unique, and so is their home, of which the sandboxes have a label.
    user: String,
}

impl Machine {
    /// None where there is no engine.
    fn boot() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if !has_engine() {
            return None;
        }
        let mut run = Command::new("docker");
        run.args(["run", "-d", "--cap-add", "SYS_ADMIN", "--cgroupns", "private", "-e", "container=docker"]);
        run.args(["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]);
        run.args(["--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec"]);
        for program in [env!("CARGO_BIN_EXE_abx"), env!("CARGO_BIN_EXE_abxd")] {
            run.args(["-v", &format!("{program}:/usr/local/bin/{}:ro", program.rsplit('/').next()?)]);
        }
        let socket = engine_socket();
        run.args(["-v", &format!("{}:/run/docker.sock", socket.display())]);
        let made =
            run.args([IMAGE, "sh", "-c", BOOT]).stderr(Stdio::inherit()).output().expect("docker runs");
        let container = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        let user = format!("abx{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let machine = Self { container, user };
        assert!(made.status.success(), "tests/systemd.sh makes the image");
        until("systemd to be up", || {
            let state = machine.root(&["systemctl", "is-system-running"]).stdout;
            // What of it failed is none of ours.
            matches!(state.trim_ascii(), b"running" | b"degraded").then_some(())
        });
        let group = std::os::unix::fs::MetadataExt::gid(&socket.metadata().expect("there")).to_string();
        let added = machine.root(&["sh", "-euc", ADD_USER, "add", &machine.user, &group]);
        assert!(added.status.success(), "{added:?}");
        Some(machine)
    }

    fn root(&self, command: &[&str]) -> Output {
        Command::new("docker").args(["exec", &self.container]).args(command).output().expect("docker runs")
    }

    /// Runs a script as the user, in a session of theirs.
    fn run(&self, script: &str) -> Output {
        let script = format!("export XDG_RUNTIME_DIR=/run/user/$(id -u); {script}");
        self.root(&["su", "-", &self.user, "-c", &script])
    }

    /// What a script prints that must succeed.
    #[track_caller]
    fn says(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}: {output:?}\n{}", self.journal());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn journal(&self) -> String {
        let journal = self.root(&["journalctl", "--no-pager", "-n", "60"]);
        String::from_utf8_lossy(&journal.stdout).into_owned()
    }

    /// The process of the service.
    fn pid(&self) -> String {
        self.says("systemctl --user show -p MainPID --value abxd")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        docker(&["rm", "-fv", &self.container]);
        let home = format!("label={}=/home/{}/.abx", labels::SESSION_HOME, self.user);
        for id in docker(&["ps", "-aq", "--filter", &home]).split_whitespace() {
            docker(&["rm", "-fv", id]);
        }
    }
}

/// Calls one after another until the file `stop` is there, and notes how each ended.
const CALLS: &str =
    "while [ ! -e stop ]; do abx ls >/dev/null 2>>said && echo ok || echo failed; done >calls";

impl Machine {
    /// Does something while calls come one after another; none of them may fail.
    fn while_called(&self, something: impl FnOnce()) {
        self.says(&format!("rm -f stop calls said; ({CALLS}; touch stopped) </dev/null >/dev/null 2>&1 &"));
        self.until_called();
        something();
        self.says("touch stop");
        until("the last call", || self.run("test -e stopped").status.success().then_some(()));
        assert_eq!(self.says("grep -vc ok calls; cat said"), "0", "{}", self.journal());
    }

    /// Waits until more calls have ended.
    fn until_called(&self) {
        let count = || self.says("grep -c . calls || true").parse::<u32>().expect("a number");
        let before = count();
        until("a call", || (count() > before + 1).then_some(()));
    }
}

#[test]
fn no_call_fails_while_the_service_is_installed_restarted_stopped_and_taken_out() {
    let Some(machine) = Machine::boot() else { return };
    machine.while_called(|| {
        machine.says("abx daemon install");
        machine.until_called();
        let mut before = machine.pid();
        assert_ne!(before, "0", "the service runs");
        for _ in 0..10 {
            machine.says("systemctl --user restart abxd");
            let now = machine.pid();
            assert_ne!(now, before);
            before = now;
            machine.until_called();
        }
        machine.says("abx daemon restart");
        assert_eq!(machine.pid(), before, "the process goes on as the new program");
        machine.until_called();
        machine.says("systemctl --user stop abxd");
        machine.until_called();
        assert_ne!(machine.pid(), "0", "a call starts it");
        machine.says("abx daemon uninstall");
        machine.until_called();
    });
    let left = machine
        .says("ls -A .config/systemd/user; systemctl --user list-unit-files --no-legend 'abxd*' || true");
    assert_eq!(left, "");
}

#[test]
fn a_daemon_that_hangs_is_ended_by_its_watchdog_and_the_next_has_its_sessions() {
    let Some(machine) = Machine::boot() else { return };
    machine.says("abx daemon install && systemctl --user start abxd");
    let before = machine.pid();
    machine.says("mkdir -p .config/systemd/user/abxd.service.d");
    machine.says("printf '[Service]\nWatchdogSec=15\n' >.config/systemd/user/abxd.service.d/short.conf");
    machine.says("systemctl --user daemon-reload && systemctl --user restart abxd");
    let hung = machine.pid();
    assert_ne!(hung, before);
    machine.says(&format!("kill -STOP {hung}"));
    until("another daemon", || {
        let now = machine.pid();
        (now != hung && now != "0" && machine.run("abx ls").status.success()).then_some(())
    });
    assert_ne!(machine.says("systemctl --user show -p NRestarts --value abxd"), "0");
}

#[test]
fn sandboxes_work_under_the_service_as_anywhere() {
    let Some(machine) = Machine::boot() else { return };
    let image = busybox_image();
    machine.says("abx daemon install");
    machine.says(&format!("abx start a --image {image}"));
    machine.says("abx exec a -- sh -c 'echo kept >/root/file'");
    machine.says("systemctl --user restart abxd");
    assert_eq!(machine.says("abx exec a -- cat /root/file"), "kept");
    machine.says("abx save a && abx stop a && abx resume a");
    assert_eq!(machine.says("abx exec a -- cat /root/file"), "kept");
    machine.says("echo there >file && abx cp file a:/root/other && abx cp a:/root/other back");
    assert_eq!(machine.says("cat back"), "there");
    machine.says("abx delete -y a");
    assert_eq!(machine.says("abx ls -q"), "");
}
