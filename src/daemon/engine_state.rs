//! What is known of the engine: who it is, whether it answers, and where.

use std::sync::PoisonError;

use super::driver::Driver;
use super::{clock, idle};
use crate::engine::{About, EngineError};
use crate::model::event::{EventKind, Fact, Told};
use crate::model::id::{SessionId, Timestamp};
use crate::store::Tx;
use crate::store::error::StoreError;

/// What stands before an engine's id in the key under which the table remembers where that engine was last.
const PLACE_KEY: &str = "engine.at:";

/// The key under which the table remembers the id of the engine that answered last.
const LAST_KEY: &str = "engine.last";

/// What was last known of the engine. Read by `daemon.info`, which never waits for an engine.
#[derive(Debug, Clone, Default)]
pub struct EngineState {
    /// What it is, as of the last time it answered.
    pub about: Option<About>,
    /// Why it does not answer now.
    pub problem: Option<String>,
}

impl EngineState {
    /// Whether it answers, and where; none while nothing is known. The words of a problem may differ each time.
    fn answers(&self) -> Option<(bool, Option<&str>)> {
        let address = self.about.as_ref().map(|about| about.address.as_str());
        match &self.problem {
            Some(_) => Some((false, None)),
            None => address.map(|address| (true, Some(address))),
        }
    }

    /// What a client should hear of it; none while nothing is known.
    fn tells(&self) -> Option<Told> {
        let text = |text: &str| Fact::Text(text.to_owned());
        match (&self.problem, &self.about) {
            (Some(problem), _) => Some(Told {
                kind: EventKind::EngineUnavailable,
                data: vec![("engine", text("docker")), ("problem", text(problem))],
            }),
            (None, Some(about)) => Some(Told {
                kind: EventKind::EngineAvailable,
                data: vec![
                    ("engine", text("docker")),
                    ("address", text(&about.address)),
                    ("version", text(&about.version)),
                ],
            }),
            (None, None) => None,
        }
    }
}

/// The key under which the table remembers where the engine of this id was last.
pub(super) fn place_key(identity: &str) -> String {
    format!("{PLACE_KEY}{identity}")
}

impl Driver {
    /// What was last known of the engine.
    pub fn engine_state(&self) -> EngineState {
        self.0.engine_state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The id of the engine that answered last, if it tells one.
    pub(super) fn engine_identity(&self) -> Option<String> {
        let known = self.0.engine_state.read().unwrap_or_else(PoisonError::into_inner);
        known.about.as_ref()?.identity.clone()
    }

    /// Takes over what is known of the engine, and tells it where that is news.
    pub(super) async fn note_engine(&self, state: EngineState) {
        let told = {
            let mut known = self.0.engine_state.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *known, state);
            if before.answers() == known.answers() { None } else { known.tells() }
        };
        // It may be another engine, whose sessions have deadlines.
        self.0.deadlines.notify_one();
        if let Some(told) = told {
            self.note(told).await;
        }
    }

    /// Asks the engine who it is, and takes that over: what was known of it may be of the one that was at its address before.
    ///
    /// # Errors
    /// The engine's.
    pub(super) async fn ask_engine(&self) -> Result<About, EngineError> {
        let about = self.0.engine.about().await?;
        self.remember_place(&about).await;
        self.note_engine(EngineState { about: Some(about.clone()), problem: None }).await;
        Ok(about)
    }

    /// Remembers which engine this is and where, for what is to be said of its sessions while it is away. What was on it while
    /// another answered begins anew to be idle.
    pub(super) async fn remember_place(&self, about: &About) {
        let Some(identity) = &about.identity else { return };
        let (key, address) = (place_key(identity), about.address.clone());
        let (ours, now) = (identity.clone(), clock::now());
        let kept = self.0.store.write(move |tx| {
            if tx.meta(&key).as_ref() != Some(&address) {
                tx.set_meta(&key, &address)?;
            }
            let last = tx.meta(LAST_KEY);
            if last.as_ref() == Some(&ours) {
                return Ok(Vec::new());
            }
            tx.set_meta(LAST_KEY, &ours)?;
            if last.is_some() { begin_anew(tx, &ours, now) } else { Ok(Vec::new()) }
        });
        match kept.await {
            Ok(back) => back.iter().for_each(|id| self.0.usage.touch(id)),
            Err(error) => tracing::warn!(%error, "cannot remember where the engine is"),
        }
    }
}

/// Has what may be idle on the engine of this id count from now, and gives which that are.
fn begin_anew(tx: &mut Tx<'_>, engine: &str, now: Timestamp) -> Result<Vec<SessionId>, StoreError> {
    let mut back = Vec::new();
    for session in tx.sessions() {
        if session.sandbox_engine.as_deref() == Some(engine) && idle::limit(&session).is_some() {
            tx.change_session(&session.id, |row| row.last_active = row.last_active.max(now))?;
            back.push(session.id.clone());
        }
    }
    Ok(back)
}
