//! What becomes of commands whose connection to abx-init is lost.

use futures_util::StreamExt;

use super::*;
use crate::daemon::exec::Live;
use crate::daemon::guests::Wanted;
use crate::model::exec::Verdict;

/// What a command's client holds: its input, and its output as it comes.
async fn fed(world: &World, guest: &mut Guest) -> (Live, u32, Run) {
    let (driver, asked) = (world.driver.clone(), ExecRequest { stdin: true, ..request("eat") });
    let starting = tokio::spawn(async move { driver.exec(asked).await });
    let (stream, run) = guest.start_one().await;
    (starting.await.expect("joins").expect("runs"), stream, run)
}

#[tokio::test]
async fn a_command_whose_input_may_have_a_hole_is_ended_and_its_caller_told() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let driver = world.driver.clone();
    let asked = ExecRequest { stdin: true, ..request("eat") };
    let running = tokio::spawn(async move { driver.exec_run(asked, Some("a piece".to_owned())).await });
    let (stream, run) = guest.start_one().await;
    let piece = guest.asked().await;
    assert_eq!((piece.kind, piece.stream, piece.payload.as_slice()), (Kind::Input, stream, &b"a piece"[..]));
    drop(guest);
    let mut guest = Guest::connect(&world, "a").await;
    let asked = guest.asked().await;
    assert_eq!(asked.kind, Kind::Signal, "it is not followed on");
    assert_eq!(Signal::decode(&asked.payload).expect("a signal").id, run.id);
    guest.send(Kind::Done, asked.stream, b"").await;
    let failure = running.await.expect("joins").expect_err("it is not whole");
    assert!(failure.message.contains("the connection to the sandbox is lost"), "{failure}");
    let row = world.driver.find_exec(&run.id).expect("its row");
    assert_eq!(row.verdict, Some(Verdict::Abandoned));
    assert_eq!(row.ended.as_ref().map(|end| end.code), Some(137));
}

#[tokio::test]
async fn a_command_whose_input_has_all_arrived_is_followed_on_and_given_the_rest() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let (mut live, stream, _) = fed(&world, &mut guest).await;
    let mut input = live.io.input.take().expect("it has input");
    input.write_all(b"first ").await.expect("taken");
    assert_eq!(guest.asked().await.payload, b"first ");
    guest.send(Kind::Credit, stream, &Credit { bytes: 6 }.encode()).await;
    // What comes after the credit says that it has arrived.
    guest.send(Kind::Stdout, stream, b"ok").await;
    assert!(live.io.output.next().await.expect("output").is_ok());
    drop(guest);
    let handle = live.handle.copy();
    let reading =
        tokio::spawn(async move { while live.io.output.next().await.is_some_and(|next| next.is_ok()) {} });
    let mut guest = Guest::connect(&world, "a").await;
    let follow = guest.asked().await;
    assert_eq!(follow.kind, Kind::Follow);
    guest
        .send(Kind::Following, follow.stream, &Following { stdout_from: 2, ..Following::default() }.encode())
        .await;
    input.write_all(b"second").await.expect("taken");
    let piece = guest.asked().await;
    assert_eq!((piece.stream, piece.payload.as_slice()), (follow.stream, &b"second"[..]));
    guest.exit(follow.stream, 0).await;
    reading.await.expect("joins");
    assert_eq!(handle.wait().await.expect("ends").code, 0);
}

#[tokio::test]
async fn the_end_of_an_input_that_went_with_a_connection_is_told_again() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let driver = world.driver.clone();
    let asked = ExecRequest { stdin: true, ..request("eat") };
    let running = tokio::spawn(async move { driver.exec_run(asked, None).await });
    guest.start_one().await;
    assert_eq!(guest.asked().await.kind, Kind::InputEnd);
    drop(guest);
    let mut guest = Guest::connect(&world, "a").await;
    let follow = guest.asked().await;
    assert_eq!(follow.kind, Kind::Follow);
    let end = guest.asked().await;
    assert_eq!((end.kind, end.stream), (Kind::InputEnd, follow.stream));
    guest.exit(follow.stream, 0).await;
    assert_eq!(running.await.expect("joins").expect("ends").ended.code, 0);
}

/// Starts a command in a sandbox that does not answer, until that is given up; gives what was asked.
async fn given_up(world: &World, guest: &mut Guest) -> Run {
    tokio::time::pause();
    let running = run(world, "slow");
    let asked = guest.asked().await;
    assert_eq!(asked.kind, Kind::Run);
    let failure = running.await.expect("joins").expect_err("nobody answered");
    assert_eq!(failure.kind, ErrorKind::EngineTimeout);
    tokio::time::resume();
    let asked = Run::decode(&asked.payload).expect("a command");
    let row = world.driver.find_exec(&asked.id).expect("its row is kept");
    assert_eq!((row.verdict, &row.ended), (Some(Verdict::Abandoned), &None));
    asked
}

fn ended(world: &World, id: &str) -> Option<(i32, Option<String>)> {
    world.driver.find_exec(id).expect("its row").ended.as_ref().map(|end| (end.code, end.reason.clone()))
}

#[tokio::test]
async fn a_command_that_starts_after_it_was_given_up_is_ended_at_the_next_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let run = given_up(&world, &mut guest).await;
    drop(guest);
    let mut guest = Guest::connect(&world, "a").await;
    guest.1 = true;
    let list = guest.asked().await;
    assert_eq!(list.kind, Kind::List);
    let mut entry = Entry { id: run.id.clone(), ..Entry::default() };
    guest.send(Kind::Entry, list.stream, &entry.encode()).await;
    guest.send(Kind::Done, list.stream, &[]).await;
    let asked = guest.asked().await;
    let signal = Signal::decode(&asked.payload).expect("a signal");
    assert_eq!((asked.kind, signal), (Kind::Signal, Signal { id: run.id.clone(), signal: 15 }));
    entry.ended = Some(Exited { code: 0, ..Exited::default() });
    guest.send(Kind::Ended, 0, &entry.encode()).await;
    until(|| ended(&world, &run.id).is_some()).await;
    assert_eq!(ended(&world, &run.id), Some((0, Some("its client went away".to_owned()))));
}

#[tokio::test]
async fn a_command_that_was_given_up_and_never_started_has_its_row_ended_at_the_next_connection() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let run = given_up(&world, &mut guest).await;
    drop(guest);
    let _guest = answering(Guest::connect(&world, "a").await);
    until(|| ended(&world, &run.id).is_some()).await;
}

/// Answers that nothing is known, as long as the connection goes on.
fn answering(mut guest: Guest) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { while guest.maybe_asked().await.is_some() {} })
}

#[tokio::test]
async fn a_command_that_was_asked_for_twice_is_taken_as_started() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let running = run(&world, "once");
    let first = guest.asked().await;
    assert_eq!(first.kind, Kind::Run);
    drop(guest);
    let mut guest = Guest::connect(&world, "a").await;
    let again = guest.asked().await;
    assert_eq!((again.kind, &again.payload), (Kind::Run, &first.payload));
    let run = Run::decode(&again.payload).expect("a command");
    let following = Following { id: run.id, ..Following::default() };
    guest.send(Kind::Following, again.stream, &following.encode()).await;
    guest.send(Kind::Stdout, again.stream, b"all").await;
    guest.exit(again.stream, 0).await;
    assert_eq!(running.await.expect("joins").expect("runs").stdout, b"all");
}

#[tokio::test]
async fn two_openings_with_one_key_are_one_command() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let open = || {
        let (driver, asked) = (world.driver.clone(), ExecRequest { key: Some("k".into()), ..request("one") });
        tokio::spawn(async move { driver.open_exec(asked, None, &Wanted::default()).await })
    };
    let first = open();
    let asked = guest.asked().await;
    assert_eq!(asked.kind, Kind::Run);
    let second = open();
    let starting = (world.driver.clone(), ExecRequest { key: Some("k".into()), ..request("one") });
    let third = tokio::spawn(async move { starting.0.exec_start(starting.1, None).await });
    // They find the row of the first, which abx-init does not know yet.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    guest.send(Kind::Started, asked.stream, &Started { pid: 7 }.encode()).await;
    let id = first.await.expect("joins").expect("starts").id;
    for _ in 0..2 {
        let follow = guest.asked_aside().await;
        assert_eq!(follow.kind, Kind::Follow);
        let following = Following { id: id.clone(), ..Following::default() };
        guest.send(Kind::Following, follow.stream, &following.encode()).await;
    }
    let second = second.await.expect("joins").expect("follows");
    assert!(second.followed && second.id == id);
    assert_eq!(third.await.expect("joins").expect("is found").id.as_str(), id);
}

#[tokio::test]
async fn a_detached_command_whose_output_broke_off_is_let_go_when_it_has_ended() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let (driver, asked) = (world.driver.clone(), ExecRequest { detached: true, ..request("long") });
    let starting = tokio::spawn(async move { driver.exec_start(asked, None).await });
    let (_, run) = guest.start_one().await;
    starting.await.expect("joins").expect("starts");
    tokio::time::pause();
    drop(guest);
    // Past the time for which anybody looks for the next connection.
    tokio::time::sleep(Duration::from_secs(90)).await;
    tokio::time::resume();
    let session = world.row("a").id.clone();
    let is_idle = || world.driver.0.usage.standing(&session, Duration::ZERO).since.is_some();
    assert!(!is_idle(), "it runs");
    let mut guest = Guest::connect(&world, "a").await;
    let ended = Some(Exited { code: 5, ..Exited::default() });
    guest.send(Kind::Ended, 0, &Entry { id: run.id.clone(), ended, ..Entry::default() }.encode()).await;
    until(is_idle).await;
    assert_eq!(world.driver.find_exec(&run.id).expect("its row").ended.as_ref().map(|end| end.code), Some(5));
}
