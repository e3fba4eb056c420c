//! Room for snapshots: the budget that the user sets for them, and the disk on which the engine keeps them. A save for which
//! there is none is refused before anything is stopped for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, stream};

use super::driver::Driver;
use super::failure::{Failure, quoted};
use crate::config::size;
use crate::engine::{Disk, EngineError, labels};
use crate::model::budget::{self, Lack, Room};
use crate::model::session::{EngineKind, Session, Snapshot};
use crate::proto::daemon::{EngineDisk, SpaceUse};
use crate::proto::errors::Kind;

/// Sandboxes that are measured at once.
const AT_ONCE: usize = 4;

/// Bytes of snapshots that are being made.
#[derive(Debug, Clone, Default)]
pub(super) struct Pending(pub(super) Arc<AtomicU64>);

impl Pending {
    /// Keeps so many bytes; gives what others keep, too.
    fn keep(&self, bytes: u64) -> (u64, Reserved) {
        let others = self.0.fetch_add(bytes, Ordering::SeqCst);
        (others, Reserved { pending: self.clone(), bytes })
    }
}

/// Keeps room for a snapshot until it is made, or given up.
pub(super) struct Reserved {
    pending: Pending,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pending.0.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Driver {
    /// Keeps room for a snapshot of a session.
    ///
    /// # Errors
    /// `limit` where there is none, with what can go; `engine_unavailable`. Where the engine does not tell what a snapshot would
    /// take, that is no reason to refuse it.
    pub(super) async fn reserve(&self, session: &Session) -> Result<Reserved, Failure> {
        let need = match &session.sandbox_id {
            Some(id) => self.or_unknown(self.0.engine.written_bytes(id).await)?.unwrap_or(0),
            None => 0,
        };
        // Kept first, then looked: what another save has kept counts here until its snapshot does.
        let (pending, reserved) = self.0.pending.keep(need);
        let disk = self.or_unknown(self.0.engine.disk().await)?.flatten();
        let snapshots = self.0.store.snapshots(None);
        let room = Room {
            budget: self.config().budget.value,
            used: budget::used(&snapshots) + pending,
            free: disk.as_ref().map(|disk| disk.free_bytes.saturating_sub(pending)),
        };
        match room.lack(need) {
            None => Ok(reserved),
            Some(lack) => Err(self.no_room(session, need, lack, disk.as_ref(), &snapshots).await),
        }
    }

    /// What the engine tells; none where it cannot.
    fn or_unknown<T>(&self, told: Result<T, EngineError>) -> Result<Option<T>, Failure> {
        match told {
            Ok(told) => Ok(Some(told)),
            Err(error @ EngineError::Unavailable { .. }) => Err(error.into()),
            Err(error) => {
                tracing::info!(%error, "the engine does not tell whether there is room for a snapshot");
                Ok(None)
            }
        }
    }

    async fn no_room(
        &self,
        session: &Session,
        need: u64,
        lack: Lack,
        disk: Option<&Disk>,
        snapshots: &[Arc<Snapshot>],
    ) -> Failure {
        let name = session.name.as_str();
        let (of, left, short) = match lack {
            Lack::Budget { left, short } => {
                let budget = size(self.config().budget.value.unwrap_or_default());
                (format!("the budget of {budget} for snapshots"), left, short)
            }
            Lack::Disk { left, short } => {
                let path = disk.map(|disk| disk.path.display().to_string()).unwrap_or_default();
                (format!("the engine's disk at {path}"), left, short)
            }
        };
        let mut text =
            format!("a snapshot of session '{name}' takes {}, and {of} has {} left", size(need), size(left));
        let made_from = match self.own_containers().await {
            Ok(all) => all.iter().filter_map(labels::made_from).collect(),
            Err(error) => {
                tracing::info!(%error, "the engine does not tell what its containers were made from");
                HashSet::new()
            }
        };
        let can_go = budget::to_free(snapshots, &self.sessions(), &made_from, short);
        let hint = if can_go.is_empty() {
            match lack {
                Lack::Budget { .. } => {
                    "raise budget of [snapshots] in config.toml, then: abx daemon restart".to_owned()
                }
                Lack::Disk { .. } => "free some space on that disk: docker system df".to_owned(),
            }
        } else {
            let told =
                |s: &Arc<Snapshot>| format!("'{}' ({})", s.name, size(s.own_bytes.unwrap_or_default()));
            let list: Vec<String> = can_go.iter().map(told).collect();
            text.push_str(&format!("; these can go: {}", list.join(", ")));
            let names: Vec<String> = can_go.iter().map(|s| quoted(&s.name)).collect();
            format!("abx snapshot delete {}", names.join(" "))
        };
        Failure::new(Kind::Limit, text).hint(hint).about(name)
    }

    /// What sandboxes and snapshots of this home take, and what there is for them.
    pub(super) async fn space(&self) -> Result<SpaceUse, Failure> {
        let disk = self.or_unknown(self.0.engine.disk().await)?.flatten();
        let sessions = self.sessions();
        let mut ids = Vec::new();
        for session in sessions.iter().filter(|session| session.engine == EngineKind::Docker) {
            ids.extend(session.sandbox_id.clone());
        }
        let engine = Arc::clone(&self.0.engine);
        let measured = stream::iter(ids).map(move |id| {
            let engine = Arc::clone(&engine);
            async move { engine.written_bytes(&id).await }
        });
        let sandboxes: Vec<Result<u64, EngineError>> = measured.buffer_unordered(AT_ONCE).collect().await;
        let known: Vec<Option<u64>> =
            sandboxes.into_iter().map(|told| self.or_unknown(told)).collect::<Result<_, _>>()?;
        Ok(SpaceUse {
            sandboxes_bytes: known.into_iter().flatten().sum(),
            snapshots_bytes: budget::used(&self.0.store.snapshots(None)),
            budget_bytes: self.config().budget.value,
            disk: disk.map(|disk| EngineDisk {
                path: disk.path.display().to_string(),
                free_bytes: disk.free_bytes,
                total_bytes: disk.total_bytes,
            }),
        })
    }
}
