//! Each verb where something goes wrong.

use super::*;
use crate::engine::RunState;
use crate::proto::errors::Kind;

#[tokio::test]
async fn a_start_that_fails_anywhere_leaves_nothing_and_the_name_is_free() {
    for call in ["image", "create", "start"] {
        let world = World::new();
        world.engine.fail_next(call, broken("x"));
        let failure = world.start("a").await.expect_err(call);
        assert_eq!(failure.kind, Kind::EngineError, "{call}");
        assert_eq!(failure.message, "cannot start session 'a'");
        assert!(world.engine.containers().is_empty(), "{call}");
        assert_eq!(world.driver.count(), 0, "{call}");
        world.start("a").await.expect("the name is free");
    }
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_taken_back() {
    let world = World::new();
    let lost = EngineError::Timeout { call: "create", after: std::time::Duration::from_secs(1) };
    world.engine.lose_answer("create", lost);
    let failure = world.start("a").await.expect_err("no answer");
    assert_eq!(failure.kind, Kind::EngineTimeout);
    assert!(world.engine.containers().is_empty());
    assert_eq!(world.driver.count(), 0);
}

#[tokio::test]
async fn a_missing_image_is_pulled_and_one_that_cannot_be_is_named() {
    let world = World::new();
    world.engine.add_pullable("python:3");
    let params = StartParams { image: Some("python:3".into()), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("pulls");
    let params = StartParams { image: Some("nowhere:1".into()), ..named("b") };
    let failure = world.driver.start(params, Report::default()).await.expect_err("no such image");
    assert_eq!(failure.kind, Kind::ImageNotFound);
    assert!(failure.causes[0].contains("nowhere:1"), "{failure:?}");
    assert_eq!(world.driver.count(), 1);
}

#[tokio::test]
async fn list_answers_while_a_pull_runs() {
    let world = World::new();
    world.engine.add_pullable("python:3");
    world.start("other").await.expect("starts");
    let gate = world.engine.gate("pull");
    let params = StartParams { image: Some("python:3".into()), ..named("a") };
    let driver = world.driver.clone();
    let start = tokio::spawn(async move { driver.start(params, Report::default()).await });
    gate.reached().await;
    let rows = world.driver.sessions();
    assert_eq!(rows.len(), 2);
    assert_eq!(world.status("a"), Status::Starting);
    world.stop("other").await.expect("verbs on others do not wait");
    gate.open();
    assert_eq!(start.await.expect("no panic").expect("starts").status, Status::Running);
}

#[tokio::test]
async fn verbs_on_one_session_run_one_after_the_other() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let save =
        tokio::spawn(async move { driver.save("a", Naming::default(), false, Report::default()).await });
    gate.reached().await;
    let driver = world.driver.clone();
    let delete = tokio::spawn(async move { driver.delete("a", false).await });
    tokio::task::yield_now().await;
    assert!(!delete.is_finished());
    gate.open();
    let snapshot = save.await.expect("no panic").expect("saves").snapshot;
    let deleted = delete.await.expect("no panic").expect("deletes");
    assert_eq!(deleted.snapshots, std::slice::from_ref(&snapshot.name));
    assert!(world.engine.containers().is_empty());
}

#[tokio::test]
async fn a_start_goes_on_when_its_client_goes_away() {
    let world = World::new();
    let gate = world.engine.gate("create");
    let driver = world.driver.clone();
    let client = tokio::spawn(async move { driver.start(named("a"), Report::default()).await });
    gate.reached().await;
    client.abort();
    assert!(client.await.is_err());
    gate.open();
    world.driver.drain(tokio::time::Instant::now() + std::time::Duration::from_secs(60)).await;
    assert_eq!(world.status("a"), Status::Running);
}

#[tokio::test]
async fn a_save_that_fails_leaves_no_snapshot_and_nothing_paused() {
    for call in ["pause", "excluded", "commit", "unpause"] {
        let world = World::new();
        world.start("a").await.expect("starts");
        world.engine.fail_next(call, broken("x"));
        let failure = world.save_running("a").await.expect_err(call);
        assert_eq!(failure.kind, Kind::EngineError, "{call}");
        assert_eq!(failure.message, "cannot save session 'a'", "{call}");
        assert_eq!(world.engine.containers()[0].state, RunState::Running, "{call}");
        assert_eq!(world.status("a"), Status::Running, "{call}");
        world.assert_explained();
        world.save_running("a").await.expect("can be repeated");
    }
}

#[tokio::test]
async fn a_save_at_rest_that_fails_leaves_the_session_stopped_and_resumable() {
    for call in ["stop", "commit"] {
        let world = World::new();
        world.start("a").await.expect("starts");
        world.engine.fail_next(call, broken("x"));
        world.save("a").await.expect_err(call);
        world.assert_explained();
        world.resume("a").await.expect("resumes");
        world.save("a").await.expect("can be repeated");
    }
}

#[tokio::test]
async fn a_failed_resume_leaves_row_container_and_snapshots_and_names_the_way_on() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save("a").await.expect("saves");
    world.engine.fail_next("start", broken("start"));
    let failure = world.resume("a").await.expect_err("fails");
    assert_eq!(failure.hint, Some(format!("abx session resume a --snapshot {}", snapshot.name)));
    assert!(failure.causes.iter().any(|c| c.contains("broken on purpose")), "{failure:?}");
    assert_eq!((world.status("a"), world.row("a").snapshots), (Status::Saved, 1));
    assert_eq!(world.start("a").await.expect_err("exists").kind, Kind::SessionExists);
    world.resume("a").await.expect("a later resume works");
}

#[tokio::test]
async fn going_back_that_fails_gives_the_old_container_back() {
    for call in ["rename", "create", "start"] {
        let world = World::new();
        world.start("a").await.expect("starts");
        let (_, first) = world.save("a").await.expect("saves");
        world.resume("a").await.expect("resumes");
        world.stop("a").await.expect("stops");
        let old = world.sandbox("a");
        world.engine.fail_next(call, broken("x"));
        world.go_back("a", &first.name).await.expect_err(call);
        assert_eq!(world.sandbox("a"), old, "{call}");
        world.assert_explained();
        assert_eq!(world.resume("a").await.expect("resumes").sandbox_id, Some(old));
    }
}

#[tokio::test]
async fn a_session_is_never_brought_back_blank() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.engine.remove_image(&snapshot.image_id);
    let failure = world.resume("a").await.expect_err("its image is gone");
    assert_eq!(failure.kind, Kind::SnapshotNotFound);
    assert!(failure.causes.iter().any(|c| c.contains(&snapshot.name)), "{failure:?}");
    assert!(world.engine.containers().is_empty());

    world.start("b").await.expect("starts");
    world.engine.vanish(&world.sandbox("b"));
    let failure = world.resume("b").await.expect_err("lost");
    assert_eq!((failure.kind, world.status("b")), (Kind::SandboxLost, Status::Lost));
}

#[tokio::test]
async fn an_engine_that_is_away_changes_no_status_and_every_verb_works_again_afterwards() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.set_down(true);
    let kinds = [
        world.stop("a").await.expect_err("down").kind,
        world.save("a").await.expect_err("down").kind,
        world.driver.delete("a", false).await.expect_err("down").kind,
        world.driver.pause("a").await.expect_err("down").kind,
        world.start("b").await.expect_err("down").kind,
    ];
    assert_eq!(kinds, [Kind::EngineUnavailable; 5]);
    assert_eq!(world.status("a"), Status::Running);
    assert_eq!(world.row("a").operation, None);
    world.resume("a").await.expect("runs already, as far as anybody knows");
    world.engine.set_down(false);
    world.driver.compare_all(true).await.expect("compares");
    assert_eq!(world.status("a"), Status::Running);
    assert!(
        world.driver.session("b").is_err(),
        "a start that failed while the engine was away is taken back"
    );
    world.stop("a").await.expect("stops");
}

#[tokio::test]
async fn a_deletion_cut_off_half_way_is_carried_on_when_the_engine_answers() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.save("a").await.expect("saves");
    let away = EngineError::Unavailable { tried: Vec::new() };
    world.engine.fail_next("remove_snapshot", away);
    let failure = world.driver.delete("a", false).await.expect_err("half-way");
    assert!(failure.causes.iter().any(|c| c.contains("carried on")), "{failure:?}");
    world.driver.compare_all(false).await.expect("compares");
    assert!(world.driver.session("a").is_err());
    assert!(world.driver.snapshots(None).expect("a list").is_empty());
    world.start("a").await.expect("the name is free");
}

#[tokio::test]
async fn a_deletion_that_could_not_begin_leaves_the_session_as_it_was() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.fail_next("remove", broken("remove"));
    world.driver.delete("a", false).await.expect_err("fails");
    assert_eq!((world.status("a"), world.row("a").operation), (Status::Running, None));
    world.driver.delete("a", false).await.expect("can be repeated");
}

#[tokio::test]
async fn a_start_that_never_reached_the_engine_leaves_the_name_free_while_it_is_away() {
    let world = World::new();
    world.engine.set_down(true);
    for _ in 0..2 {
        assert_eq!(world.start("a").await.expect_err("away").kind, Kind::EngineUnavailable);
        assert_eq!(world.driver.count(), 0);
    }
}

#[tokio::test]
async fn a_freeze_that_comes_after_its_save_was_given_up_is_thawed_and_one_that_is_wanted_is_not() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let id = world.row("a").id.clone();
    let late = EngineError::Timeout { call: "pause", after: std::time::Duration::from_secs(1) };
    world.engine.fail_next("pause", late);
    let failure = world.save_running("a").await.expect_err("no answer");
    assert_eq!(failure.kind, Kind::EngineTimeout);
    world.engine.pause_outside(&world.sandbox("a"));
    world.driver.compare_one(&id, false).await.expect("compares");
    assert_eq!(world.engine.containers()[0].state, RunState::Running);
    assert_eq!(world.status("a"), Status::Running);
    world.engine.pause_outside(&world.sandbox("a"));
    world.driver.compare_one(&id, false).await.expect("compares");
    assert_eq!(world.status("a"), Status::Paused, "it comes once");
}

#[tokio::test]
async fn a_late_freeze_whose_thaw_is_not_answered_is_thawed_at_the_next_comparison() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let late = EngineError::Timeout { call: "pause", after: std::time::Duration::from_secs(1) };
    world.engine.fail_next("pause", late);
    world.save_running("a").await.expect_err("not frozen in time");
    world.engine.pause_outside(&world.sandbox("a"));
    let slow = EngineError::Timeout { call: "unpause", after: std::time::Duration::from_secs(1) };
    world.engine.fail_next("unpause", slow);
    world.driver.compare_all(false).await.expect("one session that is slow stops no comparison");
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.engine.containers()[0].state, RunState::Running);
    assert_eq!(world.status("a"), Status::Running);
    world.engine.pause_outside(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("a"), Status::Paused, "it comes once");
}

#[tokio::test]
async fn a_stop_whose_outcome_the_table_cannot_keep_is_told_later_without_anybody_asking() {
    let home = World::new().home;
    let engine = FakeEngine::new();
    engine.add_image(IMAGE);
    let options = crate::store::Options { wait: std::time::Duration::ZERO, ..Default::default() };
    let path = home.path().join("locked.db");
    let store = Store::open_with(&path, options).expect("a table").store;
    let world = World { driver: drive(&engine, home.path(), store), engine, home };
    let watcher = tokio::spawn(crate::daemon::watch::run(world.driver.clone()));
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("stop");
    let driver = world.driver.clone();
    let stop =
        tokio::spawn(async move { driver.stop("a", std::time::Duration::from_secs(1), Reason::User).await });
    gate.reached().await;
    let other = rusqlite::Connection::open(&path).expect("open");
    other.execute_batch("BEGIN EXCLUSIVE").expect("lock");
    gate.open();
    let failure = stop.await.expect("no panic").expect_err("cannot be kept");
    assert_eq!(failure.kind, Kind::StoreBusy, "{failure:?}");
    assert!(failure.hint.is_some_and(|hint| hint.contains("sessions.db")));
    assert_eq!(world.driver.sessions().len(), 1, "reads go on");
    other.execute_batch("COMMIT").expect("unlock");
    until(|| world.status("a") == Status::Stopped && world.row("a").operation.is_none()).await;
    assert_eq!(world.row("a").reason, Some(Reason::User));
    watcher.abort();
}
