//! Commands through abx-init, whose part a test plays.

mod lost;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::daemon::exec::{ExecRequest, Output};
use crate::guest::wire::{
    Credit, Entry, Exited, Failed, Follow, Following, HEADER_BYTES, Header, Hello, Kind, MAX_TO_GUEST, Oom,
    Payload, Run, Signal, Started, VERSION, frame,
};
use crate::model::session::Runtime;
use crate::proto::errors::Kind as ErrorKind;

/// What the daemon asked.
pub(super) struct Asked {
    pub(super) kind: Kind,
    stream: u32,
    pub(super) payload: Vec<u8>,
}

/// A sandbox's end of the connection, and whether the test answers what it knows.
pub(super) struct Guest(UnixStream, bool);

impl Guest {
    /// Connects to the sandbox's socket and is greeted.
    pub(super) async fn connect(world: &World, name: &str) -> Self {
        let mut guest = Self::reach(world, name).await;
        assert_eq!(guest.asked().await.kind, Kind::Welcome);
        guest
    }

    /// Connects and says who it is.
    async fn reach(world: &World, name: &str) -> Self {
        let socket = world.home.path().join("run").join(world.row(name).id.as_str()).join("sock");
        let mut guest = Self(UnixStream::connect(socket).await.expect("the daemon listens"), false);
        let hello = Hello { oldest: VERSION, newest: VERSION, ..Hello::default() };
        guest.send(Kind::Hello, 0, &hello.encode()).await;
        guest
    }

    pub(super) async fn send(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        self.0.write_all(&frame(kind, stream, payload)).await.expect("sent");
    }

    pub(super) async fn asked(&mut self) -> Asked {
        self.maybe_asked().await.expect("a frame")
    }

    /// As [`Guest::asked`], but for what a client leaves meanwhile.
    async fn asked_aside(&mut self) -> Asked {
        loop {
            let asked = self.asked().await;
            if asked.kind != Kind::Leave {
                return asked;
            }
        }
    }

    /// None at the connection's end. What it is asked first, whatever the table holds, it answers: it knows nothing.
    async fn maybe_asked(&mut self) -> Option<Asked> {
        loop {
            let mut head = [0; HEADER_BYTES];
            self.0.read_exact(&mut head).await.ok()?;
            let header = Header::parse(head, MAX_TO_GUEST).expect("short");
            let mut payload = vec![0; header.length];
            self.0.read_exact(&mut payload).await.ok()?;
            match header.kind.expect("known") {
                Kind::List if !self.1 => self.send(Kind::Done, header.stream, &[]).await,
                kind => return Some(Asked { kind, stream: header.stream, payload }),
            }
        }
    }

    /// Waits for a command and starts it.
    pub(super) async fn start_one(&mut self) -> (u32, Run) {
        let asked = self.asked().await;
        assert_eq!(asked.kind, Kind::Run);
        let run = Run::decode(&asked.payload).expect("a command");
        let started = Started { pid: 7 };
        self.send(Kind::Started, asked.stream, &started.encode()).await;
        (asked.stream, run)
    }

    async fn exit(&mut self, stream: u32, code: i32) {
        self.send(Kind::Exited, stream, &Exited { code, ..Exited::default() }.encode()).await;
    }

    async fn refuse(&mut self, why: u8, text: &str) {
        let asked = self.asked().await;
        let failed = Failed { why, text: text.to_owned() };
        self.send(Kind::Failed, asked.stream, &failed.encode()).await;
    }
}

/// A world with a session `a` that was made with abx-init.
pub(super) async fn world() -> World {
    let world = World::new();
    world.engine.take_guests();
    world.start("a").await.expect("starts");
    assert_eq!(world.row("a").runtime, Runtime::Init);
    world
}

pub(super) fn request(command: &str) -> ExecRequest {
    ExecRequest { session: "a".into(), cmd: vec![command.to_owned()], ..ExecRequest::default() }
}

fn run(world: &World, command: &str) -> tokio::task::JoinHandle<Result<Output, Failure>> {
    let (driver, request) = (world.driver.clone(), request(command));
    tokio::spawn(async move { driver.exec_run(request, None).await })
}

fn engine_ran(world: &World) -> bool {
    world.engine.calls().iter().any(|call| call.starts_with("exec "))
}

#[tokio::test]
async fn a_command_runs_without_the_engine_and_in_its_whole_environment() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "greet");
    let (stream, asked) = guest.start_one().await;
    let env: Vec<String> = asked.env.into_iter().map(|l| String::from_utf8(l).expect("text")).collect();
    assert_eq!(env, ["PATH=/bin", "LANG=C.UTF-8"]);
    assert_eq!((asked.argv, asked.cwd), (vec![b"greet".to_vec()], Some(b"/".to_vec())));
    assert!(!asked.detached && asked.tty.is_none() && !asked.stdin);
    guest.send(Kind::Stdout, stream, b"hello").await;
    guest.send(Kind::Stderr, stream, b"careful").await;
    guest.exit(stream, 3).await;
    let output = running.await.expect("joins").expect("runs");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hello"[..], &b"careful"[..]));
    assert_eq!((output.ended.code, output.ended.reason), (3, None));
    assert!(!engine_ran(&world), "{:?}", world.engine.calls());
}

#[tokio::test]
async fn what_does_not_start_is_told_in_the_lines_that_are_known() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    for (why, kind, line) in [
        (Failed::NOT_FOUND, ErrorKind::CommandNotFound, "x: command not found in the sandbox"),
        (
            Failed::NOT_EXECUTABLE,
            ErrorKind::CommandNotExecutable,
            "x: cannot be run in the sandbox: permission denied, or not a program",
        ),
        (Failed::NO_USER, ErrorKind::CommandNotExecutable, "said [2Jinside"),
        (Failed::LIMIT, ErrorKind::Limit, "said [2Jinside"),
    ] {
        let running = run(&world, "x");
        guest.refuse(why, "said\x1b[2Jinside").await;
        let failure = running.await.expect("joins").expect_err("refused");
        assert_eq!((failure.kind, failure.message.as_str()), (kind, line));
    }
    assert!(!engine_ran(&world));
}

#[tokio::test]
async fn what_abx_init_may_not_do_the_engine_does() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    world.engine.script_exec("x", b"by the engine", b"", 0);
    let running = run(&world, "x");
    guest.refuse(Failed::NEEDS_ENGINE, "").await;
    assert_eq!(running.await.expect("joins").expect("runs").stdout, b"by the engine");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_never_connects_has_its_commands_run_by_the_engine() {
    let world = world().await;
    world.engine.script_exec("x", b"by the engine", b"", 0);
    let output = world.driver.exec_run(request("x"), None).await.expect("runs");
    assert_eq!(output.stdout, b"by the engine");
}

#[tokio::test]
async fn only_the_main_program_may_connect() {
    let world = world().await;
    world.engine.set_pid(1);
    let mut guest = Guest::reach(&world, "a").await;
    assert!(guest.maybe_asked().await.is_none(), "it was greeted");
}

#[tokio::test]
async fn a_sandbox_that_makes_no_sense_again_and_again_is_let_in_ever_later() {
    let world = world().await;
    let begun = std::time::Instant::now();
    for _ in 0..4 {
        let mut guest = Guest::connect(&world, "a").await;
        guest.send(Kind::Started, 0, b"").await;
        while guest.maybe_asked().await.is_some() {}
    }
    // Three pauses were between, each twice as long as the one before.
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_makes_no_sense_ends_the_connection_and_the_command_goes_on_over_the_next() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "long");
    let (stream, asked) = guest.start_one().await;
    guest.send(Kind::Stdout, stream, b"one ").await;
    guest.send(Kind::Welcome, stream, b"").await;
    while guest.maybe_asked().await.is_some() {}
    let mut guest = Guest::connect(&world, "a").await;
    let follow = guest.asked().await;
    assert_eq!(follow.kind, Kind::Follow);
    let wanted = Follow::decode(&follow.payload).expect("a follow");
    assert_eq!((wanted.id, wanted.stdout_from, wanted.stderr_from), (asked.id.clone(), 4, 0));
    let following = Following { id: asked.id, stdout_from: 4, ..Following::default() };
    guest.send(Kind::Following, follow.stream, &following.encode()).await;
    guest.send(Kind::Stdout, follow.stream, b"two").await;
    guest.exit(follow.stream, 0).await;
    assert_eq!(running.await.expect("joins").expect("ends").stdout, b"one two");
}

#[tokio::test]
async fn more_output_than_was_granted_ends_the_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let driver = world.driver.clone();
    let flood = tokio::spawn(async move { driver.exec(request("flood")).await });
    let (stream, _) = guest.start_one().await;
    let _live = flood.await.expect("joins").expect("runs");
    let piece = vec![b'x'; 200 * 1024];
    // Nobody reads it.
    for _ in 0..6 {
        let sent = guest.0.write_all(&frame(Kind::Stdout, stream, &piece)).await;
        if sent.is_err() {
            break;
        }
    }
    while guest.maybe_asked().await.is_some() {}
}

#[tokio::test]
async fn one_reader_that_stops_holds_no_other_up() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let driver = world.driver.clone();
    let stopped = tokio::spawn(async move { driver.exec(request("stopped")).await });
    let (first, _) = guest.start_one().await;
    let _live = stopped.await.expect("joins").expect("runs");
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..16 {
        guest.send(Kind::Stdout, first, &piece).await;
    }
    let running = run(&world, "flows");
    let (second, _) = guest.start_one().await;
    let mut granted: usize = 1024 * 1024;
    for _ in 0..64 {
        while granted < piece.len() {
            let asked = guest.asked().await;
            assert_eq!((asked.kind, asked.stream), (Kind::Credit, second), "the one that stopped gets none");
            granted += Credit::decode(&asked.payload).expect("credit").bytes as usize;
        }
        granted -= piece.len();
        guest.send(Kind::Stdout, second, &piece).await;
    }
    guest.exit(second, 0).await;
    assert!(running.await.expect("joins").expect("ends").truncated);
}

#[tokio::test]
async fn a_command_that_is_ended_gets_its_signals_over_the_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let driver = world.driver.clone();
    let limit = Some(Duration::from_millis(100));
    let running = tokio::spawn(async move {
        driver.exec_run(ExecRequest { timeout: limit, ..request("long") }, None).await
    });
    let (stream, run) = guest.start_one().await;
    let asked = guest.asked().await;
    let signal = Signal::decode(&asked.payload).expect("a signal");
    assert_eq!((asked.kind, signal), (Kind::Signal, Signal { id: run.id, signal: 15 }));
    guest.send(Kind::Done, asked.stream, b"").await;
    guest.exit(stream, 143).await;
    assert_eq!(running.await.expect("joins").expect("ends").ended.code, 124);
}

#[tokio::test]
async fn a_kill_for_want_of_memory_is_said_and_counted() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "hungry");
    let (stream, _) = guest.start_one().await;
    guest.send(Kind::Oom, 0, &Oom { kills: 1 }.encode()).await;
    let end = Exited { code: 137, signal: 9, oom: true, ..Exited::default() };
    guest.send(Kind::Exited, stream, &end.encode()).await;
    let ended = running.await.expect("joins").expect("ends").ended;
    assert_eq!(ended.code, 137);
    assert!(ended.reason.is_some_and(|line| line.contains("memory")));
    until(|| world.row("a").oom_events == 1).await;
}

#[tokio::test]
async fn a_sandbox_that_dies_ends_its_commands_at_once() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "long");
    guest.start_one().await;
    world.engine.kill_container(&world.sandbox("a"), 137, true);
    drop(guest);
    let ended = running.await.expect("joins").expect("ends").ended;
    assert_eq!(ended.code, 137);
    assert!(ended.reason.is_some_and(|line| line.contains("memory")), "the sandbox's own end is the reason");
}

#[tokio::test]
async fn a_daemon_that_comes_back_listens_where_its_sandboxes_look_for_it() {
    let world = world().await.restart().await;
    world.driver.listen_for_sandboxes();
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "again");
    let (stream, _) = guest.start_one().await;
    guest.exit(stream, 0).await;
    assert_eq!(running.await.expect("joins").expect("ends").ended.code, 0);
    assert!(!engine_ran(&world));
}

#[tokio::test]
async fn a_frozen_sandbox_is_asked_nothing() {
    let world = world().await;
    let _guest = Guest::connect(&world, "a").await;
    world.driver.pause("a").await.expect("pauses");
    let content = ExecRequest { resume: Some(false), ..request("x") };
    let failure = world.driver.exec_run(content, None).await.expect_err("frozen");
    assert_eq!(failure.kind, ErrorKind::WrongState);
    assert!(!engine_ran(&world));
}

#[tokio::test]
async fn a_session_that_goes_takes_its_directory_with_it_and_others_do_not() {
    let world = world().await;
    let run = world.home.path().join("run");
    let dir = run.join(world.row("a").id.as_str());
    std::fs::create_dir(run.join("left-by-a-crash")).expect("create");
    world.driver.compare_all(false).await.expect("compares");
    assert!(dir.is_dir() && !run.join("left-by-a-crash").exists());
    world.driver.delete("a", false).await.expect("deletes");
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_sandbox_that_does_not_answer_holds_nobody_up_for_ever() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    tokio::time::pause();
    let running = run(&world, "x");
    assert_eq!(guest.asked().await.kind, Kind::Run);
    // The rest is up to the daemon: the command's start is under way.
    let driver = world.driver.clone();
    let paused = tokio::spawn(async move { driver.pause("a").await });
    let failure = running.await.expect("joins").expect_err("nobody answered");
    assert_eq!(failure.kind, ErrorKind::EngineTimeout);
    assert!(failure.message.starts_with("abx-init, the main program of session 'a', did not"), "{failure}");
    assert_eq!(failure.hint.as_deref(), Some("abx session stop a, then abx session resume a"));
    assert!(guest.maybe_asked().await.is_none(), "its connection goes on");
    assert_eq!(paused.await.expect("joins").expect("pauses").status, Status::Paused);
    world.driver.unpause("a").await.expect("goes on");
    assert_eq!(world.stop("a").await.expect("stops").status, Status::Stopped);
}

#[tokio::test]
async fn what_a_sandbox_never_finishes_to_tell_ends_its_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    tokio::time::pause();
    let driver = world.driver.clone();
    let killed = tokio::spawn(async move { driver.exec_run(request("x"), None).await });
    let (_stream, run) = guest.start_one().await;
    let driver = world.driver.clone();
    let signalled = tokio::spawn(async move { driver.kill_exec(&run.id, Some(9)).await });
    assert_eq!(guest.asked().await.kind, Kind::Signal);
    let failure = signalled.await.expect("joins").expect_err("nobody answered");
    assert_eq!(failure.kind, ErrorKind::EngineTimeout);
    tokio::time::resume();
    drop(guest);
    let mut guest = Guest::connect(&world, "a").await;
    let follow = guest.asked().await;
    assert_eq!(follow.kind, Kind::Follow);
    guest.exit(follow.stream, 7).await;
    assert_eq!(killed.await.expect("joins").expect("ends").ended.code, 7);
}

#[tokio::test]
async fn a_list_without_end_ends_the_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    guest.1 = true;
    let driver = world.driver.clone();
    let listing = tokio::spawn(async move { driver.terminals(Some("a")).await });
    let asked = guest.asked().await;
    assert_eq!(asked.kind, Kind::List);
    let entry = frame(Kind::Entry, asked.stream, &Entry::default().encode());
    while guest.0.write_all(&entry).await.is_ok() {}
    let _ = listing.await.expect("joins");
}

#[tokio::test]
async fn a_flood_of_connections_does_not_ask_the_engine_each_time_and_the_right_one_gets_in() {
    let world = world().await;
    world.engine.set_pid(1);
    let looks = || world.engine.calls().iter().filter(|call| call.starts_with("inspect ")).count();
    let before = looks();
    for _ in 0..100 {
        assert!(Guest::reach(&world, "a").await.maybe_asked().await.is_none(), "it was greeted");
    }
    assert!(looks() - before < 50, "the engine was asked {} times", looks() - before);
    world.engine.set_pid(std::process::id());
    let limit = std::time::Instant::now() + Duration::from_secs(30);
    while Guest::reach(&world, "a").await.maybe_asked().await.is_none() {
        assert!(std::time::Instant::now() < limit, "it was never greeted");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn kills_without_end_are_counted_up_to_a_limit() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    for _ in 0..3 {
        guest.send(Kind::Oom, 0, &Oom { kills: u64::MAX }.encode()).await;
    }
    until(|| world.row("a").oom_events > 0).await;
    assert_eq!(world.row("a").oom_events, 10_000);
}

#[tokio::test]
async fn whoever_asks_for_a_session_that_is_gone_does_not_make_its_directory_again() {
    let world = world().await;
    let row = world.row("a");
    world.driver.delete("a", false).await.expect("deletes");
    assert!(world.driver.0.guests.entries(&row).await.is_err());
    world.driver.0.guests.expect(&row.id);
    assert!(!world.home.path().join("run").join(row.id.as_str()).exists());
}
