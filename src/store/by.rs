//! Who asks for changes: noted with the events of all that a task writes.

use std::future::Future;

use crate::model::event::By;

tokio::task_local! {
    static ACTOR: Option<By>;
}

/// Whom the current task acts for; nobody when the daemon does something by itself.
pub fn actor() -> Option<By> {
    ACTOR.try_with(Clone::clone).unwrap_or_default()
}

/// Does something for somebody. A task that it spawns acts for nobody, unless that is said again.
///
/// # Cancel safety
/// That of `work`.
pub async fn acting<F: Future>(by: Option<By>, work: F) -> F::Output {
    ACTOR.scope(by, work).await
}
