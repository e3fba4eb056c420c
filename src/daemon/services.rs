//! Putting the daemon's parts together: table, engine, driver, timers, watcher, methods.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::driver::Driver;
use super::framing::Drain;
use super::rpc::{self, Identity};
use super::shutdown::Shutdown;
use super::stream::RawStreams;
use super::{DaemonError, Services, backups, clock, expiry, flatten, watch};
use crate::config::Config;
use crate::engine::address::Settings;
use crate::engine::docker::DockerEngine;
use crate::model::event::{EventKind, Fact, Told};
use crate::model::session::EngineKind;
use crate::paths::{self, Home};
use crate::proto::version::VERSION;
use crate::store::{self, Opened, Store};

/// The key under which the table remembers that the user was told of old session files.
const TOLD_KEY: &str = "legacy.told";

/// Opens the table and starts everything that works beside the socket.
///
/// # Errors
/// When the table cannot be opened.
pub(super) async fn build(home: &Home, config: Config, shutdown: &Shutdown) -> Result<Services, DaemonError> {
    let had_table = home.database().exists();
    let options = store::Options { backups: Some(home.backups()), ..store::Options::default() };
    let Opened { store, set_aside, notices } = Store::open_with(&home.database(), options)?;
    let lost = !had_table || set_aside.is_some();
    for notice in &notices {
        tracing::warn!("{notice}");
    }
    let first_notice = legacy_notice(&store).await;
    let engine = Arc::new(DockerEngine::new(engine_settings(&config, remembered_engine(&store).await)));
    let driver = Driver::new(store, engine, home.root(), home.socket(), config);
    let data = vec![("version", Fact::Text(VERSION.to_owned()))];
    driver.note(Told { kind: EventKind::DaemonStarted, data }).await;
    driver.account_for_table(set_aside.as_deref()).await;
    driver.note_life(None).await;
    driver.listen_for_sandboxes();
    if lost {
        make_again(&driver, had_table).await;
    }
    driver.watch_deadlines();
    supervise("the watcher of the engine", driver.clone(), watch::run);
    supervise("the timer", driver.clone(), expiry::run);
    supervise("the copies of the table", driver.clone(), backups::run);
    supervise("the flattening of snapshots", driver.clone(), flatten::run);
    let identity = Identity {
        home: home.root().to_owned(),
        socket: home.socket().to_owned(),
        started_at: clock::now(),
        notices,
        first_notice,
        told: AtomicBool::new(false),
    };
    let module = rpc::module(driver.clone(), identity, shutdown.clone());
    #[cfg(feature = "fault")]
    let module = {
        let mut module = module;
        super::framing::debug::register(&mut module);
        module
    };
    Ok(Services {
        methods: module.into(),
        raw: Arc::new(RawStreams::new(driver.clone(), shutdown.clone())),
        drain: Arc::new(Draining(driver)),
    })
}

/// Waits for the rows of a new table to come back from the engine, so that no list looks empty and no start takes a name
/// that is in use. Not for ever: without an engine there is nothing to wait for, and later it is caught up with.
async fn make_again(driver: &Driver, damaged: bool) {
    /// After damage sessions are known to be there; a home without a table is mostly a new one.
    const AFTER_DAMAGE: Duration = Duration::from_secs(10);
    const NEW: Duration = Duration::from_secs(2);
    let limit = if damaged { AFTER_DAMAGE } else { NEW };
    match tokio::time::timeout(limit, driver.compare_all(true)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::info!(%error, "rows of a new table come back when the engine answers"),
        Err(_) => tracing::warn!("rows of a new table come back when the engine answers"),
    }
}

/// Runs something that must never end, and begins it again if it panics.
fn supervise<F>(what: &'static str, driver: Driver, run: fn(Driver) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    /// Time before the next try: a fault that comes back at once must not take a core.
    const PAUSE: Duration = Duration::from_secs(1);
    tokio::spawn(async move {
        loop {
            let ended = tokio::spawn(run(driver.clone())).await;
            tracing::error!(?ended, "{what} ended; beginning it again");
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// The default socket behind which the table's sessions are, if it has any.
async fn remembered_engine(store: &Store) -> Option<String> {
    store.sessions().iter().find(|s| s.engine == EngineKind::Docker && s.sandbox_id.is_some())?;
    let meta = store.write(|tx| Ok(tx.meta(watch::ENGINE_KEY))).await;
    meta.ok().flatten().filter(|address| !address.is_empty())
}

fn engine_settings(config: &Config, remembered: Option<String>) -> Settings {
    Settings {
        remembered,
        address: config.engine.as_ref().map(|setting| (setting.value.clone(), setting.source.to_string())),
        docker_host: config.docker_host.clone(),
        docker_context: config.docker_context.clone(),
        docker_config: config.docker_config.clone(),
        runtime_dir: config.runtime_dir.clone(),
    }
}

/// One line about session files of the older tools, if there are some that the user was not told of.
async fn legacy_notice(store: &Store) -> Option<String> {
    let found: Vec<(usize, String)> = paths::legacy_stores()
        .into_iter()
        .filter_map(|old| Some((old.count()?, format!("{} in {}", old.origin, old.dir.display()))))
        .collect();
    if found.is_empty() {
        return None;
    }
    let total: usize = found.iter().map(|(n, _)| n).sum();
    let places: Vec<String> = found.into_iter().map(|(_, place)| place).collect();
    let notice =
        format!("{total} old session files ({}) can be taken over with: abx import", places.join(", "));
    tracing::info!("{notice}");
    let told = store.write(|tx| Ok(tx.meta(TOLD_KEY))).await;
    told.is_ok_and(|told| told.as_ref() != Some(&notice)).then_some(notice)
}

impl Driver {
    /// Remembers that the user was told of old session files, in these words. Does not wait for it.
    pub(super) fn remember_told(&self, notice: String) {
        let this = self.clone();
        tokio::spawn(async move {
            let store = this.0.store.clone();
            let remembered =
                this.submit(async move { Ok(store.write(move |tx| tx.set_meta(TOLD_KEY, &notice)).await?) });
            if let Err(error) = remembered.await {
                tracing::warn!(%error, "failed to remember what the user was told; it will be said again");
            }
        });
    }
}

struct Draining(Driver);

#[async_trait]
impl Drain for Draining {
    async fn drain(&self, deadline: Instant) {
        self.0.drain(deadline).await;
    }
}
