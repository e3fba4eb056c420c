//! `event.*`.

use super::{Module, at_once, reserve, unsubscribe};
use crate::daemon::feed;
use crate::daemon::framing::Prepared;
use crate::proto::methods::{EventList, EventSubscribe, EventUnsubscribe};

pub(super) fn register(module: &mut Module) {
    at_once::<EventSubscribe, _>(module, |asked, app, extensions| {
        let place = reserve(extensions, "event.list gives what has happened so far")?;
        feed::subscribe(&app.driver, place, &asked)
    });
    at_once::<EventUnsubscribe, _>(module, |asked, _, extensions| {
        Ok(unsubscribe(extensions, asked.subscription))
    });
    at_once::<EventList, _>(module, |asked, app, extensions| {
        let page = app.driver.list_events(&asked)?;
        match extensions.get::<Prepared>() {
            Some(prepared) => {
                prepared.leave_array(page);
                Ok(Vec::new())
            }
            None => Ok(page),
        }
    });
}
