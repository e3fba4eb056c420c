//! What a snapshot does not hold, and what is said of it when a sandbox is made from the snapshot.

use super::*;
use crate::daemon::awake::Use;
use crate::model::session::Excluded;
use crate::proto::sessions::ForkParams;
use crate::proto::types;

fn mount(source: &str, target: &str) -> types::Mount {
    types::Mount { source: source.to_owned(), target: target.to_owned(), read_only: false }
}

fn report() -> Report {
    Report::new("op".to_owned(), |_| ())
}

/// A session with a directory of the host and a volume, saved without its container.
async fn saved(world: &World, directory: &std::path::Path) {
    std::fs::create_dir_all(directory).expect("made");
    world.engine.set_volume("data", "first");
    let params = StartParams {
        workspace: Some(mount(directory.to_str().expect("text"), "/workspace")),
        mounts: vec![mount("data", "/data")],
        ..named("a")
    };
    world.driver.start(params, Report::default()).await.expect("starts");
    let excluded =
        [("bind", "/workspace"), ("volume", "/data"), ("volume", "/anonymous"), ("tmpfs", "/run/x")];
    let excluded = excluded.map(|(kind, target)| Excluded::new(kind, target));
    world.engine.set_excluded(&world.sandbox("a"), excluded.into());
    world.save("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
}

async fn resumed(world: &World) -> Vec<String> {
    let report = report();
    world.driver.resume("a", Way::AsItWas, report.clone()).await.expect("resumes");
    report.warnings()
}

#[tokio::test]
async fn what_is_there_as_it_was_is_not_warned_of_and_what_is_gone_is() {
    let world = World::new();
    saved(&world, &world.home.path().join("work")).await;
    let told = resumed(&world).await;
    let want = [
        "volume /anonymous: it is new, or not mounted, and what was in it is in no snapshot",
        "tmpfs /run/x: what was in it is gone",
    ];
    assert_eq!(told, want);
    world.stop("a").await.expect("stops");
    assert_eq!(resumed(&world).await, [""; 0], "it is the same container");
}

#[tokio::test]
async fn a_mount_that_is_another_is_told_whoever_brings_the_session_back() {
    let world = World::new();
    let work = world.home.path().join("work");
    saved(&world, &work).await;
    // Most file systems give the number of one that is gone to the next.
    std::fs::remove_dir_all(&work).expect("removed");
    std::fs::create_dir(&work).expect("made");
    world.engine.set_volume("data", "second");
    // Also where the table was lost meanwhile: its image knows it as well.
    let known = world.driver.snapshots(None).expect("a list")[0].excluded.clone();
    assert!(known[0].mark.is_some() && known[1].mark.as_deref() == Some("first"), "{known:?}");
    let told = resumed(&world).await;
    let told: Vec<_> =
        told.iter().filter(|line| line.contains("is another than when it was saved")).collect();
    assert!(
        told[0].starts_with("bind /workspace: ") && told[1].starts_with("volume /data: 'data'"),
        "{told:?}"
    );

    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    let report = Report::aloud(move |step| heard.lock().expect("no panic").push(step.text.clone()));
    world.driver.connect(Use { report, ..Use::from("a") }).await.expect("resumes");
    let lines = lines.lock().expect("no panic");
    assert!(lines[0].starts_with("Resuming 'a'"), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("Warning: volume /data: ")), "{lines:?}");
}

#[tokio::test]
async fn a_lost_table_knows_again_what_its_snapshots_do_not_hold() {
    let world = World::new();
    saved(&world, &world.home.path().join("work")).await;
    let known = world.driver.snapshots(None).expect("a list")[0].excluded.clone();
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(world.driver.snapshots(None).expect("a list")[0].excluded, known);
    let told = resumed(&world).await;
    assert!(told.iter().any(|line| line.starts_with("bind /workspace: it is not mounted")), "{told:?}");
}

#[tokio::test]
async fn a_fork_is_told_what_did_not_come_along() {
    let world = World::new();
    let port = |container, host| types::Port { container, host, protocol: "tcp".to_owned() };
    let params = StartParams { ports: vec![port(80, Some(8080)), port(81, None)], ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    let programs = ["node", "vim"].map(|name| Excluded::new("process", name));
    world.engine.set_excluded(&world.sandbox("a"), programs.into());
    let report = report();
    let fork = ForkParams { name: "a".to_owned(), new_name: "b".to_owned(), snapshot: None, op: None };
    world.driver.fork(fork, report.clone()).await.expect("forks");
    let told = report.warnings();
    assert_eq!(told[0], "these ran when it was saved and do not now: node, vim");
    assert!(told[1].starts_with("port 80/tcp: 8080 of the host is that of 'a', and "), "{told:?}");
    assert_eq!(told.len(), 2, "one that was free is free again: {told:?}");
}

#[tokio::test]
async fn who_comes_back_from_a_snapshot_because_somebody_removed_the_container_is_told_so() {
    let world = World::new();
    world.start("a").await.expect("starts");
    world.save_running("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    let told = resumed(&world).await;
    assert!(
        told[0].starts_with("its container was removed outside abx: it is made from snapshot 'a-"),
        "{told:?}"
    );
    world.save("a").await.expect("saves");
    world.engine.vanish(&world.sandbox("a"));
    world.driver.compare_all(false).await.expect("compares");
    assert_eq!(resumed(&world).await, [""; 0], "nothing came after the save");
}
