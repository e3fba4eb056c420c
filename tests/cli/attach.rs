//! `abx attach` on a real terminal with a scripted daemon.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use abx::proto::stream::{FrameKind, Size};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::LocalFlags;
use nix::unistd::Pid;

use super::abx;
use super::daemon::{Daemon, Stream};
use super::terminal::Terminal;
use crate::support::until;

fn command(daemon: &Daemon, more: &[&str]) -> Command {
    let mut command = abx(daemon.home());
    command.args(["attach", "x"]).args(more);
    command
}

/// Attaches and waits until the terminal is raw and the command's.
fn attached(daemon: &Daemon, terminal: &Terminal, more: &[&str]) -> (Child, Stream) {
    let child = terminal.spawn(command(daemon, more));
    let mut stream = daemon.stream();
    stream.send(FrameKind::Stdout, b"ready");
    terminal.wait_for("ready");
    assert!(terminal.is_raw());
    (child, stream)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("small")), signal).expect("signalled");
}

#[test]
fn it_opens_with_the_terminals_size_and_type_and_leaves_by_the_keys() {
    let (daemon, mut terminal) = (Daemon::answering("null"), Terminal::new());
    let before = terminal.modes();
    let (mut child, mut stream) = attached(&daemon, &terminal, &["--", "top"]);
    assert_eq!(stream.open.tty, Some(Size { cols: 80, rows: 24 }));
    assert_eq!(stream.open.env["TERM"], "xterm-test");
    assert_eq!((stream.open.cmd.as_slice(), stream.open.attach), (&["top".to_owned()][..], true));
    // Interrupt, end of file and half of an escape sequence are keys like any other.
    terminal.press(b"\x03\x04\x1b");
    assert_eq!(stream.input(3), b"\x03\x04\x1b");
    terminal.press(b"\x1d\x1d");
    assert_eq!(stream.input(1), b"\x1d");
    terminal.press(b"\x1d");
    terminal.press(b"d");
    assert!(stream.next().is_none(), "the keys were sent");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(terminal.modes(), before);
    let shown = terminal.wait_for("opens a fresh shell.");
    assert!(shown.contains("ready\r\nDetached from x."), "{shown:?}");
    assert!(shown.contains("Detach with ctrl-] d"), "{shown}");
}

#[test]
fn the_program_ends_it_with_its_code_and_the_reason_is_said() {
    let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
    let before = terminal.modes();
    let (mut child, mut stream) = attached(&daemon, &terminal, &[]);
    stream.send(FrameKind::Stdout, b"\x1b[?1049h\x1b[?25l");
    stream.exit(137, Some("session 'x' was stopped by the user"));
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    assert_eq!(terminal.modes(), before);
    let shown = terminal.wait_for("abx: session 'x' was stopped by the user");
    assert!(shown.contains("\u{1b}[?1049l\u{1b}[?25h"), "{shown:?}");
}

#[test]
fn a_new_size_is_told() {
    let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
    let (mut child, mut stream) = attached(&daemon, &terminal, &[]);
    terminal.resize(132, 50);
    signal(&child, Signal::SIGWINCH);
    let size: Size = serde_json::from_slice(&stream.wait_for(FrameKind::Resize)).expect("a size");
    assert_eq!(size, Size { cols: 132, rows: 50 });
    stream.exit(0, None);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
}

#[test]
fn signals_and_a_daemon_that_dies_leave_the_terminal_as_it_was() {
    let signals = [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGQUIT, 131)];
    let signals = signals.map(|(number, code)| (Some(number), code));
    for (number, code) in signals.into_iter().chain([(None, 125)]) {
        let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
        let before = terminal.modes();
        let (mut child, stream) = attached(&daemon, &terminal, &[]);
        match number {
            Some(number) => signal(&child, number),
            None => drop(stream),
        }
        assert_eq!(child.wait().expect("ended").code(), Some(code), "{number:?}");
        assert_eq!(terminal.modes(), before, "{number:?}");
    }
}

#[test]
fn a_client_that_is_stopped_gives_the_terminal_back_until_it_goes_on() {
    let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
    let before = terminal.modes();
    let (mut child, mut stream) = attached(&daemon, &terminal, &[]);
    let raw = terminal.modes();
    signal(&child, Signal::SIGTSTP);
    until("the terminal to be given back", || (terminal.modes() == before).then_some(()));
    signal(&child, Signal::SIGCONT);
    until("the terminal to be raw again", || (terminal.modes() == raw).then_some(()));
    stream.exit(0, None);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(terminal.modes(), before);
}

#[test]
fn a_signal_ends_it_while_the_engine_does_not_answer_and_the_terminal_is_as_it_was() {
    for number in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGHUP] {
        let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
        let before = terminal.modes();
        let mut child = terminal.spawn(command(&daemon, &[]));
        let mut opening = daemon.opening();
        assert!(terminal.is_raw(), "what is typed ahead is for the command");
        assert!(terminal.modes().local_flags.contains(LocalFlags::ISIG), "the keys for signals work");
        signal(&child, number);
        assert_eq!(child.wait().expect("ended").signal(), Some(number as i32));
        assert!(opening.next().is_none());
        assert_eq!(terminal.modes(), before, "{number}");
    }
}

#[test]
fn a_refusal_leaves_the_terminal_as_it_was() {
    let (daemon, terminal) = (Daemon::answering("null"), Terminal::new());
    let before = terminal.modes();
    let mut child = terminal.spawn(command(&daemon, &[]));
    daemon.opening().refuse("session_not_found", "no session is named 'x'");
    assert_eq!(child.wait().expect("ended").code(), Some(125));
    assert_eq!(terminal.modes(), before);
    let shown = terminal.wait_for("abx list\r\n");
    let error = "\u{1b}[1;31mError:\u{1b}[0m no session is named 'x'\r\n";
    assert!(shown.starts_with(error), "{shown:?}");
}

#[test]
fn without_detach_keys_every_key_is_the_programs() {
    let (daemon, mut terminal) = (Daemon::answering("null"), Terminal::new());
    let (mut child, mut stream) = attached(&daemon, &terminal, &["--detach-keys", "none"]);
    terminal.press(b"\x1dd");
    assert_eq!(stream.input(2), b"\x1dd");
    stream.exit(0, None);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
}

#[test]
fn without_a_terminal_it_is_refused_with_what_to_type_instead() {
    let daemon = Daemon::answering("null");
    let output = command(&daemon, &[]).stdin(Stdio::null()).output().expect("output");
    assert_eq!(output.status.code(), Some(125));
    let error = String::from_utf8(output.stderr).expect("text");
    let want = "Error: attach needs a terminal on standard input and output\n\
                Hint: abx exec -i x -- CMD\n";
    assert_eq!(error, want);
}

#[test]
fn exec_on_a_terminal_is_raw_and_restored_too() {
    let (daemon, mut terminal) = (Daemon::answering("null"), Terminal::new());
    let before = terminal.modes();
    let mut command = abx(daemon.home());
    command.args(["exec", "-it", "-e", "TERM=mine", "x", "--", "sh"]);
    let mut child = terminal.spawn(command);
    let mut stream = daemon.stream();
    assert_eq!((stream.open.env["TERM"].as_str(), stream.open.attach), ("mine", false));
    stream.send(FrameKind::Stdout, b"ready");
    terminal.wait_for("ready");
    assert!(terminal.is_raw());
    terminal.press(b"\x1dd\x03");
    assert_eq!(stream.input(3), b"\x1dd\x03");
    stream.exit(3, None);
    assert_eq!(child.wait().expect("ended").code(), Some(3));
    assert_eq!(terminal.modes(), before);
}
