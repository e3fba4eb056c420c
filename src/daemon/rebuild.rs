//! Rows made again from labels, put beside those that are there: a name that is taken meanwhile gives way, for
//! nothing that a user made is dropped for want of a name.

use crate::model::id::{SessionName, sandbox_name};
use crate::model::session::{Session, Snapshot};
use crate::store::Tx;
use crate::store::error::StoreError;

/// Most names that are tried before the row is given up.
const MAX_TRIES: u32 = 1_000;

/// Puts a session in the table, as `NAME-2` and so on where its name is taken.
pub(super) fn insert(tx: &mut Tx<'_>, row: Session) -> Result<(), StoreError> {
    let original = row.name.clone();
    let mut row = row;
    for n in 2..MAX_TRIES {
        match tx.insert_session(&row) {
            Err(StoreError::Exists { .. }) if tx.session_named(row.name.as_str()).is_none() => {
                row.sandbox = sandbox_name(&row.name, &row.id, true);
                return tx.insert_session(&row);
            }
            Err(StoreError::Exists { name }) => {
                let next = SessionName::parse(&format!("{original}-{n}"));
                row.name = next.map_err(|_| StoreError::Exists { name })?;
            }
            result => return result,
        }
    }
    Err(StoreError::Exists { name: original.to_string() })
}

/// Puts a snapshot in the table, as `NAME-2` and so on where its name is taken. One whose session is gone keeps only
/// that session's name.
pub(super) fn insert_snapshot(tx: &mut Tx<'_>, snapshot: Snapshot) -> Result<(), StoreError> {
    let original = snapshot.name.clone();
    let session = snapshot.session.filter(|id| tx.session(id).is_some());
    let mut snapshot = Snapshot { session, ..snapshot };
    for n in 2..MAX_TRIES {
        match tx.put_snapshot(&snapshot) {
            Err(StoreError::SnapshotExists { .. }) => snapshot.name = format!("{original}-{n}"),
            result => return result,
        }
    }
    Err(StoreError::SnapshotExists { name: original })
}
