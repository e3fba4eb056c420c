//! Idle sessions: what keeps them, what is told, and what is done, by a clock that the test turns.

use std::time::Duration;

use super::*;
use crate::daemon::idle::Idleness;
use crate::daemon::{clock, expiry};
use crate::model::event::{Event, EventKind};
use crate::model::id::Timestamp;
use crate::model::idle::{Busy, IdleAction};
use crate::proto::types;

const MINUTE: Duration = Duration::from_secs(60);

/// A session `a` that may be idle for ten minutes, watched.
async fn world(action: IdleAction) -> (World, tokio::task::AbortHandle) {
    let world = World::new();
    let timer = tokio::spawn(expiry::run(world.driver.clone())).abort_handle();
    let action = types::IdleAction::from_word(action.as_str());
    let params = StartParams { idle_ms: Some(600_000), idle_action: Some(action), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    (world, timer)
}

/// Waits for a state, by the clock that is turned.
async fn until_status(world: &World, status: Status) {
    for _ in 0..10_000 {
        if world.status("a") == status {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("still {:?}", world.status("a"));
}

fn events(world: &World, kind: EventKind) -> Vec<std::sync::Arc<Event>> {
    world.driver.0.store.events(0).into_iter().filter(|event| event.kind == kind).collect()
}

fn calls(world: &World, call: &str) -> usize {
    world.engine.calls().iter().filter(|c| c.split(' ').next() == Some(call)).count()
}

#[tokio::test(start_paused = true)]
async fn a_busy_loop_keeps_a_session_that_nobody_uses_until_it_ends() {
    let (world, timer) = world(IdleAction::Stop).await;
    world.engine.burn(&world.sandbox("a"), true);
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(world.status("a"), Status::Running);
    let idleness = world.driver.idleness(&world.row("a")).expect("it has an idle time");
    assert_eq!(idleness, Idleness { busy: vec![Busy::Cpu], since: None, due: None });
    assert_eq!(events(&world, EventKind::SessionIdle).len(), 0);
    world.engine.burn(&world.sandbox("a"), false);
    let ended = tokio::time::Instant::now();
    until_status(&world, Status::Stopped).await;
    assert!(ended.elapsed() > 9 * MINUTE && ended.elapsed() < 14 * MINUTE, "{:?}", ended.elapsed());
    assert_eq!(world.row("a").reason, Some(Reason::Idle));
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_session_is_warned_of_once_before_it_is_stopped_and_looked_at_a_few_times_in_all() {
    let (world, timer) = world(IdleAction::Stop).await;
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(5 * MINUTE).await;
    let idleness = world.driver.idleness(&world.row("a")).expect("it has an idle time");
    let (since, due) = (idleness.since.expect("counts"), idleness.due.expect("counts"));
    assert_eq!(due.0 - since.0, 600_000);
    until_status(&world, Status::Stopped).await;
    assert!(begun.elapsed() < 11 * MINUTE, "{:?}", begun.elapsed());
    let warned = events(&world, EventKind::SessionIdle);
    assert_eq!(warned.len(), 1);
    assert!(warned[0].data.contains(r#""action":"stop""#), "{}", warned[0].data);
    assert_eq!(warned[0].name.as_deref(), Some("a"));
    assert!(calls(&world, "cpu_time") <= 8, "{:?}", world.engine.calls());
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_and_a_terminal_that_writes_keep_a_session() {
    let (world, timer) = world(IdleAction::Stop).await;
    let id = world.row("a").id.clone();
    let attached = world.driver.0.usage.begin(&id, Busy::Client);
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(world.driver.idleness(&world.row("a")).expect("has one").busy, [Busy::Client]);
    drop(attached);
    for _ in 0..6 {
        tokio::time::sleep(5 * MINUTE).await;
        world.driver.0.usage.wrote(&id);
        assert_eq!(world.driver.idleness(&world.row("a")).expect("has one").busy, [Busy::Terminal]);
    }
    assert_eq!(world.status("a"), Status::Running);
    until_status(&world, Status::Stopped).await;
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_paused_or_saved_where_that_is_wanted_and_comes_back_to_a_new_countdown() {
    for (action, rests) in [(IdleAction::Pause, Status::Paused), (IdleAction::Save, Status::Saved)] {
        let (world, timer) = world(action).await;
        until_status(&world, rests).await;
        assert_eq!(world.row("a").reason, Some(Reason::Idle));
        tokio::time::sleep(60 * MINUTE).await;
        assert_eq!(world.status("a"), rests, "that is all that is done");
        world.driver.connect("a").await.expect("comes back");
        tokio::time::sleep(8 * MINUTE).await;
        assert_eq!((world.status("a"), world.row("a").reason), (Status::Running, None));
        until_status(&world, rests).await;
        timer.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_countdown_goes_on_where_it_was_after_a_restart() {
    let (world, timer) = world(IdleAction::Stop).await;
    tokio::time::sleep(7 * MINUTE).await;
    timer.abort();
    // The wall clock has not gone on with the one that the test turns.
    let (id, used) = (world.row("a").id.clone(), clock::now().0 - 420_000);
    world.driver.0.store.update(&id, move |s| s.last_active = Timestamp(used)).await.expect("a row");
    let world = world.restart().await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    let begun = tokio::time::Instant::now();
    until_status(&world, Status::Stopped).await;
    assert!(begun.elapsed() > 2 * MINUTE && begun.elapsed() < 4 * MINUTE, "{:?}", begun.elapsed());
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_tells_no_cpu_time_does_not_keep_a_session() {
    let (world, timer) = world(IdleAction::Stop).await;
    for _ in 0..20 {
        world.engine.fail_next("cpu_time", broken("cpu_time"));
    }
    until_status(&world, Status::Stopped).await;
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn sessions_without_an_idle_time_and_those_that_are_used_are_not_looked_at() {
    let (world, timer) = world(IdleAction::Stop).await;
    world.start("b").await.expect("starts");
    let _in_use = world.driver.0.usage.begin(&world.row("a").id, Busy::Exec);
    tokio::time::sleep(MINUTE).await;
    let looks = calls(&world, "cpu_time");
    tokio::time::sleep(600 * MINUTE).await;
    assert_eq!(calls(&world, "cpu_time"), looks);
    timer.abort();
}

#[tokio::test]
async fn an_update_changes_what_is_done_and_nothing_else() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let update = |word: &str| crate::proto::sessions::UpdateParams {
        name: "a".into(),
        idle_action: Some(types::IdleAction::from_word(word)),
        ..Default::default()
    };
    let row = world.driver.update(update("pause")).await.expect("updated");
    assert_eq!((row.idle_action, row.idle_ms), (IdleAction::Pause, None));
    let failure = world.driver.update(update("explode")).await.expect_err("no such action");
    assert_eq!(failure.message, "idle_action: expected one of stop, pause, save");
}
