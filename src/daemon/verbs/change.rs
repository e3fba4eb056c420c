//! Changes of the row: another name, another timeout, other labels.

use std::sync::Arc;

use super::start::check_free;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::{Failure, known};
use crate::daemon::resolve;
use crate::engine::EngineError;
use crate::fault;
use crate::model::id::{SessionName, sandbox_name};
use crate::model::idle::IdleAction;
use crate::model::reconcile::OnBoot;
use crate::model::session::{EngineKind, Session, Status};
use crate::proto::sessions::UpdateParams;
use crate::store::error::StoreError;

impl Driver {
    /// Gives a session another name, and its sandbox with it. The table comes first: where the engine cannot follow at
    /// once, the container gets its name at the next comparison.
    ///
    /// # Errors
    /// As documented for `session.rename`.
    pub async fn rename(&self, name: &str, new_name: &str) -> Result<Arc<Session>, Failure> {
        let (this, name, new_name) = (self.clone(), name.to_owned(), new_name.to_owned());
        self.submit(async move {
            let new = SessionName::parse(&new_name)?;
            let held = this.hold(&name).await?;
            if held.session.name == new {
                return Ok(held.session);
            }
            let id = held.session.id.clone();
            this.0
                .store
                .write(move |tx| {
                    let row = tx.session(&id).ok_or(StoreError::Gone { id: id.to_string() })?;
                    let mut renamed = Session { name: new, ..row };
                    check_free(tx, &renamed)?;
                    if renamed.engine != EngineKind::External {
                        let plain = sandbox_name(&renamed.name, &renamed.id, false);
                        let taken = tx.session_named(&plain).is_some_and(|other| other.id != renamed.id);
                        renamed.sandbox = sandbox_name(&renamed.name, &renamed.id, taken);
                    }
                    tx.put_session(&renamed)
                })
                .await?;
            let mut held = held;
            this.refresh(&mut held);
            fault::point("rename.row").await;
            this.name_container(&mut held).await;
            Ok(held.session)
        })
        .await
    }

    /// Lets the container have the row's name for it.
    pub(in crate::daemon) async fn name_container(&self, held: &mut crate::daemon::driver::Held) {
        let Some(id) = held.session.sandbox_id.clone() else { return };
        let outcome = match self.0.engine.rename(&id, &held.session.sandbox).await {
            Err(EngineError::Conflict { .. }) => {
                let renamed = self.commit(held, |s| s.sandbox = sandbox_name(&s.name, &s.id, true)).await;
                if let Err(error) = renamed {
                    tracing::warn!(%error, "cannot record another container name");
                }
                self.0.engine.rename(&id, &held.session.sandbox).await
            }
            other => other,
        };
        match outcome {
            Ok(()) | Err(EngineError::NoSandbox { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, sandbox = held.session.sandbox, "the container keeps its old name for now")
            }
        }
    }

    /// Changes timeout, idle time, kept snapshots and metadata: all of it or none.
    ///
    /// # Errors
    /// As documented for `session.update`.
    pub async fn update(&self, params: UpdateParams) -> Result<Arc<Session>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let set = params.metadata.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_deref()?)));
            resolve::check_metadata(set)?;
            let action = params
                .idle_action
                .as_ref()
                .map(|word| known("idle_action", word.as_str(), IdleAction::ALL, |action| action.as_str()));
            let action = action.transpose()?;
            let on_boot = params.on_boot.as_ref();
            let on_boot =
                on_boot.map(|word| known("on_boot", word.as_str(), OnBoot::ALL, |word| word.as_str()));
            let on_boot = on_boot.transpose()?;
            let mut held = this.hold(&params.name).await?;
            let now = clock::now();
            this.commit(&mut held, move |s| {
                if let Some(timeout) = params.timeout_ms {
                    s.timeout_ms = (timeout > 0).then_some(timeout);
                    let counts = matches!(s.status, Status::Running | Status::Paused);
                    s.expires_at = s.timeout_ms.filter(|_| counts).map(|ms| now.plus_ms(ms));
                }
                if let Some(idle) = params.idle_ms {
                    s.idle_ms = (idle > 0).then_some(idle);
                }
                if let Some(keep) = params.keep {
                    s.keep = (keep > 0).then_some(keep);
                }
                s.idle_action = action.unwrap_or(s.idle_action);
                s.on_boot = on_boot.or(s.on_boot);
                for (key, value) in params.metadata {
                    match value {
                        Some(value) => s.metadata.insert(key, value),
                        None => s.metadata.remove(&key),
                    };
                }
            })
            .await?;
            Ok(held.session)
        })
        .await
    }
}
