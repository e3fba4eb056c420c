//! What is known of the engine: who it is, whether it answers, and where.

use std::sync::PoisonError;

use super::driver::Driver;
use crate::engine::{About, EngineError};
use crate::model::event::{EventKind, Fact, Told};

/// What stands before an engine's id in the key under which the table remembers where that engine was last.
const PLACE_KEY: &str = "engine.at:";

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

    /// Remembers where an engine is, for what is to be said of its sessions while it is away.
    pub(super) async fn remember_place(&self, about: &About) {
        let Some(identity) = &about.identity else { return };
        let (key, address) = (place_key(identity), about.address.clone());
        let kept = self.0.store.write(move |tx| match tx.meta(&key) {
            Some(known) if known == address => Ok(()),
            _ => tx.set_meta(&key, &address),
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "cannot remember where the engine is");
        }
    }
}
