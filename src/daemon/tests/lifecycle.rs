//! Each verb where all goes well.

use super::*;
use crate::engine::RunState;
use crate::proto::errors::Kind;
use crate::proto::sessions::{ForkParams, UpdateParams};
use crate::proto::types;

#[tokio::test]
async fn a_session_goes_through_its_whole_life() {
    let world = World::new();
    let started = world.start("a").await.expect("starts");
    assert_eq!((started.status, started.sandbox.as_str()), (Status::Running, "session-a"));
    assert!(started.sandbox_id.is_some() && started.image_id.is_some());

    let stopped = world.stop("a").await.expect("stops");
    assert_eq!((stopped.status, stopped.reason), (Status::Stopped, Some(Reason::User)));
    assert_eq!(world.resume("a").await.expect("resumes").sandbox_id, started.sandbox_id);

    let (saved, snapshot) = world.save("a").await.expect("saves");
    assert_eq!((saved.status, saved.snapshots), (Status::Saved, 1));
    assert_eq!(saved.snapshot.as_deref(), Some(snapshot.name.as_str()));
    assert_eq!(world.engine.containers()[0].state, RunState::Exited);

    world.resume("a").await.expect("resumes");
    assert_eq!(world.driver.pause("a").await.expect("pauses").status, Status::Paused);
    assert_eq!(world.driver.unpause("a").await.expect("thaws").status, Status::Running);

    let gone = world.driver.delete("a", false).await.expect("deletes");
    assert_eq!((gone.deleted.as_str(), gone.snapshots), ("a", vec![snapshot.name.clone()]));
    assert!(world.engine.containers().is_empty());
    assert_eq!(world.driver.session("a").expect_err("gone").kind, Kind::SessionNotFound);
    assert!(world.engine.images().iter().all(|i| i.id != snapshot.image_id));
}

#[tokio::test]
async fn a_verb_that_finds_the_session_already_there_changes_nothing() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let before = world.row("a").revision;
    world.resume("a").await.expect("runs already");
    world.driver.unpause("a").await.expect("runs already");
    assert_eq!(world.row("a").revision, before);
    world.save("a").await.expect("saves");
    let before = world.row("a").revision;
    let calls = world.engine.calls().len();
    world.stop("a").await.expect("does not run already");
    let (_, again) = world.save("a").await.expect("saved already");
    assert_eq!(world.row("a").snapshot.as_deref(), Some(again.name.as_str()));
    assert_eq!(world.row("a").revision, before);
    let new: Vec<String> = world.engine.calls().split_off(calls);
    assert!(new.iter().all(|call| call.starts_with("inspect")), "{new:?}");
}

#[tokio::test]
async fn of_ten_starters_of_one_name_one_wins_and_the_others_are_told() {
    let world = World::new();
    let starts = (0..10).map(|_| world.start("a"));
    let results = futures_util::future::join_all(starts).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    for failure in results.into_iter().filter_map(Result::err) {
        assert_eq!(failure.kind, Kind::SessionExists);
        assert!(failure.hint.is_some());
    }
    assert_eq!(world.engine.containers().len(), 1);
    world.assert_explained();
}

#[tokio::test]
async fn reuse_connects_to_the_session_that_is_there() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let params = StartParams { reuse: true, ..named("a") };
    let session = world.driver.start(params, Report::default()).await.expect("connects");
    assert_eq!(session.status, Status::Running);
    assert!(session.last_connected.is_some());
    assert_eq!(world.engine.containers().len(), 1);
}

#[tokio::test]
async fn two_names_never_meet_in_one_container_name() {
    let world = World::new();
    let one = world.start("a b").await.expect("starts");
    let two = world.start("a_b").await.expect("starts");
    let three = world.start("a?b").await.expect("starts");
    assert_eq!(two.sandbox, "session-a_b");
    assert_ne!(one.sandbox, three.sandbox);
    assert_eq!(world.driver.session(&one.sandbox).expect("found by sandbox").name, one.name);
}

#[tokio::test]
async fn a_container_of_somebody_else_does_not_block_a_name() {
    let world = World::new();
    world.engine.add_container("session-a", RunState::Running);
    let session = world.start("a").await.expect("starts");
    assert!(session.sandbox.starts_with("session-a-"), "{}", session.sandbox);
}

#[tokio::test]
async fn snapshots_of_one_day_are_numbered_and_know_their_parent() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (session, first) = world.save_running("a").await.expect("saves");
    assert_eq!(session.status, Status::Running);
    let (_, second) = world.save_running("a").await.expect("saves");
    assert_eq!(second.name, format!("{}-2", first.name));
    assert_eq!(first.name.len(), "a-20260201".len());
    assert_eq!((first.parent.clone(), second.parent.clone()), (None, Some(first.name.clone())));
    assert_eq!(world.engine.containers()[0].state, RunState::Running);
    world.stop("a").await.expect("stops");
    world.go_back("a", &first.name).await.expect("goes back");
    let (_, third) = world.save_running("a").await.expect("saves");
    assert_eq!(third.parent, Some(first.name.clone()));
}

#[tokio::test]
async fn saving_a_paused_session_while_it_runs_leaves_it_paused() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.driver.pause("a").await.expect("pauses");
    let (session, _) = world.save_running("a").await.expect("saves");
    assert_eq!(session.status, Status::Paused);
    assert_eq!(world.engine.containers()[0].state, RunState::Paused);
}

#[tokio::test]
async fn going_back_saves_what_it_replaces_and_makes_a_new_container() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.resume("a").await.expect("resumes");
    world.stop("a").await.expect("stops");
    let old = world.sandbox("a");
    let session = world.go_back("a", &first.name).await.expect("goes back");
    assert_eq!(session.status, Status::Running);
    assert_ne!(session.sandbox_id.as_ref(), Some(&old));
    assert_eq!(session.image_id.as_ref(), Some(&first.image_id));
    let kept = world.driver.snapshots(Some("a")).expect("a list");
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[0].note.as_deref(), Some(format!("before going back to {}", first.name).as_str()));
    assert_eq!(world.engine.containers().len(), 1);
    world.assert_explained();
}

#[tokio::test]
async fn a_running_session_is_not_gone_back_under_its_users_hands() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save_running("a").await.expect("saves");
    let failure = world.go_back("a", &first.name).await.expect_err("refused");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session stop a")));
}

#[tokio::test]
async fn a_fork_has_the_files_but_neither_the_history_nor_the_host_ports() {
    let world = World::new();
    let port = types::Port { container: 80, host: Some(8080), protocol: "tcp".to_owned() };
    let params =
        StartParams { ports: vec![port], env: [("K".to_owned(), "v".to_owned())].into(), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    let params = ForkParams { name: "a".into(), new_name: "b".into(), snapshot: None, op: None };
    let fork = world.driver.fork(params, Report::default()).await.expect("forks");
    let snapshot = world.driver.snapshots(Some("a")).expect("a list").remove(0);
    assert_eq!(fork.image_id.as_ref(), Some(&snapshot.image_id));
    assert_eq!((fork.status, fork.exec_count, fork.snapshots), (Status::Running, 0, 0));
    assert!(!fork.spec.ports[0].fixed);
    assert_eq!(fork.spec.env["K"].reveal(), "v");
    assert_eq!(world.status("a"), Status::Running);
    world.assert_explained();
}

#[tokio::test]
async fn renaming_takes_the_container_along_and_refuses_a_taken_name() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.start("b").await.expect("starts");
    let failure = world.driver.rename("a", "b").await.expect_err("taken");
    assert_eq!(failure.kind, Kind::SessionExists);
    let session = world.driver.rename("a", "c").await.expect("renames");
    assert_eq!(session.sandbox, "session-c");
    assert!(world.engine.containers().iter().any(|c| c.name == "session-c"));
    assert!(world.driver.session("a").is_err());
    world.assert_explained();
}

#[tokio::test]
async fn one_update_makes_one_change_or_none() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let good = UpdateParams {
        name: "a".into(),
        timeout_ms: Some(60_000),
        metadata: [("k".to_owned(), Some("v".to_owned()))].into(),
        ..UpdateParams::default()
    };
    let session = world.driver.update(good).await.expect("updates");
    let expires_at = session.expires_at.expect("counts from now");
    let bad = UpdateParams {
        name: "a".into(),
        timeout_ms: Some(1),
        metadata: [(String::new(), Some("v".to_owned()))].into(),
        ..UpdateParams::default()
    };
    assert_eq!(world.driver.update(bad).await.expect_err("refused").kind, Kind::InvalidParams);
    let row = world.row("a");
    assert_eq!((row.timeout_ms, row.expires_at), (Some(60_000), Some(expires_at)));
    assert_eq!(row.metadata["k"], "v");
}

#[tokio::test]
async fn deleting_keeps_snapshots_when_asked_and_never_touches_those_of_others() {
    let world = World::new();
    for name in ["a", "b"] {
        world.start(name).await.expect("starts");
        world.save(name).await.expect("saves");
    }
    let gone = world.driver.delete("a", true).await.expect("deletes");
    assert!(gone.snapshots.is_empty());
    let left = world.driver.snapshots(None).expect("a list");
    assert_eq!(left.len(), 2);
    let kept = left.iter().find(|s| s.session_name == "a").expect("kept");
    let deleted = world.driver.delete_snapshots(vec![kept.name.clone()]).await.expect("deletes");
    assert_eq!(deleted, std::slice::from_ref(&kept.name));
    assert_eq!(world.driver.snapshots(None).expect("a list").len(), 1);
    assert!(world.driver.snapshots(Some("b")).is_ok_and(|s| s.len() == 1));
}

#[tokio::test]
async fn the_only_copy_of_a_sessions_files_is_not_deleted_on_its_own() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    let failure = world.driver.delete_snapshots(vec![snapshot.name.clone()]).await.expect_err("refused");
    assert_eq!(failure.kind, Kind::WrongState);
    assert_eq!(world.resume("a").await.expect("resumes").image_id.as_ref(), Some(&snapshot.image_id));
}

#[tokio::test]
async fn going_back_keeps_work_whose_own_snapshot_was_deleted() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.resume("a").await.expect("resumes");
    let (_, second) = world.save("a").await.expect("saves");
    world.driver.delete_snapshots(vec![second.name.clone()]).await.expect("deletes");
    assert_eq!(world.status("a"), Status::Stopped, "its files are in its container alone");
    world.go_back("a", &first.name).await.expect("goes back");
    let kept = world.driver.snapshots(Some("a")).expect("a list");
    assert!(kept.iter().any(|s| s.note.as_deref().is_some_and(|n| n.starts_with("before"))), "{kept:?}");
}

#[tokio::test]
async fn going_back_to_what_it_was_just_saved_to_takes_no_second_snapshot() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, first) = world.save("a").await.expect("saves");
    world.go_back("a", &first.name).await.expect("goes back");
    assert_eq!(world.row("a").snapshots, 1);
}

#[tokio::test]
async fn one_word_never_means_two_sessions() {
    let world = World::new();
    world.start("x").await.expect("starts");
    world.start("y").await.expect("starts");
    assert_eq!(world.start("session-x").await.expect_err("the sandbox of x").kind, Kind::SessionExists);
    assert_eq!(
        world.driver.rename("y", "session-x").await.expect_err("the sandbox of x").kind,
        Kind::SessionExists
    );
    let params = ForkParams { name: "y".into(), new_name: "session-x".into(), snapshot: None, op: None };
    let fork = world.driver.fork(params, Report::default()).await.expect_err("the sandbox of x");
    assert_eq!(fork.kind, Kind::SessionExists);
    world.driver.delete("x", false).await.expect("deletes");
    world.start("session-x").await.expect("free now");
    let late = world.start("x").await.expect("starts");
    assert_ne!(late.sandbox, "session-x", "that finds another session");
}

#[tokio::test]
async fn two_spellings_of_one_name_find_one_session() {
    let world = World::new();
    world.start("cafe\u{301}").await.expect("starts");
    for spelling in ["cafe\u{301}", "caf\u{e9}"] {
        world.stop(spelling).await.expect("found");
    }
    assert_eq!(world.start("caf\u{e9}").await.expect_err("the same").kind, Kind::SessionExists);
}

#[tokio::test]
async fn a_timeout_counts_anew_from_a_resume_and_not_from_a_thaw() {
    let world = World::new();
    let params = StartParams { timeout_ms: Some(3_600_000), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    let id = world.row("a").id.clone();
    let early = Some(crate::model::id::Timestamp(1_000));
    let back = || async {
        world.driver.pause("a").await.expect("pauses");
        world.driver.0.store.update(&id, move |s| s.expires_at = early).await.expect("a row");
    };
    back().await;
    assert_eq!(world.driver.unpause("a").await.expect("thaws").expires_at, early);
    back().await;
    assert!(world.resume("a").await.expect("resumes").expires_at > early);
}

#[tokio::test]
async fn a_kept_snapshot_is_found_by_its_sessions_name_and_serves_the_next_of_that_name() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let (_, snapshot) = world.save("a").await.expect("saves");
    world.driver.delete("a", true).await.expect("deletes");
    assert_eq!(world.driver.snapshots(Some("a")).expect("kept").len(), 1);
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let session = world.go_back("a", &snapshot.name).await.expect("goes back");
    assert_eq!(session.image_id.as_ref(), Some(&snapshot.image_id));
    world.driver.rename("a", "b").await.expect("renames");
    let (_, later) = world.save("b").await.expect("saves");
    world.driver.rename("b", "c").await.expect("renames");
    assert_eq!(world.driver.session_of(&later), "c");
}

#[tokio::test]
async fn a_fork_that_fails_takes_its_own_snapshot_along() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.fail_next("create", broken("create"));
    let params = ForkParams { name: "a".into(), new_name: "b".into(), snapshot: None, op: None };
    world.driver.fork(params, Report::default()).await.expect_err("fails");
    assert!(world.driver.snapshots(None).expect("a list").is_empty());
    world.assert_explained();
}
