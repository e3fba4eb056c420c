//! The whole table as one document: a text that people can read and programs can cut up, and in which a later version may
//! add what an earlier one passes over, where a copy of the database would need that version's own format.

use std::collections::BTreeMap;

use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::rpc::convert;
use crate::model::session::{Session, Snapshot, SnapshotState, Status};
use crate::proto::table::{TABLE_FORM, TableDocument, TableExternal, TableSession, TableSnapshot};
use crate::proto::version::VERSION;

impl Driver {
    /// The table as it is now. What is not there yet (a session that starts, a snapshot that is being made) is left out.
    pub fn export(&self, with_secrets: bool) -> TableDocument {
        let mut sessions = self.sessions();
        sessions.retain(|session| session.status != Status::Starting);
        let mut snapshots = self.0.store.snapshots(None);
        snapshots.retain(|snapshot| snapshot.state == SnapshotState::Ready);
        TableDocument {
            abx_table: TABLE_FORM,
            version: VERSION.to_owned(),
            exported_at: clock::rfc3339(clock::now()),
            home: self.label(),
            sessions: sessions.iter().rev().map(|session| entry(session, with_secrets)).collect(),
            snapshots: snapshots.iter().rev().map(|row| snapshot(row, self.session_of(row))).collect(),
        }
    }
}

fn entry(session: &Session, with_secrets: bool) -> TableSession {
    let values = session.spec.env.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned()));
    let fixed = session.spec.ports.iter().filter(|port| port.fixed);
    TableSession {
        session: convert::session(session, None),
        user: session.spec.user.clone(),
        fixed_ports: fixed.map(|port| format!("{}/{}", port.container, port.protocol)).collect(),
        env: with_secrets.then(|| values.collect::<BTreeMap<_, _>>()),
        external: session.external.as_ref().map(|external| TableExternal {
            origin: external.origin.clone(),
            status: external.status.clone(),
            extra: with_secrets.then(|| serde_json::from_str(external.extra.reveal()).unwrap_or_default()),
        }),
    }
}

fn snapshot(row: &Snapshot, session: String) -> TableSnapshot {
    TableSnapshot {
        id: row.id.to_string(),
        session_id: row.session.as_ref().map(ToString::to_string),
        snapshot: convert::snapshot(row, session),
    }
}
