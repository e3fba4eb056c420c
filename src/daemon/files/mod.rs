//! Files of a session's sandbox, read and written through the engine whether it runs or not.
//!
//! Owns paths in a sandbox, whose files are whose, and what a write means for a session's state. The bytes of a copy
//! pass through as they come; only single files are looked into here, and what comes out is not trusted.

mod copy;
pub(super) mod give;
mod hidden;
mod list;
mod owner;
mod path;
mod running;
pub(super) mod unpack;
mod value;

use std::sync::Arc;

use tokio::time::timeout;

pub use self::copy::{CopyIn, CopyOut};
pub use self::running::{Copies, Running};
pub use self::value::{NewFile, Part};
use super::awake::Use;
use super::clock;
use super::driver::Driver;
use super::exec::BUSY_LIMIT;
use super::failure::{Failure, quoted};
use super::usage::InUse;
use crate::engine::{EngineError, FileKind, PathStat, SandboxDefaults};
use crate::model::idle::Busy;
use crate::model::session::{Session, Status};
use crate::model::step::{Verb, plan};
use crate::proto::errors::Kind;

/// Most links that are followed one after the other, as Linux has it.
const MAX_LINKS: usize = 40;

/// A session whose files are at hand. It is in use until this is dropped.
pub struct Files {
    driver: Driver,
    session: Arc<Session>,
    sandbox: String,
    _in_use: InUse,
}

/// A path that was looked at.
struct Found {
    path: String,
    /// None if nothing is there.
    stat: Option<PathStat>,
}

impl Driver {
    /// A session with a container. An operation that is under way is waited for, since it may replace it. One that does
    /// not run is brought back, unless the caller is content with the files of a stopped one; one that is frozen stays so.
    async fn files(&self, wanted: impl Into<Use>) -> Result<Files, Failure> {
        let wanted = wanted.into();
        let name = wanted.session.as_str();
        let mut session = self.session(name)?;
        if session.operation.is_some() {
            self.quiet(&session.id).await;
            session = self.0.store.session_by_id(&session.id).ok_or_else(|| Failure::no_session(name))?;
        }
        if matches!(session.status, Status::Stopped | Status::Saved) && self.brings_back(wanted.resume) {
            session = self.awake(session, wanted.resume, &wanted.report).await?;
        }
        plan(&session, Verb::Files).map_err(|refusal| Failure::refused(&session, refusal))?;
        let in_use = self.0.usage.begin(&session.id, Busy::Client);
        let sandbox = session.sandbox_id.clone().ok_or_else(|| gone(&session))?;
        Ok(Files { driver: self.clone(), session, sandbox, _in_use: in_use })
    }
}

impl Files {
    /// An engine's failure in words about this session.
    fn explain(&self, error: EngineError) -> Failure {
        match error {
            EngineError::NoSandbox { .. } => gone(&self.session),
            EngineError::NoPath { path } => self.missing(&path),
            error => Failure::from(error).about(self.session.name.as_str()),
        }
    }

    fn missing(&self, path: &str) -> Failure {
        let name = self.session.name.as_str();
        Failure::new(Kind::FileNotFound, format!("session '{name}' has no '{path}'")).about(name)
    }

    fn not_a_directory(&self, path: &str) -> Failure {
        let name = self.session.name.as_str();
        Failure::params(format!("path: '{path}' in session '{name}' is not a directory")).about(name)
    }

    async fn defaults(&self) -> Result<SandboxDefaults, Failure> {
        self.driver.0.engine.sandbox_defaults(&self.sandbox).await.map_err(|error| self.explain(error))
    }

    /// Cleans a path; one that is relative counts from where commands run.
    async fn clean(&self, path: &str) -> Result<path::Cleaned, Failure> {
        let cwd = match &self.session.spec.workspace {
            _ if path.starts_with('/') => String::new(),
            Some(workspace) => workspace.target.clone(),
            None => self.defaults().await?.cwd.unwrap_or_default(),
        };
        path::clean(path, &cwd)
    }

    async fn stat(&self, path: &str) -> Result<Option<PathStat>, Failure> {
        self.driver.0.engine.stat_path(&self.sandbox, path).await.map_err(|error| self.explain(error))
    }

    /// Looks at a path and follows links in its last place, to where nothing may be.
    async fn follow(&self, path: &str) -> Result<Found, Failure> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let stat = self.stat(&path).await?;
            match stat.as_ref().filter(|stat| stat.kind == FileKind::Symlink) {
                Some(link) => path = path::follow(&path, link.link_target.as_deref().unwrap_or_default()),
                None => return Ok(Found { path, stat }),
            }
        }
        let name = self.session.name.as_str();
        let text = format!("'{path}' in session '{name}' leads through too many symbolic links");
        Err(Failure::params(text).about(name))
    }

    /// Looks at a directory that must be there, and gives its path with links followed.
    async fn directory(&self, path: &str) -> Result<String, Failure> {
        let found = self.follow(path).await?;
        match found.stat.map(|stat| stat.kind) {
            Some(FileKind::Directory) => Ok(found.path),
            Some(_) => Err(self.not_a_directory(path)),
            None => Err(self.missing(path)),
        }
    }

    /// Where an archive for a directory is unpacked, and what then stands in front of its names. At the root, because
    /// engines refuse links that lead out of where they unpack; but not where they refuse to unpack at the root.
    async fn root(&self, directory: &str) -> Result<(String, String), Failure> {
        if directory == "/" {
            return Ok((directory.to_owned(), String::new()));
        }
        let defaults = self.defaults().await?;
        self.refuse_hidden(directory, &defaults.tmpfs)?;
        if defaults.read_only_root {
            return Ok((directory.to_owned(), String::new()));
        }
        Ok(("/".to_owned(), format!("{}/", directory.trim_start_matches('/'))))
    }

    /// Notes that the files change. A saved session is a stopped one from then on: going back to its snapshot must save
    /// first what it would replace.
    async fn note_change(&self) -> Result<(), Failure> {
        let name = self.session.name.as_str();
        let Ok(held) = timeout(BUSY_LIMIT, self.driver.hold_id(&self.session.id)).await else {
            let text = format!("session '{name}': another operation on it has not ended yet");
            return Err(Failure::new(Kind::Busy, text).about(name));
        };
        let mut held = held.ok_or_else(|| Failure::no_session(name))?;
        let now = clock::now();
        self.driver
            .commit(&mut held, move |session| {
                session.last_active = now;
                if session.status == Status::Saved {
                    session.status = Status::Stopped;
                }
            })
            .await
    }
}

fn gone(session: &Session) -> Failure {
    let name = session.name.as_str();
    let text = format!("session '{name}' has no container at the moment; its files are in its snapshots");
    Failure::new(Kind::WrongState, text).hint(format!("abx session resume {}", quoted(name))).about(name)
}
