//! `event.*`.

use std::sync::Arc;

use super::{Module, at_once};
use crate::daemon::failure::Failure;
use crate::daemon::feed::Subscriptions;
use crate::daemon::framing::{Notifier, Prepared};
use crate::proto::methods::{Done, EventList, EventSubscribe, EventUnsubscribe};

pub(super) fn register(module: &mut Module) {
    at_once::<EventSubscribe, _>(module, |asked, app, extensions| {
        let (Some(notifier), Some(subscriptions)) =
            (extensions.get::<Notifier>(), extensions.get::<Arc<Subscriptions>>())
        else {
            return Err(Failure::params("this connection carries no notifications"));
        };
        subscriptions.begin(&app.driver, notifier, &asked)
    });
    at_once::<EventUnsubscribe, _>(module, |asked, _, extensions| {
        if let Some(all) = extensions.get::<Arc<Subscriptions>>() {
            all.end(asked.subscription);
        }
        Ok(Done { done: true })
    });
    at_once::<EventList, _>(module, |asked, app, extensions| {
        let page = app.driver.list_events(&asked);
        match extensions.get::<Prepared>() {
            Some(prepared) => {
                prepared.leave_array(page);
                Ok(Vec::new())
            }
            None => Ok(page),
        }
    });
}
