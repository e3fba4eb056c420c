//! Agents of sessions: the command that an attach opens one with, and whether it has a conversation to go on with.
//!
//! An agent keeps its conversations in the sandbox's files. So what counts is whether it ran in *these* files: the mark
//! of that goes with them into a snapshot, and from there to a fork or back to the session.

use crate::model::exec::Exec;
use crate::model::id::{ExecId, SessionId};
use crate::model::session::{Session, Snapshot};
use crate::proto::stream::AgentStart;
use crate::store::Tx;
use crate::store::error::StoreError;

use super::driver::Driver;
use super::failure::Failure;

/// Codes of a program that could not be run: the agent's own, or what it is written in.
const NOT_RUN: [i32; 2] = [126, 127];

/// How an agent is started.
pub(super) struct Command {
    /// Program and arguments.
    pub(super) argv: Vec<String>,
    /// One line for the user, where it is not simply the agent.
    pub(super) note: Option<String>,
}

/// The first run of an agent in the files that a session or a snapshot has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark(ExecId);

impl Mark {
    /// The run that is this command.
    pub(super) fn of(exec: &Exec) -> Self {
        Self(exec.id.clone())
    }

    /// The mark of a session or a snapshot, by its id. Once there was the time of the run before it.
    fn read(tx: &Tx<'_>, id: &str) -> Option<Self> {
        let text = tx.meta(&key(id))?;
        text.split_whitespace().last().map(|exec| Self(ExecId::new(exec)))
    }

    fn write(&self, tx: &mut Tx<'_>, id: &str) -> Result<(), StoreError> {
        tx.set_meta(&key(id), self.0.as_str())
    }

    /// Keeps it, unless there is an older one.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn keep(&self, tx: &mut Tx<'_>, session: &SessionId) -> Result<(), StoreError> {
        match Self::read(tx, session.as_str()) {
            Some(_) => Ok(()),
            None => self.write(tx, session.as_str()),
        }
    }
}

/// Takes back the marks of this command, which was not started: that of the session, and those that went with its files
/// into snapshots.
///
/// # Errors
/// The store's.
pub(super) fn take_back(tx: &mut Tx<'_>, session: &SessionId, exec: &ExecId) -> Result<(), StoreError> {
    let snapshots = tx.snapshots_of(session).into_iter().map(|s| s.id.to_string());
    for id in snapshots.chain([session.to_string()]) {
        if Mark::read(tx, &id).is_some_and(|mark| mark.0 == *exec) {
            forget(tx, &id)?;
        }
    }
    Ok(())
}

/// Lets the end of a command say whether it was run at all. Its row, which knows too, may be forgotten.
///
/// # Errors
/// The store's.
pub(super) fn ended(tx: &mut Tx<'_>, exec: &Exec, code: i32) -> Result<(), StoreError> {
    if NOT_RUN.contains(&code) { take_back(tx, &exec.session, &exec.id) } else { Ok(()) }
}

/// Lets a snapshot that is about to be taken know of a run that is in the session's files.
///
/// # Errors
/// The store's.
pub(super) fn saved(tx: &mut Tx<'_>, session: &SessionId, snapshot: &Snapshot) -> Result<(), StoreError> {
    match Mark::read(tx, session.as_str()) {
        Some(mark) => mark.write(tx, snapshot.id.as_str()),
        None => Ok(()),
    }
}

/// Forgets that an agent ran in the files of a session or a snapshot that is no more.
///
/// # Errors
/// The store's.
pub(super) fn forget(tx: &mut Tx<'_>, id: &str) -> Result<(), StoreError> {
    tx.delete_meta(&key(id))
}

impl Driver {
    /// How the agent of a session is started.
    ///
    /// # Errors
    /// `invalid_params` where nothing says how the session's agent is run; the store's.
    pub(super) async fn agent_command(
        &self,
        session: &Session,
        start: AgentStart,
    ) -> Result<Command, Failure> {
        let label = session.agent.as_str();
        let Some(agent) = self.config().agent(label) else { return Err(unknown(label)) };
        let id = session.id.clone();
        let has_run = self.0.store.write(move |tx| Ok(Mark::read(tx, id.as_str()).is_some())).await?;
        let mut argv = agent.command;
        let resumes = has_run && start != AgentStart::Fresh;
        let note = match (resumes, agent.resume.is_empty()) {
            (false, _) => None,
            (true, true) => Some(format!("{label} begins anew: no arguments make it go on where it was")),
            (true, false) => {
                Some(format!("{label} goes on with its last conversation; --fresh begins another"))
            }
        };
        if resumes {
            argv.extend(agent.resume);
        }
        Ok(Command { argv, note })
    }

    /// Lets a session whose files come from a snapshot know of a run that is in them, and of no other.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn adopt_agent(&self, session: &Session, snapshot: &Snapshot) -> Result<(), Failure> {
        let (id, from) = (session.id.clone(), snapshot.id.clone());
        let written = self.0.store.write(move |tx| match Mark::read(tx, from.as_str()) {
            Some(mark) => mark.write(tx, id.as_str()),
            None => forget(tx, id.as_str()),
        });
        Ok(written.await?)
    }
}

/// The key under which the store keeps a mark.
fn key(id: &str) -> String {
    format!("agent:{id}")
}

fn unknown(label: &str) -> Failure {
    Failure::params(format!("nothing says how to run the agent '{label}'"))
        .hint("add its command to [agents] in config.toml, then: abx daemon restart")
}
