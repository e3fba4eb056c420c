use abx::guest::wire::{Failed, Kind, Payload, Run};

use super::talk::{command, sh};
use super::{Guest, is_alive, until};

#[test]
fn a_command_gives_its_output_in_order_and_its_code() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let done = talk.run(&sh("1", "echo out; echo err >&2; exit 7"));
    assert_eq!((done.text(), &*done.stderr), ("out\n", b"err\n".as_slice()));
    assert_eq!((done.exited.code, done.exited.signal, done.exited.stdout, done.exited.stderr), (7, 0, 4, 4));
    let numbers = talk.run(&command("2", &["seq", "1", "200000"]));
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(numbers.text() == expected, "{} bytes", numbers.stdout.len());
}

#[test]
fn the_end_by_a_signal_is_told_as_such() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    for (id, signal) in [("1", 9_u8), ("2", 15), ("3", 6), ("4", 40)] {
        let exited = talk.run(&sh(id, &format!("kill -{signal} $$"))).exited;
        assert_eq!((exited.code, exited.signal, exited.oom), (128 + i32::from(signal), signal, false));
    }
}

#[test]
fn what_cannot_run_says_why() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let mut why = |run: Run| talk.refused(Kind::Run, &run.encode()).why;
    assert_eq!(why(command("1", &["no-such-program"])), Failed::NOT_FOUND);
    assert_eq!(why(command("2", &["/etc/passwd"])), Failed::NOT_EXECUTABLE);
    assert_eq!(why(Run { cwd: Some(b"/no/where".to_vec()), ..sh("3", "true") }), Failed::NO_DIRECTORY);
    assert_eq!(why(Run { user: Some("nobody-here".to_owned()), ..sh("4", "true") }), Failed::NO_USER);
    assert_eq!(why(Run { user: Some("0:none".to_owned()), ..sh("5", "true") }), Failed::NO_USER);
    assert!(talk.entry("1").is_none(), "what never ran has no record");
}

#[test]
fn a_command_gets_the_environment_and_directory_that_it_was_given_and_what_is_missing() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let mut run = Run { cwd: Some(b"/usr".to_vec()), ..command("1", &["env"]) };
    run.env = ["A=b=c", "HOME=/given", "=odd", "none"].map(|pair| pair.as_bytes().to_vec()).to_vec();
    let done = talk.run(&run);
    let has = |line: &str| done.text().lines().any(|l| l == line);
    assert!(has("A=b=c") && has("HOME=/given") && has("ABX_EXEC_ID=1"), "{}", done.text());
    assert!(
        done.text().contains("PATH=/usr/local/sbin:") && !done.text().contains("none"),
        "{}",
        done.text()
    );
    let place = talk.run(&Run { cwd: Some(b"/usr/lib".to_vec()), ..command("2", &["pwd", "-P"]) });
    assert_eq!(place.text(), format!("{}\n", std::fs::canonicalize("/usr/lib").unwrap().display()));
}

#[test]
fn a_command_runs_as_the_user_it_was_given() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    if talk.hello.uid != 0 {
        let refused = talk.refused(Kind::Run, &Run { user: Some("7".to_owned()), ..sh("1", "id") }.encode());
        assert_eq!(refused.why, Failed::NEEDS_ENGINE);
        return;
    }
    let script = "echo $(id -u):$(id -g):$(id -G):$HOME; echo own > /dev/stderr";
    // Without a home of its own one would be made on this machine.
    let mut run = Run { user: Some("54321:54322".to_owned()), ..sh("1", script) };
    run.env.push(b"HOME=/there".to_vec());
    let done = talk.run(&run);
    assert_eq!((done.text(), &*done.stderr), ("54321:54322:54322:/there\n", b"own\n".as_slice()));
    let nobody =
        talk.run(&Run { user: Some("nobody".to_owned()), ..sh("2", "echo $USER:$LOGNAME:$(id -un)") });
    assert_eq!(nobody.text(), "nobody:nobody:nobody\n");
}

#[test]
fn a_background_child_that_keeps_the_output_open_does_not_hold_the_call() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let done = talk.run(&sh("1", "sleep 300 & echo $!"));
    assert_eq!(done.exited.code, 0);
    let sleeper: u32 = done.text().trim().parse().unwrap();
    assert!(is_alive(sleeper), "it goes on");
    assert!(
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleeper.cast_signed()), nix::sys::signal::SIGKILL)
            .is_ok()
    );
    until("the orphan is reaped", || {
        (!std::path::Path::new(&format!("/proc/{sleeper}")).exists()).then_some(())
    });
}

#[test]
fn a_signal_for_all_reaches_what_left_the_group_and_the_session() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script =
        "sleep 300 & echo $!; setsid sleep 300 & sleep 0.1; setsid sh -c 'echo $$; exec sleep 300' & wait";
    let (stream, _) = talk.start(&sh("1", script));
    let lines = String::from_utf8(talk.read_to(stream, b"\n")).unwrap();
    let mut pids: Vec<u32> = lines.lines().map(|line| line.parse().unwrap()).collect();
    if pids.len() < 2 {
        let rest = String::from_utf8(talk.read_to(stream, b"\n")).unwrap();
        pids.extend(rest.lines().map(|line| line.parse::<u32>().unwrap()));
    }
    talk.signal("1", 15);
    let done = talk.finish(stream);
    assert_eq!((done.exited.code, done.exited.signal), (143, 15));
    for pid in pids {
        until("each has ended", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn a_signal_for_all_reaches_what_a_command_left_behind_and_nothing_else() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let left =
        r#"sh -c 'trap "" TERM; echo $$; while :; do sleep 300; done' & setsid sleep 300 & exec sleep 300"#;
    let (stream, _) = talk.start(&sh("1", left));
    let deaf: u32 = String::from_utf8(talk.read_to(stream, b"\n")).unwrap().trim().parse().unwrap();
    let (other, _) = talk.start(&sh("2", "sleep 300"));
    talk.signal("1", 15);
    assert_eq!(talk.finish(stream).exited.signal, 15);
    assert!(is_alive(deaf), "it ignores what its leader did not");
    talk.signal("1", 9);
    until("it is killed all the same", || (!is_alive(deaf)).then_some(()));
    talk.signal("2", 9);
    assert_eq!(talk.finish(other).exited.signal, 9);
}

#[test]
fn a_signal_reaches_all_that_a_command_started() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stream, _) = talk.start(&sh("1", "trap : INT; sleep 300 & echo $!; wait; wait"));
    let sleeper: u32 = String::from_utf8(talk.read_to(stream, b"\n")).unwrap().trim().parse().unwrap();
    talk.signal("1", 9);
    assert_eq!(talk.finish(stream).exited.signal, 9);
    until("the child has ended", || (!is_alive(sleeper)).then_some(()));
    let ended = abx::guest::wire::Signal { id: "1".to_owned(), signal: 15 };
    assert_eq!(talk.refused(Kind::Signal, &ended.encode()).why, Failed::STATE);
}

#[test]
fn three_hundred_commands_at_once_give_each_its_code_and_whole_output() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let script = |n: usize| format!("seq {n} $(({n} + 2000)); echo {n} >&2; exit $(({n} % 256))");
    let streams: Vec<u32> =
        (0..300).map(|n| talk.ask(Kind::Run, &sh(&n.to_string(), &script(n)).encode())).collect();
    for (n, stream) in streams.into_iter().enumerate() {
        let _: abx::guest::wire::Started = talk.expect(stream, Kind::Started);
        let done = talk.finish(stream);
        assert_eq!(done.exited.code, i32::try_from(n % 256).unwrap());
        let expected: String = (n..=n + 2000).map(|line| format!("{line}\n")).collect();
        assert_eq!((done.text(), &*done.stderr), (&*expected, format!("{n}\n").as_bytes()));
    }
}

#[test]
fn one_stalled_stream_beside_a_flood_holds_nobody_up() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let (stalled, _) = talk.start(&Run { window: 10, ..sh("stalled", "seq 1 1000000; echo end") });
    let flood = talk.run(&sh("flood", "head -c 300000000 /dev/zero"));
    assert_eq!(flood.stdout.len(), 300_000_000);
    assert_eq!(talk.run(&sh("after", "echo quick")).text(), "quick\n");
    talk.give(stalled, 1 << 20);
    let done = talk.finish(stalled);
    assert!(done.text().ends_with("1000000\nend\n"));
    assert_eq!(done.stdout.len() as u64, done.exited.stdout);
}

#[test]
fn a_command_that_is_started_twice_with_one_id_runs_once() {
    let guest = Guest::start();
    let mut talk = guest.connect();
    let run = sh("1", "echo $$");
    let first = talk.run(&run);
    let again = talk.ask(Kind::Run, &run.encode());
    let following: abx::guest::wire::Following = talk.expect(again, Kind::Following);
    assert_eq!((following.id.as_str(), following.stdout_from), ("1", 0));
    assert_eq!(talk.finish(again), first);
}
