//! A command's output, followed across connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{End, ORPHAN_LIMIT, Shared, Terms, WINDOW};
use crate::daemon::guests::Guests;
use crate::daemon::guests::ask::{ALIVE_POLL, lost};
use crate::daemon::guests::link::Opened;
use crate::daemon::guests::stream::{Item, Source};
use crate::engine::{Chunk, EngineError, Observed, RunState};
use crate::guest::wire::{Exited, Follow, Following, Kind, Payload};
use crate::model::session::Session;

/// Output after which its credit is given back, in bytes: a quarter of it all, so that the other side has most of it
/// at any time.
const GIVE_BACK: u32 = WINDOW / 4;

/// The first pause between two looks at a sandbox whose connection is gone; it doubles.
const FIRST_POLL: Duration = Duration::from_millis(20);

/// Gives what a command writes, and notes its end. Dropping it gives the command up, and does not end it.
pub(super) struct Output {
    guests: Guests,
    session: Arc<Session>,
    id: String,
    shared: Arc<Shared>,
    open: Arc<Opened>,
    tty: bool,
    writes: bool,
    scrollback: u32,
    /// Bytes taken so far.
    stdout: u64,
    stderr: u64,
    /// Bytes taken for which no credit was given back.
    owed: u32,
}

impl Output {
    pub(super) fn new(
        guests: Guests,
        session: Arc<Session>,
        id: &str,
        shared: &Arc<Shared>,
        open: Arc<Opened>,
        terms: &Terms,
    ) -> Self {
        let (id, shared) = (id.to_owned(), Arc::clone(shared));
        let (writes, scrollback, (stdout, stderr)) = (terms.stdin, terms.scrollback, terms.from);
        let tty = terms.tty;
        Self { guests, session, id, shared, open, tty, writes, scrollback, stdout, stderr, owed: 0 }
    }

    /// The next piece; none at the command's end, which is noted by then. Whoever asks has passed on all before it:
    /// what abx-init gets credit for it no longer keeps. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<Chunk, EngineError>> {
        self.give_back();
        loop {
            match self.open.next().await {
                Some(Item::Output(source, bytes)) => return Some(Ok(self.take(source, bytes))),
                Some(Item::Answer(Kind::Exited, payload)) => match Exited::decode(&payload) {
                    Ok(exited) => {
                        self.miss(exited.stdout, exited.stderr);
                        self.shared.end(End::exited(&exited));
                        return None;
                    }
                    Err(_) => self.open.link().refuse(),
                },
                Some(Item::Answer(Kind::Following, payload)) => match Following::decode(&payload) {
                    Ok(following) => self.goes_on_at(&following),
                    Err(_) => self.open.link().refuse(),
                },
                // abx-init does not know it any more: this is another life of the sandbox.
                Some(Item::Answer(Kind::Failed, _)) => {
                    self.shared.end(End::lost());
                    return None;
                }
                Some(Item::Answer(..)) => {}
                None if self.shared.ended().is_some() => return None,
                None => match self.follow_again().await {
                    Ok(true) => {}
                    Ok(false) => {
                        self.shared.end(End::lost());
                        return None;
                    }
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    fn take(&mut self, source: Source, bytes: Bytes) -> Chunk {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.owed = self.owed.saturating_add(length);
        match source {
            Source::Stdout => {
                self.stdout += u64::from(length);
                Chunk::Stdout(bytes)
            }
            Source::Stderr => {
                self.stderr += u64::from(length);
                Chunk::Stderr(bytes)
            }
        }
    }

    fn give_back(&mut self) {
        if self.owed >= GIVE_BACK {
            self.open.grant(self.owed);
            self.owed = 0;
        }
    }

    fn goes_on_at(&mut self, following: &Following) {
        self.miss(following.stdout_from, following.stderr_from);
        (self.stdout, self.stderr) = (following.stdout_from, following.stderr_from);
    }

    /// Notes what of a command's output did not come, which now stands there. A terminal's is painted anew instead.
    fn miss(&self, stdout: u64, stderr: u64) {
        let missing = stdout.saturating_sub(self.stdout) + stderr.saturating_sub(self.stderr);
        if missing > 0 && !self.tty {
            tracing::warn!(exec = self.id, missing, "output was dropped while nobody followed a command");
        }
    }

    /// Follows the command on the sandbox's next connection. False when the sandbox has ended, and the command with it.
    ///
    /// # Errors
    /// When there is no such connection for long, and when input may have gone with the one before: the command would go
    /// on with a hole in it, and nobody would know.
    async fn follow_again(&mut self) -> Result<bool, EngineError> {
        if self.writes && !self.tty && !self.open.has_taken_input() && self.sandbox_may_run().await {
            return Err(lost());
        }
        let deadline = Instant::now() + ORPHAN_LIMIT;
        let mut pause = FIRST_POLL;
        while Instant::now() < deadline {
            let slot = self.guests.slots().get(&self.session.id).cloned();
            // A session without a slot is deleted.
            let Some(slot) = slot else { return Ok(false) };
            if let Some(live) = slot.other_than(Some(self.open.link()), Instant::now() + pause).await {
                let request = Follow {
                    id: self.id.clone(),
                    stdout_from: self.stdout,
                    stderr_from: self.stderr,
                    window: WINDOW,
                    writes: self.writes,
                    size: None,
                    scrollback: self.scrollback,
                };
                if let Some(open) = live.link.open(Kind::Follow, &request.encode(), WINDOW) {
                    self.open = Arc::new(open);
                    self.owed = 0;
                    self.shared.follow_on(&self.open);
                    return Ok(true);
                }
            }
            match self.guests.look(&self.session).await {
                Ok(Some(seen)) if may_run(&seen) => {
                    if slot.is_called(&seen)
                        && seen.state == RunState::Running
                        && let Err(error) = self.guests.call(&slot, seen).await
                    {
                        tracing::debug!(%error, exec = self.id, "cannot call a sandbox, and calls again");
                    }
                }
                Ok(_) => return Ok(false),
                Err(error) => {
                    tracing::debug!(%error, exec = self.id, "cannot see a sandbox, and looks again")
                }
            }
            pause = (pause * 2).min(ALIVE_POLL);
        }
        Err(lost())
    }

    /// Whether the sandbox runs, or cannot be seen.
    async fn sandbox_may_run(&self) -> bool {
        let seen = self.guests.look(&self.session).await;
        seen.map_or(true, |seen| seen.is_some_and(|seen| may_run(&seen)))
    }
}

fn may_run(seen: &Observed) -> bool {
    matches!(seen.state, RunState::Running | RunState::Paused)
}
