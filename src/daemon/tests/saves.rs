//! Saves that do not end by themselves.

use std::time::Duration;

use super::*;
use crate::daemon::driver::Held;
use crate::daemon::exec::ExecRequest;
use crate::daemon::framing::{Abandoned, Audience};
use crate::engine::{Engine, RunState, labels};
use crate::proto::errors::Kind;
use crate::proto::sessions::ForkParams;

/// How long the engine may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn naming() -> Naming {
    Naming { name: Some("mine".to_owned()), patience: Some(PATIENCE), ..Naming::default() }
}

/// Takes a snapshot of `a` that is called `mine`, and gives why there is none.
async fn refused(world: &World, keep_running: bool, report: Report) -> Failure {
    world.driver.save("a", naming(), keep_running, report).await.expect_err("no snapshot")
}

#[tokio::test(start_paused = true)]
async fn a_save_over_which_the_engine_hangs_ends_in_time_and_leaves_nothing() {
    for (keep_running, status) in [(true, Status::Running), (false, Status::Stopped)] {
        let world = World::new();
        world.start("a").await.expect("starts");
        let gate = world.engine.gate("commit");
        let failure = refused(&world, keep_running, Report::default()).await;
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (Kind::EngineTimeout, "cannot save session 'a'")
        );
        assert!(
            failure.hint.as_deref().is_some_and(|hint| hint.contains("abx save a --timeout")),
            "{failure:?}"
        );
        assert_eq!(world.status("a"), status);
        let runs = world.engine.containers()[0].state == RunState::Running;
        assert_eq!(runs, keep_running, "nothing is left paused");
        world.assert_explained();
        gate.open();
        let again = world.driver.save("a", naming(), keep_running, Report::default()).await.expect("saves");
        assert_eq!(again.snapshot.name, "mine", "the name is free");
    }
}

#[tokio::test(start_paused = true)]
async fn every_verb_that_takes_a_snapshot_ends_when_the_engine_hangs_over_it() {
    let world = World::new().configured("save_timeout = \"10s\"").await;
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.resume("a").await.expect("resumes");
    let _gate = world.engine.gate("commit");
    let asked = ForkParams { name: "a".to_owned(), new_name: "b".to_owned(), snapshot: None, op: None };
    let fork = world.driver.fork(asked, Report::default()).await.expect_err("fork");
    assert_eq!((fork.kind, world.status("a")), (Kind::EngineTimeout, Status::Running));
    world.stop("a").await.expect("stops");
    let back = world.go_back("a", &first.name).await.expect_err("going back");
    assert_eq!((back.kind, world.status("a")), (Kind::EngineTimeout, Status::Stopped));
    assert_eq!(world.driver.snapshots(None).expect("a list").len(), 1);
    world.assert_explained();
}

#[tokio::test(start_paused = true)]
async fn an_image_that_comes_after_its_save_had_run_out_of_time_is_removed() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let save = tokio::spawn(async move { driver.save("a", naming(), true, Report::default()).await });
    gate.reached().await;
    let unmade = world.driver.0.store.snapshots(None)[0].clone();
    save.await.expect("no panic").expect_err("too late");
    let asked = world.driver.commit_spec(&held(&world), &unmade, &world.sandbox("a"));
    world.engine.commit_late(&asked).expect("made");
    world.driver.compare_all(false).await.expect("compares");
    let reference = labels::snapshot_reference(&unmade.id);
    assert_eq!(world.engine.image(&reference).await.expect("answers"), None);
    assert!(world.driver.snapshots(None).expect("a list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_save_that_is_given_up_leaves_nothing_also_where_its_image_is_there_by_then() {
    for cancelled in [true, false] {
        let world = World::new();
        world.start("a").await.expect("starts");
        let gate = world.engine.gate("commit");
        let (leaves, audience) = Audience::new();
        let report = Report::default().awaited_by(audience.clone());
        let driver = world.driver.clone();
        let save = tokio::spawn(async move { driver.save("a", naming(), true, report).await });
        gate.reached().await;
        let unmade = world.driver.0.store.snapshots(None)[0].clone();
        // The save has its turn.
        let row = Held::new(world.row("a"), Arc::new(tokio::sync::Mutex::default()).lock_owned().await);
        let asked = world.driver.commit_spec(&row, &unmade, &world.sandbox("a"));
        world.engine.commit_late(&asked).expect("made");
        if cancelled {
            leaves.send_replace(Some(Abandoned::Cancelled));
        }
        save.await.expect("no panic").expect_err("given up");
        assert!(world.driver.snapshots(None).expect("a list").is_empty(), "cancelled: {cancelled}");
        let reference = labels::snapshot_reference(&unmade.id);
        assert_eq!(world.engine.image(&reference).await.expect("answers"), None);
        world.assert_explained();
        gate.open();
        world.driver.save("a", naming(), true, Report::default()).await.expect("its name is free");
    }
}

#[tokio::test]
async fn no_other_session_waits_for_a_save() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit session-a");
    let driver = world.driver.clone();
    let save = tokio::spawn(async move { driver.save("a", naming(), true, Report::default()).await });
    gate.reached().await;
    world.start("b").await.expect("starts");
    let request = ExecRequest { session: "b".into(), cmd: vec!["true".to_owned()], ..ExecRequest::default() };
    assert_eq!(world.driver.exec_run(request, None).await.expect("runs").ended.code, 0);
    assert_eq!(world.save("b").await.expect("saves").0.status, Status::Saved);
    assert_eq!(world.resume("b").await.expect("resumes").status, Status::Running);
    assert_eq!(world.driver.sessions().len(), 2);
    world.driver.compare_all(false).await.expect("compares");
    world.driver.delete("b", false).await.expect("deletes");
    assert!(!save.is_finished());
    gate.open();
    assert_eq!(save.await.expect("no panic").expect("saves").snapshot.name, "mine");
}

#[tokio::test]
async fn a_save_that_is_cancelled_leaves_the_session_as_it_was() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit");
    let (leaves, audience) = Audience::new();
    let report = Report::default().awaited_by(audience.clone());
    let driver = world.driver.clone();
    let save = tokio::spawn(async move { driver.save("a", naming(), true, report).await });
    gate.reached().await;
    leaves.send_replace(Some(Abandoned::Cancelled));
    assert_eq!(save.await.expect("no panic").expect_err("given up").kind, Kind::WrongState);
    assert_eq!((world.status("a"), world.engine.containers()[0].state), (Status::Running, RunState::Running));
    world.assert_explained();
    gate.open();
    world.driver.save("a", naming(), true, Report::default()).await.expect("can be repeated");
}

#[tokio::test]
async fn a_save_that_is_cancelled_while_it_waits_for_its_turn_does_nothing() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let turn = held(&world);
    let (leaves, audience) = Audience::new();
    leaves.send_replace(Some(Abandoned::Cancelled));
    refused(&world, false, Report::default().awaited_by(audience)).await;
    assert_eq!(world.status("a"), Status::Running);
    drop(turn);
}

#[tokio::test]
async fn a_save_is_cancelled_while_it_asks_whether_there_is_room() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let _gate = world.engine.gate("written_bytes");
    let (leaves, audience) = Audience::new();
    leaves.send_replace(Some(Abandoned::Cancelled));
    refused(&world, false, Report::default().awaited_by(audience)).await;
    assert_eq!(world.status("a"), Status::Running);
    world.assert_explained();
}

#[tokio::test]
async fn a_save_goes_on_when_its_client_is_only_gone() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit");
    let (leaves, audience) = Audience::new();
    let report = Report::default().awaited_by(audience);
    let driver = world.driver.clone();
    let save = tokio::spawn(async move { driver.save("a", naming(), false, report).await });
    gate.reached().await;
    leaves.send_replace(Some(Abandoned::Gone));
    gate.open();
    assert_eq!(save.await.expect("no panic").expect("saves").session.status, Status::Saved);
}

/// Takes the turn of `a`, as an operation has it.
fn held(world: &World) -> Held {
    world.driver.try_hold_id(&world.row("a").id).expect("its turn")
}
