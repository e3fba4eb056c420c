//! A Docker engine of one test's own, to be frozen, killed and started anew: the machine's engine is never touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

use super::engine::{busybox_image, docker, has_engine};
use super::until;

/// In the name of what holds one container each.
const SHIM: &str = "containerd-shim";

/// What is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The engine alone: what runs its containers goes on.
    Engine,
    /// Both.
    EngineAndContainerd,
}

/// A running engine with the test image. Ends with the test, and all that it started with it.
pub(crate) struct OwnEngine {
    dir: TempDir,
    process: Child,
}

impl OwnEngine {
    /// Starts one; none where there is no engine at all, or no right to start another.
    pub(crate) fn new() -> Option<Self> {
        if !has_engine() || !may_start() {
            return None;
        }
        let dir = TempDir::with_prefix("abx-test-engine-").expect("a directory");
        fs::write(dir.path().join("daemon.json"), "{}").expect("write");
        let engine = Self { process: launch(dir.path()), dir };
        engine.await_answer();
        engine.load(&busybox_image());
        Some(engine)
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.file("engine.sock").display())
    }

    /// What `docker ARGS` on it prints; nothing where it fails.
    pub(crate) fn docker(&self, args: &[&str]) -> String {
        let address = self.address();
        docker(&[&["-H", &address], args].concat())
    }

    /// Stops it where it stands. It keeps its connections and takes new ones, but answers nothing.
    pub(crate) fn freeze(&self, part: Part) {
        self.signal(part, Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Part::EngineAndContainerd, Signal::SIGCONT);
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
        self.await_end();
    }

    /// Ends it in order, containers and all.
    pub(crate) fn stop(&mut self) {
        kill(self.pid(), Signal::SIGTERM).expect("it is ours");
        until("the engine to stop", || self.process.try_wait().expect("a child"));
        self.await_end();
    }

    /// Starts it again after its end.
    pub(crate) fn start(&mut self) {
        self.process = launch(self.dir.path());
        self.await_answer();
    }

    /// Waits for the end of its containerd, which goes with it; containers stay.
    fn await_end(&self) {
        let is_shim = |process: &Process| process.arguments.contains(SHIM);
        until("containerd to end", || self.started_here().iter().all(is_shim).then_some(()));
        // One that nobody has reaped yet counts as alive for the next engine, which would wait for it in vain. Where it ended
        // in order there is no file.
        let _ = fs::remove_file(self.file("exec/containerd/containerd.pid"));
    }

    fn await_answer(&self) {
        until("the engine to answer", || (!self.docker(&["info", "-f", "{{.ID}}"]).is_empty()).then_some(()));
    }

    /// Copies an image of the machine's engine to this one.
    fn load(&self, image: &str) {
        let mut save =
            Command::new("docker").args(["save", image]).stdout(Stdio::piped()).spawn().expect("docker runs");
        let load = Command::new("docker")
            .args(["-H", &self.address(), "load", "-q"])
            .stdin(save.stdout.take().expect("piped"))
            .stdout(Stdio::null())
            .status()
            .expect("docker runs");
        assert!(save.wait().expect("docker ends").success() && load.success(), "the image was not copied");
    }

    fn signal(&self, part: Part, signal: Signal) {
        if part == Part::EngineAndContainerd {
            for process in self.started_here().iter().filter(|process| process.parent == self.pid().as_raw())
            {
                kill(Pid::from_raw(process.id), signal).expect("it is the engine's");
            }
        }
        kill(self.pid(), signal).expect("it is ours");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a pid"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Processes that were started with a file of this directory among their arguments: the engine's containerd and its
    /// shims.
    fn started_here(&self) -> Vec<Process> {
        let place = self.dir.path().to_str().expect("text");
        Process::all().into_iter().filter(|process| process.arguments.contains(place)).collect()
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        // Whatever of it the test ended, froze or killed: here it is only to be gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let shims = self.started_here();
        let all = Process::all();
        let of_shims = all.iter().filter(|child| shims.iter().any(|shim| shim.id == child.parent));
        // A container ends with its first process.
        for process in of_shims.chain(&shims) {
            let _ = kill(Pid::from_raw(process.id), Signal::SIGKILL);
        }
        // What the test failed of is told, and not this.
        if !std::thread::panicking() {
            until("the engine's processes to be gone", || self.started_here().is_empty().then_some(()));
        }
        unmount_below(self.dir.path());
    }
}

/// Whether this user may start an engine; where not, and nobody insists on it, with a word about it.
#[expect(clippy::print_stderr, reason = "who runs the tests must see that some did not run")]
fn may_start() -> bool {
    let may = geteuid().is_root();
    if !may {
        assert!(abx::paths::variable("CI").is_none(), "these tests start an engine: that takes root");
        eprintln!("skipped: only root starts an engine");
    }
    may
}

fn launch(dir: &Path) -> Child {
    let file = |name: &str| dir.join(name).display().to_string();
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a log");
    // In a network of its own: an engine that is told to have no bridge takes docker0 away, which is the other engine's.
    Command::new("unshare")
        // It ends with the test, also where that is killed.
        .args(["--net", "setpriv", "--pdeathsig", "KILL", "dockerd"])
        .args(["--config-file", &file("daemon.json"), "--pidfile", &file("engine.pid")])
        .args(["--data-root", &file("data"), "--exec-root", &file("exec")])
        .args(["-H", &format!("unix://{}", file("engine.sock"))])
        .args([
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ])
        .args(["--shutdown-timeout", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("dockerd is installed")
}

/// One process of this machine.
struct Process {
    id: i32,
    parent: i32,
    arguments: String,
}

impl Process {
    fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        entries.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    /// Looks at one; none where it is gone.
    fn read(id: i32) -> Option<Self> {
        let arguments = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // A program's name, which stands in brackets before, may hold anything (proc(5)).
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { id, parent, arguments: String::from_utf8_lossy(&arguments).into_owned() })
    }
}

/// Takes away what an engine that was killed left mounted.
fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("Linux");
    let below =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| Path::new(at).starts_with(dir));
    for place in below.collect::<Vec<_>>().into_iter().rev() {
        // What stays is told by the directory, which then cannot be removed.
        let _ = Command::new("umount").args(["-l", place]).stderr(Stdio::null()).status();
    }
}
