//! Following the engine: hints, losses of the stream, sessions that are busy.

use std::time::Duration;

use super::*;
use crate::daemon::watch;
use crate::engine::Hint;

async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

#[tokio::test(start_paused = true)]
async fn a_death_shows_within_five_seconds_of_its_hint() {
    let world = World::new();
    let watcher = tokio::spawn(watch::run(world.driver.clone()));
    world.start("a").await.expect("starts");
    until("the engine to be found", || world.driver.engine_state().about.is_some()).await;
    let died = tokio::time::Instant::now();
    world.engine.kill_container(&world.sandbox("a"), 1, false);
    world.engine.send_hint(Hint::Sandbox(world.sandbox("a")));
    until("the death to show", || world.status("a") == Status::Stopped).await;
    assert!(died.elapsed() < Duration::from_secs(5));
    watcher.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_amid_hints_is_opened_again() {
    let world = World::new();
    let watcher = tokio::spawn(watch::run(world.driver.clone()));
    world.start("a").await.expect("starts");
    until("the engine to be found", || world.driver.engine_state().about.is_some()).await;
    for _ in 0..3 {
        world.engine.send_hint(Hint::Sandbox(world.sandbox("a")));
        world.engine.set_down(true);
        until("the loss to show", || world.driver.engine_state().problem.is_some()).await;
        world.engine.set_down(false);
        until("it to heal", || world.driver.engine_state().problem.is_none()).await;
    }
    world.engine.kill_container(&world.sandbox("a"), 1, false);
    world.engine.send_hint(Hint::Sandbox(world.sandbox("a")));
    until("the death to show", || world.status("a") == Status::Stopped).await;
    assert!(!watcher.is_finished());
    watcher.abort();
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_takes_long_does_not_hold_up_the_comparison_of_others() {
    let world = World::new();
    world.engine.add_pullable("python:3");
    world.start("other").await.expect("starts");
    let gate = world.engine.gate("pull");
    let params = StartParams { image: Some("python:3".into()), ..named("slow") };
    let driver = world.driver.clone();
    let start = tokio::spawn(async move { driver.start(params, Report::default()).await });
    gate.reached().await;
    world.engine.kill_container(&world.sandbox("other"), 1, false);
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("other"), Status::Stopped);
    assert_eq!(world.status("slow"), Status::Starting, "the pull has the turn of its own session");
    gate.open();
    start.await.expect("no panic").expect("starts");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ran_out_of_memory_is_counted() {
    let world = World::new();
    let watcher = tokio::spawn(watch::run(world.driver.clone()));
    world.start("a").await.expect("starts");
    until("the engine to be found", || world.driver.engine_state().about.is_some()).await;
    world.engine.send_hint(Hint::Oom(world.sandbox("a")));
    until("it to be counted", || world.row("a").oom_events == 1).await;
    assert_eq!(world.status("a"), Status::Running);
    watcher.abort();
}
