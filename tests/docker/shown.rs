//! Somebody at a terminal, and what a terminal emulator shows of what comes there.

use std::process::{Child, Command};
use std::time::Instant;

use abx::guest::wire::Size;

use super::emulator::Emulator;
use crate::cli::terminal::Terminal;
use crate::support::{LIMIT, World, until};

/// Somebody at a terminal. Goes when dropped.
pub(crate) struct Viewer {
    pub(crate) terminal: Terminal,
    pub(crate) abx: Child,
    size: Size,
    emulator: Emulator,
    /// Bytes that the emulator was given.
    fed: usize,
}

impl Viewer {
    /// Attaches to the session `a`.
    pub(crate) fn attach(world: &World, size: (u16, u16), more: &[&str]) -> Self {
        let mut command = world.abx();
        // The test starts the daemons.
        command.args(["--no-autostart", "attach", "a"]).args(more);
        Self::of(command, size)
    }

    /// Runs a program of this machine on a terminal that is its controlling one.
    pub(crate) fn local(size: (u16, u16), program: &[&str]) -> Self {
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(program);
        Self::of(command, size)
    }

    fn of(command: Command, (cols, rows): (u16, u16)) -> Self {
        let terminal = Terminal::new();
        terminal.resize(cols, rows);
        let abx = terminal.spawn(command);
        let size = Size { cols, rows };
        Self { terminal, abx, size, emulator: Emulator::new(size), fed: 0 }
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.terminal.press(line.as_bytes());
        self.terminal.press(b"\r");
    }

    pub(crate) fn kill(mut self) {
        self.abx.kill().expect("killed");
        self.abx.wait().expect("ended");
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        until("the client to end", || self.abx.try_wait().expect("a child")).code()
    }

    /// What the emulator shows now.
    pub(crate) fn emulator(&mut self) -> &Emulator {
        let more = self.terminal.shown_from(self.fed);
        self.fed += more.len();
        self.emulator.feed(&more);
        &self.emulator
    }

    /// Waits until a line of the screen has this in it.
    pub(crate) fn wait_for_line(&mut self, text: &str) {
        let start = Instant::now();
        while !self.emulator().text(0).iter().any(|line| line.contains(text)) {
            let lines = self.emulator().text(0).join("\n");
            assert!(start.elapsed() < LIMIT, "{text:?} is not on the screen:\n{lines}");
            std::thread::sleep(POLL);
        }
    }

    /// Waits until this terminal shows what the other does, cell by cell, with cursor and modes.
    pub(crate) fn wait_until_like(&mut self, other: &mut Self, when: &str) {
        assert_eq!(self.size, other.size);
        self.wait_until_shows(0, when, || other.emulator().snapshot(0));
    }

    /// Waits until this terminal, with so many lines of scrollback, shows what an emulator's snapshot has.
    pub(crate) fn wait_until_shows(
        &mut self,
        scrollback: usize,
        when: &str,
        mut want: impl FnMut() -> Vec<String>,
    ) {
        let start = Instant::now();
        loop {
            let (got, want) = (self.emulator().snapshot(scrollback), want());
            if got == want {
                return;
            }
            if start.elapsed() > LIMIT {
                let differ = got.iter().zip(&want).filter(|(got, want)| got != want).take(3);
                let lines: Vec<String> = differ.map(|(g, w)| format!("got  {g}\nwant {w}")).collect();
                panic!(
                    "{when}: {} and {} lines, of which differ:\n{}",
                    got.len(),
                    want.len(),
                    lines.join("\n")
                );
            }
            std::thread::sleep(POLL);
        }
    }
}

/// How often the screens are compared.
const POLL: std::time::Duration = std::time::Duration::from_millis(20);

impl Drop for Viewer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.abx.kill();
        let _ = self.abx.wait();
    }
}
