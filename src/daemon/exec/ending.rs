//! Ending a command: because its time ran out, or because nobody waits for it any more.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::handle::{Ended, Handle, no_such_exec};
use super::{BUSY_LIMIT, ChunkStream};
use crate::daemon::clock;
use crate::engine::{Chunk, EngineError, ExecState};
use crate::model::exec::signal::{KILL, TERM};
use crate::model::exec::{End, Verdict};
use crate::model::id::ExecId;

/// Time between TERM and KILL for a command whose time ran out or whose client is gone.
pub(in crate::daemon) const KILL_GRACE: Duration = Duration::from_secs(2);

/// Longest that one signal may take to arrive. The engine looks again and again for a command of which no process can
/// be seen (it cleared its environment, or its sandbox has no shell); past this it is given up.
const SIGNAL_LIMIT: Duration = Duration::from_secs(5);

/// Time for the last output of a command that was ended. Past it, what still holds the output open is not waited for.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// How long after the end of its output a command that was given up may be seen to end; past it, it was killed.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Between two looks at whether a command that got TERM has ended.
const GONE_POLL: Duration = Duration::from_millis(50);

/// What became of a signal.
enum Delivery {
    /// It was sent, or cannot be.
    Tried,
    /// The sandbox takes none in the state that it is in now.
    Refused,
}

impl Handle {
    /// Ends the command as [`Handle::end`] does, for this reason, and reads the last of its output, for a bounded time: an
    /// engine that cannot get rid of the output of a command that has ended may hang on the whole sandbox. Gives its end,
    /// which is its own where that came first. One that is frozen lives, and no end of it is noted: it is owed.
    pub async fn finish(
        &self,
        output: &mut ChunkStream,
        verdict: Verdict,
        mut take: impl FnMut(Chunk),
    ) -> Ended {
        // First: what is seen of it from here on is the verdict's doing.
        self.driver.judge_exec(&self.exec_id, verdict).await;
        let ending = self.end();
        let bound = async {
            // It ends with its last step, or by a panic that is logged where it happens.
            let _ = ending.await;
            sleep(LAST_OUTPUT).await;
        };
        let read = async {
            while let Some(Ok(chunk)) = output.next().await {
                take(chunk);
            }
        };
        tokio::select! {
            () = read => {}
            () = bound => {
                tracing::warn!(exec = self.exec_id, "a command that was ended still holds its output open");
            }
            () = self.owed() => {
                let end = verdict.end(End::unseen(clock::now()));
                let why = end.reason.iter().cloned().chain([self.owed_line()]).collect::<Vec<_>>();
                return End { reason: Some(why.join("; ")), ..end }.into();
            }
        }
        // Its time is told at once, whatever code its signal left; whoever was left by his client is told of as it ended.
        if verdict.gives_up()
            && let Ok(Ok(ended)) = timeout(LAST_LOOK, self.wait()).await
        {
            return ended;
        }
        let seen = verdict.end(End::unseen(clock::now()));
        self.driver.end_exec(&self.exec_id, seen).await.into()
    }

    /// Ends the command: TERM to all its processes, a grace, KILL for those that are left. Goes on by itself when the
    /// answer is dropped. In a sandbox that is frozen it is done when that is thawed.
    pub fn end(&self) -> JoinHandle<()> {
        let copy = self.copy();
        tokio::spawn(async move {
            if *copy.owed.borrow() {
                return;
            }
            if !copy.signal_in_time(TERM).await {
                return copy.owe().await;
            }
            // Also where its main process is gone at once: its children may need the grace, and may be left.
            let killed_at = Instant::now() + KILL_GRACE;
            if timeout(KILL_GRACE, copy.gone()).await.is_ok() {
                sleep_until(killed_at).await;
            }
            if !copy.signal_in_time(KILL).await {
                copy.owe().await;
            }
        })
    }

    /// Waits until the command's end is owed: it is frozen, and is ended when it is thawed.
    pub async fn owed(&self) {
        // This handle holds the sender.
        let _ = self.owed.subscribe().wait_for(|owed| *owed).await;
    }

    /// Why a command that is owed its end has none yet.
    pub fn owed_line(&self) -> String {
        format!("session '{}' is paused, and the command is ended when it goes on", self.session.name)
    }

    /// Leaves the end to whoever has it in the table, also when this daemon is gone by then.
    async fn owe(self) {
        let (driver, id) = (self.driver.clone(), ExecId::new(&self.exec_id));
        // What was decided before stands.
        driver.judge_exec(id.as_str(), Verdict::Abandoned).await;
        self.owed.send_replace(true);
        // A frozen sandbox is not in use by what waits in it.
        drop(self);
        if let Some(exec) = driver.0.store.exec(&id) {
            driver.end_owed(exec).await;
        }
    }

    /// Sends a signal, also to a sandbox that is frozen for a moment only; false where it stays frozen.
    async fn signal_in_time(&self, signal: i32) -> bool {
        let (driver, session) = (&self.driver, &self.session.id);
        for is_last in [false, true] {
            match timeout(SIGNAL_LIMIT, self.send(signal)).await {
                Ok(Delivery::Tried) => return true,
                Err(_) if !driver.is_frozen(session) => {
                    tracing::warn!(exec = self.exec_id, signal, "no process of a command can be found");
                    return true;
                }
                Ok(Delivery::Refused) | Err(_) if is_last => {}
                Ok(Delivery::Refused) | Err(_) => {
                    // A sandbox that is being saved is frozen for a while, and one that others froze may not be known to
                    // be. Without an answer the row stays as it is.
                    let _ = timeout(BUSY_LIMIT, driver.compare_one(session, false)).await;
                    if driver.is_frozen(session) {
                        return false;
                    }
                }
            }
        }
        !driver.is_frozen(session)
    }

    /// Sends a signal to every process of the command.
    pub async fn signal(&self, signal: i32) {
        self.send(signal).await;
    }

    async fn send(&self, signal: i32) -> Delivery {
        let _launching = self.driver.0.launches.begin(&self.session.id).await;
        let engine = &*self.driver.0.engine;
        let sent = self.running.signal(engine, &self.session, &self.exec_id, signal).await;
        match sent {
            Ok(()) => Delivery::Tried,
            Err(error) => {
                tracing::debug!(%error, exec = self.exec_id, signal, "cannot signal a command");
                if matches!(error, EngineError::Conflict { .. }) {
                    Delivery::Refused
                } else {
                    Delivery::Tried
                }
            }
        }
    }

    /// Waits until the engine says that the command has ended, or does not know it any more.
    async fn gone(&self) {
        loop {
            match self.running.state(&*self.driver.0.engine).await {
                Ok(ExecState::Exited(_) | ExecState::NotStarted(_)) | Err(EngineError::NoSandbox { .. }) => {
                    return;
                }
                Err(EngineError::Failed { text, .. }) if no_such_exec(&text) => return,
                Ok(ExecState::Starting | ExecState::Running) | Err(_) => sleep(GONE_POLL).await,
            }
        }
    }
}
