//! Taking over sessions of the two older tools.

use std::sync::Arc;

use super::stored::{external_row, parse_time};
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::daemon::progress::Report;
use crate::daemon::recovery::seen;
use crate::engine::{EngineError, Observed};
use crate::model::id::{SessionName, SnapshotId};
use crate::model::reconcile::{Seen, settle};
use crate::model::session::{EngineKind, Reason, Session, Snapshot, SnapshotState, Status};
use crate::proto::errors::Kind;
use crate::proto::sessions::{ImportOutcome, ImportRow};
use crate::proto::types;
use crate::store::error::StoreError;

/// The origin whose sandboxes are containers of an engine that this daemon can reach too.
const AGENTKERNEL: &str = "agentkernel";

/// What the older tool puts before a sandbox's name to name its container.
const CONTAINER_PREFIX: &str = "agentkernel-";

/// The repository in which the older tool keeps its snapshots.
const SNAPSHOT_REPOSITORY: &str = "agentkernel-snap";

impl Driver {
    /// Takes rows over, one by one, telling each, and says what became of them. No row that is there is changed.
    ///
    /// # Errors
    /// When the table cannot keep a row; those before it are kept.
    pub async fn import(&self, rows: Vec<ImportRow>, report: Report) -> Result<Vec<ImportOutcome>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let mut outcomes = Vec::with_capacity(rows.len());
            let mut engine_answers = true;
            let all = rows.len();
            for (at, row) in rows.into_iter().enumerate() {
                report.line(format!("importing '{}' ({} of {all})", row.row.name, at + 1));
                outcomes.push(this.import_one(row, &mut engine_answers).await?);
            }
            Ok(outcomes)
        })
        .await
    }

    async fn import_one(&self, row: ImportRow, engine_answers: &mut bool) -> Result<ImportOutcome, Failure> {
        let name = row.row.name.clone();
        let outcome = |outcome: &str, session: Option<&Session>, why: Option<String>| ImportOutcome {
            name: name.clone(),
            outcome: outcome.to_owned(),
            status: session.map(|s| types::Status::from_word(s.status.as_str())),
            why,
        };
        let session = match new_row(&row) {
            Ok(session) => session,
            Err(failure) => return Ok(outcome("refused", None, Some(failure.message))),
        };
        if let Some(old) = self.0.store.session(session.name.as_str()).filter(|old| old.name == session.name)
        {
            return Ok(if same(&old, &session) {
                outcome("unchanged", Some(&old), None)
            } else {
                outcome(
                    "conflict",
                    Some(&old),
                    Some(format!("a session named '{}' exists already", old.name)),
                )
            });
        }
        let id = session.id.clone();
        let turn = self.turn(&id).await;
        match self.0.store.insert(session).await {
            Ok(inserted) => {
                let mut held = Held::new(inserted, turn);
                let asks = *engine_answers && held.session.engine == EngineKind::Docker;
                let adopted = asks && self.judge(&mut held, engine_answers).await;
                Ok(outcome(if adopted { "adopted" } else { "imported" }, Some(&held.session), None))
            }
            Err(StoreError::Exists { name }) => {
                self.forget(&id);
                Ok(outcome("conflict", None, Some(format!("a session named '{name}' exists already"))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for the container and the snapshot of a row that was just taken over; true if the container is there. An
    /// engine that is away leaves the row, and all that follow, `unknown` until it answers; one that fails at this row leaves
    /// this one alone.
    async fn judge(&self, held: &mut Held, engine_answers: &mut bool) -> bool {
        match self.judge_imported(held).await {
            Ok(()) => held.session.sandbox_id.is_some(),
            Err(failure) => {
                *engine_answers = !matches!(failure.kind, Kind::EngineUnavailable | Kind::EngineTimeout);
                self.0.compare.notify_one();
                tracing::warn!(%failure, session = %held.session.name, "will look for its container when the engine answers");
                false
            }
        }
    }

    /// Decides what an imported row is: adopted if its container is there, else saved if its snapshot is, else lost.
    pub(in crate::daemon) async fn judge_imported(&self, held: &mut Held) -> Result<(), Failure> {
        let snapshot = self.import_snapshot(&held.session).await?;
        let container = self.legacy_container(&held.session).await?;
        if let Some(snapshot) = snapshot {
            self.0.store.write(move |tx| tx.put_snapshot(&snapshot)).await?;
            self.refresh(held);
        }
        let change = settle(&held.session, seen(container.as_ref()), false);
        let taken = container.map(|c| (c.id, c.image_id, c.name));
        self.commit(held, move |s| {
            if let Some((id, image, name)) = taken {
                s.sandbox_id = Some(id);
                s.image_id = Some(image);
                s.sandbox = name;
            }
            if let Some(change) = change {
                s.status = change.status;
                s.reason = change.reason;
            }
            if s.status == Status::Stopped {
                // It was the older tool's user who stopped it, if anybody did.
                s.reason = Some(Reason::User);
            }
        })
        .await
    }

    async fn legacy_container(&self, session: &Session) -> Result<Option<Observed>, EngineError> {
        let found = self.0.engine.inspect(&format!("{CONTAINER_PREFIX}{}", session.sandbox)).await?;
        Ok(found.filter(|o| seen(Some(o)) != Seen::Gone))
    }

    async fn import_snapshot(&self, session: &Session) -> Result<Option<Snapshot>, EngineError> {
        let Some(name) = session.metadata.get(SNAPSHOT_KEY).cloned() else { return Ok(None) };
        if self.0.store.snapshot(&name).is_some() {
            return Ok(None);
        }
        // What is no tag is the name of no image: the engine would fail at it, now and later.
        if !is_tag(&name) {
            return Ok(None);
        }
        let Some(image) = self.0.engine.image(&format!("{SNAPSHOT_REPOSITORY}:{name}")).await? else {
            return Ok(None);
        };
        Ok(Some(Snapshot {
            id: SnapshotId::new(uuid::Uuid::now_v7().to_string()),
            name,
            session: Some(session.id.clone()),
            session_name: session.name.to_string(),
            image_id: image.id,
            created_at: session.last_active,
            creator: None,
            note: Some("taken by agentkernel".to_owned()),
            parent: None,
            size_bytes: image.size_bytes,
            own_bytes: None,
            excluded: Vec::new(),
            state: SnapshotState::Ready,
        }))
    }
}

/// Where an imported row keeps the older tool's snapshot name.
const SNAPSHOT_KEY: &str = "agentkernel.snapshot";

/// Most characters of a tag.
const MAX_TAG: usize = 128;

/// Whether an image can have this tag.
fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=MAX_TAG).contains(&text.len())
        && text.starts_with(word)
        && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn new_row(row: &ImportRow) -> Result<Session, Failure> {
    let name = SessionName::parse(&row.row.name)?;
    let mut session = external_row(name, &row.origin, &row.row)?;
    if let Some(time) = &row.last_active {
        session.last_active = parse_time("last_active", time)?;
    }
    if let Some(agent) = &row.agent {
        session.agent.clone_from(agent);
    }
    session.exec_count = row.exec_count;
    if row.origin == AGENTKERNEL {
        session.engine = EngineKind::Docker;
        session.sandbox = row
            .sandbox
            .clone()
            .filter(|s| !s.is_empty())
            .unwrap_or_else(|| format!("session-{}", session.name));
        session.sandbox_id = None;
        if let Some(snapshot) = &row.snapshot {
            session.metadata.insert(SNAPSHOT_KEY.to_owned(), snapshot.clone());
        }
    }
    Ok(session)
}

/// Whether a row that is there came from the same place: a repeated import.
fn same(old: &Arc<Session>, new: &Session) -> bool {
    let origin = |s: &Session| s.external.as_ref().map(|e| e.origin.clone());
    origin(old) == origin(new) && old.created_at == new.created_at
}
