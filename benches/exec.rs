//! Commands and terminals in a sandbox, beside `docker exec` into the same one.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::daemon::Daemon;
use super::{Row, median, timed};

/// The image of the built-in template, which `tests/engine.sh` provides.
const IMAGE: &str = "debian:stable-slim";

/// The session.
const NAME: &str = "bench";

/// Runs of a short command by each, in turn; the first only warms up.
const RUNS: usize = 40;

/// Runs of a command with much output.
const FLOODS: usize = 3;

/// Its output: by ours, and by the peer, which takes as long for a quarter of it.
const FLOOD_MIB: (u32, u32) = (1024, 256);

/// Keys typed at each terminal; the first tenth only warms up.
const KEYS: usize = 400;

/// The promises.
const TRUE_LIMIT: f64 = 1.0 / 12.0;
const FLOOD_LIMIT: f64 = 0.1;
const KEY_LIMIT: f64 = 0.2;

/// Measures all of it.
pub(crate) fn run() -> Vec<Row> {
    let daemon = Daemon::spawn();
    let session = Session { daemon: &daemon };
    session.start();
    vec![session.short(), session.flood(), session.keys()]
}

struct Session<'a> {
    daemon: &'a Daemon,
}

impl Session<'_> {
    fn start(&self) {
        let mut command = self.abx();
        let status = command.args(["start", NAME, "--image", IMAGE]).stdout(Stdio::null()).status();
        assert!(status.expect("abx runs").success(), "the session starts");
    }

    fn short(&self) -> Row {
        let (mut ours, mut peer) = (self.abx(), docker());
        ours.args(["exec", NAME, "--", "true"]);
        peer.args(["exec", &sandbox(), "true"]);
        let (mut our_times, mut peer_times) = (Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let times = (whole(&mut ours), whole(&mut peer));
            if run > 0 {
                our_times.push(times.0);
                peer_times.push(times.1);
            }
        }
        Row::times(
            "`abx exec ... true`, `docker exec ... true`",
            median(our_times),
            median(peer_times),
            TRUE_LIMIT,
        )
    }

    /// Times are per GiB.
    fn flood(&self) -> Row {
        let zeros =
            |mib: u32| ["head".to_owned(), "-c".to_owned(), format!("{mib}M"), "/dev/zero".to_owned()];
        let (mut ours, mut peer) = (self.abx(), docker());
        ours.args(["exec", NAME, "--"]).args(zeros(FLOOD_MIB.0));
        peer.args(["exec", &sandbox()]).args(zeros(FLOOD_MIB.1));
        let per_gib = |time: Duration, mib: u32| time * 1024 / mib;
        let (mut our_times, mut peer_times) = (Vec::new(), Vec::new());
        for _ in 0..FLOODS {
            our_times.push(per_gib(whole(&mut ours), FLOOD_MIB.0));
            peer_times.push(per_gib(whole(&mut peer), FLOOD_MIB.1));
        }
        Row::times(
            "1 GiB out through `abx exec`, `docker exec`",
            median(our_times),
            median(peer_times),
            FLOOD_LIMIT,
        )
    }

    fn keys(&self) -> Row {
        const ECHO: [&str; 3] = ["sh", "-c", "stty raw -echo; printf ready; exec cat"];
        let (mut ours, mut peer) = (self.abx(), docker());
        ours.args(["attach", NAME, "--terminal", "keys", "--detach-keys", "none", "--"]).args(ECHO);
        peer.args(["exec", "-it", &sandbox()]).args(ECHO);
        let (ours, peer) = (Typist::at(ours).type_keys(), Typist::at(peer).type_keys());
        Row::times("key to echo in `abx attach`, `docker exec -it`", median(ours), median(peer), KEY_LIMIT)
    }

    fn abx(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_abx"));
        command.env("ABX_HOME", self.daemon.home()).env_remove("ABX_SOCKET");
        command
    }
}

fn docker() -> Command {
    Command::new("docker")
}

fn sandbox() -> String {
    format!("session-{NAME}")
}

fn whole(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    timed(|| {
        let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(status.success(), "{command:?}: {status}");
    })
}

/// Somebody at a terminal in which a program runs.
struct Typist {
    screen: File,
    program: Child,
}

impl Typist {
    fn at(mut command: Command) -> Self {
        let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        rustix::pty::unlockpt(&ours).expect("its other side");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&ours, size).expect("a size");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let its = rustix::pty::ioctl_tiocgptpeer(&ours, flags).expect("its other side");
        let copy = || Stdio::from(its.try_clone().expect("a copy"));
        let program = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it starts");
        let mut typist = Self { screen: File::from(ours), program };
        typist.wait_for(b"ready");
        typist
    }

    fn wait_for(&mut self, text: &[u8]) {
        let mut seen = Vec::new();
        while !seen.windows(text.len()).any(|part| part == text) {
            let mut chunk = [0; 4096];
            let count = self.screen.read(&mut chunk).expect("the program writes");
            seen.extend_from_slice(&chunk[..count]);
        }
    }

    fn type_keys(mut self) -> Vec<Duration> {
        let times = (0..KEYS).map(|_| {
            timed(|| {
                self.screen.write_all(b"x").expect("a key");
                self.wait_for(b"x");
            })
        });
        times.collect::<Vec<_>>().split_off(KEYS / 10)
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        // The program in the sandbox goes with the sandbox.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
