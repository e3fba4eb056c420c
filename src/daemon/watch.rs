//! Following the engine: its events are hints, what it shows when asked is the truth.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, sleep, timeout_at};

use super::driver::Driver;
use super::engine_state::EngineState;
use super::failure::Failure;
use crate::engine::address::DEFAULT_SOURCE;
use crate::engine::{About, EngineError, Hint};
use crate::model::session::Session;

/// Time between two looks for an engine that is away. A container that died meanwhile must show within five seconds of
/// the engine's return.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two comparisons of everything while events flow: events may be lost.
const FULL_COMPARE: Duration = Duration::from_secs(60);

/// How long hints are gathered before they are looked into: one stop gives four of them.
const GATHER: Duration = Duration::from_millis(50);

/// The key under which the table remembers the default socket behind which its sessions are.
pub(super) const ENGINE_KEY: &str = "engine.address";

/// Follows the engine for ever.
pub(super) async fn run(driver: Driver) {
    loop {
        match follow(&driver).await {
            Ok(()) => tracing::info!("the engine closed its event stream"),
            Err(error) => note_problem(&driver, &error).await,
        }
        driver.0.away.store(true, Ordering::Relaxed);
        sleep(RETRY).await;
    }
}

async fn note_problem(driver: &Driver, error: &EngineError) {
    let mut state = driver.engine_state();
    let problem = error.to_string();
    if state.problem.as_ref() != Some(&problem) {
        tracing::warn!(problem, "the engine does not answer");
        state.problem = Some(problem);
        driver.note_engine(state).await;
    }
}

/// One connection: learn what the engine is, listen, compare everything, then look into each hint.
async fn follow(driver: &Driver) -> Result<(), EngineError> {
    let engine = Arc::clone(&driver.0.engine);
    let about = engine.about().await?;
    tracing::info!(address = about.address, version = about.version, api = about.api_version, "engine found");
    remember(driver, &about).await;
    driver.remember_place(&about).await;
    let address = about.address.clone();
    driver.note_life(Some(&address)).await;
    driver.note_engine(EngineState { about: Some(about), problem: None }).await;
    // Listen first, then compare: what happens in between is in both.
    let mut hints = engine.hints().await?;
    driver.compare_all(driver.was_away()).await?;
    driver.keep_life(&address).await;
    let this = driver.clone();
    tokio::spawn(async move { this.bring_back().await });
    let mut next_full = Instant::now() + FULL_COMPARE;
    loop {
        let hint = tokio::select! {
            hint = timeout_at(next_full, hints.next()) => hint,
            () = driver.0.compare.notified() => {
                driver.compare_all(false).await?;
                continue;
            }
        };
        match hint {
            Err(_elapsed) => {
                driver.compare_all(false).await?;
                next_full = Instant::now() + FULL_COMPARE;
            }
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => return Err(error),
            Ok(Some(Ok(hint))) => {
                let mut gathered = vec![hint];
                let until = Instant::now() + GATHER;
                let ended = loop {
                    match timeout_at(until, hints.next()).await {
                        Ok(Some(next)) => gathered.push(next?),
                        Ok(None) => break true,
                        Err(_elapsed) => break false,
                    }
                };
                look_into(driver, gathered).await;
                if ended {
                    return Ok(());
                }
            }
        }
    }
}

async fn remember(driver: &Driver, about: &About) {
    if about.source != DEFAULT_SOURCE {
        return;
    }
    let address = about.address.clone();
    if let Err(error) = driver.0.store.write(move |tx| tx.set_meta(ENGINE_KEY, &address)).await {
        tracing::warn!(%error, "cannot remember the engine's address");
    }
}

/// Compares the sessions that hints are about. Each on a task of its own: the one that runs an operation makes nobody
/// wait.
async fn look_into(driver: &Driver, hints: Vec<Hint>) {
    let sessions = driver.sessions();
    let by_sandbox = |id: &str| sessions.iter().find(|s| s.sandbox_id.as_deref() == Some(id)).cloned();
    let mut touched: Vec<Arc<Session>> = Vec::new();
    for hint in &hints {
        let (Hint::Sandbox(id) | Hint::Oom(id) | Hint::Made(id)) = hint;
        let Some(session) = by_sandbox(id) else {
            if matches!(hint, Hint::Made(_)) {
                compare_made(driver.clone(), id.clone());
            }
            continue;
        };
        if matches!(hint, Hint::Oom(_)) && !driver.0.guests.note_kill(&session.id) {
            count_oom(driver, &session).await;
        }
        if !touched.iter().any(|s| s.id == session.id) {
            touched.push(session);
        }
    }
    for session in touched {
        let driver = driver.clone();
        tokio::spawn(async move {
            if let Err(error) = driver.compare_one(&session.id, false).await {
                tracing::debug!(%error, session = %session.name, "will compare when the engine answers");
                driver.0.compare.notify_one();
            }
        });
    }
}

/// Compares a container that no row has recorded: one that an operation is making now, or that was given up.
fn compare_made(driver: Driver, id: String) {
    tokio::spawn(async move {
        if let Err(error) = driver.compare_made(&id).await {
            tracing::debug!(%error, id, "will compare when the engine answers");
            driver.0.compare.notify_one();
        }
    });
}

async fn count_oom(driver: &Driver, session: &Session) {
    let counted = driver.0.store.update(&session.id, |s| s.oom_events += 1).await.map_err(Failure::from);
    if let Err(error) = counted {
        tracing::warn!(%error, session = %session.name, "cannot count a kill for want of memory");
    }
}
