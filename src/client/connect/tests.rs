//! Tests of finding and starting the daemon, with scripts in its place.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::super::fake::{Fake, HELLO, Script, client, connector};
use super::*;

fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("fake-abxd");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make executable");
    path
}

fn home_in(dir: &Path) -> Home {
    Home::find(Some(&dir.join("home")), Some(&dir.join("home/daemon.sock"))).expect("a home")
}

#[test]
fn the_greeting_tells_version_and_process() {
    let fake = Fake::hello(HELLO);
    assert_eq!((client(&fake).hello().pid, client(&fake).hello().version.as_str()), (4242, VERSION));
}

#[test]
fn another_protocol_is_an_error_with_both_numbers_but_not_for_who_asks_only_who_answers() {
    let fake = Fake::hello(&HELLO.replace("\"protocol\":1", "\"protocol\":2").replace("VERSION", "8.0.0"));
    let error = connector(&fake).connect().expect_err("refused").to_string();
    assert!(
        error.contains("protocol 1") && error.contains("8.0.0") && error.contains("protocol 2"),
        "{error}"
    );
    assert_eq!(connector(&fake).connect_any_protocol().expect("asks").hello().protocol, 2);
}

#[test]
fn a_stranger_on_the_socket_is_not_taken_for_the_daemon() {
    let fake = Fake::hello(&HELLO.replace("abxd", "other"));
    assert!(matches!(connector(&fake).connect(), Err(ConnectError::Stranger { .. })));
}

#[test]
fn a_daemon_that_does_not_greet_is_called_hung() {
    let fake = Fake::start(Script::default());
    assert!(matches!(connector(&fake).connect(), Err(ConnectError::Hung { .. })));
}

#[test]
fn an_opening_says_who_calls_as_a_greeting_does() {
    let fake = Fake::raw(b"{\"exec\":\"e1\",\"version\":\"9.9.9\",\"protocol\":1}\n");
    let plain = connector(&fake);
    let named = plain.calling_itself("abx mcp (someone)".to_owned());
    for connector in [plain, named] {
        connector.open(&Open::default()).expect("opened");
    }
    let openings = fake.requests().into_iter();
    let said = |text: String| serde_json::from_str::<Open>(&text).expect("an opening").client;
    let want = ["abx", "abx mcp (someone)"].map(|name| Some(name.to_owned()));
    assert_eq!(openings.map(said).collect::<Vec<_>>(), want);
}

#[test]
fn without_autostart_nothing_is_started_and_nothing_is_made() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    let error = Connector::new(home.clone(), false).connect().expect_err("nobody listens");
    assert!(matches!(error, ConnectError::NotListening { .. }), "{error:?}");
    assert!(!home.root().exists());
}

#[test]
fn a_file_in_the_sockets_place_is_named_and_left_alone() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    home.prepare().expect("prepare");
    fs::write(home.socket(), "precious").expect("write");
    let error = Connector::new(home.clone(), true).connect().expect_err("no socket");
    assert!(matches!(error, ConnectError::NotASocket { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(home.socket()).expect("still there"), "precious");
}

#[test]
fn a_daemon_that_cannot_start_is_quoted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let program = script(dir.path(), "echo 'Error: the table is newer' >&2; exit 3");
    let error =
        Connector::new(home_in(dir.path()), true).with_program(program).connect().expect_err("failed");
    let ConnectError::Failed { words, status, .. } = error else { panic!("{error:?}") };
    assert_eq!(words, ["Error: the table is newer"]);
    assert!(status.contains('3'), "{status}");
}

#[test]
fn a_daemon_that_fails_without_a_word_is_explained_by_its_log() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    home.prepare().expect("prepare");
    let lines: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
    fs::write(home.log_file(), lines.join("\n")).expect("write");
    let program = script(dir.path(), "exit 1");
    let error = Connector::new(home.clone(), true).with_program(program).connect().expect_err("failed");
    let ConnectError::Failed { words, log, .. } = error else { panic!("{error:?}") };
    assert_eq!((words.len(), words.last().map(String::as_str)), (10, Some("line 39")));
    assert_eq!(log, home.log_file());
}

#[test]
fn a_missing_daemon_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let connector = Connector::new(home_in(dir.path()), true).with_program(dir.path().join("nothing"));
    assert!(matches!(connector.connect(), Err(ConnectError::NoDaemon { .. })));
}

#[test]
fn a_client_whose_daemon_loses_the_race_uses_the_winner() {
    let fake = Fake::hello(HELLO);
    let socket = fake.root().join("daemon.sock");
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    // The loser exits with 0; the winner's socket appears only afterwards.
    let link = format!("ln -s '{}' '{}'; exit 0", socket.display(), home.socket().display());
    let program = script(dir.path(), &link);
    let client = Connector::new(home, true).with_program(program).connect().expect("the winner answers");
    assert_eq!(client.hello().server, "abxd");
}

#[test]
fn a_daemon_that_fails_beside_one_that_came_up_does_no_harm() {
    let fake = Fake::hello(HELLO);
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    let socket = fake.root().join("daemon.sock");
    let program =
        script(dir.path(), &format!("ln -s '{}' '{}'; exit 1", socket.display(), home.socket().display()));
    assert!(Connector::new(home, true).with_program(program).connect().is_ok());
}

#[test]
fn the_daemon_is_told_its_home_and_a_socket_only_where_it_is_not_the_homes_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let program = script(dir.path(), "echo \"$@\" >&2; exit 1");
    let said = |socket: Option<&Path>| {
        let home = Home::find(Some(&dir.path().join("home")), socket).expect("a home");
        match Connector::new(home, true).with_program(program.clone()).connect() {
            Err(ConnectError::Failed { words, .. }) => words.join(" "),
            other => panic!("{other:?}"),
        }
    };
    let root = dir.path().join("home").display().to_string();
    assert_eq!(said(None), format!("--home {root} --spawned"));
    let other = dir.path().join("elsewhere.sock");
    assert_eq!(said(Some(&other)), format!("--home {root} --socket {} --spawned", other.display()));
}

#[test]
fn a_stopped_daemon_with_a_full_queue_is_called_hung_rather_than_waited_for() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = home_in(dir.path());
    home.prepare().expect("prepare");
    let listener = UnixListener::bind(home.socket()).expect("bind");
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).expect("small")).expect("listen");
    let held: Vec<_> = std::iter::from_fn(|| dial(home.socket()).ok()).take(64).collect();
    assert!(held.len() < 64, "the queue never filled");
    assert!(matches!(Connector::new(home, false).connect(), Err(ConnectError::Hung { .. })));
}

#[test]
fn a_daemon_of_the_home_that_listens_elsewhere_is_found_out_before_the_limit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path().join("home");
    let own = Home::find(Some(&root), None).expect("a home");
    own.prepare().expect("prepare");
    let _daemon = UnixListener::bind(own.socket()).expect("bind");
    let other = Home::find(Some(&root), Some(&dir.path().join("other.sock"))).expect("a home");
    let begun = Instant::now();
    let error = Connector::new(other, true)
        .with_program(script(dir.path(), "exit 0"))
        .connect()
        .expect_err("it listens elsewhere");
    assert!(matches!(error, ConnectError::Elsewhere { .. }), "{error:?}");
    assert!(begun.elapsed() < READY_LIMIT && error.to_string().contains("other.sock"), "{error}");
}
