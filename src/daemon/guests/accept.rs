//! Who may connect for a sandbox: its main program, and nobody else in it.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::link::{Link, greet};
use super::{Inner, Live, Slot};
use crate::engine::Observed;

/// Connections of one sandbox that are looked at side by side. What else comes meanwhile is closed: abx-init comes
/// again.
const MAX_GREETINGS: usize = 4;

/// How long the engine may take to tell the process of a sandbox that it has started.
const PROCESS_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at that.
const PROCESS_POLL: Duration = Duration::from_millis(20);

/// Rest after an accept that failed: the files of this process are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Accepts a session's connections until it is aborted.
pub(super) async fn run(guests: Weak<Inner>, slot: Arc<Slot>, listener: UnixListener) {
    let greetings = Arc::new(Semaphore::new(MAX_GREETINGS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = slot.has_news.notified() => {
                let Some(guests) = guests.upgrade() else { return };
                guests.count_kills(&slot).await;
                guests.note_ends(&slot).await;
                continue;
            }
        };
        let Some(guests) = guests.upgrade() else { return };
        match (accepted, Arc::clone(&greetings).try_acquire_owned()) {
            (Ok((socket, _)), Ok(permit)) => {
                let slot = Arc::clone(&slot);
                tokio::spawn(async move {
                    let _permit = permit;
                    if let Err(why) = guests.admit(&slot, socket).await {
                        tracing::warn!(session = %slot.session, why, "refused a connection from a sandbox");
                    }
                });
            }
            (Ok(_), Err(_)) => tracing::warn!(session = %slot.session, "a sandbox connects too often"),
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept the connection of a sandbox");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Inner {
    async fn admit(&self, slot: &Arc<Slot>, socket: UnixStream) -> Result<(), String> {
        let peer = socket.peer_cred().map_err(|error| error.to_string())?;
        // None and 0: its processes have numbers of another kernel or namespace, which say nothing here.
        let process = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let sandbox = self.sandbox_of(slot).await.ok_or("the engine does not say what runs there")?;
        if process.is_some() && process != sandbox.pid {
            return Err(format!("process {process:?} is not the main program, {:?}", sandbox.pid));
        }
        self.greet(slot, socket, sandbox).await
    }

    /// Greets who was let in, and takes the connection.
    pub(super) async fn greet(
        &self,
        slot: &Arc<Slot>,
        mut socket: UnixStream,
        sandbox: Observed,
    ) -> Result<(), String> {
        let hello = greet(&mut socket).await.map_err(|error| error.to_string())?;
        tracing::info!(session = %slot.session, build = ?hello.build, uid = hello.uid, "a sandbox is connected");
        let (noting, usage) = (Arc::downgrade(slot), self.usage.clone());
        let events = Box::new(move |event| {
            if let Some(slot) = noting.upgrade() {
                slot.note(event, &usage);
            }
        });
        let session = slot.session.clone();
        let live = slot.put(Live { session, link: Link::new(socket, events), sandbox });
        self.catch_up(slot, &live).await;
        Ok(())
    }

    /// The sandbox as the engine sees it, once it has a process.
    async fn sandbox_of(&self, slot: &Slot) -> Option<Observed> {
        let deadline = Instant::now() + PROCESS_LIMIT;
        while Instant::now() < deadline {
            let row = self.store.session_by_id(&slot.session)?;
            if let Some(id) = &row.sandbox_id
                && let Ok(Some(seen)) = self.engine.inspect(id).await
                && seen.pid.is_some()
            {
                return Some(seen);
            }
            sleep(PROCESS_POLL).await;
        }
        None
    }

    async fn count_kills(&self, slot: &Slot) {
        let kills = slot.kills.lock().unwrap_or_else(PoisonError::into_inner).news();
        if kills == 0 {
            return;
        }
        let counted =
            self.store.update(&slot.session, move |s| s.oom_events = s.oom_events.saturating_add(kills));
        if let Err(error) = counted.await {
            tracing::warn!(%error, session = %slot.session, "cannot count kills for want of memory");
        }
    }
}
