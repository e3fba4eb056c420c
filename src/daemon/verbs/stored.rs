//! Rows that map a name to a sandbox which this daemon does not run, as the Python SDK's store keeps them.

use std::sync::Arc;

use crate::daemon::clock;
use crate::daemon::driver::{Driver, composed};
use crate::daemon::failure::Failure;
use crate::daemon::resolve;
use crate::model::id::{SessionId, SessionName, Timestamp};
use crate::model::session::{EngineKind, External, Secret, Session, Status};
use crate::proto::types::StoreRow;
use crate::store::error::StoreError;

/// Where rows of `store.save` come from.
pub(super) const ORIGIN: &str = "store";

/// Longest row, in bytes of JSON: what a session's description can reasonably need.
const MAX_EXTRA_BYTES: usize = 1024 * 1024;

impl Driver {
    /// Keeps a row, or replaces one of this kind.
    ///
    /// # Errors
    /// As documented for `store.save`.
    pub async fn store_save(&self, row: StoreRow) -> Result<StoreRow, Failure> {
        let this = self.clone();
        self.submit(async move {
            let name = SessionName::parse(&row.name)?;
            let fresh = external_row(name, ORIGIN, &row)?;
            this.0
                .store
                .write(move |tx| match tx.session_named(fresh.name.as_str()) {
                    None => tx.insert_session(&fresh),
                    Some(old) if old.engine == EngineKind::External => tx.put_session(&Session {
                        id: old.id,
                        sandbox: old.sandbox,
                        created_at: fresh.created_at.min(old.created_at),
                        ..fresh
                    }),
                    Some(old) => Err(StoreError::Exists { name: old.name.to_string() }),
                })
                .await?;
            Ok(row)
        })
        .await
    }

    /// A row with everything that was stored.
    pub fn store_load(&self, name: &str) -> Option<StoreRow> {
        let session = self.0.store.session(&composed(name))?;
        to_row(&session, true)
    }

    /// All such rows, without their other values.
    pub fn store_list(&self) -> Vec<StoreRow> {
        self.sessions().iter().filter_map(|session| to_row(session, false)).collect()
    }

    /// Deletes such a row; false if there is none. Sessions of this daemon are left alone.
    ///
    /// # Errors
    /// When the change cannot be kept.
    pub async fn store_delete(&self, name: &str) -> Result<bool, Failure> {
        let name = composed(name).into_owned();
        let this = self.clone();
        self.submit(async move {
            let deleted = this
                .0
                .store
                .write(move |tx| match tx.session_named(&name).filter(|s| s.engine == EngineKind::External) {
                    Some(session) => tx.delete_session(&session.id).map(|()| Some(session.id)),
                    None => Ok(None),
                })
                .await?;
            if let Some(id) = &deleted {
                this.forget(id);
            }
            Ok(deleted.is_some())
        })
        .await
    }
}

/// The row of a session that another program runs.
pub(super) fn external_row(name: SessionName, origin: &str, row: &StoreRow) -> Result<Session, Failure> {
    resolve::check_metadata(row.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let extra = serde_json::Value::Object(row.extra.clone()).to_string();
    if extra.len() > MAX_EXTRA_BYTES {
        return Err(Failure::params(format!("a stored row has at most {MAX_EXTRA_BYTES} bytes")));
    }
    let time = |text: &Option<String>| text.as_deref().map(parse_time).transpose();
    let created_at = time(&row.created_at)?.unwrap_or_else(clock::now);
    let last_connected = time(&row.last_connected)?;
    let id = SessionId::new(uuid::Uuid::now_v7().to_string());
    Ok(Session {
        // The other program's sandboxes need not have distinct names; the table's must.
        sandbox: row
            .sandbox_id
            .clone()
            .filter(|s| !s.is_empty())
            .map_or_else(|| format!("external-{id}"), |s| format!("{s}@{id}")),
        sandbox_id: row.sandbox_id.clone(),
        engine: EngineKind::External,
        agent: "claude".to_owned(),
        template: row.template.clone().unwrap_or_else(|| "base".to_owned()),
        status: Status::Unknown,
        last_active: last_connected.unwrap_or(created_at),
        last_connected,
        metadata: row.metadata.clone(),
        external: Some(External {
            origin: origin.to_owned(),
            status: row.status.clone(),
            extra: Secret::new(extra),
        }),
        ..Session::new(id, name, created_at)
    })
}

/// RFC 3339; a time without a zone is UTC, as the SDK's are.
pub(super) fn parse_time(text: &str) -> Result<Timestamp, Failure> {
    let text = text.trim();
    clock::parse(text)
        .or_else(|| clock::parse(&format!("{text}Z")))
        .ok_or_else(|| Failure::params(format!("{text:?} is not a time in RFC 3339")))
}

fn to_row(session: &Arc<Session>, whole: bool) -> Option<StoreRow> {
    let external = session.external.as_ref().filter(|_| session.engine == EngineKind::External)?;
    let extra = if whole {
        serde_json::from_str(external.extra.reveal()).unwrap_or_default()
    } else {
        serde_json::Map::new()
    };
    Some(StoreRow {
        name: session.name.to_string(),
        sandbox_id: session.sandbox_id.clone(),
        template: Some(session.template.clone()),
        status: external.status.clone(),
        created_at: Some(clock::rfc3339(session.created_at)),
        last_connected: session.last_connected.map(clock::rfc3339),
        metadata: session.metadata.clone(),
        extra,
    })
}
