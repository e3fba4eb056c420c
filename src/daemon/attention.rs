//! What a session's agent is doing, where the daemon itself learns of it: from whoever says so, and from the end of its
//! program. What is heard from inside comes through [`super::guests`].

use std::sync::Arc;

use super::clock;
use super::driver::Driver;
use super::exec::runnable;
use super::failure::Failure;
use crate::model::attention::{self, Attention, Said, Source};
use crate::model::exec::{End, Exec};
use crate::model::session::Session;
use crate::proto::terminals::MAIN_TERMINAL;
use crate::store::Tx;
use crate::store::error::StoreError;

impl Driver {
    /// Says what a session's agent is doing.
    ///
    /// # Errors
    /// `session_not_found`, `wrong_state` where nothing runs there, and the store's.
    pub async fn notify(&self, name: &str, state: Attention, text: &str) -> Result<Arc<Session>, Failure> {
        let session = runnable(self.session(name)?)?;
        let id = session.id.clone();
        let said = Said { state, source: Source::Notify, note: attention::note("", text), exec: None };
        let written = self.0.store.write(move |tx| {
            let Some(row) = tx.session(&id) else { return Err(StoreError::Gone { id: id.to_string() }) };
            // It is still of the same command.
            let exec = row.attention.as_ref().and_then(|noted| noted.exec.clone());
            put(tx, row, Said { exec, ..said })
        });
        written.await?;
        self.0.store.session_by_id(&session.id).ok_or_else(|| Failure::no_session(name))
    }
}

/// A command begins: the end of another before it on the agent's terminal is no news any more.
pub(super) fn begins(row: &mut Session, exec: &Exec) {
    let on_main = exec.terminal.as_deref() == Some(MAIN_TERMINAL);
    if on_main && row.attention.as_ref().is_some_and(|noted| noted.source == Source::Ended) {
        row.attention = None;
    }
}

/// Notes the end of a command, where it was the agent's or on the agent's terminal.
///
/// # Errors
/// The store's.
pub(super) fn ended(tx: &mut Tx<'_>, exec: &Exec, end: &End) -> Result<(), StoreError> {
    let Some(row) = tx.session(&exec.session) else { return Ok(()) };
    let on_main = exec.terminal.as_deref() == Some(MAIN_TERMINAL);
    let code = || (end.code != 0).then(|| format!("exit code {}", end.code));
    let said = attention::ended(row.attention.as_ref(), &exec.id, on_main, end.reason.clone().or_else(code));
    let news = said.filter(|said| said.is_news(row.attention.as_ref())).map(|said| said.at(clock::now()));
    let ends = Session {
        main_over: row.main_over || on_main,
        attention: news.or_else(|| row.attention.clone()),
        ..row.clone()
    };
    if row.status.has_processes() && ends != row { tx.put_session(&ends) } else { Ok(()) }
}

/// Changes a row where that is news, and something runs there of which it can be.
fn put(tx: &mut Tx<'_>, row: Session, said: Said) -> Result<(), StoreError> {
    if !row.status.has_processes() || !said.is_news(row.attention.as_ref()) {
        return Ok(());
    }
    tx.put_session(&Session { attention: Some(said.at(clock::now())), ..row })
}
