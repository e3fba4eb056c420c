//! Commands.

use std::time::Duration;

use super::*;
use crate::daemon::exec::ExecRequest;
use crate::proto::errors::Kind;

fn request(command: &str) -> ExecRequest {
    ExecRequest { session: "a".into(), cmd: vec![command.to_owned()], ..ExecRequest::default() }
}

#[tokio::test]
async fn a_command_is_counted_and_its_output_and_code_come_back() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_exec("greet", b"hello", b"careful", 3);
    let output = world.driver.exec_run(request("greet"), None, None).await.expect("runs");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hello"[..], &b"careful"[..]));
    assert_eq!((output.ended.code, output.ended.reason), (3, None));
    assert_eq!(world.row("a").exec_count, 1);
    let idle = world.driver.0.usage.idle_since(&world.row("a").id, Duration::ZERO);
    assert!(idle.is_some(), "nothing runs any more");
}

#[tokio::test]
async fn output_beyond_the_bound_is_read_and_dropped_and_said() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let big = vec![b'x'; crate::daemon::exec::MAX_OUTPUT_BYTES + 1];
    world.engine.script_exec("flood", &big, b"", 0);
    let output = world.driver.exec_run(request("flood"), None, None).await.expect("runs");
    assert!(output.truncated);
    assert_eq!(output.stdout.len(), crate::daemon::exec::MAX_OUTPUT_BYTES);
}

#[tokio::test]
async fn a_command_needs_a_running_session() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let failure = world.driver.exec_run(request("x"), None, None).await.expect_err("stopped");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session resume a")));
    assert_eq!(world.row("a").exec_count, 0);
}

#[tokio::test]
async fn a_command_in_a_sandbox_that_died_a_moment_ago_is_refused_by_its_true_state() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.kill_container(&world.sandbox("a"), 1, false);
    let failure = world.driver.exec_run(request("x"), None, None).await.expect_err("dead");
    assert_eq!(failure.kind, Kind::WrongState);
    assert_eq!(world.status("a"), Status::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_time_runs_out_is_killed_with_124() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("forever");
    let output =
        world.driver.exec_run(request("forever"), None, Some(Duration::from_secs(5))).await.expect("ends");
    assert_eq!(output.ended.code, 124);
    assert!(world.engine.calls().iter().any(|c| c.starts_with("exec_signal")), "{:?}", world.engine.calls());
}

#[tokio::test]
async fn what_cannot_be_a_command_is_refused_before_the_engine_is_asked() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let before = world.engine.calls().len();
    for bad in [
        ExecRequest { cmd: vec![], ..request("x") },
        ExecRequest { cmd: vec![String::new()], ..request("x") },
        ExecRequest { cmd: vec!["a\0b".into()], ..request("x") },
        ExecRequest { cwd: Some("relative".into()), ..request("x") },
        ExecRequest { env: [("A=B".to_owned(), String::new())].into(), ..request("x") },
    ] {
        let failure = world.driver.exec_run(bad.clone(), None, None).await.expect_err("refused");
        assert_eq!(failure.kind, Kind::InvalidParams, "{bad:?}");
    }
    assert_eq!(world.engine.calls().len(), before);
}
