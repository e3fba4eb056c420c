//! The method table: each method of `proto::methods`, bound to the driver.
//!
//! Handlers translate and nothing more: they reach store and engine only through the driver's handle.

mod about;
pub mod convert;
mod encode;
mod event;
mod exec;
mod file;
mod session;
mod snapshot;
mod stored;
mod table;
mod terminal;

use std::future::Future;
use std::sync::Arc;

use jsonrpsee::RpcModule;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use serde::Serialize;

pub use self::about::Identity;
use self::encode::Encoder;
use super::caller::{self, Introduced};
use super::driver::Driver;
use super::failure::Failure;
use super::framing::{Audience, Notifier, Peer, params};
use super::named;
use super::progress::Report;
use super::shutdown::Shutdown;
use super::subscriptions::{Answered, Reserved, Subscriptions};
use crate::proto::methods::{Done, Method};

/// What the handlers share.
pub struct App {
    driver: Driver,
    encoder: Encoder,
    identity: Identity,
    shutdown: Shutdown,
}

type Module = RpcModule<App>;
type Extensions = jsonrpsee::Extensions;

/// Binds every method.
///
/// # Panics
/// When two methods share a name, which a test of `proto::methods` excludes.
pub fn module(driver: Driver, identity: Identity, shutdown: Shutdown) -> RpcModule<App> {
    let mut module = RpcModule::new(App { driver, encoder: Encoder::default(), identity, shutdown });
    about::register(&mut module);
    session::register(&mut module);
    snapshot::register(&mut module);
    event::register(&mut module);
    exec::register(&mut module);
    file::register(&mut module);
    stored::register(&mut module);
    table::register(&mut module);
    terminal::register(&mut module);
    module
}

/// Registers a method that answers from memory: it runs on the connection's own task.
fn now<M, R>(
    module: &mut Module,
    handler: impl Fn(M::Params, &App) -> Result<R, Failure> + Send + Sync + Clone + 'static,
) where
    M: Method,
    R: Serialize + Clone + 'static,
{
    at_once::<M, R>(module, move |asked, app, _| handler(asked, app));
}

/// As [`now`], for a method that also looks at the call's extensions.
fn at_once<M, R>(
    module: &mut Module,
    handler: impl Fn(M::Params, &App, &Extensions) -> Result<R, Failure> + Send + Sync + Clone + 'static,
) where
    M: Method,
    R: Serialize + Clone + 'static,
{
    module
        .register_method(M::NAME, move |text: Params<'_>, app, extensions| {
            let asked = params::<M::Params>(&text)?;
            handler(asked, app, extensions).map_err(|failure| refuse::<M>(&failure))
        })
        .expect("method names are distinct");
}

/// Registers a method that waits for something.
fn later<M, R, F>(
    module: &mut Module,
    handler: impl Fn(M::Params, Arc<App>, Extensions) -> F + Send + Sync + Clone + 'static,
) where
    M: Method,
    R: Serialize + Clone + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
{
    module
        .register_async_method(M::NAME, move |text, app, extensions| {
            let asked = params::<M::Params>(&text);
            let handler = handler.clone();
            let by = extensions.get::<Peer>().map(|peer| caller::of(peer, extensions.get::<Introduced>()));
            async move {
                let running = handler(asked?, app, extensions);
                caller::acting(by, running).await.map_err(|failure| refuse::<M>(&failure))
            }
        })
        .expect("method names are distinct");
}

fn refuse<M: Method>(failure: &Failure) -> ErrorObjectOwned {
    tracing::info!(method = M::NAME, kind = failure.kind.name(), causes = ?failure.causes, "{failure}");
    let wire = failure.to_wire();
    ErrorObjectOwned::owned(wire.code, wire.message, wire.data)
}

/// Keeps a place for a subscription of the call's connection.
///
/// # Errors
/// As for [`Subscriptions::reserve`]; `instead` says what serves a connection that carries no notifications.
fn reserve(extensions: &Extensions, instead: &str) -> Result<Reserved, Failure> {
    let answered = extensions.get::<Answered>().cloned().unwrap_or_default();
    let (notifier, all) = (extensions.get::<Notifier>(), extensions.get::<Arc<Subscriptions>>());
    let (Some(notifier), Some(all)) = (notifier.filter(|notifier| notifier.reaches()), all) else {
        let text = "this connection carries no notifications: speak WebSocket on it";
        return Err(Failure::params(text).hint(instead));
    };
    all.reserve(notifier, answered)
}

/// Ends a subscription of the call's connection, if it is there.
fn unsubscribe(extensions: &Extensions, subscription: u64) -> Done {
    if let Some(all) = extensions.get::<Arc<Subscriptions>>() {
        all.end(subscription);
    }
    Done { done: true }
}

/// Progress of an operation, on a session if it is about one: to the connection that the call came from, if it asked for
/// it, and to those who subscribed. Whoever made the call may cancel it.
///
/// # Errors
/// `invalid_params` where the caller's name for it is none.
fn report(
    app: &App,
    session: Option<&str>,
    op: Option<String>,
    extensions: &Extensions,
) -> Result<Report, Failure> {
    named::operation(op.as_deref())?;
    let notifier = extensions.get::<Notifier>().filter(|_| op.is_some()).cloned();
    let audience = extensions.get::<Audience>().cloned().unwrap_or_default();
    Ok(app.driver.report(session, op, notifier).awaited_by(audience))
}
