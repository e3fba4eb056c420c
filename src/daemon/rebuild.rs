//! What comes back after the table was lost: rows made again from labels, a copy of the table brought up to what the engine
//! has, and the account of it that the user gets.
//!
//! A row made again is put beside those that are there: a name that is taken meanwhile gives way, for nothing that a user
//! made is dropped for want of a name.

use crate::daemon::driver::Driver;
use crate::model::event::{EventKind, Fact, Told};
use crate::model::id::{SessionName, Timestamp, sandbox_name};
use crate::model::session::{Session, Snapshot, Status};
use crate::store::Tx;
use crate::store::error::StoreError;

mod account;
mod restored;

use account::Account;
pub(super) use account::{Rebuilt, Source};

/// Most names that are tried before the row is given up.
const MAX_TRIES: u32 = 1_000;

/// As [`insert_free`], of a row that was made again: that is told.
pub(super) fn insert(tx: &mut Tx<'_>, row: Session, source: Source) -> Result<String, StoreError> {
    let id = row.id.clone();
    let name = insert_free(tx, row)?.to_string();
    let lost = source.lost().iter().map(|&word| word.to_owned()).collect();
    let data = vec![("from", Fact::Text(source.as_str().to_owned())), ("lost", Fact::Texts(lost))];
    tx.note_of(&id, Told { kind: EventKind::SessionRebuilt, data });
    Account::change(tx, |account| account.add(name.clone(), source))?;
    Ok(name)
}

/// Puts a session in the table, as `NAME-2` and so on where its name is taken, and gives its name.
pub(super) fn insert_free(tx: &mut Tx<'_>, row: Session) -> Result<SessionName, StoreError> {
    let original = row.name.clone();
    let mut row = row;
    for n in 2..MAX_TRIES {
        match tx.insert_session(&row) {
            Ok(()) => return Ok(row.name),
            Err(StoreError::Exists { .. }) if tx.session_named(row.name.as_str()).is_none() => {
                row.sandbox = sandbox_name(&row.name, &row.id, true);
                tx.insert_session(&row)?;
                return Ok(row.name);
            }
            Err(StoreError::Exists { name }) => {
                let next = SessionName::parse(&format!("{original}-{n}"));
                row.name = next.map_err(|_| StoreError::Exists { name })?;
            }
            Err(error) => return Err(error),
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

/// A row made again, whose times count from now: when it was used last nobody knows, and neither timeout nor idle time
/// may end at once what runs in it.
pub(super) fn used_now(row: Session, now: Timestamp) -> Session {
    let runs = matches!(row.status, Status::Running | Status::Paused);
    let expires_at = row.timeout_ms.filter(|_| runs).map(|ms| now.plus_ms(ms));
    Session { last_active: now, expires_at, ..row }
}

impl Driver {
    /// What the user should know of a table that was lost, in sentences: as long as this daemon runs.
    pub(super) fn rebuilt_notices(&self) -> Vec<String> {
        self.0.rebuilt.sentences()
    }

    /// The same in one line, if nobody was told of it yet. Does not wait until that is remembered.
    pub(super) fn tell_rebuilt(&self) -> Option<String> {
        let untold = self.0.rebuilt.take_untold()?;
        let (this, told) = (self.clone(), untold.clone());
        tokio::spawn(async move {
            let store = this.0.store.clone();
            let forgotten = this.submit(async move { Ok(store.write(move |tx| told.forget(tx)).await?) });
            if let Err(error) = forgotten.await {
                tracing::warn!(%error, "failed to remember what the user was told; it will be said again");
            }
        });
        Some(untold.sentences().join("; "))
    }
}
