//! The daemon's account of itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::value::RawValue;

use super::{App, Module, at_once, later, now};
use crate::daemon::caller::Introduced;
use crate::daemon::clock;
use crate::daemon::failure::Failure;
use crate::daemon::framing::Prepared;
use crate::daemon::handover::Successor;
use crate::model::id::Timestamp;
use crate::proto::daemon::{DaemonInfoResult, HelloResult, RestartResult, Setting};
use crate::proto::methods::{
    DaemonCheck, DaemonHello, DaemonInfo, DaemonRestart, DaemonShutdown, Done, OPENRPC, RpcDiscover,
};
use crate::proto::types::EngineInfo;
use crate::proto::version::{PROTOCOL, VERSION};

/// Who this daemon is.
#[derive(Debug)]
pub struct Identity {
    /// Its home.
    pub home: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// When it started.
    pub started_at: Timestamp,
    /// What its user should know.
    pub notices: Vec<String>,
    /// What the first client of abx is to show its user, once.
    pub first_notice: Option<String>,
    /// Whether that was done.
    pub told: AtomicBool,
}

pub(super) fn register(module: &mut Module) {
    at_once::<DaemonHello, _>(module, |hello, app, extensions| {
        if let Some(introduced) = extensions.get::<Introduced>() {
            introduced.note(&hello.client);
        }
        tracing::debug!(client = hello.client, version = hello.version, protocol = hello.protocol, "hello");
        let identity = &app.identity;
        // Others may not show it to anybody.
        let ours = hello.client == "abx";
        let rebuilt = ours.then(|| app.driver.tell_rebuilt()).flatten();
        let first = rebuilt.is_none().then(|| identity.first_notice.clone()).flatten();
        let first = first.filter(|_| ours && !identity.told.swap(true, Ordering::Relaxed));
        if let Some(notice) = &first {
            app.driver.remember_told(notice.clone());
        }
        Ok(HelloResult {
            server: "abxd".to_owned(),
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            pid: std::process::id(),
            home: identity.home.display().to_string(),
            started_at: clock::rfc3339(identity.started_at),
            notice: rebuilt.or(first),
        })
    });
    now::<DaemonInfo, _>(module, |_, app| Ok(info(app)));
    later::<DaemonCheck, _, _>(module, |_, app, _| async move { app.driver.check().await });
    later::<DaemonRestart, _, _>(module, |asked, app, _| async move {
        let successor = Successor::ask(asked.program.map(PathBuf::from)).await?;
        tracing::info!(?successor, "asked to hand over by a client");
        let to = successor.version.clone();
        match app.shutdown.hand_over(successor) {
            true => Ok(RestartResult { pid: std::process::id(), from: VERSION.to_owned(), to }),
            false => Err(Failure::not_begun("the daemon is stopping")),
        }
    });
    now::<DaemonShutdown, _>(module, |_, app| {
        if app.shutdown.successor().is_some() {
            return Err(Failure::not_begun("another abxd is about to go on: ask that one"));
        }
        tracing::info!("asked to stop by a client");
        app.shutdown.begin();
        Ok(Done { done: true })
    });
    let document: Arc<RawValue> = one_line(OPENRPC).into();
    at_once::<RpcDiscover, _>(module, move |_, _, extensions| match extensions.get::<Prepared>() {
        Some(prepared) => {
            prepared.leave(Arc::clone(&document));
            Ok(None)
        }
        None => Ok(Some(RawValue::to_owned(&document))),
    });
}

/// The document without its line breaks: on a stream of JSON texts an answer is one line.
fn one_line(document: &str) -> Box<RawValue> {
    let parsed: serde_json::Value =
        serde_json::from_str(document).expect("a test renders and compares the document");
    serde_json::value::to_raw_value(&parsed).expect("what was parsed can be written")
}

fn info(app: &App) -> DaemonInfoResult {
    let identity = &app.identity;
    let settings = app.driver.config().explain();
    DaemonInfoResult {
        version: VERSION.to_owned(),
        protocol: PROTOCOL,
        pid: std::process::id(),
        home: identity.home.display().to_string(),
        socket: identity.socket.display().to_string(),
        started_at: clock::rfc3339(identity.started_at),
        sessions: app.driver.count() as u64,
        engines: vec![engine(app)],
        settings: settings
            .into_iter()
            .map(|(name, value, source)| Setting { name, value, source: source.to_string() })
            .collect(),
        notices: [
            identity.notices.clone(),
            app.driver.rebuilt_notices(),
            app.driver.elsewhere_notice().into_iter().collect(),
        ]
        .concat(),
    }
}

fn engine(app: &App) -> EngineInfo {
    let state = app.driver.engine_state();
    let health = match (&state.about, &state.problem) {
        (_, Some(_)) => "unavailable",
        (Some(_), None) => "ok",
        (None, None) => "checking",
    };
    let about = state.about;
    EngineInfo {
        name: "docker".to_owned(),
        address: about.as_ref().map(|a| a.address.clone()),
        source: about.as_ref().map(|a| a.source.clone()),
        version: about.as_ref().map(|a| a.version.clone()),
        api_version: about.as_ref().map(|a| a.api_version.clone()),
        health: health.to_owned(),
        problem: state.problem,
        clock_skew_ms: about.map(|a| a.clock_skew_ms),
    }
}
