//! Agents: what they are started with, at first and when they have run before.

use super::*;
use crate::daemon::exec::ExecRequest;
use crate::daemon::guests::Wanted;
use crate::proto::errors::Kind;
use crate::proto::sessions::ForkParams;
use crate::proto::stream::AgentStart;

/// Opens the agent of a session, waits for its end, and gives its command and what the user is told.
async fn open(world: &World, session: &str, start: AgentStart) -> (String, Option<String>) {
    let request = ExecRequest {
        session: session.to_owned(),
        attach: true,
        agent: Some(start),
        ..ExecRequest::default()
    };
    let live = world.driver.open_exec(request, None, &Wanted::default()).await.expect("starts");
    live.handle.wait().await.expect("ends");
    let execs = world.driver.execs(Some(session)).expect("a list");
    (execs.last().expect("noted").argv.join(" "), live.note)
}

async fn world() -> World {
    let world = World::new();
    world.engine.script_exec("claude", b"", b"", 0);
    world.start("a").await.expect("starts");
    world
}

async fn fork(world: &World, new: &str, snapshot: Option<&str>) {
    let params = ForkParams {
        name: "a".to_owned(),
        new_name: new.to_owned(),
        snapshot: snapshot.map(str::to_owned),
        op: None,
    };
    world.driver.fork(params, Report::default()).await.expect("forks");
}

#[tokio::test]
async fn an_agent_goes_on_where_it_has_run_before_and_says_so() {
    let world = world().await;
    assert_eq!(open(&world, "a", AgentStart::Resume).await, ("claude".to_owned(), None));
    world.stop("a").await.expect("stops");
    world.resume("a").await.expect("resumes");
    let world = world.restart().await;
    for start in [AgentStart::Resume, AgentStart::Usual] {
        let (command, note) = open(&world, "a", start).await;
        assert_eq!(command, "claude --continue");
        assert!(note.is_some_and(|note| note.contains("goes on")));
    }
    assert_eq!(open(&world, "a", AgentStart::Fresh).await, ("claude".to_owned(), None));
}

#[tokio::test]
async fn a_run_is_in_the_files_of_later_snapshots_and_forks_and_of_no_earlier_ones() {
    let world = world().await;
    let (_, before) = world.save_running("a").await.expect("saves");
    open(&world, "a", AgentStart::Resume).await;
    let (_, after) = world.save("a").await.expect("saves");
    fork(&world, "early", Some(&before.name)).await;
    fork(&world, "late", Some(&after.name)).await;
    assert_eq!(open(&world, "early", AgentStart::Resume).await.0, "claude");
    assert_eq!(open(&world, "late", AgentStart::Resume).await.0, "claude --continue");
    world.go_back("a", &before.name).await.expect("goes back");
    assert_eq!(open(&world, "a", AgentStart::Resume).await.0, "claude");
    world.stop("a").await.expect("stops");
    world.go_back("a", &after.name).await.expect("goes forth");
    assert_eq!(open(&world, "a", AgentStart::Resume).await.0, "claude --continue");
}

#[tokio::test]
async fn an_agent_that_was_not_there_has_not_run() {
    let world = world().await;
    world.engine.script_no_start("claude", "exec: \"claude\": not found", 127);
    assert_eq!(open(&world, "a", AgentStart::Resume).await.0, "claude");
    world.engine.script_exec("claude", b"", b"", 0);
    assert_eq!(open(&world, "a", AgentStart::Resume).await.0, "claude");
    assert_eq!(open(&world, "a", AgentStart::Resume).await.0, "claude --continue");
}

#[tokio::test]
async fn an_agent_that_cannot_go_on_begins_anew_and_says_so() {
    let world = World::new();
    world.engine.script_exec("amp", b"", b"", 0);
    let params = StartParams { agent: Some("amp".to_owned()), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    assert_eq!(open(&world, "a", AgentStart::Resume).await, ("amp".to_owned(), None));
    let (command, note) = open(&world, "a", AgentStart::Resume).await;
    assert_eq!(command, "amp");
    assert!(note.is_some_and(|note| note.contains("begins anew")));
}

#[tokio::test]
async fn an_agent_that_nothing_is_known_of_is_refused_with_what_to_write() {
    let world = World::new();
    let params = StartParams { agent: Some("mine".to_owned()), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    let agent = ExecRequest {
        session: "a".to_owned(),
        attach: true,
        agent: Some(AgentStart::Resume),
        ..ExecRequest::default()
    };
    let both = ExecRequest { cmd: vec!["sh".to_owned()], ..agent.clone() };
    let refused = async |request| match world.driver.open_exec(request, None, &Wanted::default()).await {
        Ok(_) => panic!("it was started"),
        Err(failure) => failure,
    };
    let failure = refused(agent).await;
    assert_eq!(failure.kind, Kind::InvalidParams);
    assert!(failure.hint.is_some_and(|hint| hint.contains("[agents]")));
    assert_eq!(refused(both).await.kind, Kind::InvalidParams);
}
