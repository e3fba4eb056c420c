//! What comes back after the engine went.

use super::*;
use crate::proto::types;

const LIFE_KEY: &str = "engine.life";

async fn start(world: &World, name: &str, on_boot: Option<&str>) {
    let on_boot = on_boot.map(types::OnBoot::from_word);
    world.driver.start(StartParams { on_boot, ..named(name) }, Report::default()).await.expect("starts");
}

/// The engine goes, and what runs in it, and comes back.
async fn goes(world: &World) {
    for session in world.driver.sessions() {
        world.engine.kill_container(session.sandbox_id.as_deref().expect("a container"), 255, false);
    }
    world.driver.compare_all(true).await.expect("compares");
}

fn seen(world: &World, name: &str) -> (Status, Option<Reason>) {
    (world.status(name), world.row(name).reason)
}

#[tokio::test]
async fn what_ran_comes_back_where_that_is_wanted_and_what_was_paused_or_stopped_does_not() {
    let world = World::new();
    start(&world, "wanted", Some("resume")).await;
    start(&world, "usual", None).await;
    start(&world, "frozen", Some("resume")).await;
    start(&world, "stopped", Some("resume")).await;
    world.driver.pause("frozen").await.expect("pauses");
    world.stop("stopped").await.expect("stops");
    goes(&world).await;
    assert_eq!(seen(&world, "wanted"), (Status::Stopped, Some(Reason::Engine)));
    world.driver.bring_back().await;
    assert_eq!(seen(&world, "wanted"), (Status::Running, None));
    assert_eq!(seen(&world, "usual"), (Status::Stopped, Some(Reason::Engine)));
    assert_eq!(seen(&world, "frozen"), (Status::Stopped, Some(Reason::Engine)));
    assert_eq!(seen(&world, "stopped"), (Status::Stopped, Some(Reason::User)));
}

#[tokio::test]
async fn the_configuration_decides_where_the_session_does_not() {
    let world = World::new().configured("on_boot = \"resume\"").await;
    start(&world, "usual", None).await;
    start(&world, "not", Some("stopped")).await;
    goes(&world).await;
    world.driver.bring_back().await;
    assert_eq!((world.status("usual"), world.status("not")), (Status::Running, Status::Stopped));
}

#[tokio::test]
async fn one_that_does_not_come_back_is_tried_once_and_holds_up_no_other() {
    let world = World::new();
    start(&world, "a", Some("resume")).await;
    start(&world, "b", Some("resume")).await;
    goes(&world).await;
    world.engine.fail_next("start", broken("start"));
    world.driver.bring_back().await;
    let running = |name: &&str| world.status(name) == Status::Running;
    assert_eq!(["a", "b"].iter().filter(|name| running(name)).count(), 1);
    let starts = world.engine.calls().iter().filter(|c| c.starts_with("start ")).count();
    world.driver.bring_back().await;
    assert_eq!(world.engine.calls().iter().filter(|c| c.starts_with("start ")).count(), starts);
    world.assert_explained();
}

#[tokio::test]
async fn what_is_owed_to_a_session_outlives_the_daemon() {
    let world = World::new();
    start(&world, "a", Some("resume")).await;
    goes(&world).await;
    let world = world.restart().await;
    world.driver.bring_back().await;
    assert_eq!(world.status("a"), Status::Running);
}

#[tokio::test]
async fn a_daemon_that_comes_up_in_another_boot_knows_that_the_engine_was_away() {
    let world = World::new();
    start(&world, "a", None).await;
    world.driver.keep_life("fake").await;
    let world = world.restart().await;
    world.driver.note_life(None).await;
    assert!(!world.driver.was_away(), "it is the same boot");
    let other = |tx: &mut crate::store::Tx<'_>| tx.set_meta(LIFE_KEY, "another-boot");
    world.driver.0.store.write(other).await.expect("written");
    world.engine.kill_container(&world.sandbox("a"), 0, false);
    let world = world.restart().await;
    world.driver.note_life(None).await;
    world.driver.compare_all(world.driver.was_away()).await.expect("compares");
    assert_eq!(seen(&world, "a"), (Status::Stopped, Some(Reason::Engine)));
    world.driver.keep_life("fake").await;
    assert!(!world.driver.was_away());
}
