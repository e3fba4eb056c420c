//! Freezes that come after their call was given up: an engine may do late what it did not answer in time, and by then
//! nobody wants it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::id::SessionId;

/// How long after the operation was settled such a freeze may still come. An engine that answers again does within moments
/// what was left with it.
const LATE: Duration = Duration::from_secs(120);

/// Sessions whose sandboxes nobody wants frozen, whatever is left with the engine.
#[derive(Debug, Default)]
pub(super) struct LateFreezes(Mutex<HashMap<SessionId, Instant>>);

impl LateFreezes {
    /// Notes that a freeze of this session was given up.
    pub(super) fn expect(&self, id: &SessionId) {
        let mut all = self.lock();
        all.retain(|_, until| *until > Instant::now());
        all.insert(id.clone(), Instant::now() + LATE);
    }

    /// Whether a freeze that shows now is one that was given up.
    pub(super) fn expects(&self, id: &SessionId) -> bool {
        self.lock().get(id).is_some_and(|until| *until > Instant::now())
    }

    /// Forgets it: it came and was taken back, for it comes once, or somebody wants the session frozen now.
    pub(super) fn forget(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
