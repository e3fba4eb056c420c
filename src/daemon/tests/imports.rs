//! Rows of the older tools, and of programs that keep rows here.

use std::sync::Mutex;

use super::*;
use crate::engine::RunState;
use crate::model::session::EngineKind;
use crate::proto::errors::Kind;
use crate::proto::sessions::ImportRow;
use crate::proto::types::{StoreListParams, StoreNameParams, StoreRow};

fn stored(name: &str) -> StoreRow {
    StoreRow {
        name: name.to_owned(),
        namespace: None,
        sandbox_id: Some("sbx-1".to_owned()),
        template: Some("base".to_owned()),
        status: Some("running".to_owned()),
        created_at: Some("2026-03-04T08:15:30Z".to_owned()),
        last_connected: None,
        metadata: [("owner".to_owned(), "team-a".to_owned())].into(),
        extra: serde_json::from_str(r#"{"envdAccessToken":"hunter2"}"#).expect("an object"),
    }
}

fn row(origin: &str, name: &str) -> ImportRow {
    ImportRow {
        origin: origin.to_owned(),
        row: stored(name),
        agent: Some("gemini".to_owned()),
        sandbox: Some(format!("session-{name}")),
        last_active: Some("2026-03-05T00:00:00Z".to_owned()),
        exec_count: 12,
        snapshot: Some(format!("{name}-20260305")),
    }
}

fn named(name: &str, namespace: Option<&str>) -> StoreNameParams {
    StoreNameParams { name: name.to_owned(), namespace: namespace.map(str::to_owned) }
}

fn listed(world: &World, namespace: Option<&str>) -> Vec<String> {
    let asked = StoreListParams { namespace: namespace.map(str::to_owned) };
    world.driver.store_list(&asked).into_iter().map(|row| row.name).collect()
}

async fn import(world: &World, rows: Vec<ImportRow>) -> Vec<String> {
    world
        .driver
        .import(rows, Report::default())
        .await
        .expect("imports")
        .into_iter()
        .map(|o| o.outcome)
        .collect()
}

#[tokio::test]
async fn each_row_is_told_before_it_is_taken_over() {
    let world = World::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let report = Report::new("mine".to_owned(), move |step| {
        heard.lock().expect("no panic").push((step.op.clone(), step.text.clone()));
    });
    let rows = vec![row("agent-sandbox", "a"), row("agent-sandbox", "b")];
    world.driver.import(rows, report).await.expect("imports");
    let line = |text: &str| ("mine".to_owned(), text.to_owned());
    let want = [line("importing 'a' (1 of 2)"), line("importing 'b' (2 of 2)")];
    assert_eq!(*told.lock().expect("no panic"), want);
}

#[tokio::test]
async fn rows_of_the_sdk_are_listed_as_what_they_are_and_their_token_is_never_shown() {
    let world = World::new();
    assert_eq!(import(&world, vec![row("agent-sandbox", "a")]).await, ["imported"]);
    let session = world.row("a");
    assert_eq!((session.engine, session.status), (EngineKind::External, Status::Unknown));
    assert_eq!(session.created_at.0, 1_772_612_130_000);
    assert!(!format!("{session:?}").contains("hunter2"));
    assert!(world.driver.store_list(&StoreListParams::default())[0].extra.is_empty());
    assert_eq!(
        world.driver.store_load(&named("a", None)).expect("a row").extra["envdAccessToken"],
        "hunter2"
    );
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("a"), Status::Unknown);
    world.driver.delete("a", false).await.expect("can be deleted");
}

#[tokio::test]
async fn rows_of_the_cli_are_adopted_saved_or_lost_as_the_engine_shows() {
    let world = World::new();
    let id = world.engine.add_container("agentkernel-session-there", RunState::Running);
    world.engine.add_image("agentkernel-snap:saved-20260305");
    let rows = vec![row("agentkernel", "there"), row("agentkernel", "saved"), row("agentkernel", "gone")];
    assert_eq!(import(&world, rows).await, ["adopted", "imported", "imported"]);
    let there = world.row("there");
    assert_eq!((there.status, there.sandbox_id.as_ref()), (Status::Running, Some(&id)));
    assert_eq!((there.agent.as_str(), there.exec_count), ("gemini", 12));
    assert_eq!((world.status("saved"), world.row("saved").snapshots), (Status::Saved, 1));
    assert_eq!(world.status("gone"), Status::Lost);
    assert_eq!(world.driver.session("session-there").expect("by its old name").name.as_str(), "there");
    world.stop("there").await.expect("an adopted session obeys");
    world.resume("saved").await.expect("comes back from its snapshot");
}

#[tokio::test]
async fn a_repeated_import_changes_nothing_and_a_second_owner_of_a_name_is_a_conflict() {
    let world = World::new();
    import(&world, vec![row("agent-sandbox", "a")]).await;
    let before = world.row("a");
    assert_eq!(import(&world, vec![row("agent-sandbox", "a")]).await, ["unchanged"]);
    assert_eq!(import(&world, vec![row("agentkernel", "a")]).await, ["conflict"]);
    assert_eq!(world.row("a"), before);
    assert_eq!(import(&world, vec![row("agentkernel", "../evil")]).await, ["refused"]);
}

#[tokio::test]
async fn rows_taken_over_while_the_engine_is_away_are_judged_when_it_is_back() {
    let world = World::new();
    world.engine.add_container("agentkernel-session-a", RunState::Exited);
    world.engine.set_down(true);
    assert_eq!(
        import(&world, vec![row("agentkernel", "a"), row("agentkernel", "b")]).await,
        ["imported", "imported"]
    );
    assert_eq!(world.status("a"), Status::Unknown);
    world.engine.set_down(false);
    world.driver.compare_all(true).await.expect("compares");
    assert_eq!((world.status("a"), world.status("b")), (Status::Stopped, Status::Lost));
}

#[tokio::test]
async fn a_row_that_names_no_image_is_lost_and_one_the_engine_fails_at_holds_up_no_other() {
    let world = World::new();
    world.engine.add_image("agentkernel-snap:c-20260305");
    let rows = ["a:b", "../x", "", "-a"].map(|snapshot| ImportRow {
        snapshot: Some(snapshot.to_owned()),
        ..row("agentkernel", &format!("n{}", snapshot.len()))
    });
    import(&world, rows.to_vec()).await;
    for session in world.driver.sessions() {
        assert_eq!(session.status, Status::Lost, "{session:?}");
    }
    world.engine.fail_next("image", broken("image"));
    assert_eq!(
        import(&world, vec![row("agentkernel", "b"), row("agentkernel", "c")]).await,
        ["imported", "imported"]
    );
    assert_eq!((world.status("b"), world.status("c")), (Status::Unknown, Status::Saved));
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.status("b"), Status::Lost, "it was looked at again");
}

#[tokio::test]
async fn programs_can_keep_rows_but_not_replace_sessions() {
    let world = World::new();
    world.start("mine").await.expect("starts");
    assert_eq!(world.driver.store_save(stored("mine")).await.expect_err("taken").kind, Kind::SessionExists);
    world.driver.store_save(stored("theirs")).await.expect("kept");
    let changed = StoreRow { status: Some("stopped".into()), ..stored("theirs") };
    world.driver.store_save(changed.clone()).await.expect("replaced");
    assert_eq!(
        world.driver.store_load(&named("theirs", None)),
        Some(StoreRow { created_at: Some("2026-03-04T08:15:30.000Z".into()), ..changed })
    );
    let revision = world.row("theirs").revision;
    world
        .driver
        .store_save(world.driver.store_load(&named("theirs", None)).expect("a row"))
        .await
        .expect("as it is");
    assert_eq!(world.row("theirs").revision, revision, "what is there already is no change");
    assert_eq!(world.driver.store_load(&named("mine", None)), None);
    assert!(!world.driver.store_delete(&named("mine", None)).await.expect("left alone"));
    assert!(world.driver.store_delete(&named("theirs", None)).await.expect("deleted"));
    assert_eq!(world.driver.count(), 1);
}

#[tokio::test]
async fn one_name_is_another_row_in_each_store() {
    let world = World::new();
    import(&world, vec![row("agent-sandbox", "a")]).await;
    let kept = |namespace: &str, status: &str| StoreRow {
        namespace: Some(namespace.to_owned()),
        status: Some(status.to_owned()),
        ..stored("a")
    };
    for (namespace, status) in [("/one", "running"), ("/two", "stopped"), ("/one", "paused")] {
        world.driver.store_save(kept(namespace, status)).await.expect("kept");
    }
    let status = |namespace| world.driver.store_load(&named("a", namespace)).and_then(|row| row.status);
    assert_eq!(status(Some("/one")).as_deref(), Some("paused"));
    assert_eq!(status(Some("/two")).as_deref(), Some("stopped"));
    assert_eq!(
        status(None).as_deref(),
        Some("running"),
        "what was imported is in the store without a namespace"
    );
    assert_eq!(status(Some("/three")), None);
    assert_eq!(
        (listed(&world, Some("/one")), listed(&world, None)),
        (vec!["a".to_owned()], vec!["a".to_owned()])
    );
    // A row is told from one of another store by more than its name in the table.
    let in_table = world.driver.sessions().iter().map(|s| s.name.to_string()).find(|n| n.len() > 1);
    let in_table = in_table.expect("a marked name");
    assert_eq!(world.driver.store_load(&named(&in_table, None)), None);
    assert!(!world.driver.store_delete(&named(&in_table, None)).await.expect("left alone"));
    assert_eq!(
        world.driver.store_save(stored(&in_table)).await.expect_err("taken").kind,
        Kind::SessionExists
    );
    assert!(world.driver.store_delete(&named("a", Some("/one"))).await.expect("deleted"));
    assert_eq!((listed(&world, Some("/one")).len(), listed(&world, Some("/two")).len()), (0, 1));
    let long = StoreRow { namespace: Some("x".repeat(5000)), ..stored("b") };
    assert_eq!(world.driver.store_save(long).await.expect_err("too long").kind, Kind::InvalidParams);
}

#[tokio::test]
async fn a_container_of_the_older_tool_comes_back_when_the_table_is_lost() {
    let world = World::new();
    let id = world.engine.add_container("agentkernel-session-there", RunState::Running);
    assert_eq!(import(&world, vec![row("agentkernel", "there")]).await, ["adopted"]);
    let before = world.row("there");
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    let after = world.row("there");
    assert_eq!((&after.id, &after.agent, after.sandbox_id.as_ref()), (&before.id, &before.agent, Some(&id)));
    let origin = |row: &Session| row.external.as_ref().map(|external| external.origin.clone());
    assert_eq!((origin(&after), after.status), (origin(&before), Status::Running));
}
