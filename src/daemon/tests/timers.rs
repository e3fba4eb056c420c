//! Timeout and idle, by a clock that the test turns.

use std::time::Duration;

use super::*;
use crate::daemon::expiry;
use crate::model::id::Timestamp;
use crate::model::idle::Busy;

async fn until_status(world: &World, status: Status) {
    for _ in 0..100_000 {
        if world.status("a") == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("still {:?}", world.status("a"));
}

fn timed(timeout_ms: Option<u64>, idle_ms: Option<u64>) -> StartParams {
    StartParams { timeout_ms, idle_ms, ..named("a") }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_stops_and_keeps_and_counts_again_from_resume() {
    let world = World::new();
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    world.driver.start(timed(Some(60_000), None), Report::default()).await.expect("starts");
    assert!(world.row("a").expires_at.is_some());
    until_status(&world, Status::Stopped).await;
    let row = world.row("a");
    assert_eq!((row.reason, row.expires_at), (Some(Reason::Timeout), None));
    assert_eq!(world.engine.containers().len(), 1, "the container stays");
    assert!(world.resume("a").await.expect("resumes").expires_at.is_some());
    until_status(&world, Status::Stopped).await;
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_stops_but_not_while_something_runs_in_it() {
    let world = World::new();
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    world.driver.start(timed(None, Some(60_000)), Report::default()).await.expect("starts");
    let in_use = world.driver.0.usage.begin(&world.row("a").id, Busy::Exec);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.status("a"), Status::Running);
    drop(in_use);
    until_status(&world, Status::Stopped).await;
    assert_eq!(world.row("a").reason, Some(Reason::Idle));
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn looking_at_a_session_does_not_change_when_it_ends() {
    let world = World::new();
    world.driver.start(timed(Some(60_000), None), Report::default()).await.expect("starts");
    let before = world.row("a").expires_at;
    for _ in 0..10 {
        world.driver.sessions();
        world.row("a");
        world.driver.compare_all(false).await.expect("compares");
    }
    assert_eq!(world.row("a").expires_at, before);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_session_is_stopped_once_after_a_restart() {
    let world = World::new();
    world.driver.start(timed(Some(60_000), None), Report::default()).await.expect("starts");
    let id = world.row("a").id.clone();
    world.driver.0.store.update(&id, |s| s.expires_at = Some(Timestamp(1))).await.expect("a row");
    let world = world.restart().await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    until_status(&world, Status::Stopped).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let stops = world.engine.calls().iter().filter(|c| c.starts_with("stop ")).count();
    assert_eq!(stops, 1, "{:?}", world.engine.calls());
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_failed_is_tried_again() {
    let world = World::new();
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    world.driver.start(timed(Some(60_000), None), Report::default()).await.expect("starts");
    world.engine.fail_next("stop", broken("stop"));
    until_status(&world, Status::Stopped).await;
    assert_eq!(world.row("a").reason, Some(Reason::Timeout));
    let stops = world.engine.calls().iter().filter(|c| c.starts_with("stop ")).count();
    assert_eq!(stops, 2, "{:?}", world.engine.calls());
    timer.abort();
}

#[tokio::test]
async fn a_stop_that_failed_does_not_put_the_deadline_off() {
    let world = World::new();
    world.driver.start(timed(Some(3_600_000), None), Report::default()).await.expect("starts");
    let deadline = world.row("a").expires_at;
    world.engine.fail_next("stop", broken("stop"));
    world.stop("a").await.expect_err("fails");
    assert_eq!((world.status("a"), world.row("a").expires_at), (Status::Running, deadline));
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_a_restart_is_not_idle_until_it_has_ended() {
    let world = World::new();
    world.driver.start(timed(None, Some(60_000)), Report::default()).await.expect("starts");
    let sandbox = world.sandbox("a");
    let agent = crate::model::session::Excluded::new("process", "claude");
    world.engine.set_excluded(&sandbox, vec![agent]);
    let world = world.restart().await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.status("a"), Status::Running, "an agent is at work in it");
    world.engine.set_excluded(&sandbox, Vec::new());
    until_status(&world, Status::Stopped).await;
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_while_nobody_watched_puts_a_timeout_off_by_no_more_than_its_length() {
    let world = World::new();
    world.driver.start(timed(Some(60_000), None), Report::default()).await.expect("starts");
    let id = world.row("a").id.clone();
    let far = Timestamp(crate::daemon::clock::now().0 + 400 * 86_400_000);
    world.driver.0.store.update(&id, move |s| s.expires_at = Some(far)).await.expect("a row");
    let world = world.restart().await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    let begun = tokio::time::Instant::now();
    until_status(&world, Status::Stopped).await;
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_destroys_nothing_and_stops_once() {
    let world = World::new();
    world.driver.start(timed(Some(60_000), Some(60_000)), Report::default()).await.expect("starts");
    let id = world.row("a").id.clone();
    let past = |s: &mut Session| (s.expires_at, s.last_active) = (Some(Timestamp(1)), Timestamp(1));
    world.driver.0.store.update(&id, past).await.expect("a row");
    let world = world.restart().await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    until_status(&world, Status::Stopped).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.engine.calls().iter().filter(|c| c.starts_with("stop ")).count(), 1);
    assert_eq!(world.engine.containers().len(), 1, "its files are where they were");
    timer.abort();
}
