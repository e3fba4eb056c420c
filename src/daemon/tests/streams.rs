//! Raw streams: what becomes of a command when its client reads, does not, or goes away.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::guests::Guest;
use super::*;
use crate::daemon::framing::replay::Replay;
use crate::daemon::framing::{Framing, Peer, RawHandler};
use crate::daemon::shutdown::Shutdown;
use crate::daemon::stream::RawStreams;
use crate::guest::wire::Kind;
use crate::proto::stream::{Exit, FrameKind, HEADER_BYTES, Open, header, parse_header};

/// More than the socket between client and daemon holds.
const MORE_THAN_THE_SOCKET_HOLDS: usize = 4 * 1024 * 1024;

/// How long anything may take before a test fails.
const LIMIT: Duration = Duration::from_secs(30);

struct Client {
    socket: BufReader<UnixStream>,
    served: JoinHandle<()>,
    answer: serde_json::Value,
}

fn command(program: &str) -> Open {
    Open { session: "a".to_owned(), cmd: vec![program.to_owned()], ..Open::default() }
}

impl Client {
    async fn open(world: &World, shutdown: &Shutdown, open: &Open) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let peer = Peer { uid: 0, gid: 0, pid: None, connection: 1, framing: Framing::Raw };
        let streams = RawStreams::new(world.driver.clone(), shutdown.clone());
        let served =
            tokio::spawn(async move { streams.serve(Replay::new(Bytes::new(), theirs), peer).await });
        let mut socket = BufReader::new(ours);
        let mut opening = serde_json::to_vec(open).expect("encodes");
        opening.push(b'\n');
        socket.write_all(&opening).await.expect("sent");
        let mut line = String::new();
        socket.read_line(&mut line).await.expect("an answer");
        Self { socket, served, answer: serde_json::from_str(&line).expect("JSON") }
    }

    async fn hanging(world: &World, open: Open) -> Self {
        world.start("a").await.expect("starts");
        world.engine.script_hang("long");
        Self::open(world, &Shutdown::new(), &open).await
    }

    async fn frame(&mut self) -> (FrameKind, Vec<u8>) {
        let reading = async {
            let mut head = [0; HEADER_BYTES];
            self.socket.read_exact(&mut head).await.expect("a frame");
            let (kind, length) = parse_header(head).expect("short");
            let mut payload = vec![0; length];
            self.socket.read_exact(&mut payload).await.expect("its payload");
            (kind.expect("a known kind"), payload)
        };
        tokio::time::timeout(LIMIT, reading).await.expect("a frame in time")
    }

    /// Everything up to the end.
    async fn rest(&mut self) -> (Vec<u8>, Exit) {
        let mut output = Vec::new();
        loop {
            match self.frame().await {
                (FrameKind::Exit, payload) => {
                    return (output, serde_json::from_slice(&payload).expect("an exit"));
                }
                (FrameKind::Stdout, payload) => output.extend(payload),
                (kind, _) => panic!("{kind:?}"),
            }
        }
    }

    async fn over(self) {
        tokio::time::timeout(LIMIT, self.served).await.expect("served in time").expect("no panic");
    }
}

fn signals(world: &World) -> usize {
    world.engine.calls().iter().filter(|call| call.starts_with("exec_signal")).count()
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_command_along_and_leaves_no_child_behind() {
    let world = World::new();
    let client = Client::hanging(&world, command("long")).await;
    drop(client.socket);
    until(|| signals(&world) == 2).await;
}

#[tokio::test]
async fn a_client_that_detaches_leaves_its_command_running() {
    let world = World::new();
    let open = Open { attach: true, ..command("long") };
    let Client { socket, served, .. } = Client::hanging(&world, open).await;
    drop(socket);
    tokio::time::timeout(LIMIT, served).await.expect("served in time").expect("no panic");
    assert_eq!(signals(&world), 0);
}

#[tokio::test]
async fn keys_that_were_typed_before_leaving_arrive_though_nothing_can_be_shown_any_more() {
    let world = guests::world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let open = Open { attach: true, stdin: true, ..command("long") };
    let shutdown = Shutdown::new();
    let (client, (stream, _)) = tokio::join!(Client::open(&world, &shutdown, &open), guest.start_one());
    let socket = client.socket.into_inner().into_std().expect("a socket");
    socket.shutdown(std::net::Shutdown::Read).expect("shut");
    guest.send(Kind::Stdout, stream, b"an echo").await;
    // Turns enough to find out that the client takes nothing.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let keys = [&header(FrameKind::Input, 6)[..], b"still\r"].concat();
    std::io::Write::write_all(&mut &socket, &keys).expect("the daemon still reads");
    drop(socket);
    let asked = guest.asked().await;
    assert_eq!((asked.kind, asked.payload), (Kind::Input, b"still\r".to_vec()));
}

#[tokio::test]
async fn output_that_the_client_does_not_take_ends_the_command() {
    let world = World::new();
    let client = Client::hanging(&world, command("long")).await;
    let socket = client.socket.into_inner().into_std().expect("a socket");
    socket.shutdown(std::net::Shutdown::Read).expect("shut");
    world.engine.say(b"y\n");
    until(|| signals(&world) > 0).await;
    tokio::time::timeout(LIMIT, client.served).await.expect("served in time").expect("no panic");
}

#[tokio::test]
async fn time_runs_out_also_while_the_client_does_not_read() {
    let world = World::new();
    let open = Open { timeout_ms: Some(200), ..command("long") };
    let mut client = Client::hanging(&world, open).await;
    world.engine.say(&vec![b'y'; MORE_THAN_THE_SOCKET_HOLDS]);
    until(|| signals(&world) > 0).await;
    let (_, exit) = client.rest().await;
    assert_eq!((exit.exit_code, exit.reason.as_deref()), (124, Some("its time ran out")));
    client.over().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_hold_up_the_daemons_end() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let shutdown = Shutdown::new();
    let client = Client::open(&world, &shutdown, &command("long")).await;
    world.engine.say(&vec![b'y'; MORE_THAN_THE_SOCKET_HOLDS]);
    shutdown.begin();
    let Client { socket, served, .. } = client;
    tokio::time::timeout(LIMIT, served).await.expect("served in time").expect("no panic");
    assert_eq!(signals(&world), 0, "the command goes on");
    drop(socket);
}

#[tokio::test]
async fn output_that_looks_like_a_failed_start_comes_without_waiting_for_more() {
    let world = World::new();
    let mut client = Client::hanging(&world, command("long")).await;
    for line in ["OCI runtime exec failed: no such file\n", "fine\n", "exec failed: not found\n"] {
        world.engine.say(line.as_bytes());
        assert_eq!(client.frame().await, (FrameKind::Stdout, line.as_bytes().to_vec()));
    }
    world.engine.end_commands(0);
    assert_eq!(client.rest().await.1.exit_code, 0);
}

#[tokio::test]
async fn a_program_that_is_not_there_gives_a_reason_and_no_output() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_no_start("nope", "OCI runtime exec failed: executable file not found", 127);
    let mut client = Client::open(&world, &Shutdown::new(), &command("nope")).await;
    let (output, exit) = client.rest().await;
    assert_eq!((output.as_slice(), exit.exit_code), (&b""[..], 127));
    assert_eq!(exit.reason.as_deref(), Some("nope: command not found in the sandbox"));
}

#[tokio::test]
async fn a_command_that_closed_its_output_still_gets_signals() {
    let world = World::new();
    let mut client = Client::hanging(&world, command("long")).await;
    world.engine.close_outputs();
    until(|| world.engine.calls().iter().any(|call| call.starts_with("exec_state"))).await;
    let signal = [&header(FrameKind::Signal, 1)[..], &[2]].concat();
    client.socket.write_all(&signal).await.expect("sent");
    assert_eq!(client.rest().await.1.exit_code, 130);
}

#[tokio::test]
async fn a_client_that_is_told_to_end_ends_all_that_its_command_started() {
    let world = World::new();
    let mut client = Client::hanging(&world, command("long")).await;
    client.socket.write_all(&[&header(FrameKind::Signal, 1)[..], &[15]].concat()).await.expect("sent");
    assert_eq!(client.rest().await.1.exit_code, 143);
    until(|| signals(&world) == 2).await;
}

#[tokio::test]
async fn what_an_interrupted_command_leaves_behind_is_ended() {
    let world = World::new();
    let mut client = Client::hanging(&world, command("long")).await;
    client.socket.write_all(&[&header(FrameKind::Signal, 1)[..], &[2]].concat()).await.expect("sent");
    assert_eq!(client.rest().await.1.exit_code, 130);
    until(|| signals(&world) == 3).await;
}

#[tokio::test]
async fn a_command_that_ignores_an_interrupt_is_ended_all_the_same() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_deaf("deaf");
    let mut client = Client::open(&world, &Shutdown::new(), &command("deaf")).await;
    client.socket.write_all(&[&header(FrameKind::Signal, 1)[..], &[2]].concat()).await.expect("sent");
    until(|| signals(&world) == 3).await;
}

#[tokio::test]
async fn a_client_that_goes_away_after_the_output_closed_takes_its_command_along() {
    let world = World::new();
    let client = Client::hanging(&world, command("long")).await;
    world.engine.close_outputs();
    until(|| world.engine.calls().iter().any(|call| call.starts_with("exec_state"))).await;
    drop(client.socket);
    until(|| signals(&world) > 0).await;
    tokio::time::timeout(LIMIT, client.served).await.expect("served in time").expect("no panic");
}

#[tokio::test]
async fn a_detached_command_that_cannot_start_is_refused() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_no_start("nope", "OCI runtime exec failed: permission denied", 126);
    let open = Open { detach: true, ..command("nope") };
    let client = Client::open(&world, &Shutdown::new(), &open).await;
    assert_eq!(client.answer["error"]["data"]["kind"], "command_not_executable", "{}", client.answer);
    client.over().await;
}

#[tokio::test]
async fn a_detached_command_runs_on_without_its_client_until_its_time_runs_out() {
    let world = World::new();
    let open = Open { detach: true, timeout_ms: Some(400), ..command("long") };
    let client = Client::hanging(&world, open).await;
    assert!(client.answer["exec"].is_string(), "{}", client.answer);
    client.over().await;
    assert_eq!(signals(&world), 0);
    until(|| signals(&world) > 0).await;
}

#[tokio::test]
async fn a_time_of_zero_is_no_limit_for_a_stream() {
    let world = World::new();
    let mut client = Client::hanging(&world, Open { timeout_ms: Some(0), ..command("long") }).await;
    world.engine.say(b"up\n");
    assert_eq!(client.frame().await, (FrameKind::Stdout, b"up\n".to_vec()));
    world.engine.end_commands(5);
    assert_eq!(client.rest().await.1.exit_code, 5);
    assert_eq!(signals(&world), 0);
}

#[tokio::test]
async fn a_client_whose_command_is_frozen_is_told_at_once_and_the_command_ends_at_the_thaw() {
    let world = World::new();
    let mut client = Client::hanging(&world, command("long")).await;
    world.driver.pause("a").await.expect("pauses");
    client.socket.write_all(&[&header(FrameKind::Signal, 1)[..], &[15]].concat()).await.expect("sent");
    let (_, exit) = client.rest().await;
    let line = "session 'a' is paused, and the command is ended when it goes on";
    assert_eq!((exit.exit_code, exit.reason.as_deref()), (143, Some(line)));
    let exec = world.driver.execs(Some("a")).expect("a list").remove(0);
    assert!(exec.is_owed_its_end(), "it lives: {exec:?}");
    let before = signals(&world);
    world.driver.unpause("a").await.expect("unpauses");
    until(|| signals(&world) > before).await;
}

#[tokio::test]
async fn what_was_frozen_when_its_client_went_away_is_ended_by_whichever_daemon_sees_the_thaw() {
    let world = World::new();
    let client = Client::hanging(&world, command("long")).await;
    let id = world.driver.execs(Some("a")).expect("a list").remove(0).id.clone();
    world.driver.pause("a").await.expect("pauses");
    drop(client.socket);
    tokio::time::timeout(LIMIT, client.served).await.expect("served in time").expect("no panic");
    let world = world.restart().await;
    world.driver.watch_deadlines();
    let exec = world.driver.find_exec(id.as_str()).expect("its row");
    assert!(exec.is_owed_its_end(), "it lives: {exec:?}");
    let before = signals(&world);
    world.driver.unpause("a").await.expect("unpauses");
    until(|| signals(&world) > before).await;
}

#[tokio::test]
async fn time_that_runs_out_in_a_frozen_sandbox_ends_the_command_at_the_thaw() {
    let world = World::new();
    let open = Open { timeout_ms: Some(200), ..command("long") };
    let mut client = Client::hanging(&world, open).await;
    world.driver.pause("a").await.expect("pauses");
    let (_, exit) = client.rest().await;
    assert_eq!(exit.exit_code, 124);
    let id = world.driver.execs(Some("a")).expect("a list").remove(0).id.clone();
    assert!(world.driver.find_exec(id.as_str()).expect("its row").is_owed_its_end());
    let before = signals(&world);
    world.driver.unpause("a").await.expect("unpauses");
    until(|| signals(&world) > before).await;
}
