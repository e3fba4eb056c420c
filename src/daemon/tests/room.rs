//! Room for snapshots: the budget, and the engine's disk.

use std::sync::atomic::Ordering;

use super::*;
use crate::engine::Engine;
use crate::model::idle::IdleAction;
use crate::proto::errors::Kind;
use crate::proto::sessions::ForkParams;
use crate::proto::snapshots::SnapshotPruneParams;

const MIB: u64 = 1 << 20;

/// A world with this budget for snapshots, in which `a` runs.
async fn with_budget(budget: &str) -> World {
    let world = World::new().configured(&format!("[snapshots]\nbudget = \"{budget}\"\n")).await;
    world.start("a").await.expect("starts");
    world
}

/// Writes so much in a session, and saves it under this name.
async fn save_as(world: &World, session: &str, snapshot: &str, bytes: u64) -> Result<(), Failure> {
    world.resume(session).await.expect("resumes");
    world.engine.set_written(&world.sandbox(session), bytes);
    let naming = Naming { name: Some(snapshot.to_owned()), ..Naming::default() };
    world.driver.save(session, naming, false, Report::default()).await.map(drop)
}

#[tokio::test]
async fn a_save_past_the_budget_is_refused_before_anything_stops_and_says_what_can_go() {
    let world = with_budget("20MiB").await;
    save_as(&world, "a", "small", MIB).await.expect("fits");
    save_as(&world, "a", "large", 9 * MIB).await.expect("fits");
    save_as(&world, "a", "last", 5 * MIB).await.expect("fits");
    let refused = save_as(&world, "a", "more", 7 * MIB).await.expect_err("it does not fit");
    assert_eq!(refused.kind, Kind::Limit);
    assert!(refused.message.contains("takes 7.0 MiB"), "{refused}");
    assert!(refused.message.contains("the budget of 20.0 MiB for snapshots has 4.9 MiB left"), "{refused}");
    assert!(refused.message.contains("these can go: 'large' (9.0 MiB)"), "{refused}");
    assert_eq!(refused.hint.as_deref(), Some("abx snapshot delete large"));
    assert_eq!(world.status("a"), Status::Running, "nothing was stopped for it");
    world.assert_explained();
    assert_eq!(world.row("a").snapshots, 3);
    world.driver.delete_snapshots(vec!["large".to_owned()]).await.expect("deletes");
    save_as(&world, "a", "more", 7 * MIB).await.expect("fits now");
}

#[tokio::test]
async fn whatever_takes_a_snapshot_keeps_to_the_budget() {
    let world = with_budget("10MiB").await;
    save_as(&world, "a", "one", 6 * MIB).await.expect("fits");
    world.resume("a").await.expect("resumes");
    let fork = ForkParams { name: "a".to_owned(), new_name: "b".to_owned(), snapshot: None, op: None };
    let refused = world.driver.fork(fork.clone(), Report::default()).await.expect_err("it takes one");
    assert_eq!(refused.kind, Kind::Limit);
    assert!(world.driver.session("b").is_err());
    world.save_running("a").await.expect_err("it takes one");
    assert_eq!(world.status("a"), Status::Running, "nothing is left paused");
    world.stop("a").await.expect("stops");
    let refused = world.go_back("a", "one").await.expect_err("what it replaces is saved first");
    assert_eq!((refused.kind, world.status("a")), (Kind::Limit, Status::Stopped));
    let way = Way::BackTo { snapshot: "one".to_owned(), discard: true };
    world.driver.resume("a", way, Report::default()).await.expect("it takes none");
    let from = ForkParams { snapshot: Some("one".to_owned()), ..fork };
    world.driver.fork(from, Report::default()).await.expect("it takes none");
    world.assert_explained();
}

#[tokio::test]
async fn two_saves_at_once_do_not_share_what_is_left() {
    let world = with_budget("10MiB").await;
    world.start("b").await.expect("starts");
    for name in ["a", "b"] {
        world.engine.set_written(&world.sandbox(name), 6 * MIB);
    }
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let first =
        tokio::spawn(async move { driver.save("a", Naming::default(), true, Report::default()).await });
    gate.reached().await;
    let refused = world.save_running("b").await.expect_err("the first has that room");
    assert_eq!(refused.kind, Kind::Limit);
    drop(gate);
    first.await.expect("no panic").expect("saves");
    world
        .driver
        .delete_snapshots(vec![world.row("a").snapshot.clone().expect("one")])
        .await
        .expect("deletes");
    world.save_running("b").await.expect("what was kept for the first is free again");
}

#[tokio::test]
async fn what_one_save_is_about_to_take_counts_before_it_looks_what_there_is() {
    let world = with_budget("10MiB").await;
    world.start("b").await.expect("starts");
    for name in ["a", "b"] {
        world.engine.set_written(&world.sandbox(name), 6 * MIB);
    }
    let gate = world.engine.gate("disk");
    let begin = |name: &'static str| {
        let driver = world.driver.clone();
        tokio::spawn(async move { driver.save(name, Naming::default(), true, Report::default()).await })
    };
    let first = begin("a");
    gate.reached().await;
    let second = begin("b");
    gate.reached_by(2).await;
    assert_eq!(world.driver.0.pending.0.load(Ordering::SeqCst), 12 * MIB);
    gate.open();
    first.await.expect("no panic").expect("saves");
    assert_eq!(second.await.expect("no panic").expect_err("the first has that room").kind, Kind::Limit);
}

#[tokio::test]
async fn a_container_keeps_the_snapshot_that_it_was_made_from_whatever_image_that_has_by_now() {
    let world = World::new().configured("[snapshots]\nbudget = \"20MiB\"\n").await;
    let image = world.engine.image(IMAGE).await.expect("answers").expect("there");
    world.engine.deepen(&image.id, 69);
    world.start("a").await.expect("starts");
    save_as(&world, "a", "first", 9 * MIB).await.expect("fits");
    world.go_back("a", "first").await.expect("goes back");
    let deep = world.driver.0.store.snapshot("first").expect("there");
    world.driver.flatten(&deep.id, None).await.expect("is flattened");
    assert_ne!(world.driver.0.store.snapshot("first").expect("there").image_id, deep.image_id);
    for (name, bytes) in [("second", MIB), ("third", MIB)] {
        world.engine.set_written(&world.sandbox("a"), bytes);
        let naming = Naming { name: Some(name.to_owned()), ..Naming::default() };
        world.driver.save("a", naming, true, Report::default()).await.expect("fits");
    }
    world.engine.set_written(&world.sandbox("a"), 19 * MIB);
    let refused = world.save_running("a").await.expect_err("it does not fit");
    assert!(!refused.message.contains("'first'"), "{refused}");
    assert!(refused.message.contains("'second'"), "{refused}");
    let asked = SnapshotPruneParams { keep: Some(1), ..SnapshotPruneParams::default() };
    let pruned = world.driver.prune(asked).await.expect("prunes");
    let names: Vec<&str> = pruned.snapshots.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["second"]);
}

#[tokio::test]
async fn a_disk_without_room_refuses_a_save_and_one_that_is_not_known_does_not() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.set_written(&world.sandbox("a"), 5 * MIB);
    world.engine.set_free(4 * MIB);
    let refused = world.save("a").await.expect_err("the disk is full");
    assert_eq!(refused.kind, Kind::Limit);
    assert!(refused.message.contains("the engine's disk at /data has 4.0 MiB left"), "{refused}");
    assert!(refused.hint.is_some_and(|hint| hint.contains("docker system df")));
    assert_eq!(world.status("a"), Status::Running);
    for call in ["written_bytes", "disk"] {
        world.engine.fail_next(call, broken(call));
    }
    world.save("a").await.expect("nobody knows that there is none");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_for_which_there_is_no_room_is_stopped_with_its_files() {
    let world = with_budget("1MiB").await;
    world.engine.set_written(&world.sandbox("a"), 5 * MIB);
    let idle = |s: &mut Session| s.idle_action = IdleAction::Save;
    world.driver.0.store.update(&world.row("a").id, idle).await.expect("a row");
    let mut held = world.driver.hold("a").await.expect("its turn");
    world.driver.put_to_rest(&mut held).await.expect("rests");
    drop(held);
    assert_eq!((world.status("a"), world.row("a").reason), (Status::Stopped, Some(Reason::Idle)));
    world.assert_explained();
}

#[tokio::test]
async fn a_check_tells_what_takes_space() {
    let world = with_budget("20MiB").await;
    save_as(&world, "a", "one", 6 * MIB).await.expect("fits");
    world.engine.set_free(40 * MIB);
    let space = world.driver.check().await.expect("looks").space.expect("told");
    assert_eq!((space.sandboxes_bytes, space.budget_bytes), (6 * MIB, Some(20 * MIB)));
    assert!(space.snapshots_bytes >= 6 * MIB, "{space:?}");
    assert_eq!(space.disk.expect("it has one").free_bytes, 40 * MIB);
}
