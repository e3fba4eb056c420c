//! A table that was lost: what comes back, and what the user is told of it.

use super::*;
use crate::daemon::backups;
use crate::engine::{RunState, labels};
use crate::model::event::EventKind;
use crate::model::id::Timestamp;
use crate::model::session::Operation;
use crate::store::{self, Opened};

/// 2026-02-01 09:30:00 UTC.
const DAY: Timestamp = Timestamp(1_769_938_200_000);

/// Opens the table, or what takes its place, as a start of the daemon does.
async fn begin(engine: &FakeEngine, home: &Path) -> Driver {
    let options = store::Options { backups: Some(home.join("backups")), ..store::Options::default() };
    let opened = Store::open_with(&home.join("sessions.db"), options).expect("a table");
    let Opened { store, set_aside, .. } = opened;
    let driver = drive(engine, home, store);
    driver.account_for_table(set_aside.as_deref()).await;
    driver
}

impl World {
    pub(super) async fn with_copies() -> Self {
        let world = Self::new();
        let driver = begin(&world.engine, world.home.path()).await;
        Self { driver, ..world }
    }

    /// A second life, after the table was damaged.
    pub(super) async fn damage_table(self) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        std::fs::write(self.home.path().join("sessions.db"), "noise").expect("write");
        let driver = begin(&self.engine, self.home.path()).await;
        Self { driver, ..self }
    }

    async fn begin_again(self) -> Self {
        let engine = self.engine.clone();
        self.begin_on(&engine).await
    }

    /// A second life on the same table and this engine.
    pub(super) async fn begin_on(self, engine: &FakeEngine) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        let driver = begin(engine, self.home.path()).await;
        Self { driver, engine: engine.clone(), ..self }
    }

    pub(super) fn copy_table(&self) {
        self.driver.0.store.back_up(DAY).expect("copied").expect("it was due");
    }

    async fn start_with_key(&self, name: &str) {
        let env = [("KEY".to_owned(), "s3cret".to_owned())].into();
        let params = StartParams { env, timeout_ms: Some(3_600_000), ..named(name) };
        self.driver.start(params, Report::default()).await.expect("starts");
    }

    fn has_key(&self, name: &str) -> bool {
        self.row(name).spec.env.contains_key("KEY")
    }

    fn told(&self, kind: EventKind) -> Vec<String> {
        let events = self.driver.0.store.events(0);
        events.iter().filter(|e| e.kind == kind).map(|e| e.name.clone().unwrap_or_default()).collect()
    }

    /// Waits until the table has forgotten what the user was told.
    async fn forgotten(&self) {
        while self.driver.0.store.write(|tx| Ok(tx.meta("rebuilt.untold").is_some())).await.expect("reads") {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_copy_is_brought_up_to_what_the_engine_has() {
    let world = World::with_copies().await;
    for name in ["same", "old", "gone", "swapped", "unsaved"] {
        world.start_with_key(name).await;
    }
    let (_, snapshot) = world.save("swapped").await.expect("saves");
    let (_, deleted) = world.save("unsaved").await.expect("saves");
    world.copy_table();
    let id = world.row("old").id.clone();
    world.driver.rename("old", "new").await.expect("renames");
    world.driver.delete("gone", false).await.expect("deletes");
    world.engine.vanish(&world.sandbox("swapped"));
    world.driver.compare_all(false).await.expect("compares");
    world.resume("swapped").await.expect("resumes");
    let swapped = world.sandbox("swapped");
    world.driver.delete_snapshots(vec![deleted.name.clone()]).await.expect("deletes");
    world.engine.vanish(&world.sandbox("unsaved"));
    world.start_with_key("late").await;

    let world = world.damage_table().await;
    world.engine.set_down(true);
    world.driver.compare_all(true).await.expect_err("no engine yet");
    world.engine.set_down(false);
    let world = world.begin_again().await;
    world.driver.compare_all(true).await.expect("compares");
    assert_eq!((world.status("same"), world.has_key("same")), (Status::Running, true));
    assert_eq!((&world.row("new").id, world.has_key("new")), (&id, true));
    assert_eq!(world.status("gone"), Status::Lost, "it was deleted since, which nobody knows");
    assert_eq!((world.status("swapped"), world.sandbox("swapped")), (Status::Running, swapped));
    assert_eq!(world.row("swapped").snapshot, Some(snapshot.name.clone()));
    assert_eq!((world.status("unsaved"), world.row("unsaved").snapshots), (Status::Lost, 0));
    assert_eq!((world.status("late"), world.has_key("late")), (Status::Running, false));
    world.assert_explained();
    assert_eq!(world.told(EventKind::SessionRebuilt), ["late"]);
    assert_eq!(world.told(EventKind::TableReplaced).len(), 1);
    let [table, late] = &world.driver.rebuilt_notices()[..] else { panic!("two sentences") };
    assert!(table.contains("damaged") && table.contains("sessions-20260201-093000-v"), "{table}");
    assert!(late.contains("(late)"), "{late}");
    for name in ["same", "new", "swapped", "late"] {
        world.stop(name).await.expect("obeys");
        world.resume(name).await.expect("obeys");
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_does_not_live_long_makes_its_copy_too() {
    let world = World::with_copies().await;
    world.start("a").await.expect("starts");
    let started = tokio::time::Instant::now();
    let copying = tokio::spawn(backups::run(world.driver.clone()));
    let there = || std::fs::read_dir(world.home.path().join("backups")).is_ok_and(|dir| dir.count() > 0);
    while !there() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(
            started.elapsed() < std::time::Duration::from_secs(5),
            "by a clock that stands still meanwhile"
        );
    }
    copying.abort();
}

#[tokio::test]
async fn what_was_under_way_when_the_copy_was_made_takes_nothing_back() {
    let world = World::with_copies().await;
    let all = [Operation::Start, Operation::Delete, Operation::DeleteKeep, Operation::Save];
    for operation in all {
        let row = world.start(operation.as_str()).await.expect("starts");
        world.stop(operation.as_str()).await.expect("stops");
        let status = if operation == Operation::Start { Status::Starting } else { Status::Stopped };
        let change = move |s: &mut Session| (s.operation, s.status) = (Some(operation), status);
        world.driver.0.store.update(&row.id, change).await.expect("a row");
    }
    world.copy_table();
    let world = world.damage_table().await;
    world.driver.compare_all(true).await.expect("compares");
    for operation in all {
        assert_eq!(world.status(operation.as_str()), Status::Stopped);
        world.resume(operation.as_str()).await.expect("resumes");
    }
    world.assert_explained();
}

#[tokio::test]
async fn two_sessions_that_changed_names_since_the_copy_are_both_there() {
    let world = World::with_copies().await;
    for name in ["a", "b"] {
        world.start_with_key(name).await;
    }
    let ids = ["a", "b"].map(|name| world.sandbox(name));
    world.copy_table();
    for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
        world.driver.rename(from, to).await.expect("renames");
    }
    let world = world.damage_table().await;
    world.driver.compare_all(true).await.expect("compares");
    world.driver.compare_all(true).await.expect("compares");
    let mut now = ["a", "b"].map(|name| world.sandbox(name));
    now.sort();
    assert_eq!(now, ids);
    assert_eq!(world.driver.count(), 2);
}

#[tokio::test]
async fn the_user_is_told_once_what_came_back_and_what_did_not() {
    let world = World::with_copies().await;
    for n in 0..3 {
        world.start_with_key(&format!("s{n}")).await;
    }
    world.save("s2").await.expect("saves");
    world.engine.vanish(&world.sandbox("s2"));
    let world = world.damage_table().await;
    world.driver.compare_all(true).await.expect("compares");
    // Nobody asked yet, and the daemon is started anew.
    let world = world.begin_again().await;
    let told = world.driver.tell_rebuilt().expect("there is something to tell");
    for words in ["damaged", "2 sessions", "1 session ", "(s2)", "environment"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(world.driver.tell_rebuilt(), None);
    assert_eq!(world.driver.rebuilt_notices().len(), 3, "who asks for it gets it again");
    world.forgotten().await;
    let world = world.begin_again().await;
    assert_eq!(world.driver.tell_rebuilt(), None);
    assert_eq!(world.driver.rebuilt_notices(), Vec::<String>::new());
}

#[tokio::test]
async fn a_row_made_again_ends_nothing_at_once() {
    let world = World::new();
    world.start_with_key("a").await;
    let mut labels = world.engine.containers()[0].labels.clone();
    labels.insert(labels::SESSION_CREATED_AT.to_owned(), "1000".to_owned());
    labels.insert(labels::SESSION_ID.to_owned(), "01920000-0000-7000-8000-000000000001".to_owned());
    labels.insert(labels::SESSION_NAME.to_owned(), "old".to_owned());
    world.engine.add_labelled("session-old", RunState::Running, labels);
    let before = crate::daemon::clock::now();
    world.driver.compare_all(false).await.expect("compares");
    let row = world.row("old");
    assert_eq!(row.created_at, Timestamp(1000));
    assert!(row.last_active >= before, "its idle time counts from now");
    assert!(row.expires_at.expect("it has a timeout") >= before.plus_ms(3_600_000));
}

#[tokio::test]
async fn a_row_of_a_copy_ends_nothing_at_once_either() {
    let world = World::with_copies().await;
    let params = StartParams { timeout_ms: Some(60_000), idle_ms: Some(60_000), ..named("a") };
    world.driver.start(params, Report::default()).await.expect("starts");
    let id = world.row("a").id.clone();
    let long_ago = |s: &mut Session| {
        s.last_active = Timestamp(1_000);
        s.expires_at = Some(Timestamp(61_000));
    };
    world.driver.0.store.update(&id, long_ago).await.expect("a row");
    world.copy_table();
    let before = crate::daemon::clock::now();
    let world = world.damage_table().await;
    let row = world.row("a");
    assert!(row.last_active >= before, "{:?}", row.last_active);
    assert!(row.expires_at.is_some_and(|at| at >= before.plus_ms(60_000)), "{:?}", row.expires_at);
}

#[tokio::test]
async fn what_was_saved_is_saved_again_unless_it_ran_since() {
    let world = World::new();
    for name in ["saved", "twice", "ran", "kept", "runs"] {
        world.start(name).await.expect("starts");
    }
    for name in ["saved", "twice", "ran"] {
        world.save(name).await.expect("saves");
    }
    let naming = Naming { name: Some("last".to_owned()), ..Naming::default() };
    world.driver.save("twice", naming, false, Report::default()).await.expect("saves");
    // Their containers end at another moment.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    world.resume("ran").await.expect("resumes");
    world.stop("ran").await.expect("stops");
    world.save_running("kept").await.expect("saves");
    world.stop("kept").await.expect("stops");
    world.save_running("runs").await.expect("saves");
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    let all = ["saved", "twice", "ran", "kept", "runs"].map(|name| world.status(name));
    let want = [Status::Saved, Status::Saved, Status::Stopped, Status::Stopped, Status::Running];
    assert_eq!(all, want);
    let base = world.driver.base(&world.row("twice")).await.expect("reads");
    assert_eq!(base.as_deref(), Some("last"), "what it was saved to last");
    world.assert_explained();
    for name in ["saved", "twice"] {
        world.resume(name).await.expect("resumes");
        assert_eq!(world.row(name).snapshots, if name == "saved" { 1 } else { 2 }, "nothing was saved anew");
    }
}

#[tokio::test]
async fn what_is_kept_for_a_session_that_the_copy_does_not_know_stays() {
    let world = World::with_copies().await;
    world.start_with_key("early").await;
    world.copy_table();
    world.start_with_key("late").await;
    let place = world.home.path().join("run").join(world.row("late").id.as_str());
    std::fs::create_dir_all(&place).expect("its directory");
    let world = world.damage_table().await;
    world.driver.compare_all(true).await.expect("compares");
    assert_eq!(world.status("late"), Status::Running);
    assert!(place.exists(), "the way to its commands");
}
