use bytes::Bytes;

use super::*;
use crate::engine::Chunk;
use crate::engine::labels::tests::{commit_spec, create_spec};

async fn created(engine: &FakeEngine) -> Observed {
    engine.add_image("base");
    engine.create(&create_spec("a")).await.expect("created")
}

fn command(program: &str) -> ExecSpec {
    ExecSpec {
        exec_id: "x1".to_owned(),
        argv: vec![program.to_owned()],
        env: Vec::new(),
        cwd: None,
        user: None,
        tty: None,
        stdin: false,
    }
}

#[tokio::test]
async fn a_call_waits_at_its_gate_and_has_no_effect_before() {
    let engine = FakeEngine::new();
    engine.add_image("base");
    let gate = engine.gate("create");
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.create(&create_spec("a")).await }
    });
    gate.reached().await;
    assert!(engine.containers().is_empty());
    gate.open();
    call.await.expect("joins").expect("created");
    assert_eq!(engine.calls(), ["create session-a"]);
}

#[tokio::test]
async fn a_failure_has_no_effect_but_a_lost_answer_has() {
    let engine = FakeEngine::new();
    engine.add_image("base");
    let timeout = EngineError::Timeout { call: "create", after: Duration::from_secs(1) };
    engine.fail_next("create", timeout.clone());
    engine.create(&create_spec("a")).await.expect_err("fails");
    assert!(engine.containers().is_empty());
    engine.lose_answer("create", timeout);
    engine.create(&create_spec("a")).await.expect_err("fails");
    let there = engine.containers();
    assert_eq!(engine.create(&create_spec("a")).await.expect("found"), there[0]);
}

#[tokio::test]
async fn an_engine_that_is_down_answers_unavailable_and_ends_its_hints() {
    let engine = FakeEngine::new();
    let mut hints = engine.hints().await.expect("follows");
    engine.set_down(true);
    for _ in 0..2 {
        assert!(hints.next().await.is_none());
    }
    assert!(matches!(engine.list("home").await, Err(EngineError::Unavailable { .. })));
    engine.set_down(false);
    engine.list("home").await.expect("is back");
}

#[tokio::test]
async fn a_hanging_command_ends_by_its_signal_or_with_its_sandbox() {
    let engine = FakeEngine::new();
    let id = created(&engine).await.id;
    engine.start(&id).await.expect("started");
    engine.script_hang("sleep");
    let (mut one, mut two) = (
        engine.exec(&id, &command("sleep")).await.expect("runs"),
        engine.exec(&id, &ExecSpec { exec_id: "x2".to_owned(), ..command("sleep") }).await.expect("runs"),
    );
    engine.exec_signal(&id, "x1", None, 15).await.expect("signals");
    assert!(one.output.next().await.is_none());
    assert_eq!(engine.exec_state(&one.engine_id).await.expect("known"), ExecState::Exited(143));
    assert_eq!(engine.exec_state(&two.engine_id).await.expect("known"), ExecState::Running);
    engine.kill_container(&id, 137, true);
    assert!(two.output.next().await.is_none());
    assert!(engine.inspect(&id).await.expect("looks").expect("there").oom_killed);
}

#[tokio::test]
async fn a_script_gives_output_and_code() {
    let engine = FakeEngine::new();
    let id = created(&engine).await.id;
    engine.start(&id).await.expect("started");
    engine.script_exec("ls", b"out", b"err", 3);
    let io = engine.exec(&id, &command("ls")).await.expect("runs");
    let chunks: Vec<Chunk> = io.output.map(|c| c.expect("a chunk")).collect().await;
    assert_eq!(
        chunks,
        [Chunk::Stdout(Bytes::from_static(b"out")), Chunk::Stderr(Bytes::from_static(b"err"))]
    );
    assert_eq!(engine.exec_state(&io.engine_id).await.expect("known"), ExecState::Exited(3));
}

#[tokio::test]
async fn a_snapshot_is_found_by_home_until_it_is_removed() {
    let engine = FakeEngine::new();
    let id = created(&engine).await.id;
    let spec = commit_spec(&id);
    let image = engine.commit(&spec).await.expect("committed");
    assert_eq!(engine.commit(&spec).await.expect("again"), image);
    assert_eq!(engine.snapshot_images("home").await.expect("lists"), [image]);
    engine.remove_snapshot(&spec.snapshot).await.expect("removed");
    engine.remove_snapshot(&spec.snapshot).await.expect("again");
    assert!(engine.snapshot_images("home").await.expect("lists").is_empty());
}
