//! Progress, and what verbs tell.

use super::*;
use crate::daemon::caller;
use crate::daemon::engine_state::EngineState;
use crate::model::event::{By, EventKind};
use crate::proto::events::{KINDS, PROGRESS};

#[test]
fn the_wire_names_every_kind_in_the_tables_order() {
    let kept: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(KINDS.split_last(), Some((&PROGRESS, kept.as_slice())));
}

#[tokio::test]
async fn the_life_of_a_session_is_told_in_order_with_who_asked() {
    let world = World::new();
    let by = By { client: "someone".to_owned(), pid: Some(7) };
    let life = async {
        world.start("a").await.expect("started");
        world.save("a").await.expect("saved");
        world.driver.delete("a", false).await.expect("deleted");
    };
    caller::acting(Some(by.clone()), life).await;
    let events = world.driver.0.store.events(0);
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|kind| !matches!(*kind, "session.changed" | "session.operation"))
        .collect();
    let life = [
        "session.created",
        "session.status",
        "snapshot.created",
        "session.status",
        "snapshot.deleted",
        "session.deleted",
    ];
    assert_eq!(kinds, life);
    assert!(events.iter().all(|event| event.by.as_ref() == Some(&by)), "{events:?}");
    let revisions: Vec<_> = events.iter().filter_map(|event| event.revision).collect();
    assert!(revisions.is_sorted(), "{revisions:?}");
}

#[tokio::test]
async fn a_start_that_fails_is_told_to_be_gone() {
    let world = World::new();
    world.engine.fail_next("create", broken("create"));
    world.start("a").await.expect_err("the engine refuses");
    let events = world.driver.0.store.events(0);
    let last = events.last().expect("an event");
    assert_eq!((last.kind.as_str(), last.name.as_deref()), ("session.deleted", Some("a")));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_told_once_whatever_it_says() {
    let world = World::new();
    for problem in ["refused", "timed out", "refused"] {
        let state = EngineState { about: None, problem: Some(problem.to_owned()) };
        world.driver.note_engine(state).await;
    }
    let events = world.driver.0.store.events(0);
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["engine.unavailable"]);
}

#[tokio::test]
async fn progress_reaches_those_who_follow_operations_whoever_asked() {
    let world = World::new();
    let mut steps = world.driver.0.progress.subscribe();
    let report = world.driver.report(Some("a"), None, None);
    report.line("pulling");
    let step = steps.recv().await.expect("a step");
    assert_eq!((step.kind.as_str(), step.session.as_deref()), ("progress", Some("a")));
    assert_eq!(step.data["text"], "pulling");
    assert!(step.data["op"].is_string(), "an operation that nobody named has an id of its own");
}
