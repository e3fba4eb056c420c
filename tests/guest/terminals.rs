use abx::guest::wire::{Failed, Follow, Following, Kind, Payload, Peek, Run, Screen, Size};

use super::talk::{Talk, WINDOW, terminal};
use super::{Guest, until};

fn follow(name: &str, size: Option<Size>, writes: bool) -> Follow {
    Follow { id: name.to_owned(), window: WINDOW, writes, size, ..Follow::default() }
}

fn attach(talk: &mut Talk, follow: &Follow) -> (u32, Following) {
    let stream = talk.ask(Kind::Follow, &follow.encode());
    let following = talk.expect(stream, Kind::Following);
    (stream, following)
}

fn type_in(talk: &mut Talk, stream: u32, text: &str) {
    talk.send(Kind::Input, stream, text.as_bytes());
}

fn peek(talk: &mut Talk, name: &str) -> Screen {
    let stream = talk.ask(Kind::Peek, &Peek { id: name.to_owned(), scrollback: 100 }.encode());
    talk.expect(stream, Kind::Screen)
}

#[test]
fn a_program_finds_a_terminal_of_its_size_and_its_bytes_come_as_they_are() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "stty size; tty > /dev/null && [ -t 0 ] && [ -t 1 ] && echo is one; echo $TERM; exit 3";
    let run = Run { tty: Some(Size { cols: 132, rows: 43 }), ..terminal("1", "main", script) };
    let done = talk.run(&run);
    assert_eq!((done.text(), done.exited.code), ("43 132\r\nis one\r\nxterm-256color\r\n", 3));
}

#[test]
fn two_followers_see_the_same_and_both_type_and_the_size_follows_who_acted_last() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "stty -echo; echo go; while read -r line; do echo \"[$line $(stty size)]\"; done";
    let (first, _) = talk.start(&terminal("1", "main", script));
    talk.read_to(first, b"go\r\n");
    let (second, following) = attach(&mut talk, &follow("main", Some(Size { cols: 100, rows: 30 }), true));
    assert_eq!(following.size, Some(Size { cols: 100, rows: 30 }));
    let (kind, _) = talk.receive(second);
    assert_eq!(kind, Kind::Redraw, "a screen comes first");
    type_in(&mut talk, second, "a\n");
    talk.read_to(first, b"[a 30 100]\r\n");
    talk.read_to(second, b"[a 30 100]\r\n");
    type_in(&mut talk, first, "b\n");
    talk.read_to(second, b"[b 24 80]\r\n");
    talk.send(Kind::Resize, second, &Size { cols: 90, rows: 20 }.encode());
    type_in(&mut talk, second, "c\n");
    talk.read_to(first, b"[c 20 90]\r\n");
}

#[test]
fn the_size_goes_back_to_who_acted_before_when_who_acted_last_leaves() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let size = |cols, rows| Size { cols, rows };
    let (first, _) = talk.start(&terminal("1", "main", "cat"));
    let (second, _) = attach(&mut talk, &follow("main", Some(size(100, 30)), true));
    let (third, _) = attach(&mut talk, &follow("main", Some(size(60, 20)), true));
    attach(&mut talk, &follow("main", Some(size(9, 9)), false));
    type_in(&mut talk, first, "x");
    assert_eq!(peek(&mut talk, "main").size, size(80, 24));
    talk.send(Kind::Leave, second, b"");
    assert_eq!(peek(&mut talk, "main").size, size(80, 24), "another has acted since");
    talk.send(Kind::Leave, first, b"");
    assert_eq!(peek(&mut talk, "main").size, size(60, 20));
    talk.send(Kind::Leave, third, b"");
    assert_eq!(peek(&mut talk, "main").size, size(60, 20), "nobody is left whose size counts");
}

#[test]
fn who_comes_to_act_and_sees_nothing_types_and_sets_the_size_and_leaves_it_so() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "stty -echo; echo go; while read -r line; do echo \"[$line $(stty size)]\"; done";
    let (first, _) = talk.start(&terminal("1", "main", script));
    talk.read_to(first, b"go\r\n");
    let unseen = |size| Follow { window: 0, ..follow("main", size, true) };
    let (resizes, _) = attach(&mut talk, &unseen(Some(Size { cols: 90, rows: 20 })));
    talk.send(Kind::Leave, resizes, b"");
    let (types, _) = attach(&mut talk, &unseen(None));
    type_in(&mut talk, types, "a\n");
    talk.send(Kind::Leave, types, b"");
    talk.read_to(first, b"[a 20 90]\r\n");
    type_in(&mut talk, first, "b\n");
    talk.read_to(first, b"[b 24 80]\r\n");
}

#[test]
fn who_only_reads_neither_types_nor_resizes() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "stty -echo; echo go; while read -r line; do echo \"[$line $(stty size)]\"; done";
    let (first, _) = talk.start(&terminal("1", "main", script));
    talk.read_to(first, b"go\r\n");
    let (second, _) = attach(&mut talk, &follow("main", Some(Size { cols: 9, rows: 9 }), false));
    type_in(&mut talk, second, "no\n");
    talk.send(Kind::Resize, second, &Size { cols: 9, rows: 9 }.encode());
    type_in(&mut talk, first, "yes\n");
    talk.read_to(first, b"[yes 24 80]\r\n");
    talk.read_to(second, b"[yes 24 80]\r\n");
}

#[test]
fn a_terminal_lives_without_anyone_and_is_painted_for_who_comes_back() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "echo was here; read -r line; echo \"got $line\"; exit 4";
    let run = Run { detached: true, ..terminal("1", "main", script) };
    let (stream, _) = talk.start(&run);
    talk.read_to(stream, b"was here\r\n");
    drop(talk);
    let mut talk = guest.connect();
    let (stream, _) = attach(&mut talk, &follow("main", None, true));
    let (kind, painted) = talk.receive(stream);
    assert_eq!(kind, Kind::Redraw);
    assert!(String::from_utf8_lossy(&painted).contains("was here"), "{painted:?}");
    type_in(&mut talk, stream, "x\n");
    talk.read_to(stream, b"got x\r\n");
    assert_eq!(talk.finish(stream).exited.code, 4);
    assert!(peek(&mut talk, "main").lines.iter().any(|line| line == "got x"), "the last screen is kept");
    let (stream, _) = attach(&mut talk, &follow("main", None, true));
    let (kind, painted) = talk.receive(stream);
    assert!(kind == Kind::Redraw && String::from_utf8_lossy(&painted).contains("got x"));
    assert_eq!(talk.finish(stream).exited.code, 4);
}

#[test]
fn a_follower_that_stops_reading_holds_nobody_up_and_gets_a_fresh_screen() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "stty -echo; echo go; read -r x; seq 1 300000; echo end-of-flood; read -r x; echo bye";
    let (frozen, _) = talk.start(&Run { window: 1000, ..terminal("1", "main", script) });
    let (quick, _) = attach(&mut talk, &follow("main", None, true));
    type_in(&mut talk, quick, "\n");
    talk.read_to(quick, b"end-of-flood\r\n");
    let mut sent = 0;
    while sent < 1000 {
        let (kind, payload) = talk.receive(frozen);
        assert_eq!(kind, Kind::Stdout);
        sent += payload.len();
    }
    assert_eq!(sent, 1000, "no more than its credit");
    talk.give(frozen, 1 << 20);
    let (kind, painted) = talk.receive(frozen);
    assert_eq!(kind, Kind::Redraw);
    assert!(String::from_utf8_lossy(&painted).contains("end-of-flood"));
    type_in(&mut talk, quick, "\n");
    talk.read_to(frozen, b"bye\r\n");
    assert_eq!(talk.finish(frozen).exited.code, 0);
}

#[test]
fn who_fell_behind_a_program_that_has_ended_gets_its_last_screen_and_its_end() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = "read -r x; seq 1 300000; echo end-of-flood; exit 5";
    let (frozen, _) = talk.start(&Run { window: 1000, ..terminal("1", "main", script) });
    let (quick, _) = attach(&mut talk, &follow("main", None, true));
    type_in(&mut talk, quick, "\n");
    assert_eq!(talk.finish(quick).exited.code, 5);
    // The model is asked for what the program left when that ends; this is answered after it.
    assert!(peek(&mut talk, "main").lines.iter().any(|line| line == "end-of-flood"));
    let mut got = 0;
    while got < 1000 {
        got += talk.receive(frozen).1.len();
    }
    talk.give(frozen, 1 << 20);
    let (kind, painted) = talk.receive(frozen);
    assert_eq!(kind, Kind::Redraw);
    assert!(String::from_utf8_lossy(&painted).contains("end-of-flood"));
    assert_eq!(talk.finish(frozen).exited.code, 5);
}

#[test]
fn a_flood_arrives_whole_at_who_reads_it() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let done = talk.run(&terminal("1", "", "stty -onlcr; seq 1 400000; echo end"));
    let expected: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(done.text() == expected + "end\n", "{} bytes", done.stdout.len());
}

#[test]
fn a_peek_shows_the_screen_and_not_what_is_no_terminal() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&terminal("1", "main", "echo shown; read -r x"));
    talk.read_to(stream, b"shown\r\n");
    let screen = until("the screen shows it", || {
        Some(peek(&mut talk, "main")).filter(|screen| screen.lines.iter().any(|line| line == "shown"))
    });
    assert_eq!(screen.size, Size { cols: 80, rows: 24 });
    talk.run(&super::talk::sh("2", "true"));
    for (id, why) in [("2", Failed::STATE), ("3", Failed::UNKNOWN)] {
        let peek = Peek { id: id.to_owned(), scrollback: 0 };
        assert_eq!(talk.refused(Kind::Peek, &peek.encode()).why, why);
    }
}

#[test]
fn there_is_one_terminal_of_a_name_and_a_new_one_after_its_end() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&terminal("1", "main", "read -r x; exit 1"));
    let second = terminal("2", "main", "exit 2");
    assert_eq!(talk.refused(Kind::Run, &second.encode()).why, Failed::STATE);
    type_in(&mut talk, stream, "\n");
    assert_eq!(talk.finish(stream).exited.code, 1);
    assert_eq!(talk.run(&second).exited.code, 2);
}

#[test]
fn an_interrupt_reaches_what_is_in_the_foreground() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let mut run = terminal("1", "main", "");
    run.argv = vec![b"sh".to_vec(), b"-i".to_vec()];
    let (stream, _) = talk.start(&run);
    type_in(&mut talk, stream, "sleep 300\n");
    until("sleep runs in the foreground", || {
        let entry = talk.entry("1").unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", entry.pid)).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        (fields[5] != entry.pid.to_string()).then_some(())
    });
    type_in(&mut talk, stream, "\x03");
    type_in(&mut talk, stream, "echo code-$?\n");
    talk.read_past(stream, "code-130\r\n");
    talk.send(Kind::InputEnd, stream, b"");
    type_in(&mut talk, stream, "exit 6\n");
    assert_eq!(talk.finish(stream).exited.code, 6);
}
