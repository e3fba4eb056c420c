//! What a sandbox uses of the machine.

use std::time::Duration;

use futures_util::StreamExt;

use super::DockerEngine;
use super::api::StatsOptionsBuilder;
use super::link::{About, ORDINARY};
use crate::engine::EngineError;

/// The name of the call.
const CALL: &str = "cpu_time";

impl DockerEngine {
    /// The CPU time that its processes have used, by one look: the engine is not made to take two of them, a second apart,
    /// to work out a rate.
    pub(super) async fn cpu_used(&self, id: &str) -> Result<Duration, EngineError> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let look = self.link.call(CALL, ORDINARY, About::Sandbox(id), |client| async move {
            client.docker.stats(id, Some(options)).next().await.transpose()
        });
        let used = look.await?.and_then(|seen| seen.cpu_stats?.cpu_usage?.total_usage);
        let untold = || EngineError::Failed { call: CALL, text: "the engine does not tell it".to_owned() };
        used.map(Duration::from_nanos).ok_or_else(untold)
    }
}
