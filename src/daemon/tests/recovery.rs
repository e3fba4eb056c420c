//! What a second life makes of what the first one left.

use super::*;
use crate::engine::RunState;
use crate::model::id::SnapshotId;
use crate::model::session::{Operation, SnapshotState};

/// Marks a row as if the daemon had died within an operation.
async fn cut_off(world: &World, name: &str, operation: Operation) {
    let id = world.row(name).id.clone();
    world.driver.0.store.update(&id, move |s| s.operation = Some(operation)).await.expect("a row");
}

#[tokio::test]
async fn what_happened_outside_shows() {
    let world = World::new();
    for name in ["killed", "hungry", "frozen", "vanished", "held"] {
        world.start(name).await.expect("starts");
    }
    world.save_running("held").await.expect("saves");
    world.engine.kill_container(&world.sandbox("killed"), 1, false);
    world.engine.kill_container(&world.sandbox("hungry"), 137, true);
    world.engine.pause_outside(&world.sandbox("frozen"));
    world.engine.vanish(&world.sandbox("vanished"));
    world.engine.vanish(&world.sandbox("held"));
    world.driver.compare_all(false).await.expect("compares");
    let seen = |name: &str| (world.status(name), world.row(name).reason);
    assert_eq!(seen("killed"), (Status::Stopped, Some(Reason::Exited)));
    assert_eq!(seen("hungry"), (Status::Stopped, Some(Reason::OomKilled)));
    assert_eq!(seen("frozen"), (Status::Paused, None));
    assert_eq!(seen("vanished"), (Status::Lost, Some(Reason::Removed)));
    assert_eq!(seen("held"), (Status::Saved, Some(Reason::Removed)));
}

#[tokio::test]
async fn a_row_that_knows_of_no_container_finds_its_own_again() {
    let world = World::new();
    for name in ["lost", "saved"] {
        world.start(name).await.expect("starts");
    }
    world.save_running("saved").await.expect("saves");
    let was = ["lost", "saved"].map(|name| world.row(name).sandbox_id.clone());
    for (name, status) in [("lost", Status::Lost), ("saved", Status::Saved)] {
        let change = move |s: &mut Session| (s.status, s.sandbox_id) = (status, None);
        world.driver.0.store.update(&world.row(name).id.clone(), change).await.expect("a row");
    }
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(["lost", "saved"].map(|name| world.status(name)), [Status::Running; 2]);
    assert_eq!(["lost", "saved"].map(|name| world.row(name).sandbox_id.clone()), was);
}

#[tokio::test]
async fn a_container_that_stopped_while_the_engine_was_away_says_so() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.kill_container(&world.sandbox("a"), 137, false);
    world.driver.compare_all(true).await.expect("compares");
    assert_eq!(world.row("a").reason, Some(Reason::Engine));
}

#[tokio::test]
async fn an_operation_that_was_cut_off_is_explained_after_a_restart() {
    let world = World::new();
    for name in ["stop", "save", "resume", "pause", "delete", "start"] {
        world.start(name).await.expect("starts");
    }
    cut_off(&world, "stop", Operation::Stop).await;
    cut_off(&world, "save", Operation::SaveRunning).await;
    world.engine.pause_outside(&world.sandbox("save"));
    cut_off(&world, "resume", Operation::Resume).await;
    world.engine.kill_container(&world.sandbox("resume"), 0, false);
    cut_off(&world, "pause", Operation::Pause).await;
    cut_off(&world, "delete", Operation::Delete).await;
    cut_off(&world, "start", Operation::Start).await;
    world.engine.kill_container(&world.sandbox("start"), 0, false);

    let world = world.restart().await;
    world.driver.compare_all(false).await.expect("compares");
    world.assert_explained();
    assert_eq!(world.status("stop"), Status::Running);
    assert_eq!(world.status("save"), Status::Running, "nothing is left paused");
    assert_eq!(world.status("resume"), Status::Stopped);
    assert_eq!(world.status("pause"), Status::Running);
    assert!(world.driver.session("delete").is_err());
    assert!(world.driver.session("start").is_err());
    assert_eq!(world.engine.containers().len(), 4);
}

#[tokio::test]
async fn a_snapshot_that_was_being_made_is_kept_if_its_image_is_there_and_dropped_if_not() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, made) = world.save_running("a").await.expect("saves");
    let unmade = Snapshot { id: SnapshotId::new("never"), name: "never".into(), ..(*made).clone() };
    world
        .driver
        .0
        .store
        .write(move |tx| {
            tx.put_snapshot(&Snapshot {
                state: SnapshotState::Creating,
                image_id: String::new(),
                ..(*made).clone()
            })?;
            tx.put_snapshot(&Snapshot { state: SnapshotState::Creating, image_id: String::new(), ..unmade })
        })
        .await
        .expect("rows");
    cut_off(&world, "a", Operation::SaveRunning).await;
    let world = world.restart().await;
    world.driver.compare_all(false).await.expect("compares");
    world.assert_explained();
    let left = world.driver.snapshots(Some("a")).expect("a list");
    assert_eq!(left.len(), 1);
    assert!(!left[0].image_id.is_empty());
}

#[tokio::test]
async fn a_going_back_that_was_cut_off_ends_with_one_container() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.resume("a").await.expect("resumes");
    world.stop("a").await.expect("stops");
    let gate = world.engine.gate("start");
    let driver = world.driver.clone();
    let name = first.name.clone();
    let back = tokio::spawn(async move { driver.resume("a", back_to(&name), Report::default()).await });
    gate.reached().await;
    assert_eq!(world.engine.containers().len(), 2);
    let second = open(&world.engine, world.home.path(), "sessions.db");
    let world = World { driver: second, ..world };
    // The first life never goes on: its call waits at a gate of its own.
    world.engine.gate("start").open();
    world.driver.compare_all(false).await.expect("compares");
    back.abort();
    assert_eq!(world.engine.containers().len(), 1);
    assert_eq!(world.row("a").sandbox_id.as_ref(), Some(&world.engine.containers()[0].id));
    assert_eq!(world.row("a").operation, None);
}

#[tokio::test]
async fn a_lost_table_is_made_again_from_labels() {
    let world = World::new();
    world.start("runs").await.expect("starts");
    world.start("saved").await.expect("starts");
    let (_, snapshot) = world.save("saved").await.expect("saves");
    world.engine.vanish(&world.sandbox("saved"));
    world.start("both").await.expect("starts");
    world.save_running("both").await.expect("saves");

    let world = world.lose_table().await;
    assert_eq!(world.driver.count(), 0);
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("runs"), Status::Running);
    assert_eq!(world.status("saved"), Status::Saved);
    assert_eq!((world.status("both"), world.row("both").snapshots), (Status::Running, 1));
    world.assert_explained();
    let session = world.resume("saved").await.expect("resumes");
    assert_eq!(session.image_id.as_ref(), Some(&snapshot.image_id));
    world.stop("runs").await.expect("stops");
}

#[tokio::test]
async fn a_row_made_again_gives_way_to_a_name_that_was_taken_meanwhile() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let world = world.lose_table().await;
    world.start("a").await.expect("starts");
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.driver.count(), 2);
    assert_eq!(world.status("a-2"), Status::Running);
    world.assert_explained();
}

#[tokio::test]
async fn containers_of_other_homes_are_left_alone() {
    let world = World::new();
    world.engine.add_container("somebody", RunState::Running);
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.driver.count(), 0);
    assert_eq!(world.engine.containers().len(), 1);
}

#[tokio::test]
async fn what_a_user_runs_from_an_image_of_a_sandbox_is_left_alone() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let labels = world.engine.containers()[0].labels.clone();
    world.engine.add_labelled("my-own", RunState::Running, labels);
    world.driver.compare_all(false).await.expect("compares");
    world.stop("a").await.expect("stops");
    cut_off(&world, "a", Operation::Resume).await;
    world.driver.compare_all(false).await.expect("compares");
    world.driver.delete("a", false).await.expect("deletes");
    world.driver.compare_all(false).await.expect("compares");
    let left: Vec<String> = world.engine.containers().into_iter().map(|c| c.name).collect();
    assert_eq!(left, ["my-own"]);
    assert_eq!(world.driver.count(), 0, "it is nobody's session");
}

#[tokio::test]
async fn a_snapshot_that_was_deleted_does_not_come_back() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save_running("a").await.expect("saves");
    let gate = world.engine.gate("snapshot_images");
    let driver = world.driver.clone();
    let compare = tokio::spawn(async move { driver.compare_all(false).await });
    gate.reached().await;
    world.driver.delete_snapshots(vec![snapshot.name.clone()]).await.expect("deletes");
    gate.open();
    compare.await.expect("no panic").expect("compares");
    assert!(world.driver.snapshots(None).expect("a list").is_empty());
}

#[tokio::test]
async fn a_start_that_was_told_to_have_failed_does_not_come_up_later() {
    let world = World::new();
    let lost = EngineError::Timeout { call: "start", after: std::time::Duration::from_secs(1) };
    world.engine.lose_answer("start", lost);
    world.engine.fail_next("list", EngineError::Unavailable { tried: Vec::new() });
    world.start("a").await.expect_err("no answer");
    world.driver.compare_all(false).await.expect("compares");
    assert!(world.driver.session("a").is_err());
    assert!(world.engine.containers().is_empty());
}

#[tokio::test]
async fn one_session_that_cannot_be_looked_at_does_not_hide_the_others() {
    let world = World::new();
    for name in ["a", "b"] {
        world.start(name).await.expect("starts");
        world.engine.kill_container(&world.sandbox(name), 1, false);
    }
    let slow = EngineError::Timeout { call: "inspect", after: std::time::Duration::from_secs(1) };
    world.engine.fail_next("inspect", slow);
    world.driver.compare_all(false).await.expect("compares");
    let stopped = ["a", "b"].iter().filter(|name| world.status(name) == Status::Stopped).count();
    assert_eq!(stopped, 1);
}

#[tokio::test]
async fn a_vanished_container_leaves_no_id_behind() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.save_running("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.row("a").sandbox_id, None);
    let naming = Naming { name: Some("again".into()), ..Naming::default() };
    let refused = world.driver.save("a", naming, false, Report::default()).await.expect_err("no container");
    assert_eq!(refused.kind, crate::proto::errors::Kind::WrongState);
}
