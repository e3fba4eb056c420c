//! A wall clock that jumps either way, or stood still with the machine while it was suspended.

use std::time::Duration;

use super::*;
use crate::daemon::{clock, expiry};
use crate::fault::set_clock;

const HOUR_MS: u64 = 3_600_000;

const DAY_MS: i64 = 24 * 3_600_000;

/// Sessions that are looked at in each test.
const MANY: usize = 8;

async fn started(timeout_ms: Option<u64>, idle_ms: Option<u64>) -> World {
    let world = World::new();
    for n in 0..MANY {
        let params = StartParams { timeout_ms, idle_ms, ..named(&format!("s{n}")) };
        world.driver.start(params, Report::default()).await.expect("starts");
    }
    world
}

fn running(world: &World) -> usize {
    world.driver.sessions().iter().filter(|session| session.status == Status::Running).count()
}

fn stops(world: &World) -> usize {
    world.engine.calls().iter().filter(|call| call.starts_with("stop ")).count()
}

/// Lets this time pass by the clock that nobody sets.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn neither_a_jump_nor_a_suspend_makes_any_session_idle() {
    let world = started(None, Some(HOUR_MS)).await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    for ahead in [DAY_MS, -DAY_MS, 30 * DAY_MS, 0] {
        set_clock(ahead);
        pass(Duration::from_secs(600)).await;
        assert_eq!(running(&world), MANY, "after a jump to {ahead} ms");
        for session in world.driver.sessions() {
            let idle = world.driver.idleness(&session).expect("it counts");
            assert!(idle.since < idle.due, "{idle:?}");
        }
    }
    pass(Duration::from_secs(1800)).await;
    assert_eq!((running(&world), stops(&world)), (0, MANY), "an hour was an hour");
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_jump_past_every_timeout_stops_each_session_once_and_removes_nothing() {
    let world = started(Some(HOUR_MS), None).await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    set_clock(DAY_MS);
    pass(Duration::from_secs(120)).await;
    assert_eq!((running(&world), stops(&world)), (0, MANY));
    assert_eq!(world.engine.containers().len(), MANY);
    for session in world.driver.sessions() {
        assert_eq!(session.reason, Some(Reason::Timeout));
    }
    set_clock(0);
    let back = world.resume("s0").await.expect("resumes");
    let left = back.expires_at.expect("counts anew").0 - clock::now().0;
    assert!((1..=i64::try_from(HOUR_MS).expect("small")).contains(&left), "{left}");
    pass(Duration::from_secs(600)).await;
    assert_eq!((running(&world), stops(&world)), (1, MANY));
    timer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_puts_no_timeout_off() {
    let world = started(Some(HOUR_MS), None).await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    pass(Duration::from_secs(60)).await;
    set_clock(-DAY_MS);
    pass(Duration::from_secs(3300)).await;
    assert_eq!(running(&world), MANY, "nor does it shorten one");
    pass(Duration::from_secs(400)).await;
    assert_eq!((running(&world), stops(&world)), (0, MANY));
    timer.abort();
}

#[tokio::test]
async fn times_of_what_happens_across_a_jump_are_in_no_order_but_nothing_lasts_less_than_nothing() {
    let world = World::new();
    world.start("a").await.expect("starts");
    set_clock(-DAY_MS);
    world.save_running("a").await.expect("saves");
    world.start("b").await.expect("starts");
    set_clock(DAY_MS);
    world.save_running("a").await.expect("saves");
    set_clock(0);
    world.save_running("a").await.expect("saves");
    let names: Vec<String> = world.driver.sessions().iter().map(|session| session.name.to_string()).collect();
    assert_eq!(names.len(), 2);
    let all = world.driver.snapshots(Some("a")).expect("a list");
    let mut ids: Vec<_> = all.iter().map(|snapshot| snapshot.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each has its own");
    let rows = world.driver.sessions();
    assert!(rows.iter().all(|row| row.created_at.0 >= 0 && row.last_active.0 >= 0), "{rows:?}");
}
