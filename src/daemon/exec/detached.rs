//! Commands that nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;

use super::collect::{feed, never_started};
use super::{ExecRequest, Live, by};
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::guests::Wanted;
use crate::engine::Chunk;
use crate::engine::docker::start_failure;
use crate::model::exec::{Exec, Verdict};

/// How long a detached command is watched before it counts as started. The engine tells within this that there is no
/// such program; what it tells later is not told.
const START_LIMIT: Duration = Duration::from_millis(200);

/// Output in which a failed start is looked for, in bytes: the engines' texts are one line.
const MAX_TEXT_BYTES: usize = 2048;

impl Driver {
    /// Starts a command that goes on by itself, and gives it its input, or finds the one that was started under the same
    /// key.
    ///
    /// # Errors
    /// As for [`Driver::exec`], and `command_not_found` or `command_not_executable`.
    ///
    /// # Cancel safety
    /// The command is started all the same.
    pub async fn exec_start(
        &self,
        request: ExecRequest,
        input: Option<String>,
    ) -> Result<Arc<Exec>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let session = this.session(&request.session)?;
            let turn = this.turn_of_key(&session, &request).await;
            // Also where it cannot be followed: its row says what became of it.
            if let Some((exec, _)) = this.keyed(&session, &request, &Wanted::default()).await {
                return this.find_exec(exec.id.as_str());
            }
            let mut live = this.exec(request).await?;
            drop(turn);
            live.confirm().await?;
            let id = live.id.clone();
            live.follow(input.unwrap_or_default());
            this.find_exec(&id)
        })
        .await
    }
}

impl Live {
    /// Waits a short time for the engine to say that the command cannot be started. What it writes meanwhile is dropped,
    /// as all that a detached command writes is.
    ///
    /// # Errors
    /// `command_not_found` or `command_not_executable`.
    pub async fn confirm(&mut self) -> Result<(), Failure> {
        let mut text = Vec::new();
        let Self { io, handle, .. } = self;
        if handle.is_durable() {
            // It was answered already, and its output is kept.
            return match handle.ended_at_once().await {
                Some(ended) if ended.never_started => Err(never_started(handle, ended.code, &[])),
                _ => Ok(()),
            };
        }
        let look = async {
            while let Some(Ok(Chunk::Stdout(bytes) | Chunk::Stderr(bytes))) = io.output.next().await {
                let room = MAX_TEXT_BYTES.saturating_sub(text.len()).min(bytes.len());
                text.extend_from_slice(&bytes[..room]);
                let fails = start_failure(&String::from_utf8_lossy(&text)).is_some();
                if !fails {
                    return None;
                }
            }
            handle.wait().await.ok()
        };
        let ended = timeout(START_LIMIT, look).await.ok().flatten();
        match ended {
            Some(ended) if ended.never_started => Err(never_started(handle, ended.code, &text)),
            _ => Ok(()),
        }
    }

    /// Gives the command its input, if it has one, and reads its output to its end, on a task of its own, so that it never
    /// waits for a reader; ends it at the deadline.
    pub fn follow(self, input: String) {
        tokio::spawn(async move {
            let Self { mut io, handle, deadline, .. } = self;
            let feed = feed(io.input.take(), input);
            let read = async {
                while let Some(Ok(_)) = io.output.next().await {}
                if let Err(error) = handle.wait().await {
                    tracing::debug!(%error, "cannot tell how a detached command ended");
                }
            };
            let work = async {
                tokio::select! {
                    () = read => {}
                    never = feed => match never {},
                }
            };
            if by(deadline, work).await.is_none() {
                handle.finish(&mut io.output, Verdict::TimedOut, |_| {}).await;
            }
        });
    }
}
