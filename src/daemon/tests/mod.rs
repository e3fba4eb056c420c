//! The driver against an engine in memory: timing, faults and recovery, without a socket.

mod agents;
mod attention;
mod awake;
mod boot;
mod clocks;
mod elsewhere;
mod execs;
mod faults;
mod feed;
mod files;
mod flatten;
mod gaps;
mod guests;
mod idle;
mod imports;
mod lifecycle;
mod orphans;
mod rebuild;
mod recovery;
mod room;
mod saves;
mod snapshots;
mod streams;
mod synced;
mod tables;
mod timers;
mod watching;

use std::path::Path;
use std::sync::Arc;

use super::driver::Driver;
use super::failure::Failure;
use super::progress::Report;
use super::verbs::power::Way;
use super::verbs::save::Naming;
use crate::config::{Config, Flags};
use crate::engine::EngineError;
use crate::engine::fake::FakeEngine;
use crate::model::session::{Reason, Session, Snapshot, Status};
use crate::proto::sessions::StartParams;
use crate::store::Store;

/// The file of settings, if a test has some.
const CONFIG: &str = "config.toml";

/// The image that starts find at once.
const IMAGE: &str = "debian:stable-slim";

/// A driver, its engine, and the directory of its table.
struct World {
    driver: Driver,
    engine: FakeEngine,
    home: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let engine = FakeEngine::new();
        engine.add_image(IMAGE);
        let home = tempfile::tempdir().expect("temporary directory");
        let driver = open(&engine, home.path(), "sessions.db");
        Self { driver, engine, home }
    }

    /// A second life on the same table and engine, as after a crash.
    async fn restart(self) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        let driver = open(&self.engine, self.home.path(), "sessions.db");
        Self { driver, ..self }
    }

    /// A second life with this configuration.
    async fn configured(self, toml: &str) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        std::fs::write(self.home.path().join(CONFIG), toml).expect("write");
        let driver = open(&self.engine, self.home.path(), "sessions.db");
        Self { driver, ..self }
    }

    /// A second life on the same engine, but with a new table.
    async fn lose_table(self) -> Self {
        self.driver.drain(tokio::time::Instant::now()).await;
        let file = format!("{}.db", uuid::Uuid::now_v7());
        let driver = open(&self.engine, self.home.path(), &file);
        Self { driver, ..self }
    }

    async fn start(&self, name: &str) -> Result<Arc<Session>, Failure> {
        self.driver.start(named(name), Report::default()).await
    }

    async fn stop(&self, name: &str) -> Result<Arc<Session>, Failure> {
        self.driver.stop(name, std::time::Duration::from_secs(1), Reason::User).await
    }

    async fn save(&self, name: &str) -> Result<(Arc<Session>, Arc<Snapshot>), Failure> {
        let saved = self.driver.save(name, Naming::default(), false, Report::default()).await?;
        Ok((saved.session, saved.snapshot))
    }

    async fn save_running(&self, name: &str) -> Result<(Arc<Session>, Arc<Snapshot>), Failure> {
        let saved = self.driver.save(name, Naming::default(), true, Report::default()).await?;
        Ok((saved.session, saved.snapshot))
    }

    async fn resume(&self, name: &str) -> Result<Arc<Session>, Failure> {
        self.driver.resume(name, Way::AsItWas, Report::default()).await
    }

    async fn go_back(&self, name: &str, snapshot: &str) -> Result<Arc<Session>, Failure> {
        self.driver.resume(name, back_to(snapshot), Report::default()).await
    }

    fn row(&self, name: &str) -> Arc<Session> {
        self.driver.session(name).expect("a row")
    }

    fn status(&self, name: &str) -> Status {
        self.row(name).status
    }

    fn sandbox(&self, name: &str) -> String {
        self.row(name).sandbox_id.clone().expect("a container")
    }

    /// Nothing hangs: no operation without an end, no container without a row, no snapshot half made.
    fn assert_explained(&self) {
        for session in self.driver.sessions() {
            assert_eq!(session.operation, None, "{}", session.name);
        }
        for container in self.engine.containers() {
            let rows = self.driver.sessions();
            let owner = rows.iter().find(|s| s.sandbox_id.as_ref() == Some(&container.id));
            let owner = owner.unwrap_or_else(|| panic!("{} has no row", container.name));
            assert_eq!(owner.sandbox, container.name);
        }
        let listed = self.driver.snapshots(None).expect("a list").len();
        assert_eq!(self.driver.0.store.snapshots(None).len(), listed, "a snapshot is half made");
    }
}

fn open(engine: &FakeEngine, home: &Path, file: &str) -> Driver {
    drive(engine, home, Store::open(&home.join(file)).expect("a table").store)
}

fn drive(engine: &FakeEngine, home: &Path, store: Store) -> Driver {
    let config = Config::load(&home.join(CONFIG), &Flags::default()).expect("a configuration");
    Driver::new(store, Arc::new(engine.clone()), home, &home.join("daemon.sock"), config)
}

/// Back to this snapshot, with what that replaces saved.
fn back_to(snapshot: &str) -> Way {
    Way::BackTo { snapshot: snapshot.to_owned(), discard: false }
}

fn named(name: &str) -> StartParams {
    StartParams { name: name.to_owned(), ..StartParams::default() }
}

/// An engine's refusal without a kind of its own.
fn broken(call: &'static str) -> EngineError {
    EngineError::Failed { call, text: "broken on purpose".to_owned() }
}

/// Waits for a condition, with a limit for the busiest machine.
async fn until(condition: impl Fn() -> bool) {
    let limit = std::time::Duration::from_secs(30);
    let waiting = async {
        while !condition() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, waiting).await.expect("the condition holds in time");
}
