//! Rows that map a name to a sandbox which this daemon does not run, as the Python SDK's store keeps them.

use std::sync::Arc;

use crate::daemon::clock;
use crate::daemon::driver::{Driver, composed};
use crate::daemon::failure::Failure;
use crate::daemon::resolve;
use crate::model::id::{SessionId, SessionName, Timestamp};
use crate::model::session::{EngineKind, External, Secret, Session, Status};
use crate::paths::fnv1a;
use crate::proto::types::{StoreListParams, StoreNameParams, StoreRow};
use crate::store::error::StoreError;

/// Where rows of `store.save` come from.
const ORIGIN: &str = "store";

/// Before the namespace in the origin of a row that has one.
const IN_NAMESPACE: &str = "store:";

/// Longest namespace, in bytes: that of a path.
const MAX_NAMESPACE_BYTES: usize = 4096;

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
            let place = Place::of(row.namespace.as_deref())?;
            let name = SessionName::parse(&place.key(SessionName::parse(&row.name)?.as_str()))?;
            let fresh = external_row(name, &place.origin(), &row)?;
            this.0
                .store
                .write(move |tx| match tx.session_named(fresh.name.as_str()) {
                    None => tx.insert_session(&fresh),
                    Some(old) if place.holds(&old) => {
                        let row = Session {
                            id: old.id.clone(),
                            sandbox: old.sandbox.clone(),
                            created_at: fresh.created_at.min(old.created_at),
                            revision: old.revision,
                            ..fresh
                        };
                        // What is there already is no change: no new revision, and no event.
                        if row == old { Ok(()) } else { tx.put_session(&row) }
                    }
                    Some(old) => Err(StoreError::Exists { name: old.name.to_string() }),
                })
                .await?;
            Ok(row)
        })
        .await
    }

    /// A row with everything that was stored.
    pub fn store_load(&self, asked: &StoreNameParams) -> Option<StoreRow> {
        let place = Place::of(asked.namespace.as_deref()).ok()?;
        let session = self.0.store.session(&place.key(&composed(&asked.name)))?;
        place.to_row(&session, true).filter(|_| place.holds(&session))
    }

    /// All such rows of one store, without their other values.
    pub fn store_list(&self, asked: &StoreListParams) -> Vec<StoreRow> {
        let Ok(place) = Place::of(asked.namespace.as_deref()) else { return Vec::new() };
        let sessions = self.sessions();
        sessions.iter().filter(|s| place.holds(s)).filter_map(|s| place.to_row(s, false)).collect()
    }

    /// Deletes such a row; false if there is none. Sessions of this daemon are left alone.
    ///
    /// # Errors
    /// When the change cannot be kept.
    pub async fn store_delete(&self, asked: &StoreNameParams) -> Result<bool, Failure> {
        let place = Place::of(asked.namespace.as_deref())?;
        let name = place.key(&composed(&asked.name));
        let this = self.clone();
        self.submit(async move {
            let deleted = this
                .0
                .store
                .write(move |tx| match tx.session_named(&name).filter(|s| place.holds(s)) {
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

/// One store: the table has one list of names, in which the rows of a namespace stand under a name that tells of it.
#[derive(Debug, Clone)]
struct Place {
    namespace: Option<String>,
}

impl Place {
    fn of(namespace: Option<&str>) -> Result<Self, Failure> {
        match namespace.filter(|n| !n.is_empty()) {
            Some(long) if long.len() > MAX_NAMESPACE_BYTES => {
                Err(Failure::field("namespace", format!("at most {MAX_NAMESPACE_BYTES} bytes")))
            }
            namespace => Ok(Self { namespace: namespace.map(str::to_owned) }),
        }
    }

    fn origin(&self) -> String {
        self.namespace.as_ref().map_or_else(|| ORIGIN.to_owned(), |n| format!("{IN_NAMESPACE}{n}"))
    }

    /// The name in the table. Two namespaces with one mark cannot take each other's rows: the origin counts.
    fn key(&self, name: &str) -> String {
        format!("{name}{}", self.mark())
    }

    fn mark(&self) -> String {
        self.namespace.as_ref().map_or_else(String::new, |n| format!("@{:08x}", fnv1a(n.as_bytes()) >> 32))
    }

    /// Whether the row is in this store. What was imported is in the one without a namespace.
    fn holds(&self, session: &Session) -> bool {
        let external = session.external.as_ref().filter(|_| session.engine == EngineKind::External);
        external
            .is_some_and(|external| external.origin.strip_prefix(IN_NAMESPACE) == self.namespace.as_deref())
    }

    fn to_row(&self, session: &Arc<Session>, whole: bool) -> Option<StoreRow> {
        let external = session.external.as_ref()?;
        let extra = if whole {
            serde_json::from_str(external.extra.reveal()).unwrap_or_default()
        } else {
            serde_json::Map::new()
        };
        let name = session.name.as_str();
        Some(StoreRow {
            name: name.strip_suffix(&self.mark()).unwrap_or(name).to_owned(),
            namespace: self.namespace.clone(),
            sandbox_id: session.sandbox_id.clone(),
            template: Some(session.template.clone()),
            status: external.status.clone(),
            created_at: Some(clock::rfc3339(session.created_at)),
            last_connected: session.last_connected.map(clock::rfc3339),
            metadata: session.metadata.clone(),
            extra,
        })
    }
}

/// The row of a session that another program runs.
pub(super) fn external_row(name: SessionName, origin: &str, row: &StoreRow) -> Result<Session, Failure> {
    resolve::check_metadata(row.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
    let extra = serde_json::Value::Object(row.extra.clone()).to_string();
    if extra.len() > MAX_EXTRA_BYTES {
        return Err(Failure::params(format!("a stored row has at most {MAX_EXTRA_BYTES} bytes")));
    }
    let time = |field, text: &Option<String>| text.as_deref().map(|text| parse_time(field, text)).transpose();
    let created_at = time("created_at", &row.created_at)?.unwrap_or_else(clock::now);
    let last_connected = time("last_connected", &row.last_connected)?;
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
pub(super) fn parse_time(field: &str, text: &str) -> Result<Timestamp, Failure> {
    let text = text.trim();
    clock::parse(text)
        .or_else(|| clock::parse(&format!("{text}Z")))
        .ok_or_else(|| Failure::field(field, "a time in RFC 3339"))
}
