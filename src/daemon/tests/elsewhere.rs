//! A home that is pointed to another engine.

use super::*;
use crate::daemon::driver::EngineState;
use crate::engine::Engine;
use crate::proto::errors::Kind;

/// An engine of this id. Those with ids of different lengths give no container and no image the same one.
fn engine(identity: &str) -> FakeEngine {
    let engine = FakeEngine::new();
    engine.add_image(IMAGE);
    for n in 0..identity.len() * 100 {
        engine.add_image(&format!("other:{n}"));
    }
    engine.set_identity(identity);
    engine
}

impl World {
    /// Takes in what the engine is, and compares all with it, as the watcher does.
    async fn look(&self) {
        let about = self.engine.about().await.expect("answers");
        self.driver.remember_place(&about).await;
        self.driver.note_engine(EngineState { about: Some(about), problem: None }).await;
        self.driver.compare_all(true).await.expect("compares");
    }

    /// A second life on the same table and this engine.
    async fn moved(self, engine: &FakeEngine) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        let driver = open(engine, self.home.path(), "sessions.db");
        let world = Self { driver, engine: engine.clone(), ..self };
        world.look().await;
        world
    }
}

#[tokio::test]
async fn rows_of_another_engine_stay_as_they_are_and_work_again_on_their_own() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("runs").await.expect("starts");
    world.start("saved").await.expect("starts");
    let (_, snapshot) = world.save("saved").await.expect("saves");
    let before = world.driver.sessions();
    let world = world.moved(&two).await;
    assert_eq!(world.driver.sessions(), before);
    let notice = world.driver.elsewhere_notice().expect("the user is told");
    assert!(notice.starts_with("2 of the sessions"), "{notice}");
    for (verb, refused) in [
        ("stop", world.stop("runs").await.map(drop)),
        ("save", world.save("runs").await.map(drop)),
        ("resume", world.resume("saved").await.map(drop)),
        ("delete", world.driver.delete("saved", false).await.map(drop)),
        ("snapshot delete", world.driver.delete_snapshots(vec![snapshot.name.clone()]).await.map(drop)),
    ] {
        let failure = refused.expect_err(verb);
        assert_eq!(failure.kind, Kind::EngineUnavailable, "{verb}: {failure:?}");
        assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains("--forget")), "{verb}: {failure:?}");
    }
    world.start("new").await.expect("this one works");
    let world = world.moved(&one).await;
    assert_eq!(world.stop("runs").await.expect("stops").status, Status::Stopped);
    assert_eq!(world.resume("saved").await.expect("resumes").status, Status::Running);
    assert_eq!(world.stop("new").await.expect_err("that one is away").kind, Kind::EngineUnavailable);
    assert_eq!(world.status("new"), Status::Running);
}

#[tokio::test]
async fn what_an_engine_loses_itself_is_gone() {
    let one = engine("one");
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    one.vanish(&world.sandbox("a"));
    world.look().await;
    assert_eq!(world.status("a"), Status::Lost);
}

#[tokio::test]
async fn an_engine_that_has_the_sandbox_is_its_engine_whatever_it_calls_itself() {
    let one = engine("one");
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    assert_eq!(world.row("a").sandbox_engine.as_deref(), Some("one"));
    one.set_identity("renamed");
    world.look().await;
    assert_eq!(world.row("a").sandbox_engine.as_deref(), Some("renamed"));
    world.stop("a").await.expect("stops");
}

#[tokio::test]
async fn a_session_of_another_engine_is_forgotten_only_where_that_is_said() {
    let (one, two) = (engine("one"), engine("second"));
    let world = World::new().moved(&one).await;
    world.start("a").await.expect("starts");
    world.save_running("a").await.expect("saves");
    let world = world.moved(&two).await;
    let gone = world.driver.delete_or_forget("a", false).await.expect("forgets");
    assert_eq!((gone.deleted.as_str(), gone.snapshots.len()), ("a", 1));
    assert_eq!(world.driver.count(), 0);
    world.start("a").await.expect("the name is free");
    world.driver.delete_or_forget("a", false).await.expect("deletes one that is here");
    assert!(two.containers().is_empty());
    let world = world.moved(&one).await;
    assert_eq!(world.status("a"), Status::Running, "it is there again with its engine");
    assert_eq!(world.row("a").snapshots, 1);
}
