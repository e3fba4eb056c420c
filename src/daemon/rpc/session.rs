//! `session.*`.

use std::sync::Arc;
use std::time::Duration;

use super::encode::Encoded;
use super::{App, Module, at_once, convert, later, report};
use crate::config::SAVE_TIMEOUT_RANGE_MS;
use crate::daemon::awake::Use;
use crate::daemon::driver::DEFAULT_GRACE;
use crate::daemon::failure::{Failure, known};
use crate::daemon::framing::Prepared;
use crate::daemon::progress::Report;
use crate::daemon::verbs::power::Way;
use crate::daemon::verbs::save::Naming;
use crate::model::attention::Attention;
use crate::model::session::{Reason, Session};
use crate::model::until::Until;
use crate::proto::errors::Kind;
use crate::proto::methods::{
    SessionAdopt, SessionConnect, SessionDelete, SessionFork, SessionGet, SessionImport, SessionList,
    SessionNotify, SessionPause, SessionRename, SessionResume, SessionSave, SessionStart, SessionStop,
    SessionUnpause, SessionUpdate, SessionWait,
};
use crate::proto::sessions::{SaveResult, WaitResult};

pub(super) fn register(module: &mut Module) {
    read(module);
    power(module);
    files(module);
    rows(module);
    attention(module);
}

fn encoded(app: &App, session: &Arc<Session>) -> Encoded {
    app.encoder.one(session, app.driver.count(), app.driver.idleness(session))
}

/// A session that was brought back, with what there was to warn of.
fn brought(app: &App, session: &Arc<Session>, report: &Report) -> Encoded {
    let warnings = report.warnings();
    if warnings.is_empty() {
        return encoded(app, session);
    }
    Encoded::warned(session, app.driver.idleness(session), warnings)
}

fn read(module: &mut Module) {
    at_once::<SessionGet, _>(module, |asked, app, extensions| {
        let session = encoded(app, &app.driver.session(&asked.name)?);
        match extensions.get::<Prepared>() {
            Some(prepared) => {
                prepared.leave(session.into_raw());
                Ok(None)
            }
            None => Ok(Some(session)),
        }
    });
    at_once::<SessionList, _>(module, |asked, app, extensions| {
        let mut sessions = app.driver.sessions();
        let total = sessions.len();
        if !asked.status.is_empty() {
            sessions.retain(|s| asked.status.iter().any(|wanted| wanted.as_str() == s.status.as_str()));
        }
        if let Some(agent) = &asked.agent {
            sessions.retain(|s| s.agent == *agent);
        }
        let listed = app.encoder.many(&sessions, total, |session| app.driver.idleness(session));
        match extensions.get::<Prepared>() {
            Some(prepared) => {
                prepared.leave_array(listed.into_iter().map(Encoded::into_raw).collect());
                Ok(Vec::new())
            }
            None => Ok(listed),
        }
    });
}

fn power(module: &mut Module) {
    later::<SessionStart, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, Some(&asked.name), asked.op.clone(), &extensions)?;
        Ok(encoded(&app, &app.driver.start(asked, report).await?))
    });
    later::<SessionStop, _, _>(module, |asked, app, _| async move {
        let grace = asked.grace_ms.map_or(DEFAULT_GRACE, Duration::from_millis);
        Ok(encoded(&app, &app.driver.stop(&asked.name, grace, Reason::User).await?))
    });
    later::<SessionResume, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, Some(&asked.name), asked.op, &extensions)?;
        let way = way(asked.snapshot, asked.discard)?;
        let session = app.driver.resume(&asked.name, way, report.clone()).await?;
        Ok(brought(&app, &session, &report))
    });
    later::<SessionConnect, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, Some(&asked.name), asked.op, &extensions)?;
        let wanted = Use { session: asked.name, resume: asked.resume, report: report.clone() };
        Ok(brought(&app, &app.driver.connect(wanted).await?, &report))
    });
    later::<SessionPause, _, _>(module, |asked, app, _| async move {
        Ok(encoded(&app, &app.driver.pause(&asked.name).await?))
    });
    later::<SessionUnpause, _, _>(module, |asked, app, _| async move {
        Ok(encoded(&app, &app.driver.unpause(&asked.name).await?))
    });
}

/// How a session is to be brought back.
fn way(snapshot: Option<String>, discard: bool) -> Result<Way, Failure> {
    match snapshot {
        Some(snapshot) => Ok(Way::BackTo { snapshot, discard }),
        None if discard => Err(Failure::params("discard needs snapshot: nothing is replaced without it")),
        None => Ok(Way::AsItWas),
    }
}

/// How long an engine may take over a snapshot.
fn patience(timeout_ms: Option<u64>) -> Result<Option<Duration>, Failure> {
    match timeout_ms {
        Some(ms) if !SAVE_TIMEOUT_RANGE_MS.contains(&ms) => {
            Err(Failure::field("timeout_ms", "1 second to 24 hours"))
        }
        limit => Ok(limit.map(Duration::from_millis)),
    }
}

fn files(module: &mut Module) {
    later::<SessionSave, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, Some(&asked.name), asked.op, &extensions)?;
        let patience = patience(asked.timeout_ms)?;
        let naming = Naming { name: asked.snapshot, note: asked.note, patience, ..Naming::default() };
        let saved = app.driver.save(&asked.name, naming, asked.keep_running, report).await?;
        Ok(SaveResult {
            session: convert::session(&saved.session, app.driver.idleness(&saved.session)),
            snapshot: convert::snapshot(&saved.snapshot, app.driver.session_of(&saved.snapshot)),
            pruned: saved.pruned,
        })
    });
    later::<SessionFork, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, Some(&asked.name), asked.op.clone(), &extensions)?;
        Ok(brought(&app, &app.driver.fork(asked, report.clone()).await?, &report))
    });
    later::<SessionDelete, _, _>(module, |asked, app, _| async move {
        match asked.forget {
            true => app.driver.delete_or_forget(&asked.name, asked.keep_snapshots).await,
            false => app.driver.delete(&asked.name, asked.keep_snapshots).await,
        }
    });
}

fn rows(module: &mut Module) {
    later::<SessionRename, _, _>(module, |asked, app, _| async move {
        Ok(encoded(&app, &app.driver.rename(&asked.name, &asked.new_name).await?))
    });
    later::<SessionUpdate, _, _>(module, |asked, app, _| async move {
        Ok(encoded(&app, &app.driver.update(asked).await?))
    });
    later::<SessionAdopt, _, _>(module, |asked, app, _| async move {
        Ok(encoded(&app, &app.driver.adopt(asked).await?))
    });
    later::<SessionImport, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, None, asked.op, &extensions)?;
        app.driver.import(asked.rows, report).await
    });
}

fn attention(module: &mut Module) {
    later::<SessionNotify, _, _>(module, |asked, app, _| async move {
        let state = match &asked.state {
            None => Attention::Waiting,
            Some(word) => known("state", word.as_str(), Attention::ALL, |word| word.as_str())?,
        };
        let text = asked.text.unwrap_or_default();
        Ok(encoded(&app, &app.driver.notify(&asked.name, state, &text).await?))
    });
    later::<SessionWait, _, _>(module, |asked, app, _| async move {
        let until = known("for", asked.until.as_str(), Until::ALL, |word| word.as_str())?;
        let limit = asked.timeout_ms.map(Duration::from_millis);
        let waited = tokio::select! {
            waited = app.driver.wait_session(&asked.name, until, limit) => waited?,
            // Who waits must not keep the daemon from stopping, and can wait again for the next one.
            () = app.shutdown.wait() => {
                return Err(Failure::new(Kind::ShuttingDown, "abxd is stopping"));
            }
        };
        let session = waited.session.as_deref();
        let session = session.map(|session| convert::session(session, app.driver.idleness(session)));
        Ok(WaitResult { reached: waited.reached, session })
    });
}
