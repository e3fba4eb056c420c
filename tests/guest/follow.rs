use abx::guest::wire::{Entry, Failed, Follow, Following, Kind, Payload, Run};

use super::talk::sh;
use super::{Guest, is_alive, until};

#[test]
fn a_command_is_followed_from_an_offset_after_its_connection_was_cut() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, pid) = talk.start(&sh("1", "seq 1 400000; exit 5"));
    let (kind, mut first) = talk.receive(stream);
    assert_eq!(kind, Kind::Stdout);
    drop(talk);
    let mut talk = guest.connect();
    let stream = talk.follow("1", [first.len() as u64, 0]);
    let following: Following = talk.expect(stream, Kind::Following);
    assert_eq!(following.stdout_from, first.len() as u64);
    let rest = talk.finish(stream);
    first.extend(&rest.stdout);
    let expected: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(first == expected.as_bytes(), "{} bytes", first.len());
    assert_eq!(rest.exited.code, 5);
    assert!(!is_alive(pid));
}

#[test]
fn a_command_that_is_not_followed_again_in_time_is_ended_with_all_it_started() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let run = Run { orphan_ms: 200, ..sh("1", "setsid sleep 300 & echo $!; yes") };
    let (stream, pid) = talk.start(&run);
    let (_, first) = talk.receive(stream);
    let child: u32 = String::from_utf8_lossy(&first).lines().next().unwrap().parse().unwrap();
    drop(talk);
    let mut talk = guest.connect();
    until("both have ended", || (!is_alive(pid) && !is_alive(child)).then_some(()));
    let ended = until("the record has its end", || talk.entry("1").unwrap().ended);
    assert_eq!((ended.code, ended.signal), (143, 15));
}

#[test]
fn a_command_that_ignores_term_is_killed_and_one_that_is_detached_goes_on() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let (stream, pid) = talk.start(&Run { orphan_ms: 10, ..sh("1", stubborn) });
    talk.read_to(stream, b"ready\n");
    let (stream, detached) = talk.start(&Run { orphan_ms: 10, detached: true, ..sh("2", stubborn) });
    talk.read_to(stream, b"ready\n");
    drop(talk);
    until("it was killed", || (!is_alive(pid)).then_some(()));
    assert!(is_alive(detached));
    let mut talk = guest.connect();
    let ended = until("the record has its end", || talk.entry("1").unwrap().ended);
    assert_eq!(ended.signal, 9);
}

#[test]
fn a_command_is_held_without_losing_a_byte_until_its_follower_is_back() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, pid) = talk.start(&sh("1", "head -c 20000000 /dev/zero | tr '\\0' x; echo end"));
    let (_, first) = talk.receive(stream);
    drop(talk);
    let mut talk = guest.connect();
    let held = talk.entry("1").unwrap();
    assert!(held.ended.is_none() && held.dropped == 0, "{held:?}");
    assert!(is_alive(pid));
    let stream = talk.follow("1", [first.len() as u64, 0]);
    let following: Following = talk.expect(stream, Kind::Following);
    assert_eq!(following.stdout_from, first.len() as u64);
    let rest = talk.finish(stream);
    assert_eq!(first.len() + rest.stdout.len(), 20_000_004);
    assert!(rest.stdout.ends_with(b"xend\n"));
}

#[test]
fn output_that_nobody_follows_is_kept_up_to_its_limit_and_counted_past_it() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let run = Run { window: 0, detached: true, keep: 100_000, ..sh("1", "seq 1 200000; exit 6") };
    talk.start(&run);
    let (kind, payload) = talk.receive(0);
    assert_eq!(kind, Kind::Ended);
    let entry = Entry::decode(&payload).unwrap();
    let all: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert_eq!((entry.stdout, entry.dropped), (all.len() as u64, all.len() as u64 - 100_000));
    let stream = talk.follow("1", [10, 0]);
    let following: Following = talk.expect(stream, Kind::Following);
    assert_eq!(following.stdout_from, entry.dropped);
    let done = talk.finish(stream);
    assert_eq!(done.text(), &all[all.len() - 100_000..]);
    assert_eq!(done.exited.code, 6);
}

#[test]
fn who_waits_for_the_end_alone_gets_no_output_and_holds_nothing_up() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    talk.start(&Run { window: 0, ..sh("1", "sleep 0.2; head -c 5000000 /dev/zero; exit 9") });
    let stream = talk.ask(Kind::Follow, &Follow { id: "1".to_owned(), ..Follow::default() }.encode());
    let _: Following = talk.expect(stream, Kind::Following);
    let done = talk.finish(stream);
    assert_eq!((done.stdout.len(), done.exited.code, done.exited.stdout), (0, 9, 5_000_000));
}

#[test]
fn a_stream_that_is_given_up_leaves_the_command_running() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, pid) = talk.start(&Run { orphan_ms: 0, ..sh("1", "echo one; sleep 300") });
    talk.read_to(stream, b"one\n");
    talk.send(Kind::Leave, stream, b"");
    assert_eq!(talk.entry("1").unwrap().followers, 0);
    drop(talk);
    let mut talk = guest.connect();
    assert!(is_alive(pid));
    talk.signal("1", 9);
    let ended = until("it has ended", || talk.entry("1").unwrap().ended);
    assert_eq!(ended.signal, 9);
}

#[test]
fn a_record_is_kept_after_the_end() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    talk.run(&sh("1", "echo kept; exit 3"));
    drop(talk);
    let mut talk = guest.connect();
    let stream = talk.follow("1", [0, 0]);
    let _: Following = talk.expect(stream, Kind::Following);
    let done = talk.finish(stream);
    assert_eq!((done.text(), done.exited.code), ("kept\n", 3));
    let unknown = Follow { id: "2".to_owned(), ..Follow::default() };
    assert_eq!(talk.refused(Kind::Follow, &unknown.encode()).why, Failed::UNKNOWN);
}

#[test]
fn a_socket_that_is_bound_anew_is_found() {
    let mut guest = Guest::start();
    let mut talk = guest.connect();
    talk.run(&sh("1", "true"));
    drop(talk);
    std::fs::remove_file(guest.socket()).unwrap();
    guest.listener = std::os::unix::net::UnixListener::bind(guest.socket()).unwrap();
    let mut talk = guest.connect();
    assert_eq!(talk.entry("1").unwrap().ended.unwrap().code, 0);
}
