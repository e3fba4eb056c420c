//! Snapshots on too many layers.

use super::*;
use crate::daemon::flatten;
use crate::daemon::framing::{Abandoned, Audience};
use crate::engine::fake::Gate;
use crate::engine::{Engine, Image, labels};
use crate::proto::errors::Kind;
use crate::proto::sessions::ForkParams;
use crate::proto::snapshots::SnapshotExportParams;

/// A world whose image has so many layers, and a session in it that was saved.
async fn deep(layers: usize) -> (World, Arc<Snapshot>) {
    let world = World::new();
    let image = world.engine.image(IMAGE).await.expect("answers").expect("there");
    world.engine.deepen(&image.id, layers - image.layers.len());
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save("a").await.expect("saves");
    (world, snapshot)
}

async fn image(world: &World, reference: &str) -> Option<Image> {
    world.engine.image(reference).await.expect("answers")
}

fn now(world: &World, snapshot: &Snapshot) -> Option<Arc<Snapshot>> {
    world.driver.0.store.snapshot(&snapshot.name)
}

/// Whether a snapshot stands on another image by now.
fn moved(world: &World, snapshot: &Snapshot) -> bool {
    now(world, snapshot).is_some_and(|row| row.image_id != snapshot.image_id)
}

fn flattening(world: &World) -> tokio::task::JoinHandle<()> {
    tokio::spawn(flatten::run(world.driver.clone()))
}

#[tokio::test]
async fn a_snapshot_on_many_layers_gets_an_image_with_few_and_is_otherwise_as_it_was() {
    let (world, snapshot) = deep(63).await;
    let old = image(&world, &snapshot.image_id).await.expect("there");
    assert_eq!(old.layers.len(), 64);
    let task = flattening(&world);
    until(|| moved(&world, &snapshot)).await;
    let row = now(&world, &snapshot).expect("there");
    let new = image(&world, &row.image_id).await.expect("there");
    assert_eq!((new.layers.len(), &new.layers[..32]), (33, &old.layers[..32]), "it shares what it can");
    let strip = |image: &Image| {
        let mut labels = image.labels.clone();
        labels.remove(labels::SNAPSHOT_BASE_BYTES);
        labels
    };
    assert_eq!(strip(&new), strip(&old));
    let same = Snapshot {
        image_id: snapshot.image_id.clone(),
        size_bytes: snapshot.size_bytes,
        own_bytes: snapshot.own_bytes,
        ..Snapshot::clone(&row)
    };
    assert_eq!(same, *snapshot);
    let reference = labels::snapshot_reference(&snapshot.id);
    until_gone(&world, &old.id).await;
    assert_eq!(image(&world, &reference).await.map(|image| image.id), Some(new.id));
    world.engine.vanish(&world.sandbox("a"));
    assert_eq!(world.resume("a").await.expect("resumes").image_id.as_ref(), Some(&row.image_id));
    task.abort();
}

/// Waits until the engine does not have an image any more.
async fn until_gone(world: &World, id: &str) {
    let gone = async {
        while image(world, id).await.is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.expect("it goes in time");
}

#[tokio::test]
async fn a_snapshot_on_fewer_layers_stays_as_it_is() {
    let (world, shallow) = deep(62).await;
    let base = image(&world, IMAGE).await.expect("there");
    world.engine.deepen(&base.id, 1);
    world.start("b").await.expect("starts");
    let (_, deeper) = world.save("b").await.expect("saves");
    let task = flattening(&world);
    world.driver.compare_all(false).await.expect("compares");
    // One layer more is flattened, and it was looked at after the other.
    until(|| moved(&world, &deeper)).await;
    assert!(!moved(&world, &shallow));
    assert_eq!(world.engine.calls().iter().filter(|call| call.starts_with("image_archive")).count(), 1);
    task.abort();
}

#[tokio::test]
async fn a_sandbox_on_the_old_image_goes_on_with_it() {
    let (world, snapshot) = deep(70).await;
    world.go_back("a", &snapshot.name).await.expect("goes back");
    let sandbox = world.sandbox("a");
    let task = flattening(&world);
    until(|| moved(&world, &snapshot)).await;
    world.stop("a").await.expect("waits until all is done");
    assert!(image(&world, &snapshot.image_id).await.is_some(), "its container needs it");
    assert_eq!(world.sandbox("a"), sandbox);
    assert_eq!(world.resume("a").await.expect("resumes").status, Status::Running);
    task.abort();
}

#[tokio::test]
async fn nothing_is_made_from_a_snapshot_that_is_deeper_than_engines_bear() {
    let (world, snapshot) = deep(100).await;
    let back = world.go_back("a", &snapshot.name).await.expect("goes back");
    let stands_on = image(&world, back.image_id.as_deref().expect("an image")).await.expect("there");
    assert_eq!(stands_on.layers.len(), 33);
    assert_eq!(now(&world, &snapshot).map(|row| row.image_id.clone()), back.image_id);
    world.assert_explained();
}

#[tokio::test]
async fn a_snapshot_that_is_deleted_meanwhile_does_not_come_back() {
    let (world, snapshot) = deep(70).await;
    let gate = world.engine.gate("load_images");
    let task = flattening(&world);
    gate.reached().await;
    world.driver.delete_snapshots(vec![snapshot.name.clone()]).await.expect("deletes");
    gate.open();
    let swept = |call: &String| call.starts_with("sweep_image");
    until(|| world.engine.calls().iter().any(swept)).await;
    world.driver.compare_all(false).await.expect("compares");
    assert!(world.driver.snapshots(None).expect("a list").is_empty());
    assert_eq!(image(&world, &labels::snapshot_reference(&snapshot.id)).await, None);
    assert_eq!(image(&world, &labels::flat_reference(&snapshot.id)).await, None);
    task.abort();
}

#[tokio::test]
async fn a_flattening_cut_off_between_name_and_row_is_carried_on_by_the_next_comparison() {
    let (world, snapshot) = deep(70).await;
    let lost = EngineError::Unavailable { tried: Vec::new() };
    world.engine.lose_answer("replace_snapshot", lost);
    let task = flattening(&world);
    let named = |call: &String| call.starts_with("replace_snapshot");
    until(|| world.engine.calls().iter().any(named)).await;
    task.abort();
    let world = world.restart().await;
    assert!(!moved(&world, &snapshot));
    world.driver.compare_all(false).await.expect("compares");
    let row = now(&world, &snapshot).expect("there");
    assert_eq!(image(&world, &row.image_id).await.expect("there").layers.len(), 33);
}

#[tokio::test]
async fn what_fails_for_a_while_is_tried_again_and_what_fails_for_good_is_not() {
    let (world, snapshot) = deep(70).await;
    let archives =
        |world: &World| world.engine.calls().iter().filter(|call| call.starts_with("image_archive")).count();
    world.engine.fail_next("image_archive", EngineError::Unavailable { tried: Vec::new() });
    world.engine.fail_next("image_archive", broken("image_archive"));
    let task = flattening(&world);
    until(|| archives(&world) == 1).await;
    until(|| {
        let world = &world;
        world.driver.0.deep.add(&snapshot.id, 70);
        archives(world) == 2
    })
    .await;
    // It is given up by the time that the next one has been.
    world.resume("a").await.expect("resumes");
    let (_, second) = world.save("a").await.expect("saves");
    until(|| moved(&world, &second)).await;
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(archives(&world), 3);
    assert!(!moved(&world, &snapshot));
    task.abort();
}

type Using = tokio::task::JoinHandle<Result<(), Failure>>;

/// A deep snapshot that was kept when its session was deleted, beside a new session of that name.
async fn kept() -> (World, Arc<Snapshot>) {
    let (world, snapshot) = deep(70).await;
    world.driver.delete("a", true).await.expect("deletes");
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    (world, snapshot)
}

/// Waits until a call of what was begun is held back.
async fn reached(gate: &Gate, using: &mut Using) {
    tokio::select! {
        () = gate.reached() => {}
        ended = using => panic!("it ended: {ended:?}"),
    }
}

/// Whatever makes something of the snapshot that was kept, begun.
fn begun(world: &World, what: &str, snapshot: &Snapshot) -> Using {
    let (driver, name, what) = (world.driver.clone(), snapshot.name.clone(), what.to_owned());
    let file = world.home.path().join("a.tar").display().to_string();
    tokio::spawn(async move {
        match what.as_str() {
            "resume" => driver.resume("a", back_to(&name), Report::default()).await.map(drop),
            "fork" => {
                let fork =
                    ForkParams { name: "a".into(), new_name: "b".into(), snapshot: Some(name), op: None };
                driver.fork(fork, Report::default()).await.map(drop)
            }
            "diff" => driver.diff(&name, None).await.map(drop),
            _ => {
                let asked = SnapshotExportParams { snapshot: name, path: file, op: None };
                driver.export_snapshot(asked, Report::default()).await.map(drop)
            }
        }
    })
}

#[tokio::test]
async fn a_snapshot_that_was_kept_stays_where_it_is_while_it_is_used() {
    for (what, call) in
        [("resume", "create"), ("fork", "create"), ("export", "image_archive"), ("diff", "image_archive")]
    {
        let (world, snapshot) = kept().await;
        let gate = world.engine.gate(call);
        let mut using = begun(&world, what, &snapshot);
        reached(&gate, &mut using).await;
        world.driver.flatten(&snapshot.id, None).await.expect("it is left for later");
        let deleting = world.driver.delete_snapshots(vec![snapshot.name.clone()]);
        tokio::pin!(deleting);
        assert!(futures_util::poll!(&mut deleting).is_pending());
        assert!(!moved(&world, &snapshot), "{what}");
        assert!(image(&world, &snapshot.image_id).await.is_some(), "{what}");
        gate.open();
        let ended = using.await.expect("no panic");
        // The engine in memory has no layers that could be compared.
        assert!(ended.is_ok() || what == "diff", "{what}: {ended:?}");
        deleting.await.expect("deletes, once it is used no more");
        assert_eq!(now(&world, &snapshot), None);
    }
}

#[tokio::test]
async fn a_snapshot_that_comes_to_be_used_while_it_is_flattened_is_flattened_later() {
    let (world, snapshot) = kept().await;
    let loading = world.engine.gate("load_images");
    let (driver, id) = (world.driver.clone(), snapshot.id.clone());
    let task = tokio::spawn(async move { driver.flatten(&id, None).await });
    loading.reached().await;
    let creating = world.engine.gate("create");
    let mut using = begun(&world, "resume", &snapshot);
    reached(&creating, &mut using).await;
    loading.open();
    task.await.expect("no panic").expect("it is left for later");
    assert!(!moved(&world, &snapshot));
    assert_eq!(image(&world, &labels::flat_reference(&snapshot.id)).await, None, "nothing is left of it");
    creating.open();
    using.await.expect("no panic").expect("resumes");
    world.driver.flatten(&snapshot.id, None).await.expect("is flattened");
    assert!(moved(&world, &snapshot));
}

#[tokio::test(start_paused = true)]
async fn whoever_makes_something_of_a_deep_snapshot_waits_for_its_flattening_a_while_and_not_for_ever() {
    let (world, snapshot) = deep(100).await;
    let gate = world.engine.gate("image_archive");
    let back = world.go_back("a", &snapshot.name).await.expect("goes back without");
    assert_eq!(back.image_id.as_ref(), Some(&snapshot.image_id));
    world.stop("a").await.expect("stops");
    world.assert_explained();
    gate.open();
    let task = flattening(&world);
    until(|| moved(&world, &snapshot)).await;
    task.abort();
}

#[tokio::test]
async fn what_waits_for_a_flattening_can_be_cancelled() {
    let (world, snapshot) = deep(100).await;
    let gate = world.engine.gate("image_archive");
    let (leaves, audience) = Audience::new();
    let report = Report::default().awaited_by(audience);
    let (driver, way) = (world.driver.clone(), back_to(&snapshot.name));
    let back = tokio::spawn(async move { driver.resume("a", way, report).await });
    gate.reached().await;
    leaves.send_replace(Some(Abandoned::Cancelled));
    assert_eq!(back.await.expect("no panic").expect_err("cancelled").kind, Kind::WrongState);
    assert_eq!(world.status("a"), Status::Saved);
    world.assert_explained();
}

#[tokio::test]
async fn nobody_waits_for_what_cannot_be_flattened() {
    let (world, snapshot) = deep(100).await;
    world.engine.fail_next("image_archive", broken("image_archive"));
    for _ in 0..2 {
        let back = world.go_back("a", &snapshot.name).await.expect("goes back without");
        assert_eq!(back.image_id.as_ref(), Some(&snapshot.image_id));
        world.stop("a").await.expect("stops");
    }
    let archives = world.engine.calls().iter().filter(|call| call.starts_with("image_archive")).count();
    assert_eq!(archives, 1);
}
