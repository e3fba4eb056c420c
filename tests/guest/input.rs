use std::io::Write;

use abx::guest::wire::{INPUT_WINDOW, Kind, Payload, Run, frame};

use super::Guest;
use super::talk::{Done, Talk, command, sh};

/// Sends all of `bytes` as credit allows, and reads what comes back meanwhile.
fn exchange(talk: &mut Talk, stream: u32, bytes: &[u8]) -> Done {
    let mut credit = INPUT_WINDOW as usize;
    let mut rest = bytes;
    let mut done = Done::default();
    loop {
        while credit > 0 && !rest.is_empty() {
            let length = rest.len().min(credit).min(65_536);
            talk.send(Kind::Input, stream, &rest[..length]);
            rest = &rest[length..];
            credit -= length;
            if rest.is_empty() {
                talk.send(Kind::InputEnd, stream, b"");
            }
        }
        let (kind, payload) = talk.receive(stream);
        match kind {
            Kind::Credit => credit += abx::guest::wire::Credit::decode(&payload).unwrap().bytes as usize,
            Kind::Stdout => {
                talk.give(stream, payload.len());
                done.stdout.extend(payload);
            }
            Kind::Exited => {
                done.exited = abx::guest::wire::Exited::decode(&payload).unwrap();
                return done;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn sixty_four_mebibytes_go_through_cat_and_back() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&Run { stdin: true, ..command("1", &["cat"]) });
    let bytes: Vec<u8> = (0..64 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let done = exchange(&mut talk, stream, &bytes);
    assert!(done.stdout == bytes, "{} bytes, {:?}", done.stdout.len(), done.exited);
    assert_eq!(done.exited.code, 0);
}

#[test]
fn input_that_nobody_reads_does_not_hold_the_call() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) =
        talk.start(&Run { stdin: true, ..sh("1", "exec 0<&-; echo closed; sleep 0.2; exit 3") });
    let done = exchange(&mut talk, stream, &vec![b'x'; 2 << 20]);
    assert_eq!((done.text(), done.exited.code), ("closed\n", 3));
}

#[test]
fn a_command_without_input_reads_an_end_and_so_does_one_whose_input_is_empty() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    assert_eq!(talk.run(&sh("1", "wc -c")).text().trim(), "0");
    let (stream, _) = talk.start(&Run { stdin: true, ..sh("2", "wc -c") });
    talk.send(Kind::InputEnd, stream, b"");
    assert_eq!(talk.finish(stream).text().trim(), "0");
}

#[test]
fn output_comes_long_after_the_input_has_ended() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&Run { stdin: true, ..sh("1", "cat; sleep 1; echo late; exit 4") });
    talk.send(Kind::Input, stream, b"early\n");
    talk.send(Kind::InputEnd, stream, b"");
    let done = talk.finish(stream);
    assert_eq!((done.text(), done.exited.code), ("early\nlate\n", 4));
}

#[test]
fn more_input_than_there_is_credit_for_ends_the_connection_and_not_the_command() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&Run { stdin: true, detached: true, ..sh("1", "sleep 0.5; wc -c") });
    let piece = vec![0; 65_536];
    // A pipe takes some of it, and so gives some credit back.
    for _ in 0..INPUT_WINDOW / 65_536 + 3 {
        let _ = talk.socket.write_all(&frame(Kind::Input, stream, &piece));
    }
    assert!(talk.is_closed());
    let mut talk = guest.connect();
    let stream = talk.follow("1", [0, 0]);
    talk.send(Kind::InputEnd, stream, b"");
    let _: abx::guest::wire::Following = talk.expect(stream, Kind::Following);
    assert_eq!(talk.finish(stream).exited.code, 0);
}
