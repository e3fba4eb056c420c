//! Commands.

use std::time::Duration;

use super::*;
use crate::daemon::exec::ExecRequest;
use crate::daemon::framing::Abandoned;
use crate::model::exec::Exec;
use crate::proto::errors::Kind;

fn request(command: &str) -> ExecRequest {
    ExecRequest { session: "a".into(), cmd: vec![command.to_owned()], ..ExecRequest::default() }
}

/// One that brings no session back.
fn content(command: &str) -> ExecRequest {
    ExecRequest { resume: Some(false), ..request(command) }
}

fn limited(command: &str, timeout: Duration) -> ExecRequest {
    ExecRequest { timeout: Some(timeout), ..request(command) }
}

#[tokio::test]
async fn a_command_is_counted_and_its_output_and_code_come_back() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_exec("greet", b"hello", b"careful", 3);
    let output = world.driver.exec_run(request("greet"), None).await.expect("runs");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hello"[..], &b"careful"[..]));
    assert_eq!((output.ended.code, output.ended.reason), (3, None));
    assert_eq!(world.row("a").exec_count, 1);
    let idle = world.driver.0.usage.standing(&world.row("a").id, Duration::ZERO).since;
    assert!(idle.is_some(), "nothing runs any more");
}

#[tokio::test]
async fn output_beyond_the_bound_is_read_and_dropped_and_said() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let big = vec![b'x'; crate::daemon::exec::MAX_OUTPUT_BYTES + 1];
    world.engine.script_exec("flood", &big, b"", 0);
    let output = world.driver.exec_run(request("flood"), None).await.expect("runs");
    assert!(output.truncated);
    assert_eq!(output.stdout.len(), crate::daemon::exec::MAX_OUTPUT_BYTES);
}

#[tokio::test]
async fn a_command_that_brings_no_session_back_needs_a_running_one() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let failure = world.driver.exec_run(content("x"), None).await.expect_err("stopped");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session resume a")));
    assert_eq!(world.row("a").exec_count, 0);
}

#[tokio::test]
async fn a_command_in_a_sandbox_that_died_a_moment_ago_is_refused_by_its_true_state() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.kill_container(&world.sandbox("a"), 1, false);
    let failure = world.driver.exec_run(content("x"), None).await.expect_err("dead");
    assert_eq!(failure.kind, Kind::WrongState);
    assert_eq!(world.status("a"), Status::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_time_runs_out_is_killed_with_124() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("forever");
    let output = world.driver.exec_run(limited("forever", Duration::from_secs(5)), None).await.expect("ends");
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
        let failure = world.driver.exec_run(bad.clone(), None).await.expect_err("refused");
        assert_eq!(failure.kind, Kind::InvalidParams, "{bad:?}");
    }
    assert_eq!(world.engine.calls().len(), before);
}

#[tokio::test]
async fn what_is_known_by_its_row_alone_is_not_started_where_the_disk_has_no_room_for_it() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let limit = world.driver.0.store.write(|tx| {
        tx.fill();
        Ok(())
    });
    limit.await.expect("limited");
    world.engine.script_exec("greet", b"hello", b"", 0);
    let long = ExecRequest { cmd: vec!["greet".to_owned(), "x".repeat(100_000)], ..request("greet") };
    let alone = ExecRequest { detached: true, ..long.clone() };
    let failure = world.driver.exec_start(alone, None).await.expect_err("no room");
    assert_eq!((failure.kind, last_call(&world, "exec session-a")), (Kind::StoreFull, None));
    let output = world.driver.exec_run(long, None).await.expect("somebody waits for it");
    assert_eq!((output.stdout.as_slice(), output.ended.code), (&b"hello"[..], 0));
}

/// Where the last call of this name stands among all calls.
fn last_call(world: &World, call: &str) -> Option<usize> {
    world.engine.calls().iter().rposition(|line| line.starts_with(call))
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_result_nobody_waits_for_is_ended_and_noted_as_it_ended() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    for (why, reason) in
        [(Abandoned::Gone, "its client went away"), (Abandoned::Cancelled, "its call was cancelled")]
    {
        let before = last_call(&world, "exec_signal");
        let execs = world.driver.execs(None).expect("a list").len();
        let (leaves, audience) = crate::daemon::framing::Audience::new();
        let (driver, asked) = (world.driver.clone(), ExecRequest { audience, ..request("long") });
        let run = tokio::spawn(async move { driver.exec_run(asked, None).await });
        until(|| world.driver.execs(None).expect("a list").len() > execs).await;
        until(|| last_call(&world, "exec session-a") > before).await;
        leaves.send_replace(Some(why));
        let ended = run.await.expect("joins").expect("ends").ended;
        assert_eq!((ended.code, ended.signal, ended.reason.as_deref()), (143, Some(15), Some(reason)));
        assert!(last_call(&world, "exec_signal") > before, "{:?}", world.engine.calls());
    }
}

#[tokio::test]
async fn a_stop_of_the_daemon_does_not_wait_for_a_command_and_says_which_goes_on() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let shutdown = crate::daemon::shutdown::Shutdown::new();
    let asked = ExecRequest { shutdown: shutdown.clone(), ..request("long") };
    let driver = world.driver.clone();
    let run = tokio::spawn(async move { driver.exec_run(asked, None).await });
    until(|| last_call(&world, "exec session-a").is_some()).await;
    shutdown.begin();
    let failure = run.await.expect("joins").expect_err("the daemon stops");
    let exec = world.driver.execs(Some("a")).expect("a list").pop().expect("the command");
    assert_eq!((failure.kind, failure.exec.as_deref()), (Kind::ShuttingDown, Some(exec.id.as_str())));
    assert_eq!((&exec.ended, last_call(&world, "exec_signal")), (&None, None), "it goes on");
    let drained = world.driver.drain(tokio::time::Instant::now() + Duration::from_secs(3600));
    tokio::time::timeout(Duration::from_secs(60), drained).await.expect("nothing is left to wait for");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_no_signal_reaches_is_left_a_bounded_time_after_its_own_ran_out() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_deaf("deaf");
    let begun = tokio::time::Instant::now();
    let output = world.driver.exec_run(limited("deaf", Duration::from_secs(5)), None).await.expect("ends");
    assert_eq!((output.ended.code, output.ended.reason.as_deref()), (124, Some("its time ran out")));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let signals = world.engine.calls().iter().filter(|c| c.starts_with("exec_signal")).count();
    assert_eq!(signals, 2, "TERM and KILL");
}

#[tokio::test]
async fn a_time_of_zero_is_no_limit() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let driver = world.driver.clone();
    let run = tokio::spawn(async move { driver.exec_run(limited("long", Duration::ZERO), None).await });
    until(|| last_call(&world, "exec session-a").is_some()).await;
    assert_eq!(crate::daemon::exec::deadline(Some(Duration::ZERO)), None);
    world.engine.end_commands(7);
    assert_eq!(run.await.expect("joins").expect("ends").ended.code, 7);
    assert_eq!(last_call(&world, "exec_signal"), None);
}

#[tokio::test]
async fn a_command_that_runs_is_followed_although_it_cannot_be_counted() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_exec("greet", b"hello", b"", 0);
    world.driver.0.store.close().await;
    let output = world.driver.exec_run(request("greet"), None).await.expect("runs");
    assert_eq!(output.stdout, b"hello");
}

#[tokio::test]
async fn an_engine_that_fails_to_tell_a_commands_state_is_asked_again_and_then_said_to_fail() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_exec("greet", b"hello", b"", 3);
    world.engine.fail_next("exec_state", broken("exec_state"));
    let output = world.driver.exec_run(request("greet"), None).await.expect("runs");
    assert_eq!(output.ended.code, 3);
    for _ in 0..5 {
        world.engine.fail_next("exec_state", broken("exec_state"));
    }
    let failure = world.driver.exec_run(request("greet"), None).await.expect_err("cannot tell");
    assert_eq!(failure.kind, Kind::EngineError);
}

#[tokio::test]
async fn a_command_that_the_engine_forgot_counts_as_killed() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let text = "No such exec instance: e1".to_owned();
    world.engine.fail_next("exec_state", EngineError::Failed { call: "exec_state", text });
    let output = world.driver.exec_run(request("x"), None).await.expect("ends");
    assert_eq!(output.ended.code, 137);
}

#[tokio::test]
async fn a_command_waits_for_the_save_that_has_frozen_its_sandbox() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_exec("greet", b"hello", b"", 0);
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let save =
        tokio::spawn(async move { driver.save("a", Naming::default(), true, Report::default()).await });
    gate.reached().await;
    let driver = world.driver.clone();
    let run = tokio::spawn(async move { driver.exec_run(request("greet"), None).await });
    until(|| last_call(&world, "exec session-a").is_some()).await;
    gate.open();
    save.await.expect("joins").expect("saved");
    assert_eq!(run.await.expect("joins").expect("runs").stdout, b"hello");
    assert_eq!(world.row("a").exec_count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_command_does_not_wait_for_ever_for_a_save() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let save =
        tokio::spawn(async move { driver.save("a", Naming::default(), true, Report::default()).await });
    gate.reached().await;
    let failure = world.driver.exec_run(request("x"), None).await.expect_err("busy");
    assert_eq!(failure.kind, Kind::Busy);
    gate.open();
    save.await.expect("joins").expect("saved");
}

#[tokio::test]
async fn a_sandbox_that_somebody_paused_refuses_with_the_way_out() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.pause_outside(&world.sandbox("a"));
    let failure = world.driver.exec_run(content("x"), None).await.expect_err("paused");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session unpause a")));
}

#[tokio::test]
async fn a_command_whose_time_runs_out_during_a_save_is_ended_after_it() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let driver = world.driver.clone();
    let limit = Duration::from_millis(300);
    let run = tokio::spawn(async move { driver.exec_run(limited("long", limit), None).await });
    until(|| last_call(&world, "exec session-a").is_some()).await;
    let gate = world.engine.gate("commit");
    let driver = world.driver.clone();
    let save =
        tokio::spawn(async move { driver.save("a", Naming::default(), true, Report::default()).await });
    gate.reached().await;
    until(|| last_call(&world, "exec_signal").is_some()).await;
    gate.open();
    save.await.expect("joins").expect("saved");
    assert_eq!(run.await.expect("joins").expect("ends").ended.code, 124);
    assert!(last_call(&world, "exec_signal") > last_call(&world, "unpause"), "{:?}", world.engine.calls());
}

#[tokio::test]
async fn a_program_that_is_not_there_is_refused_in_words_of_ours() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let text = "OCI runtime exec failed: exec: \"nope\": executable file not found in $PATH: unknown";
    world.engine.script_no_start("nope", text, 127);
    let failure = world.driver.exec_run(request("nope"), None).await.expect_err("not there");
    assert_eq!(failure.kind, Kind::CommandNotFound);
    assert_eq!(failure.message, "nope: command not found in the sandbox");
}

#[tokio::test]
async fn a_sandbox_is_not_frozen_while_a_command_has_no_process_yet() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_slow("slow");
    let live = world.driver.exec(request("slow")).await.expect("taken");
    for paused in 0..2 {
        let driver = world.driver.clone();
        let freeze = tokio::spawn(async move {
            match paused {
                0 => driver.save("a", Naming::default(), true, Report::default()).await.map(drop),
                _ => driver.pause("a").await.map(drop),
            }
        });
        if paused == 0 {
            let before = world.engine.calls().len();
            until(|| {
                world.engine.calls()[before..].iter().filter(|c| c.starts_with("exec_state")).count() > 1
            })
            .await;
            assert_eq!(last_call(&world, "pause"), None, "{:?}", world.engine.calls());
            world.engine.make_processes();
        }
        freeze.await.expect("joins").expect("frozen");
        assert!(last_call(&world, "pause") > last_call(&world, "exec_state"), "{:?}", world.engine.calls());
    }
    drop(live);
}

#[tokio::test]
async fn no_command_is_started_while_a_sandbox_is_being_frozen() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let gate = world.engine.gate("pause");
    let driver = world.driver.clone();
    let pause = tokio::spawn(async move { driver.pause("a").await });
    gate.reached().await;
    let driver = world.driver.clone();
    let run = tokio::spawn(async move { driver.exec_run(content("x"), None).await });
    let session = world.row("a").id.clone();
    until(|| world.driver.0.launches.users(&session) == 2).await;
    assert_eq!(last_call(&world, "exec session-a"), None);
    gate.open();
    pause.await.expect("joins").expect("paused");
    assert_eq!(run.await.expect("joins").expect_err("paused").kind, Kind::WrongState);
}

#[tokio::test]
async fn a_command_that_was_overdue_before_this_daemon_began_is_ended_at_once() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let exec =
        world.driver.exec_start(limited("long", Duration::from_secs(3600)), None).await.expect("starts");
    let late = Exec { deadline: Some(exec.started_at), ..Exec::clone(&exec) };
    let id = exec.id.clone();
    let overdue = world.driver.0.store.write(move |tx| {
        tx.delete_exec(&id)?;
        tx.put_exec(&late)
    });
    overdue.await.expect("written");
    world.driver.watch_deadlines();
    until(|| last_call(&world, "exec_signal").is_some()).await;
    let ended = world.driver.wait_exec(exec.id.as_str(), None).await.expect("known").ended.clone();
    let ended = ended.expect("ended");
    assert_eq!((ended.code, ended.reason.as_deref()), (124, Some("its time ran out")));
}

#[tokio::test]
async fn a_failure_is_told_though_another_command_has_the_key() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let keyed = || ExecRequest { key: Some("k".to_owned()), detached: true, ..request("long") };
    let first = world.driver.exec_start(keyed(), None).await.expect("starts");
    let again = world.driver.exec_start(keyed(), None).await.expect("the first");
    assert_eq!(first.id, again.id);
    let bad = ExecRequest { cwd: Some("relative".to_owned()), key: Some("other".to_owned()), ..keyed() };
    assert_eq!(world.driver.exec_start(bad, None).await.expect_err("refused").kind, Kind::InvalidParams);
}

#[tokio::test]
async fn whoever_waits_for_a_command_hears_of_its_end_however_its_sandbox_goes() {
    for way in ["killed", "stopped", "deleted"] {
        let world = World::new();
        world.start("a").await.expect("starts");
        world.engine.script_hang("long");
        let exec = world.driver.exec_start(request("long"), None).await.expect("starts");
        let mut waiting = std::pin::pin!(world.driver.wait_exec(exec.id.as_str(), None));
        assert!(futures_util::poll!(&mut waiting).is_pending(), "{way}");
        match way {
            "killed" => {
                world.engine.kill_container(&world.sandbox("a"), 137, false);
                world.driver.compare_all(false).await.expect("compared");
            }
            "stopped" => drop(world.stop("a").await.expect("stops")),
            _ => drop(world.driver.delete("a", false).await.expect("deleted")),
        }
        let seen = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        let seen = seen.expect(way).expect("known");
        assert_eq!(seen.id, exec.id, "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_could_not_be_noted_is_noted_once_the_table_can_be_written() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.script_hang("long");
    let driver = world.driver.clone();
    let run = tokio::spawn(async move { driver.exec_run(request("long"), None).await });
    until(|| last_call(&world, "exec session-a").is_some()).await;
    let (table, aside) = (world.home.path().join("sessions.db"), world.home.path().join("aside"));
    std::fs::rename(&table, &aside).expect("moved");
    world.engine.end_commands(7);
    assert_eq!(run.await.expect("joins").expect("ends").ended.code, 7);
    let exec = world.driver.execs(Some("a")).expect("a list").pop().expect("the command");
    assert_eq!(exec.ended, None, "nothing can be written");
    std::fs::rename(&aside, &table).expect("moved back");
    let noted = world.driver.wait_exec(exec.id.as_str(), None).await.expect("known");
    assert_eq!(noted.ended.as_ref().map(|end| end.code), Some(7));
}

#[test]
fn both_who_start_commands_mark_them_alike() {
    assert_eq!(crate::engine::EXEC_MARK, crate::guest::wire::EXEC_MARK);
}
