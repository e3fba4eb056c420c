//! Starting a session: row first, then container, then running; on failure both are gone and the name is free.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::daemon::awake::Use;
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::daemon::mounts::{self, Guarded};
use crate::daemon::progress::Report;
use crate::daemon::resolve::{self, Place};
use crate::engine::EngineError;
use crate::fault;
use crate::model::id::sandbox_name;
use crate::model::session::{Operation, Session};
use crate::proto::errors::Kind;
use crate::proto::sessions::StartParams;
use crate::store::Tx;
use crate::store::error::StoreError;

impl Driver {
    /// Starts a session, or connects to one of this name if the caller asked for that.
    ///
    /// # Errors
    /// As documented for `session.start`.
    ///
    /// # Cancel safety
    /// The start goes on when the caller is dropped.
    pub async fn start(&self, params: StartParams, report: Report) -> Result<Arc<Session>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let reuse = params.reuse;
            let row = this.resolve(params).await?;
            let image = row.image.clone().unwrap_or_default();
            let name = row.name.clone();
            match this.create_session(row, &image, report).await {
                Err(failure) if failure.kind == Kind::SessionExists && reuse => {
                    let reused = Use { resume: Some(true), ..Use::from(name.as_str()) };
                    this.connect_now(&reused).await
                }
                result => result,
            }
        })
        .await
    }

    /// Carries a new row to running, and takes everything back if that fails.
    pub(super) async fn create_session(
        &self,
        row: Session,
        image: &str,
        report: Report,
    ) -> Result<Arc<Session>, Failure> {
        let name = row.name.clone();
        let id = row.id.clone();
        let turn = self.turn(&id).await;
        let inserted = self.insert(row).await;
        let (Ok(()), Some(session)) = (&inserted, self.0.store.session_by_id(&id)) else {
            self.forget(&id);
            return Err(inserted.err().unwrap_or_else(|| Failure::no_session(name.as_str())));
        };
        let mut held = Held::new(session, turn);
        fault::point("start.row").await;
        match self.bring_up(&mut held, image, report).await {
            Ok(()) => Ok(held.session),
            Err(failure) => {
                let failure =
                    failure.while_doing(format!("cannot start session '{name}'")).about(name.as_str());
                Err(self.take_back(held, failure).await)
            }
        }
    }

    /// Puts the row in the table. A container name that another row has gives way.
    async fn insert(&self, row: Session) -> Result<(), Failure> {
        self.0
            .store
            .write(move |tx| {
                check_free(tx, &row)?;
                let taken = tx.session_named(&row.sandbox).is_some();
                tx.insert_session(&Session { sandbox: sandbox_name(&row.name, &row.id, taken), ..row })
            })
            .await?;
        Ok(())
    }

    async fn bring_up(&self, held: &mut Held, image: &str, report: Report) -> Result<(), Failure> {
        self.require_or_pull(image, report).await?;
        let made = self.create_sandbox(held, image).await?;
        let started = self.start_sandbox(&made.id).await?;
        self.now_running(held, &started).await
    }

    async fn require_or_pull(&self, image: &str, report: Report) -> Result<(), Failure> {
        if self.0.engine.image(image).await?.is_some() {
            return Ok(());
        }
        if image.starts_with("sha256:") {
            let text = format!("the snapshot's image {image} is gone from the engine");
            return Err(Failure::new(Kind::SnapshotNotFound, text).hint("abx snapshot list"));
        }
        report.line(format!("pulling {image}"));
        self.0.engine.pull(image, Box::new(move |step| report.pull(&step))).await?;
        Ok(())
    }

    /// Removes what a failed start made. Where the engine does not answer any more, the row stays, marked as being
    /// started, and is taken back as soon as the engine answers.
    async fn take_back(&self, mut held: Held, failure: Failure) -> Failure {
        if held.session.operation == Some(Operation::Start) && !self.was_asked_for(&held) {
            self.drop_row(&held).await;
            return failure;
        }
        // From here on the caller is told that it failed: whatever is found later must not bring it back.
        if let Err(error) = self.intend(&mut held, Operation::Delete).await {
            tracing::error!(%error, "cannot record that a start failed");
        }
        match self.undo_start(&held).await {
            Ok(()) => failure,
            Err(error) => {
                tracing::warn!(%error, "cannot take back a failed start yet");
                self.0.compare.notify_one();
                failure
            }
        }
    }

    /// Removes the container of a start that nobody was told of, then its row.
    pub(in crate::daemon) async fn undo_start(&self, held: &Held) -> Result<(), EngineError> {
        // The create may have happened although its answer never came: look by label, not only by recorded id.
        for seen in self.containers_of(&held.session).await? {
            self.0.engine.remove(&seen.id).await?;
        }
        tracing::info!(session = %held.session.name, "took back a start that did not end");
        self.drop_row(held).await;
        Ok(())
    }

    /// Whether the engine was ever asked to make a container for a start: before that there is nothing to look for.
    fn was_asked_for(&self, held: &Held) -> bool {
        held.session.sandbox_id.is_some() || held.asked
    }

    async fn drop_row(&self, held: &Held) {
        let gone = held.session.id.clone();
        if let Err(error) = self.0.store.write(move |tx| tx.delete_session(&gone)).await {
            tracing::error!(%error, "cannot remove the row of a failed start");
        }
        self.forget(&held.session.id);
    }

    /// Makes the row. Looking at mount sources may block for as long as a dead file server does, so that happens on a
    /// thread of its own, and not for ever.
    async fn resolve(&self, params: StartParams) -> Result<Session, Failure> {
        let this = self.clone();
        mounts::in_time(move || this.resolved(&params)).await
    }

    /// The row that parameters make. Blocks where it looks at mount sources.
    pub(super) fn resolved(&self, params: &StartParams) -> Result<Session, Failure> {
        let engine_socket = self.engine_socket();
        let guarded = &self.guarded(engine_socket.as_deref());
        resolve::session(params, Place { config: self.config(), guarded })
    }

    /// What is never mounted.
    pub(in crate::daemon) fn guarded<'a>(&'a self, engine_socket: Option<&'a Path>) -> Guarded<'a> {
        Guarded { home: self.home(), socket: &self.0.socket, engine_socket }
    }

    /// The engine's own socket, where it is one of this machine.
    pub(in crate::daemon) fn engine_socket(&self) -> Option<PathBuf> {
        let about = self.engine_state().about?;
        about.address.strip_prefix("unix://").map(PathBuf::from)
    }
}

/// Refuses a name that finds another session already, be it as its name or as its sandbox's: one word must not mean two
/// sessions.
pub(super) fn check_free(tx: &Tx<'_>, row: &Session) -> Result<(), StoreError> {
    match tx.session_named(row.name.as_str()).filter(|other| other.id != row.id) {
        Some(_) => Err(StoreError::Exists { name: row.name.to_string() }),
        None => Ok(()),
    }
}
