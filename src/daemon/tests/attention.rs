//! What is heard of agents through abx-init, whose part a test plays; with paused time.

use std::time::Duration;

use super::guests::{Guest, request, world};
use super::*;
use crate::daemon::exec::ExecRequest;
use crate::guest::wire::{Kind, Notice, Payload};
use crate::model::attention::Attention;
use crate::model::exec::Exec;
use crate::model::id::{ExecId, Timestamp};
use crate::model::until::Until;
use crate::proto::stream::Size;

/// A command on the main terminal: its id.
async fn agent(world: &World, guest: &mut Guest) -> String {
    let size = Some(Size { cols: 80, rows: 24 });
    let asked = ExecRequest { tty: size, terminal: Some("main".into()), attach: true, ..request("agent") };
    let driver = world.driver.clone();
    let starting = tokio::spawn(async move { driver.exec(asked).await.expect("it starts").id });
    guest.start_one().await;
    starting.await.expect("joins")
}

fn notice(exec: &str, source: u8, state: u8, body: &str) -> Vec<u8> {
    let (exec, body) = (exec.to_owned(), body.to_owned());
    Notice { exec, source, state, body, ..Notice::default() }.encode()
}

async fn seen(world: &World, until: Until) {
    let waited = world.driver.wait_session("a", until, Some(Duration::from_secs(60))).await.expect("waited");
    assert!(waited.reached, "{:?}", world.row("a").attention);
}

fn told(world: &World) -> usize {
    let events = world.driver.0.store.events(0);
    events.iter().filter(|event| event.kind.as_str() == "session.attention").count()
}

#[tokio::test]
async fn a_sandbox_that_says_something_else_all_the_time_is_heard_now_and_then() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let id = agent(&world, &mut guest).await;
    for turn in 0..200 {
        let state = if turn % 2 == 0 { Notice::WAITING } else { Notice::WORKING };
        guest.send(Kind::Notice, 0, &notice(&id, Notice::COMMAND, state, &format!("turn {turn}"))).await;
        tokio::task::yield_now().await;
    }
    guest.send(Kind::Oom, 0, &crate::guest::wire::Oom { kills: 1 }.encode()).await;
    // It comes after all of them on the same connection.
    super::until(|| world.row("a").oom_events == 1).await;
    assert!((1..=13).contains(&told(&world)), "{}", told(&world));
}

#[tokio::test]
async fn what_makes_no_sense_is_not_heard() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let id = agent(&world, &mut guest).await;
    for (source, state) in [(0, 2), (99, 2), (Notice::COMMAND, 0), (Notice::OSC9, 9)] {
        guest.send(Kind::Notice, 0, &notice(&id, source, state, "x")).await;
    }
    guest.send(Kind::Notice, 0, &notice(&"e".repeat(1000), Notice::OSC9, Notice::WAITING, "x")).await;
    guest.send(Kind::Active, 0, b"\xff\xfe").await;
    guest.send(Kind::Active, 0, b"another").await;
    guest.send(Kind::Notice, 0, &notice(&id, Notice::OSC9, Notice::WAITING, "\u{1b}[2Jlook")).await;
    seen(&world, Until::Waiting).await;
    let noted = world.row("a").attention.clone().expect("noted");
    assert_eq!((noted.note.as_deref(), told(&world)), (Some("[2Jlook"), 1));
}

#[tokio::test]
async fn the_end_of_the_main_program_and_of_the_sandbox_are_both_an_exit() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let id = agent(&world, &mut guest).await;
    guest.send(Kind::Active, 0, id.as_bytes()).await;
    seen(&world, Until::Working).await;
    let entry = crate::guest::wire::Entry {
        id: id.clone(),
        ended: Some(crate::guest::wire::Exited { code: 3, ..Default::default() }),
        ended_ms: 1,
        ..Default::default()
    };
    guest.send(Kind::Ended, 0, &entry.encode()).await;
    seen(&world, Until::Exit).await;
    let noted = world.row("a").attention.clone().expect("noted");
    assert_eq!((noted.state, noted.note.as_deref()), (Attention::Done, Some("exit code 3")));
    // What is still on its way from it is of the past.
    guest.send(Kind::Active, 0, id.as_bytes()).await;
    guest.send(Kind::Notice, 0, &notice(&id, Notice::BELL, Notice::WAITING, "")).await;
    guest.send(Kind::Notice, 0, &notice(&id, Notice::COMMAND, Notice::DONE, "all tests pass")).await;
    super::until(|| {
        world.row("a").attention.as_ref().is_some_and(|n| n.note.as_deref() == Some("all tests pass"))
    })
    .await;
    seen(&world, Until::Exit).await;
    // What is said from outside changes nothing about that, and the next program does.
    world.driver.notify("a", Attention::Working, "the next").await.expect("said");
    seen(&world, Until::Exit).await;
    assert_eq!(guest.asked().await.kind, Kind::Leave, "whoever opened it has gone");
    agent(&world, &mut guest).await;
    let now = Some(Duration::from_millis(1));
    let waited = world.driver.wait_session("a", Until::Exit, now).await.expect("waited");
    assert!(!waited.reached, "a program runs there");
    world.stop("a").await.expect("stops");
    assert_eq!(world.row("a").attention, None);
    seen(&world, Until::Exit).await;
}

/// Ends the command on the main terminal, as its sandbox tells.
async fn end(world: &World, guest: &mut Guest, id: &str) {
    let ended = Some(crate::guest::wire::Exited::default());
    let entry = crate::guest::wire::Entry { id: id.to_owned(), ended, ended_ms: 1, ..Default::default() };
    guest.send(Kind::Ended, 0, &entry.encode()).await;
    super::until(|| world.row("a").main_over).await;
}

#[tokio::test]
async fn the_end_of_the_main_program_stays_known_when_its_row_is_forgotten() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let id = agent(&world, &mut guest).await;
    end(&world, &mut guest, &id).await;
    let (session, main) = (world.row("a").id.clone(), ExecId::new(&id));
    let others = move |tx: &mut crate::store::Tx<'_>| {
        let of_main = tx.exec(&main).expect("its row");
        for n in 1..=200 {
            let other = Exec { terminal: None, id: ExecId::new(format!("{n}")), ..Exec::clone(&of_main) };
            let started_at = Timestamp(of_main.started_at.0 + n);
            tx.put_exec(&Exec { started_at, ..other })?;
        }
        Ok(())
    };
    world.driver.0.store.write(others).await.expect("written");
    assert!(world.driver.0.store.execs(&session).iter().all(|exec| exec.terminal.is_none()), "forgotten");
    seen(&world, Until::Exit).await;
}

#[tokio::test]
async fn what_ended_on_the_main_terminal_in_an_earlier_life_of_the_sandbox_is_no_exit_of_this_one() {
    let world = world().await;
    let mut guest = Guest::connect(&world, "a").await;
    let id = agent(&world, &mut guest).await;
    end(&world, &mut guest, &id).await;
    seen(&world, Until::Exit).await;
    world.stop("a").await.expect("stops");
    world.resume("a").await.expect("resumes");
    let now = Some(Duration::from_millis(1));
    let waited = world.driver.wait_session("a", Until::Exit, now).await.expect("waited");
    assert!(!waited.reached, "nothing has run since");
}

#[tokio::test]
async fn who_waits_follows_a_session_through_its_names_and_is_told_of_its_end() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let wait = |until| {
        let driver = world.driver.clone();
        tokio::spawn(async move { driver.wait_session("a", until, None).await })
    };
    let (idle, exit, saved) = (wait(Until::Idle), wait(Until::Exit), wait(Until::Saved));
    tokio::task::yield_now().await;
    world.driver.rename("a", "b").await.expect("renamed");
    world.save("b").await.expect("saved");
    assert_eq!(saved.await.expect("joins").expect("saved").session.expect("a row").name.as_str(), "b");
    assert!(exit.await.expect("joins").expect("ended").reached);
    world.driver.delete("b", false).await.expect("deleted");
    let failure = idle.await.expect("joins").expect_err("it is gone");
    assert_eq!(failure.kind.name(), "session_not_found");
}
