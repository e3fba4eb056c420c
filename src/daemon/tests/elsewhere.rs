//! A home that is pointed to another engine.

use std::time::Duration;

use super::*;
use crate::daemon::awake::Use;
use crate::daemon::expiry;
use crate::engine::RunState;
use crate::model::id::{SnapshotId, Timestamp};
use crate::model::session::{Operation, SnapshotState};
use crate::proto::errors::Kind;
use crate::proto::sessions::AdoptParams;
use crate::proto::snapshots::SnapshotPruneParams;

/// An engine of this id. Those with ids of different lengths give no container and no image the same one.
fn engine(identity: &str) -> FakeEngine {
    let engine = FakeEngine::new();
    engine.add_image(IMAGE);
    for n in 0..identity.len() * 100 {
        engine.add_image(&format!("other:{n}"));
    }
    engine.set_identity(identity);
    engine
}

impl World {
    /// Compares all with the engine, as the watcher does.
    async fn look(&self) {
        self.driver.compare_all(true).await.expect("compares");
    }

    /// A second life on the same table and this engine.
    async fn moved(self, engine: &FakeEngine) -> Self {
        let world = self.pointed_to(engine).await;
        world.look().await;
        world
    }

    /// As [`World::moved`], before anybody asked the engine who it is.
    async fn pointed_to(self, engine: &FakeEngine) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        let driver = open(engine, self.home.path(), "sessions.db");
        Self { driver, engine: engine.clone(), ..self }
    }

    fn snapshot_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.driver.0.store.snapshots(None).iter().map(|row| row.name.clone()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn rows_of_another_engine_stay_as_they_are_and_work_again_on_their_own() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("runs").await.expect("starts");
    world.start("saved").await.expect("starts");
    let (_, snapshot) = world.save("saved").await.expect("saves");
    let before = world.driver.sessions();
    let world = world.moved(&two).await;
    assert_eq!(world.driver.sessions(), before);
    let notice = world.driver.elsewhere_notice().expect("the user is told");
    assert!(notice.starts_with("2 of the sessions"), "{notice}");
    for (verb, refused) in [
        ("stop", world.stop("runs").await.map(drop)),
        ("save", world.save("runs").await.map(drop)),
        ("resume", world.resume("saved").await.map(drop)),
        ("delete", world.driver.delete("saved", false).await.map(drop)),
        ("snapshot delete", world.driver.delete_snapshots(vec![snapshot.name.clone()]).await.map(drop)),
    ] {
        let failure = refused.expect_err(verb);
        assert_eq!(failure.kind, Kind::EngineUnavailable, "{verb}: {failure:?}");
        assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains("--forget")), "{verb}: {failure:?}");
    }
    world.start("new").await.expect("this one works");
    let world = world.moved(&one).await;
    assert_eq!(world.stop("runs").await.expect("stops").status, Status::Stopped);
    assert_eq!(world.resume("saved").await.expect("resumes").status, Status::Running);
    assert_eq!(world.stop("new").await.expect_err("that one is away").kind, Kind::EngineUnavailable);
    assert_eq!(world.status("new"), Status::Running);
}

#[tokio::test]
async fn what_an_engine_loses_itself_is_gone() {
    let one = engine("one");
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    one.vanish(&world.sandbox("a"));
    world.look().await;
    assert_eq!(world.status("a"), Status::Lost);
}

#[tokio::test]
async fn an_engine_that_has_the_sandbox_is_its_engine_whatever_it_calls_itself() {
    let one = engine("one");
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    assert_eq!(world.row("a").sandbox_engine.as_deref(), Some("one"));
    one.set_identity("renamed");
    world.look().await;
    assert_eq!(world.row("a").sandbox_engine.as_deref(), Some("renamed"));
    world.stop("a").await.expect("stops");
}

#[tokio::test]
async fn a_session_of_another_engine_is_forgotten_only_where_that_is_said() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    world.save_running("a").await.expect("saves");
    let world = world.moved(&two).await;
    let gone = world.driver.delete_or_forget("a", false).await.expect("forgets");
    assert_eq!((gone.deleted.as_str(), gone.snapshots.len()), ("a", 1));
    assert_eq!(world.driver.count(), 0);
    world.start("a").await.expect("the name is free");
    world.driver.delete_or_forget("a", false).await.expect("deletes one that is here");
    assert!(two.containers().is_empty());
    let world = world.moved(&one).await;
    assert_eq!(world.status("a"), Status::Running, "it is there again with its engine");
    assert_eq!(world.row("a").snapshots, 1);
}

#[tokio::test]
async fn a_copy_of_the_table_loses_no_snapshot_to_another_engine() {
    // The first of these has more images, so that no snapshot's image has the id of one of the other's.
    let (one, two) = (engine("second"), engine("one"));
    let world = World::with_copies().await.begin_on(&one).await;
    world.look().await;
    for name in ["kept", "other", "stays"] {
        world.start(name).await.expect("starts");
        let naming = Naming { name: Some(format!("of-{name}")), ..Naming::default() };
        world.driver.save(name, naming, true, Report::default()).await.expect("saves");
    }
    world.driver.delete("kept", true).await.expect("deletes");
    world.copy_table();
    world.driver.delete_snapshots(vec!["of-other".to_owned()]).await.expect("deletes");
    let world = World { engine: two.clone(), ..world }.damage_table().await;
    world.look().await;
    assert_eq!(world.snapshot_names(), ["of-kept", "of-other", "of-stays"]);
    let world = world.begin_on(&one).await;
    world.look().await;
    assert_eq!(world.snapshot_names(), ["of-kept", "of-stays"], "one was deleted since the copy was made");
}

#[tokio::test]
async fn nothing_is_settled_on_an_engine_that_was_not_asked_who_it_is() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    let (_, older) = world.save_running("a").await.expect("saves");
    let (_, newer) = world.save_running("a").await.expect("saves");
    let (state, image_id) = (SnapshotState::Creating, String::new());
    let (id, name) = (SnapshotId::new("making"), "making".to_owned());
    let making = Snapshot { id, name, state, image_id, ..(*newer).clone() };
    let row = world.row("a").id.clone();
    let cut_off = move |s: &mut Session| s.operation = Some(Operation::SaveRunning);
    world.driver.0.store.write(move |tx| tx.put_snapshot(&making)).await.expect("a row");
    world.driver.0.store.update(&row, cut_off).await.expect("a row");
    let before = world.snapshot_names();
    let world = world.pointed_to(&two).await;
    assert_eq!(world.stop("a").await.expect_err("another engine").kind, Kind::EngineUnavailable);
    assert_eq!(world.snapshot_names(), before);

    let world = world.moved(&one).await;
    world.stop("a").await.expect("stops");
    let world = world.pointed_to(&two).await;
    let refused = world.driver.delete_snapshots(vec![older.name.clone()]).await.expect_err("another engine");
    assert_eq!(refused.kind, Kind::EngineUnavailable);
    assert!(world.snapshot_names().contains(&older.name));
    // What answers at its address is swapped while this daemon lives.
    let world = world.moved(&one).await;
    one.set_identity("swapped");
    one.vanish(&world.sandbox("a"));
    assert_eq!(world.resume("a").await.expect_err("another engine").kind, Kind::EngineUnavailable);
    assert_eq!(world.row("a").snapshots, 2);
}

#[tokio::test]
async fn a_saved_session_is_where_its_snapshot_is() {
    let one = engine("one");
    let world = World::new().moved(&one).await;
    for name in ["gone", "stopped"] {
        world.start(name).await.expect("starts");
        world.save(name).await.expect("saves");
    }
    world.resume("stopped").await.expect("resumes");
    world.stop("stopped").await.expect("stops");
    one.vanish(&world.sandbox("gone"));
    world.look().await;
    one.vanish(&world.sandbox("stopped"));
    // The engine's data were moved, and what was newer than the snapshot stayed behind.
    one.set_identity("renamed");
    world.look().await;
    assert_eq!(world.row("gone").sandbox_engine.as_deref(), Some("renamed"));
    assert_eq!(world.resume("gone").await.expect("resumes").status, Status::Running);
    assert_eq!(world.row("stopped").sandbox_engine.as_deref(), Some("one"));
    assert_eq!(world.resume("stopped").await.expect_err("its files").kind, Kind::EngineUnavailable);
}

#[tokio::test]
async fn pruning_all_timelines_passes_over_those_of_another_engine_and_names_them() {
    let (one, two) = (engine("one"), engine("second"));
    let mut world = World::new().moved(&one).await;
    for name in ["b", "far", "a"] {
        if name == "a" {
            world = world.moved(&two).await;
        }
        world.start(name).await.expect("starts");
        world.save_running(name).await.expect("saves");
        world.save_running(name).await.expect("saves");
    }
    let keeping = |names| SnapshotPruneParams { keep: Some(1), names, ..SnapshotPruneParams::default() };
    let pruned = world.driver.prune(keeping(Vec::new())).await.expect("prunes");
    assert_eq!(pruned.skipped, ["b", "far"]);
    assert_eq!((pruned.snapshots.len(), world.row("a").snapshots, world.row("b").snapshots), (1, 1, 2));
    let refused = world.driver.prune(keeping(vec!["far".to_owned()])).await.expect_err("it was meant");
    assert_eq!(refused.kind, Kind::EngineUnavailable);
}

#[tokio::test]
async fn what_was_taken_over_and_forgotten_comes_back_with_its_engine() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    let container = one.add_container("theirs", RunState::Running);
    let params = AdoptParams { name: "mine".to_owned(), container: container.clone(), agent: None };
    world.driver.adopt(params).await.expect("adopts");
    world.look().await;
    let world = world.moved(&two).await;
    let both = world.driver.delete_or_forget("mine", true).await.expect_err("no row can be kept");
    assert_eq!(both.kind, Kind::InvalidParams);
    world.driver.delete_or_forget("mine", false).await.expect("forgets");
    world.look().await;
    assert_eq!(world.driver.count(), 0);
    let world = world.moved(&one).await;
    assert_eq!((world.status("mine"), world.sandbox("mine")), (Status::Running, container));
}

#[tokio::test(start_paused = true)]
async fn no_time_of_a_session_runs_out_while_it_is_elsewhere() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    for (name, timeout_ms, idle_ms) in [("timed", Some(60_000), None), ("idle", None, Some(600_000))] {
        let params = StartParams { timeout_ms, idle_ms, ..named(name) };
        world.driver.start(params, Report::default()).await.expect("starts");
    }
    let id = world.row("idle").id.clone();
    let world = world.moved(&two).await;
    let long_ago = |s: &mut Session| s.last_active = Timestamp(1);
    world.driver.0.store.update(&id, long_ago).await.expect("a row");
    let calls = two.calls().len();
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(two.calls().len(), calls, "nothing is asked of this engine");
    assert_eq!(world.driver.idleness(&world.row("idle")), None);
    timer.abort();
    let world = world.moved(&one).await;
    let timer = tokio::spawn(expiry::run(world.driver.clone()));
    let back = tokio::time::Instant::now();
    while world.status("idle") != Status::Stopped {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(back.elapsed() > 9 * MINUTE, "{:?}", back.elapsed());
    assert_eq!((world.status("timed"), world.row("timed").reason), (Status::Stopped, Some(Reason::Timeout)));
    timer.abort();
}

#[tokio::test]
async fn nobody_is_told_that_a_session_of_another_engine_runs_here() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    let world = world.moved(&two).await;
    let row = world.row("a");
    assert_eq!(row.status, Status::Running);
    let used = world.driver.awake(row, None, &Report::default()).await.expect_err("it is not here");
    let resumed = world.resume("a").await.expect_err("it is not here");
    let connected = world.driver.connect(Use::from("a")).await.expect_err("it is not here");
    for failure in [used, resumed, connected] {
        assert_eq!(failure.kind, Kind::EngineUnavailable, "{failure:?}");
        assert!(failure.hint.is_some(), "{failure:?}");
    }
    let world = world.moved(&one).await;
    world.resume("a").await.expect("it is here");
}
