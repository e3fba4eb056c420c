//! Use brings a session back.

use super::*;
use crate::daemon::awake::Use;
use crate::daemon::exec::ExecRequest;
use crate::daemon::files::NewFile;
use crate::proto::errors::Kind;

fn request() -> ExecRequest {
    ExecRequest { session: "a".into(), cmd: vec!["x".to_owned()], ..ExecRequest::default() }
}

/// How often the engine was asked to do this.
fn count(world: &World, call: &str) -> usize {
    world.engine.calls().iter().filter(|c| c.split(' ').next() == Some(call)).count()
}

/// What is told before a use of a session.
fn telling() -> (Report, std::sync::mpsc::Receiver<String>) {
    let (sender, told) = std::sync::mpsc::channel();
    (Report::new(String::new(), move |step| drop(sender.send(step.text.clone()))), told)
}

#[tokio::test]
async fn a_command_brings_a_stopped_a_saved_and_a_paused_session_back_and_says_so_before() {
    let world = World::new();
    world.start("a").await.expect("starts");
    for was in ["stopped: user", "saved", "paused"] {
        match was {
            "saved" => drop(world.save("a").await.expect("saves")),
            "paused" => drop(world.driver.pause("a").await.expect("pauses")),
            _ => drop(world.stop("a").await.expect("stops")),
        }
        let (report, told) = telling();
        world.driver.exec_run(ExecRequest { report, ..request() }, None).await.expect("runs");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [format!("Resuming 'a' (was {was}) ...")]);
        assert_eq!(world.status("a"), Status::Running);
    }
    assert_eq!(world.row("a").exec_count, 3);
    let (report, told) = telling();
    world.driver.exec_run(ExecRequest { report, ..request() }, None).await.expect("runs");
    assert_eq!(told.try_iter().count(), 0, "one that runs is used as it is");
}

#[tokio::test]
async fn files_bring_a_stopped_session_back_and_leave_a_paused_one_frozen() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let file = || NewFile { path: "/f".into(), bytes: b"x".to_vec(), mode: None, create_dirs: false };
    world.driver.write_file("a", file()).await.expect("written");
    assert_eq!(world.status("a"), Status::Running);
    world.driver.pause("a").await.expect("pauses");
    world.driver.write_file("a", file()).await.expect("written");
    assert_eq!(world.status("a"), Status::Paused);
    let (saved, _) = world.save("a").await.expect("saves");
    world.engine.vanish(saved.sandbox_id.as_deref().expect("a container"));
    let listed = world.driver.list_files("a", "/").await;
    listed.expect("what is in the snapshot is at hand again");
    assert_eq!(world.status("a"), Status::Running);
}

#[tokio::test]
async fn several_uses_at_once_bring_a_session_back_once() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let starts = count(&world, "start");
    let (run, wrote, connected, again) = tokio::join!(
        world.driver.exec_run(request(), None),
        world.driver.list_files("a", "/"),
        world.driver.connect("a"),
        world.driver.exec_run(request(), None),
    );
    run.expect("runs");
    wrote.expect("listed");
    connected.expect("connected");
    again.expect("runs");
    assert_eq!(count(&world, "start"), starts + 1, "{:?}", world.engine.calls());
}

#[tokio::test]
async fn a_command_in_a_sandbox_that_died_a_moment_ago_brings_it_back_and_is_counted_once() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.kill_container(&world.sandbox("a"), 1, false);
    let (report, told) = telling();
    world.driver.exec_run(ExecRequest { report, ..request() }, None).await.expect("runs");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["Resuming 'a' (was stopped: exited) ..."]);
    assert_eq!((world.row("a").exec_count, world.driver.execs(Some("a")).expect("a list").len()), (1, 1));
}

#[tokio::test]
async fn a_resume_that_fails_is_the_error_of_the_use_and_leaves_all_as_it_was() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    world.engine.fail_next("start", broken("start"));
    let failure = world.driver.exec_run(request(), None).await.expect_err("fails");
    assert_eq!((failure.kind, failure.message.as_str()), (Kind::EngineError, "cannot resume session 'a'"));
    let row = world.row("a");
    assert_eq!((row.status, row.reason, row.exec_count), (Status::Stopped, Some(Reason::User), 0));
    world.driver.exec_run(request(), None).await.expect("the next one brings it back");
}

#[tokio::test]
async fn what_cannot_be_brought_back_is_refused_by_name() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.engine.vanish(&world.sandbox("a"));
    let failure = world.driver.exec_run(request(), None).await.expect_err("lost");
    assert_eq!(failure.kind, Kind::SandboxLost);
    let bad = ExecRequest { cmd: Vec::new(), ..request() };
    world.start("b").await.expect("starts");
    world.stop("b").await.expect("stops");
    world.driver.exec_run(ExecRequest { session: "b".into(), ..bad }, None).await.expect_err("no command");
    assert_eq!(world.status("b"), Status::Stopped, "what is refused anyway brings nothing back");
}

#[tokio::test]
async fn who_wants_no_resume_gets_the_old_answer_and_so_does_everybody_where_it_is_switched_off() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.stop("a").await.expect("stops");
    let content = Use { resume: Some(false), ..Use::from("a") };
    let failure = world.driver.connect(content).await.expect_err("stopped");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session resume a")));

    let off = world.configured("auto_resume = false").await;
    let failure = off.driver.exec_run(request(), None).await.expect_err("stopped");
    assert_eq!(failure.kind, Kind::WrongState);
    assert_eq!(off.status("a"), Status::Stopped);
    let wanted = ExecRequest { resume: Some(true), ..request() };
    off.driver.exec_run(wanted, None).await.expect("who asks for it gets it");
}
