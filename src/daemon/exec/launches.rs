//! Which commands are being started where.
//!
//! An engine that is asked to freeze a sandbox while it makes a process in it freezes that process half made, and then
//! hangs on the sandbox until somebody thaws it by hand. So a freeze waits for starts that are under way, and holds back
//! new ones until it is done.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::model::id::SessionId;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Launches(Arc<Mutex<HashMap<SessionId, Place>>>);

/// One session's.
#[derive(Debug, Default)]
struct Place {
    /// Held shared by who asks the engine for a process, and alone by who freezes.
    turn: Arc<RwLock<()>>,
    /// Commands that somebody follows, by the engine's id.
    live: BTreeSet<String>,
}

/// A command that the engine was asked to start, until nobody follows it any more.
#[derive(Debug)]
pub struct Launched {
    launches: Launches,
    session: SessionId,
    engine_id: String,
}

impl Launches {
    /// Waits until a process may be asked for, and keeps freezes away until the guard is dropped.
    pub async fn begin(&self, session: &SessionId) -> OwnedRwLockReadGuard<()> {
        let turn = self.turn(session);
        turn.read_owned().await
    }

    /// Waits until nobody asks for a process, and keeps it so until the guard is dropped.
    pub async fn still(&self, session: &SessionId) -> OwnedRwLockWriteGuard<()> {
        let turn = self.turn(session);
        turn.write_owned().await
    }

    /// Notes a command that the engine has taken.
    pub fn launched(&self, session: &SessionId, engine_id: &str) -> Launched {
        self.lock().entry(session.clone()).or_default().live.insert(engine_id.to_owned());
        Launched { launches: self.clone(), session: session.clone(), engine_id: engine_id.to_owned() }
    }

    /// The commands of a session that are followed.
    pub fn under_way(&self, session: &SessionId) -> Vec<String> {
        self.lock().get(session).map(|place| place.live.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many ask for processes or freeze, or wait to.
    #[cfg(test)]
    pub fn users(&self, session: &SessionId) -> usize {
        self.lock().get(session).map_or(0, |place| Arc::strong_count(&place.turn) - 1)
    }

    fn turn(&self, session: &SessionId) -> Arc<RwLock<()>> {
        let mut places = self.lock();
        // Those that nobody uses are made again when they are needed.
        places.retain(|_, place| !place.live.is_empty() || Arc::strong_count(&place.turn) > 1);
        Arc::clone(&places.entry(session.clone()).or_default().turn)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Launched {
    /// The engine's id of the command.
    pub fn engine_id(&self) -> &str {
        &self.engine_id
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let Some(place) = self.launches.lock().get_mut(&self.session) {
            place.live.remove(&self.engine_id);
        }
    }
}
