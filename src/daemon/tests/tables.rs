//! Tables that are exported and merged, and containers that are adopted.

use serde_json::{Value, json};

use super::*;
use crate::engine::{Engine, RunState, labels};
use crate::proto::errors::Kind;
use crate::proto::sessions::{AdoptParams, ImportOutcome};
use crate::proto::table::{TableDocument, TableImportParams};
use crate::proto::types::StoreRow;

async fn merge(world: &World, document: TableDocument, rename: bool) -> Vec<ImportOutcome> {
    let asked = TableImportParams { document, rename, op: None };
    world.driver.import_table(asked, Report::default()).await.expect("merges")
}

fn words(outcomes: &[ImportOutcome]) -> Vec<(&str, &str)> {
    outcomes.iter().map(|row| (row.name.as_str(), row.outcome.as_str())).collect()
}

/// A document as it goes over a wire.
fn sent(document: &TableDocument) -> TableDocument {
    serde_json::from_str(&serde_json::to_string(document).expect("JSON")).expect("JSON")
}

/// A world with a session that runs, one that is stopped, one of which a snapshot is left, one that is gone, a snapshot
/// without a session, and a row of another program.
async fn full() -> World {
    let world = World::new();
    let env = [("KEY".to_owned(), "s3cret".to_owned())].into();
    let params = StartParams { env, idle_ms: Some(60_000), ..named("runs") };
    world.driver.start(params, Report::default()).await.expect("starts");
    for name in ["stopped", "saved", "gone", "kept"] {
        world.start(name).await.expect("starts");
    }
    world.stop("stopped").await.expect("stops");
    for name in ["saved", "kept"] {
        world.save(name).await.expect("saves");
    }
    world.engine.vanish(&world.sandbox("saved"));
    world.engine.vanish(&world.sandbox("gone"));
    world.driver.delete("kept", true).await.expect("deletes");
    let row: StoreRow = serde_json::from_value(json!({"name": "other", "token": "hunter2"})).expect("a row");
    world.driver.store_save(row).await.expect("keeps it");
    world.driver.compare_all(false).await.expect("compares");
    world
}

#[tokio::test]
async fn a_table_moves_into_an_empty_one_and_each_row_is_what_the_engine_has_of_it() {
    let world = full().await;
    let document = sent(&world.driver.export(true));
    let before: Vec<_> = world.driver.sessions().iter().map(|s| Session::clone(s)).collect();
    let world = world.lose_table().await;
    let outcomes = merge(&world, document.clone(), false).await;
    assert!(outcomes.iter().all(|row| row.outcome == "imported"), "{outcomes:?}");
    assert_eq!(outcomes.len(), 6, "five sessions and a kept snapshot");
    for old in before {
        let new = world.row(old.name.as_str());
        let reason = new.reason;
        let same = Session {
            revision: new.revision,
            expires_at: new.expires_at,
            reason,
            snapshot: new.snapshot.clone(),
            ..old
        };
        assert_eq!(*new, same);
    }
    world.assert_explained();
    let again = merge(&world, document, false).await;
    assert!(again.iter().all(|row| row.outcome == "unchanged"), "{again:?}");
    world.resume("saved").await.expect("resumes");
}

#[tokio::test]
async fn no_secret_is_in_a_document_unless_it_was_asked_for() {
    let world = full().await;
    let text = |with| serde_json::to_string(&world.driver.export(with)).expect("JSON");
    assert!(!text(false).contains("s3cret") && !text(false).contains("hunter2"));
    assert!(text(true).contains("s3cret") && text(true).contains("hunter2"));
}

#[tokio::test]
async fn secrets_of_a_document_fill_what_rows_that_are_there_lack() {
    let world = full().await;
    let (bare, whole) = (sent(&world.driver.export(false)), sent(&world.driver.export(true)));
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    merge(&world, bare, false).await;
    let key = |world: &World| world.row("runs").spec.env.get("KEY").map(|value| value.reveal().to_owned());
    let extra = |world: &World| world.row("other").external.clone().expect("another program's").extra;
    assert_eq!((key(&world), extra(&world).reveal()), (None, "{}"));
    let outcomes = merge(&world, whole.clone(), false).await;
    let told = |name: &str| outcomes.iter().find(|row| row.name == name).expect("told").clone();
    assert_eq!((key(&world).as_deref(), told("runs").outcome.as_str()), (Some("s3cret"), "imported"));
    assert_eq!(told("runs").why.as_deref(), Some("it was there, without values of KEY"));
    assert!(extra(&world).reveal().contains("hunter2"));
    assert_eq!((world.status("runs"), told("stopped").outcome.as_str()), (Status::Running, "unchanged"));
    assert!(!format!("{outcomes:?}").contains("s3cret"));

    // What a session has is not another's to change.
    let mut other = whole;
    for entry in &mut other.sessions {
        entry.env.iter_mut().flatten().for_each(|(_, value)| *value = "another".to_owned());
    }
    let again = merge(&world, other, false).await;
    assert!(again.iter().all(|row| row.outcome == "unchanged"), "{again:?}");
    assert_eq!(key(&world).as_deref(), Some("s3cret"));
}

#[tokio::test]
async fn on_another_engine_sessions_are_lost_and_kept_snapshots_are_refused() {
    let document = full().await.driver.export(false);
    let world = World::new();
    let outcomes = merge(&world, document, false).await;
    for name in ["runs", "stopped", "saved", "gone"] {
        assert_eq!(world.status(name), Status::Lost, "{name}");
        assert_eq!(world.row(name).sandbox_id, None);
    }
    assert_eq!(world.status("other"), Status::Unknown);
    let saved = outcomes.iter().find(|row| row.name == "saved").expect("told");
    assert_eq!(saved.why.as_deref(), Some("1 of its snapshots are not on this engine"));
    assert_eq!(outcomes.last().map(|row| row.outcome.as_str()), Some("refused"));
}

#[tokio::test]
async fn a_taken_name_is_refused_or_given_a_number() {
    let other = World::new();
    other.start("a").await.expect("starts");
    let document = other.driver.export(false);
    let world = World::new();
    world.start("a").await.expect("starts");
    assert_eq!(words(&merge(&world, document.clone(), false).await), [("a", "conflict")]);
    assert_eq!(words(&merge(&world, document.clone(), true).await), [("a-2", "imported")]);
    assert_eq!(words(&merge(&world, document, true).await), [("a-2", "unchanged")]);
    assert_eq!(world.status("a"), Status::Running);
}

#[tokio::test]
async fn a_document_takes_nothing_that_is_somebody_elses() {
    let other = World::new();
    other.start("a").await.expect("starts");
    let mut document = other.driver.export(false);
    let world = World::new();
    let foreign = world.engine.add_container("somebody", RunState::Running);
    let image = world.engine.add_image("debian:other");
    document.sessions[0].session.sandbox_id = Some(foreign.clone());
    document.sessions[0].session.sandbox = "somebody".to_owned();
    let snapshot = json!({"id": "x", "session_id": document.sessions[0].session.id, "snapshot": {
        "name": "s", "session": "a", "image_id": image, "created_at": "2026-02-01T09:00:00Z", "note": null, "parent": null,
        "size_bytes": 1, "excluded": [],
    }});
    document.snapshots.push(serde_json::from_value(snapshot).expect("a snapshot"));
    merge(&world, document, false).await;
    assert_eq!((world.status("a"), world.row("a").sandbox_id.clone()), (Status::Lost, None));
    world.driver.delete("a", false).await.expect("deletes");
    assert!(world.engine.inspect(&foreign).await.expect("answers").is_some());
    assert!(world.engine.image(&image).await.expect("answers").is_some());
}

#[tokio::test]
async fn what_is_wrong_in_a_document_is_named_and_the_rest_is_taken() {
    let other = World::new();
    for name in ["a", "b"] {
        other.start(name).await.expect("starts");
    }
    let mut document = serde_json::to_value(other.driver.export(false)).expect("JSON");
    document["a_later_field"] = json!(1);
    let wrong = [
        ("/sessions/0/session/id", json!("../x"), "id: expected a UUID"),
        ("/sessions/0/session/name", json!("-a"), "name"),
        ("/sessions/0/session/network", json!("host"), "network: expected one of bridge, none"),
        ("/sessions/0/session/created_at", json!("yesterday"), "created_at"),
        ("/sessions/0/session/limits/cpus", json!(1e300), "limits.cpus"),
    ];
    for (field, value, why) in wrong {
        let world = World::new();
        let mut bent: Value = document.clone();
        *bent.pointer_mut(field).expect("the field") = value;
        let outcomes = merge(&world, serde_json::from_value(bent).expect("a document"), false).await;
        assert_eq!((outcomes[0].outcome.as_str(), world.driver.count()), ("refused", 1), "{field}");
        assert!(outcomes[0].why.as_ref().is_some_and(|said| said.contains(why)), "{outcomes:?}");
    }
    document["abx_table"] = json!(2);
    let asked = TableImportParams {
        document: serde_json::from_value(document).expect("a document"),
        rename: false,
        op: None,
    };
    let refused = World::new().driver.import_table(asked, Report::default()).await.expect_err("too new");
    assert_eq!(refused.kind, Kind::InvalidParams);
}

async fn adopt(world: &World, name: &str, container: &str) -> Result<Arc<Session>, Failure> {
    let asked = AdoptParams { name: name.to_owned(), container: container.to_owned(), agent: None };
    world.driver.adopt(asked).await
}

#[tokio::test]
async fn a_container_of_somebody_else_becomes_a_session_that_obeys() {
    for state in [RunState::Running, RunState::Exited, RunState::Paused] {
        let world = World::new();
        let id = world.engine.add_container("theirs", state);
        let session = adopt(&world, "mine", &id).await.expect("adopts");
        assert_eq!((session.sandbox.as_str(), session.sandbox_id.as_ref()), ("theirs", Some(&id)));
        world.driver.compare_all(false).await.expect("compares");
        assert_eq!(world.status("mine"), session.status);
        world.resume("mine").await.expect("resumes");
        assert_eq!(world.status("mine"), Status::Running);
        world.save("mine").await.expect("saves");
        world.resume("mine").await.expect("resumes");
        assert_eq!(world.sandbox("mine"), id);
        world.engine.vanish(&id);
        world.driver.compare_all(false).await.expect("compares");
        assert_eq!(world.status("mine"), Status::Saved);
        world.resume("mine").await.expect("comes back from its snapshot");
        world.driver.delete("mine", false).await.expect("deletes");
        assert!(world.engine.containers().is_empty());
    }
}

#[tokio::test]
async fn a_container_is_adopted_once_and_by_its_own_home() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let refused = adopt(&world, "b", &world.sandbox("a")).await.expect_err("it is a session's");
    assert_eq!((refused.kind, refused.hint.as_deref()), (Kind::WrongState, Some("abx session get a")));
    let labels = [
        (labels::SESSION_HOME.to_owned(), "/home/other/.abx".to_owned()),
        (labels::SESSION_ID.to_owned(), "01920000-0000-7000-8000-000000000001".to_owned()),
        (labels::SESSION_NAME.to_owned(), "c".to_owned()),
    ];
    let foreign = world.engine.add_labelled("session-c", RunState::Running, labels.into());
    let refused = adopt(&world, "c", &foreign).await.expect_err("it is another home's");
    assert_eq!(refused.hint.as_deref(), Some("abx --home /home/other/.abx ls"));
    let unknown = adopt(&world, "d", "nobody").await.expect_err("there is none");
    assert_eq!(unknown.kind, Kind::InvalidParams);
    let theirs = world.engine.add_container("theirs", RunState::Running);
    let taken = adopt(&world, "a", &theirs).await.expect_err("the name is taken");
    assert_eq!(taken.kind, Kind::SessionExists);
    adopt(&world, "e", &theirs).await.expect("adopts");
    assert_eq!(adopt(&world, "f", &theirs).await.expect_err("twice").kind, Kind::WrongState);
}

#[tokio::test]
async fn a_check_finds_what_no_session_explains_and_an_adoption_explains_it() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let clean = world.driver.check().await.expect("looks");
    assert_eq!((clean.containers.len(), clean.images.len(), clean.layers.len()), (0, 0, 1));
    let mut labels = world.engine.containers()[0].labels.clone();
    // The comparison takes it for somebody's own.
    let second = world.engine.add_labelled("by-hand", RunState::Running, labels.clone());
    labels.insert(labels::SESSION_ID.to_owned(), "01920000-0000-7000-8000-000000000001".to_owned());
    let orphan = world.engine.add_labelled("renamed", RunState::Exited, labels);
    world.driver.compare_all(false).await.expect("compares");
    let found = world.driver.check().await.expect("looks").containers;
    let name = |id: &str| found.iter().find(|c| c.id == id).expect("found").session.clone();
    assert_eq!((name(&second), name(&orphan)), (None, Some("a-2".to_owned())));
    let session = adopt(&world, "a-2", &orphan).await.expect("adopts");
    assert_eq!(session.id.as_str(), "01920000-0000-7000-8000-000000000001");
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.sandbox("a-2"), orphan);
    assert_eq!(world.driver.check().await.expect("looks").containers.len(), 1);
}

#[tokio::test]
async fn what_was_taken_over_comes_back_when_the_table_is_lost() {
    for state in [RunState::Running, RunState::Exited, RunState::Created] {
        let world = World::new();
        let id = world.engine.add_container("theirs", state);
        let before = adopt(&world, "mine", &id).await.expect("adopts");
        world.driver.compare_all(false).await.expect("compares");
        let world = world.lose_table().await;
        world.driver.compare_all(false).await.expect("compares");
        let after = world.row("mine");
        assert_eq!((&after.id, &after.sandbox, &after.agent), (&before.id, &before.sandbox, &before.agent));
        assert_eq!((after.sandbox_id.as_ref(), &after.external), (Some(&id), &before.external));
        assert_eq!((after.status, after.runtime), (before.status, before.runtime));
        let found = world.driver.check().await.expect("looks");
        assert!(found.containers.is_empty(), "{found:?}");
        world.assert_explained();
        world.resume("mine").await.expect("obeys");
        world.driver.rename("mine", "ours").await.expect("renames");
        let world = world.lose_table().await;
        world.driver.compare_all(false).await.expect("compares");
        assert_eq!(world.sandbox("ours"), id);
        world.driver.delete("ours", false).await.expect("deletes");
        assert!(world.engine.containers().is_empty());
        let left = std::fs::read_dir(world.home.path().join("adopted")).expect("a directory").count();
        assert_eq!(left, 0, "nothing is kept of what is gone");
    }
}

#[tokio::test]
async fn a_sandbox_of_ours_that_was_adopted_under_another_name_comes_back_too() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let mut labels = world.engine.containers()[0].labels.clone();
    labels.insert(labels::SESSION_ID.to_owned(), "01920000-0000-7000-8000-000000000001".to_owned());
    let renamed = world.engine.add_labelled("renamed", RunState::Running, labels);
    adopt(&world, "b", &renamed).await.expect("adopts");
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!((world.sandbox("b"), world.status("b")), (renamed, Status::Running));
    assert_eq!(world.driver.count(), 2);
    assert!(world.driver.check().await.expect("looks").containers.is_empty());
}
