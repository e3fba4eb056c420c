//! A copy of the table for each day on which the daemon runs.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clock;
use super::driver::Driver;

/// Time from the start to the first look: whoever waits for a new daemon comes first. Short, for one that is started anew
/// every few seconds must have copies too.
const FIRST: Duration = Duration::from_secs(1);

/// Time between two looks whether a copy is due.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// Shortest time between two copies, by the clock that nobody sets: one that is set to and fro would else fill the
/// directory with copies of one day.
const APART: Duration = Duration::from_secs(6 * 60 * 60);

/// Makes copies for ever.
pub(super) async fn run(driver: Driver) {
    let mut last: Option<Instant> = None;
    sleep(FIRST).await;
    loop {
        if last.is_none_or(|at| at.elapsed() >= APART) && driver.back_up().await {
            last = Some(Instant::now());
        }
        sleep(LOOK).await;
    }
}

impl Driver {
    /// Makes a copy if one is due, and says whether it did. Without one the table is as good as before: that is logged.
    async fn back_up(&self) -> bool {
        let store = self.0.store.clone();
        let made = tokio::task::spawn_blocking(move || store.back_up(clock::now())).await;
        match made {
            Ok(Ok(copy)) => {
                if let Some(copy) = &copy {
                    tracing::info!(?copy, "copied the session table");
                }
                copy.is_some()
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot copy the session table; will try again");
                false
            }
            Err(error) => {
                tracing::error!(%error, "copying the session table panicked");
                false
            }
        }
    }
}
