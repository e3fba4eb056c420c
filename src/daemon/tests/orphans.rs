//! What an engine finishes after the daemon that asked for it was killed.

use std::time::Duration;

use super::*;
use crate::daemon::watch;
use crate::engine::{CommitSpec, CreateSpec, Engine, RunState, labels};
use crate::model::session::Operation;

/// A second life, as after `kill -9` while this call was under way, which the engine has not come to yet.
async fn killed_at<T: Send + 'static>(
    world: World,
    call: &'static str,
    verb: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> World {
    let gate = world.engine.gate(call);
    let first = tokio::spawn(verb);
    gate.reached().await;
    let driver = open(&world.engine, world.home.path(), "sessions.db");
    // The gate stays shut: what the first life asked for never comes to an end there.
    std::mem::forget(gate);
    drop(first);
    World { driver, ..world }
}

fn spec(world: &World, session: &Session) -> CreateSpec {
    world.driver.create_spec(session, IMAGE)
}

/// What the engine makes in the end, past the gate.
fn late(engine: &FakeEngine, spec: &CreateSpec) {
    engine.create_late(spec).expect("made");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_comes_after_its_start_was_given_up_is_removed() {
    for while_away in [true, false] {
        let world = World::new();
        let driver = world.driver.clone();
        let world =
            killed_at(world, "create", async move { driver.start(named("a"), Report::default()).await })
                .await;
        let spec = spec(&world, &world.row("a"));
        world.driver.compare_all(false).await.expect("compares");
        assert!(world.driver.session("a").is_err(), "nobody was told of the start");
        if while_away {
            late(&world.engine, &spec);
            world.driver.compare_all(false).await.expect("compares");
        } else {
            let watcher = tokio::spawn(watch::run(world.driver.clone()));
            until(|| world.driver.engine_state().about.is_some()).await;
            let made = tokio::time::Instant::now();
            late(&world.engine, &spec);
            until(|| world.engine.containers().is_empty()).await;
            assert!(made.elapsed() < Duration::from_secs(5), "its making was a hint");
            watcher.abort();
        }
        assert!(world.engine.containers().is_empty());
        assert_eq!(world.driver.count(), 0, "it came back as a session");
    }
}

#[tokio::test]
async fn a_container_that_comes_after_its_resume_was_given_up_is_removed() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, saved) = world.save("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    let row = world.row("a");
    let mut spec = spec(&world, &row);
    world.driver.0.store.update(&row.id, |s| s.operation = Some(Operation::Resume)).await.expect("a row");
    let world = world.restart().await;
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!((world.status("a"), world.row("a").operation), (Status::Saved, None));
    late(&world.engine, &spec);
    world.driver.compare_all(false).await.expect("compares");
    assert!(world.engine.containers().is_empty());
    assert_eq!(world.row("a").sandbox_id, None);

    // It may come at the very moment of the next one, and be of another image.
    spec.image = IMAGE.to_owned();
    late(&world.engine, &spec);
    let resumed = world.resume("a").await.expect("resumes");
    assert_eq!(resumed.image_id.as_ref(), Some(&saved.image_id));
    world.assert_explained();
}

#[tokio::test]
async fn a_lost_table_is_not_made_again_from_a_container_that_never_ran() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.resume("a").await.expect("resumes");
    world.stop("a").await.expect("stops");
    let (driver, name) = (world.driver.clone(), first.name.clone());
    let ran = world.sandbox("a");
    let world =
        killed_at(world, "start", async move { driver.resume("a", back_to(&name), Report::default()).await })
            .await;
    assert_eq!(world.engine.containers().len(), 2, "one is being replaced");
    let driver = open(&world.engine, world.home.path(), "other.db");
    let world = World { driver, ..world };
    world.driver.compare_all(false).await.expect("compares");
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.row("a").sandbox_id.as_ref(), Some(&ran), "the files are those of the one that ran");
    assert_eq!(world.engine.containers()[0].name, "session-a");
    world.assert_explained();
}

#[tokio::test]
async fn an_image_that_comes_after_its_save_was_given_up_is_removed() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.save_running("a").await.expect("saves");
    let driver = world.driver.clone();
    let world = killed_at(world, "commit", async move {
        driver.save("a", Naming::default(), true, Report::default()).await
    })
    .await;
    let all = world.driver.0.store.snapshots(None);
    let unmade = all.iter().find(|s| s.image_id.is_empty()).expect("one is being made").clone();
    let held = world.driver.hold("a").await.expect("its turn");
    let commit: CommitSpec = world.driver.commit_spec(&held, &unmade, &world.sandbox("a"));
    drop(held);
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("a"), Status::Running, "nothing is left paused");
    world.engine.commit_late(&commit).expect("made");
    world.driver.compare_all(false).await.expect("compares");
    world.assert_explained();
    assert_eq!(world.driver.snapshots(Some("a")).expect("a list").len(), 1, "it came back as a snapshot");
    let reference = labels::snapshot_reference(&unmade.id);
    assert_eq!(world.engine.image(&reference).await.expect("answers"), None);
}

#[tokio::test]
async fn a_container_that_somebody_starts_by_hand_meanwhile_is_nobodys_to_remove() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let spec = spec(&world, &world.row("a"));
    let world = world.lose_table().await;
    late(&world.engine, &spec);
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("a"), Status::Running);
    assert!(world.engine.containers().iter().all(|c| c.state == RunState::Running));
}

#[tokio::test]
async fn an_image_that_waits_for_its_container_goes_with_it_whoever_removes_that() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.go_back("a", &first.name).await.expect("goes back");
    world.stop("a").await.expect("stops");
    world.driver.delete_snapshots(vec![first.name.clone()]).await.expect("deletes");
    assert!(world.engine.image(&first.image_id).await.expect("answers").is_some(), "a container needs it");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.engine.image(&first.image_id).await.expect("answers"), None);
}
