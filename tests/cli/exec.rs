//! `abx exec` with a scripted daemon.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use abx::proto::stream::FrameKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::abx;
use super::daemon::Daemon;

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("small")), signal).expect("signalled");
}

#[test]
fn bytes_go_both_ways_unchanged_and_the_code_is_the_commands_own() {
    let daemon = Daemon::answering("null");
    let mut child = abx(daemon.home())
        .args(["exec", "-i", "x", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| u8::try_from(n % 251).expect("small")).collect();
    let (mut stdin, all) = (child.stdin.take().expect("a pipe"), bytes.clone());
    let typist = std::thread::spawn(move || stdin.write_all(&all));
    let echo = std::thread::spawn(move || {
        let mut stream = daemon.stream();
        assert!(stream.open.stdin && stream.open.tty.is_none() && !stream.open.attach);
        loop {
            let payload = stream.wait_for(FrameKind::Input);
            if payload.is_empty() {
                break;
            }
            assert!(stream.send(FrameKind::Stdout, &payload));
        }
        stream.send(FrameKind::Stderr, b"done\xff");
        stream.exit(7, None);
    });
    let output = child.wait_with_output().expect("output");
    typist.join().expect("no panic").expect("all typed");
    echo.join().expect("no panic");
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    assert_eq!(output.stderr, b"done\xff");
}

#[test]
fn a_terminal_with_piped_input_is_refused_before_anything_runs() {
    let daemon = Daemon::answering("null");
    let child = abx(daemon.home())
        .args(["exec", "-it", "x", "--", "sh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    let output = child.wait_with_output().expect("output");
    assert_eq!(output.status.code(), Some(125));
    let want = "Error: the input device is not a terminal\nHint: leave -t out\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), want);
}

#[test]
fn without_i_the_command_has_no_input_and_the_client_reads_none() {
    let daemon = Daemon::answering("null");
    let child =
        abx(daemon.home()).args(["exec", "x", "--", "true"]).stdin(Stdio::piped()).spawn().expect("spawn");
    let mut stream = daemon.stream();
    assert!(!stream.open.stdin);
    stream.exit(0, None);
    assert!(stream.next().is_none(), "a frame came");
    assert_eq!(child.wait_with_output().expect("output").status.code(), Some(0));
}

#[test]
fn closed_input_is_told_once() {
    let daemon = Daemon::answering("null");
    let child = abx(daemon.home())
        .args(["exec", "-i", "x", "--", "cat"])
        .stdin(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut stream = daemon.stream();
    assert_eq!(stream.next(), Some((FrameKind::Input, Vec::new())));
    stream.exit(0, None);
    assert!(stream.next().is_none(), "a second frame came");
    assert_eq!(child.wait_with_output().expect("output").status.code(), Some(0));
}

#[test]
fn the_first_interrupt_is_the_commands_and_the_second_the_clients() {
    for (number, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let daemon = Daemon::answering("null");
        let mut child = abx(daemon.home()).args(["exec", "x", "--", "sleep"]).spawn().expect("spawn");
        let mut stream = daemon.stream();
        signal(&child, number);
        assert_eq!(stream.wait_for(FrameKind::Signal), [u8::try_from(number as i32).expect("small")]);
        signal(&child, number);
        assert!(stream.next().is_none());
        assert_eq!(child.wait().expect("ended").code(), Some(code));
    }
}

#[test]
fn a_signal_ends_it_while_the_engine_does_not_answer() {
    for number in [Signal::SIGINT, Signal::SIGTERM] {
        let daemon = Daemon::answering("null");
        let mut child = abx(daemon.home()).args(["exec", "x", "--", "sleep"]).spawn().expect("spawn");
        let mut opening = daemon.opening();
        signal(&child, number);
        assert_eq!(child.wait().expect("ended").signal(), Some(number as i32));
        assert!(opening.next().is_none());
    }
}

#[test]
fn interrupts_work_while_the_command_does_not_read_its_input() {
    let daemon = Daemon::answering("null");
    let mut child = abx(daemon.home())
        .args(["exec", "-i", "x", "--", "sleep"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut stdin = child.stdin.take().expect("a pipe");
    let typist = std::thread::spawn(move || while stdin.write_all(&[7; 65_536]).is_ok() {});
    let mut stream = daemon.stream();
    // Nothing more is read from here on: the client's input thread is stuck in the middle of a frame.
    assert_eq!(stream.input(1).len() % 65_536, 0);
    signal(&child, Signal::SIGINT);
    signal(&child, Signal::SIGTERM);
    let code = child.wait().expect("ended").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    typist.join().expect("no panic");
}

#[test]
fn a_reader_that_goes_away_ends_it_without_a_word() {
    let daemon = Daemon::answering("null");
    let mut child = abx(daemon.home())
        .args(["exec", "x", "--", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut stream = daemon.stream();
    let mut first = [0; 2];
    stream.send(FrameKind::Stdout, b"y\n");
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("the first line");
    while stream.send(FrameKind::Stdout, &[b'y'; 65_536]) {}
    let output = child.wait_with_output().expect("output");
    assert_eq!((output.status.signal(), output.stderr.as_slice()), (Some(13), &b""[..]));
}

#[test]
fn a_stream_that_breaks_is_125_and_says_that_the_command_may_go_on() {
    let daemon = Daemon::answering("null");
    let child = abx(daemon.home())
        .args(["exec", "x", "--", "sleep"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    drop(daemon.stream());
    let output = child.wait_with_output().expect("output");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(125));
    assert!(error.starts_with("Error: abxd went away; the command may still be running\n"), "{error}");
}

#[test]
fn t_without_a_terminal_is_refused_before_anything_runs() {
    let daemon = Daemon::answering("null");
    let output = abx(daemon.home()).args(["exec", "-t", "x", "--", "true"]).output().expect("output");
    assert_eq!(output.status.code(), Some(125));
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(error, "Error: -t needs a terminal on standard output\nHint: leave -t out\n");
}
