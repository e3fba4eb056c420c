//! The timeline: what its rows tell, and what becomes of them.

use super::*;
use crate::model::event::By;
use crate::proto::errors::Kind;
use crate::proto::sessions::UpdateParams;
use crate::proto::snapshots::SnapshotPruneParams;
use crate::store;

#[tokio::test]
async fn a_snapshot_tells_who_asked_for_it_and_what_only_it_holds() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let by = By { client: "zed".to_owned(), pid: Some(7) };
    let (_, asked) = store::acting(Some(by.clone()), world.save("a")).await.expect("saves");
    assert_eq!(asked.creator, Some(by));
    assert!(asked.own_bytes.is_some_and(|own| own > 0 && own < asked.size_bytes), "{asked:?}");
    world.resume("a").await.expect("resumes");
    let (_, own) = world.save("a").await.expect("saves");
    assert_eq!(own.creator, Some(By::daemon()));
}

#[tokio::test]
async fn a_rebuilt_table_knows_of_a_snapshot_what_the_first_one_did() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let by = By { client: "zed".to_owned(), pid: Some(7) };
    store::acting(Some(by), world.save("a")).await.expect("saves");
    world.resume("a").await.expect("resumes");
    world.save("a").await.expect("saves");
    let mut known = world.driver.snapshots(None).expect("a list");
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    // When it was taken is told by its id, which is of the same moment.
    let mut rebuilt = world.driver.snapshots(None).expect("a list");
    for list in [&mut known, &mut rebuilt] {
        list.iter_mut().for_each(|row| Arc::make_mut(row).created_at = crate::model::id::Timestamp(0));
    }
    assert_eq!(rebuilt, known);
}

/// Saves a session `n` times, resumed in between, and gives the names of its snapshots.
async fn saved(world: &World, name: &str, n: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..n {
        world.resume(name).await.expect("resumes");
        names.push(world.save(name).await.expect("saves").1.name.clone());
    }
    names
}

fn left(world: &World) -> Vec<String> {
    let mut names: Vec<_> =
        world.driver.snapshots(None).expect("a list").iter().map(|s| s.name.clone()).collect();
    names.sort();
    names
}

fn keeping(keep: u32) -> SnapshotPruneParams {
    SnapshotPruneParams { keep: Some(keep), ..SnapshotPruneParams::default() }
}

#[tokio::test]
async fn pruning_leaves_the_newest_of_each_session_and_tells_what_it_frees() {
    let world = World::new();
    for name in ["a", "b"] {
        world.start(name).await.expect("starts");
    }
    let (a, b) = (saved(&world, "a", 3).await, saved(&world, "b", 2).await);
    let before = left(&world);
    let dry = world.driver.prune(SnapshotPruneParams { dry_run: true, ..keeping(1) }).await.expect("tells");
    assert_eq!(left(&world), before, "nothing was deleted");
    let only_a = SnapshotPruneParams { names: vec!["a".to_owned()], ..keeping(1) };
    let pruned = world.driver.prune(only_a).await.expect("prunes");
    let names: Vec<_> = pruned.snapshots.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, [a[0].as_str(), a[1].as_str()]);
    let own = pruned.snapshots.iter().filter_map(|s| s.own_bytes).sum::<u64>();
    assert_eq!(pruned.freed_bytes, own, "nothing stands on them");
    let rest = world.driver.prune(keeping(1)).await.expect("prunes");
    assert_eq!(dry.freed_bytes, pruned.freed_bytes + rest.freed_bytes);
    assert_eq!(left(&world), [a[2].as_str(), b[1].as_str()]);
    world.assert_explained();
}

#[tokio::test]
async fn a_layer_on_which_something_stands_is_not_told_as_freed() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let names = saved(&world, "a", 1).await;
    world.go_back("a", &names[0]).await.expect("goes back");
    let above = saved(&world, "a", 1).await;
    world.go_back("a", &above[0]).await.expect("goes back");
    let pruned = world.driver.prune(keeping(0)).await.expect("prunes");
    let gone: Vec<_> = pruned.snapshots.iter().map(|s| s.name.clone()).collect();
    assert_eq!((gone, pruned.freed_bytes), (names, 0));
    assert_eq!(left(&world), above, "the container was made from it");
}

#[tokio::test]
async fn what_a_container_was_made_from_stays_when_that_is_saved_again() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let first = saved(&world, "a", 1).await;
    world.go_back("a", &first[0]).await.expect("goes back");
    let update = UpdateParams { name: "a".to_owned(), keep: Some(1), ..UpdateParams::default() };
    world.driver.update(update).await.expect("updates");
    let later = saved(&world, "a", 2).await;
    assert_eq!(left(&world), [first[0].as_str(), later[1].as_str()]);
    world.driver.prune(keeping(0)).await.expect("prunes");
    assert_eq!(left(&world), [first[0].as_str(), later[1].as_str()]);
    world.assert_explained();
}

#[tokio::test]
async fn pruning_never_takes_the_only_copy_of_a_sessions_files() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let names = saved(&world, "a", 2).await;
    world.engine.vanish(&world.sandbox("a"));
    world.driver.prune(keeping(0)).await.expect("prunes");
    assert_eq!(left(&world), names[1..]);
    assert_eq!(world.resume("a").await.expect("resumes").status, Status::Running);
}

#[tokio::test]
async fn pruning_by_age_takes_none_that_is_younger() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let names = saved(&world, "a", 2).await;
    let old = |older_ms| SnapshotPruneParams { older_ms: Some(older_ms), ..SnapshotPruneParams::default() };
    assert!(world.driver.prune(old(3_600_000)).await.expect("prunes").snapshots.is_empty());
    assert_eq!(left(&world), names);
    let refused = world.driver.prune(SnapshotPruneParams::default()).await.expect_err("all of them?");
    assert_eq!(refused.kind, Kind::InvalidParams);
}

#[tokio::test]
async fn a_session_that_keeps_so_many_drops_the_oldest_without_a_note() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let update = UpdateParams { name: "a".to_owned(), keep: Some(2), ..UpdateParams::default() };
    world.driver.update(update).await.expect("updates");
    let naming =
        Naming { name: Some("noted".to_owned()), note: Some("a reason".to_owned()), ..Naming::default() };
    let by = By { client: "abx".to_owned(), pid: Some(7) };
    let noted = world.driver.save("a", naming, false, Report::default());
    store::acting(Some(by), noted).await.expect("saves");
    let names = saved(&world, "a", 2).await;
    world.resume("a").await.expect("resumes");
    let last = world.driver.save("a", Naming::default(), false, Report::default()).await.expect("saves");
    assert_eq!(last.pruned, names[..1]);
    assert_eq!(last.session.snapshots, 3);
    assert_eq!(left(&world), [names[1].as_str(), last.snapshot.name.as_str(), "noted"]);
    assert_eq!(world.row("a").keep, Some(2));
    world.assert_explained();
}

#[tokio::test]
async fn going_back_saves_what_it_replaces_unless_that_is_to_be_discarded() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let names = saved(&world, "a", 1).await;
    for (discard, snapshots) in [(false, 2), (true, 2)] {
        world.resume("a").await.expect("resumes");
        world.stop("a").await.expect("stops");
        let way = Way::BackTo { snapshot: names[0].clone(), discard };
        let back = world.driver.resume("a", way, Report::default()).await.expect("goes back");
        assert_eq!((back.status, back.snapshots), (Status::Running, snapshots));
        world.assert_explained();
    }
}
