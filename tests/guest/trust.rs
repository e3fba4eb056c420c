use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use abx::guest::wire::{
    Failed, Follow, HEADER_BYTES, Header, Hello, Kind, MAX_FROM_GUEST, Payload, Peek, Run, Signal, Welcome,
    frame,
};

use super::talk::{Talk, sh};
use super::{ABX_INIT, Guest, is_alive, until};

#[test]
fn a_frame_that_makes_no_sense_ends_the_connection_and_nothing_else() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (_, pid) = talk.start(&Run { detached: true, ..sh("kept", "sleep 300") });
    drop(talk);
    let frames = [
        frame(Kind::Run, 1, b"cut"),
        frame(Kind::Run, 0, &sh("1", "true").encode()),
        frame(Kind::Hello, 1, b""),
        frame(Kind::Welcome, 0, &Welcome { version: 1 }.encode()),
        vec![Kind::Run as u8, 0xff, 0xff, 0xff, 0, 0, 0, 1],
        [frame(Kind::Run, 1, &sh("2", "sleep 9").encode()), frame(Kind::List, 1, b"")].concat(),
    ];
    for bytes in frames {
        let mut talk = guest.connect();
        talk.socket.write_all(&bytes).unwrap();
        assert!(talk.is_closed(), "{bytes:?}");
        assert!(is_alive(pid));
    }
    let mut talk = guest.connect();
    assert!(talk.entry("kept").unwrap().ended.is_none());
}

#[test]
fn nothing_is_done_before_both_agree_on_a_version() {
    let guest = Guest::start();
    for first in [frame(Kind::List, 1, b""), frame(Kind::Welcome, 0, &Welcome { version: 99 }.encode())] {
        let (mut socket, _) = guest.listener.accept().unwrap();
        socket.write_all(&first).unwrap();
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        let header = Header::parse(*all.first_chunk::<HEADER_BYTES>().unwrap(), MAX_FROM_GUEST).unwrap();
        assert_eq!((header.kind, header.length), (Some(Kind::Hello), all.len() - HEADER_BYTES));
        let hello = Hello::decode(&all[HEADER_BYTES..]).unwrap();
        assert_eq!((hello.oldest, hello.newest), (2, 2));
    }
    guest.connect();
}

#[test]
fn whatever_is_named_in_a_request_its_refusal_fits_a_frame_and_the_connection_stays() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let long = || format!("/{}", "v".repeat(300_000));
    let runs = [
        Run { cwd: Some(long().into_bytes()), ..sh("cwd", "true") },
        Run { user: Some(long()), ..sh("user", "true") },
        Run { argv: vec![long().into_bytes()], ..sh("argv", "true") },
        Run { argv: vec![b"true".to_vec(), long().into_bytes()], ..sh("arguments", "true") },
        Run { terminal: long(), ..sh("terminal", "true") },
        Run { id: long(), ..sh("id", "true") },
    ];
    let runs = runs.iter().map(|run| (Kind::Run, run.encode()));
    let named = [
        (Kind::Follow, Follow { id: long(), ..Follow::default() }.encode()),
        (Kind::Signal, Signal { id: long(), signal: 15 }.encode()),
        (Kind::Peek, Peek { id: long(), ..Peek::default() }.encode()),
    ];
    for (kind, payload) in runs.chain(named) {
        let stream = talk.ask(kind, &payload);
        let (answer, payload) = talk.receive(stream);
        assert_eq!(answer, Kind::Failed, "{kind:?}");
        assert!(payload.len() < 2 * Failed::MAX_TEXT_BYTES, "{kind:?}: {} bytes", payload.len());
    }
    let stream = talk.ask(Kind::List, &[]);
    assert_eq!(talk.receive(stream).0, Kind::Done, "nothing was started");
}

#[test]
fn a_kind_that_is_not_known_is_skipped() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    talk.socket.write_all(&[50, 0, 0, 3, 0, 0, 0, 9, 1, 2, 3]).unwrap();
    assert_eq!(talk.run(&sh("1", "echo on")).text(), "on\n");
}

/// A bridge, and its two ends as one socket.
fn bridge(name: &str) -> (Child, UnixStream) {
    let (ours, its) = UnixStream::pair().unwrap();
    let its_out = its.try_clone().unwrap();
    let child = Command::new(ABX_INIT)
        .args(["bridge", "--to", name])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(its_out)))
        .spawn()
        .unwrap();
    (child, ours)
}

#[test]
fn a_bridge_passes_everything_on_and_the_newest_connection_counts() {
    let name = format!("abx-test-{}", std::process::id());
    let guest = Guest::start_with(&["--listen", &name]);
    let mut dialed = guest.connect();
    let (mut first, socket) = bridge(&name);
    let mut talk = Talk::agree(socket);
    assert!(dialed.is_closed(), "there is one connection");
    let done = talk.run(&sh("1", "head -c 50000000 /dev/zero; echo end"));
    assert!(done.stdout.len() == 50_000_004 && done.exited.code == 0);
    let (mut second, socket) = bridge(&name);
    let mut talk = Talk::agree(socket);
    until("the first bridge has ended", || first.try_wait().unwrap());
    assert_eq!(talk.run(&sh("2", "echo on")).text(), "on\n");
    drop(talk);
    until("the second bridge has ended", || second.try_wait().unwrap());
    assert_eq!(guest.connect().entry("1").unwrap().ended.unwrap().code, 0);
}
