use abx::guest::wire::{Failed, Kind, Payload, Run};

use super::talk::{sh, terminal};
use super::{ABX_INIT, Guest, until};

#[test]
fn term_ends_it_where_nothing_runs() {
    let mut guest = Guest::start();
    let mut talk = guest.connect();
    talk.run(&sh("1", "true"));
    guest.term();
    assert_eq!(guest.ended(), Some(0));
    assert!(talk.is_closed());
}

#[test]
fn term_ends_commands_and_shells_on_terminals_and_tells_how_they_ended() {
    let mut guest = Guest::start();
    let mut talk = guest.connect();
    let (command, _) = talk.start(&sh("1", "echo ready; sleep 300"));
    let mut shell = terminal("2", "main", "");
    shell.argv = vec![b"sh".to_vec(), b"-i".to_vec()];
    let (shell, _) = talk.start(&shell);
    talk.read_to(command, b"ready\n");
    talk.send(Kind::Input, shell, b"echo is-$((40+2))\n");
    talk.read_past(shell, "is-42\r\n");
    guest.term();
    let done = talk.finish(command);
    assert_eq!((done.exited.code, done.exited.signal), (143, 15));
    talk.finish(shell);
    assert_eq!(guest.ended(), Some(0));
}

#[test]
fn nothing_is_started_while_the_sandbox_is_being_stopped_and_a_second_term_changes_nothing() {
    let mut guest = Guest::start();
    let mut talk = guest.connect();
    let slow = "trap 'sleep 0.5; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let (stream, _) = talk.start(&sh("1", slow));
    talk.read_to(stream, b"ready\n");
    guest.term();
    let refused = until("it is being stopped", || {
        let stream = talk.ask(Kind::Run, &Run { window: 0, ..sh("2", "true") }.encode());
        let (kind, payload) = talk.receive(stream);
        (kind == Kind::Failed).then(|| Failed::decode(&payload).unwrap())
    });
    assert_eq!(refused.why, Failed::STOPPING);
    guest.term();
    assert_eq!(talk.finish(stream).exited.code, 0);
    assert_eq!(guest.ended(), Some(0));
}

#[test]
fn the_image_s_own_program_runs_beside_all_others_and_its_end_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let guest = Guest::start_with(&["--cwd", place, "--", "sh", "-c", "pwd; cat; echo end; exit 8"]);
    let mut talk = guest.connect();
    let stream = talk.follow("main-program", [0, 0]);
    let _: abx::guest::wire::Following = talk.expect(stream, Kind::Following);
    let done = talk.finish(stream);
    assert_eq!((done.text(), done.exited.code), (&*format!("{place}\nend\n"), 8));
    assert_eq!(talk.run(&sh("1", "echo on")).text(), "on\n");
}

#[test]
fn a_program_of_the_image_that_cannot_run_has_a_record_of_its_end() {
    let guest = Guest::start_with(&["--", "no-such-program"]);
    let mut talk = guest.connect();
    assert_eq!(talk.entry("main-program").unwrap().ended.unwrap().code, 127);
}

#[test]
fn arguments_that_make_no_sense_are_refused_and_the_version_is_told() {
    let run = |argument: &str| std::process::Command::new(ABX_INIT).arg(argument).output().unwrap();
    assert_eq!(run("nonsense").status.code(), Some(2));
    let version = String::from_utf8(run("--version").stdout).unwrap();
    assert_eq!(version, format!("abx-init {}\n", env!("CARGO_PKG_VERSION")));
}
