//! Who may connect for a sandbox: its main program, and nobody else in it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use super::ends::Unknown;
use super::link::{Link, greet};
use super::{Guests, Inner, Live, Slot};
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

/// How long what the engine said of a main program holds against others that connect: any program of a sandbox can
/// connect as often as it likes, and the engine must not be asked as often. A main program that was not the one comes
/// again by then.
const MAIN_HOLDS: Duration = Duration::from_secs(1);

/// Connections of one sandbox that are refused in a turn of [`REFUSAL_TURN`], before the rest of it is waited for: about
/// what a hundredth of a processor refuses.
const MAX_REFUSALS: u32 = 500;

/// The turn.
const REFUSAL_TURN: Duration = Duration::from_secs(1);

/// Least time between two lines of the log about one sandbox's refused connections.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Accepts a session's connections until it is aborted.
pub(super) async fn run(guests: Weak<Inner>, slot: Arc<Slot>, listener: UnixListener) {
    let greetings = Arc::new(Semaphore::new(MAX_GREETINGS));
    let refusals = Arc::new(Mutex::new(Refusals::new()));
    loop {
        let rest = lock(&refusals).rest();
        if let Some(until) = rest {
            sleep_until(until).await;
        }
        let accepted = listener.accept().await;
        let Some(guests) = guests.upgrade() else { return };
        let refuse = {
            let (slot, refusals) = (Arc::clone(&slot), Arc::clone(&refusals));
            move |why: &str| {
                if let Some(refused) = lock(&refusals).note() {
                    tracing::warn!(session = %slot.session, why, refused, "refused connections from a sandbox");
                }
            }
        };
        match (accepted, Arc::clone(&greetings).try_acquire_owned()) {
            (Ok((socket, _)), Ok(permit)) => {
                let slot = Arc::clone(&slot);
                tokio::spawn(async move {
                    let _permit = permit;
                    if let Err(why) = admit(guests, &slot, socket).await {
                        refuse(&why);
                    }
                });
            }
            (Ok(_), Err(_)) => refuse("it connects too often"),
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept the connection of a sandbox");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Lets a sandbox's main program in.
///
/// # Errors
/// Why somebody is not let in.
async fn admit(guests: Arc<Inner>, slot: &Arc<Slot>, socket: UnixStream) -> Result<(), String> {
    let peer = socket.peer_cred().map_err(|error| error.to_string())?;
    let process = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    if process.is_some_and(|process| slot.is_another(process)) {
        return Err("it is not the main program".to_owned());
    }
    let sandbox = guests.sandbox_of(slot).await.ok_or("the engine does not say what runs there")?;
    let Some(process) = process else {
        // Its processes have numbers of another namespace than ours: whoever this is, the one that the engine calls for
        // us is the right one.
        drop(socket);
        slot.unreachable.store(true, Ordering::Relaxed);
        return Guests(guests).call(slot, sandbox).await.map_err(|error| error.to_string());
    };
    if Some(process) != sandbox.pid {
        slot.note_main(sandbox.pid);
        return Err(format!("process {process} is not the main program, {:?}", sandbox.pid));
    }
    guests.greet(slot, socket, sandbox).await
}

/// Connections that were refused.
#[derive(Debug)]
struct Refusals {
    turn_began: Instant,
    in_turn: u32,
    /// Since the last line about them.
    untold: u64,
    told_at: Option<Instant>,
}

impl Refusals {
    fn new() -> Self {
        Self { turn_began: Instant::now(), in_turn: 0, untold: 0, told_at: None }
    }

    /// Notes one; how many there were, when a line is due.
    fn note(&mut self) -> Option<u64> {
        let now = Instant::now();
        if now >= self.turn_began + REFUSAL_TURN {
            (self.turn_began, self.in_turn) = (now, 0);
        }
        self.in_turn += 1;
        self.untold += 1;
        if self.told_at.is_some_and(|at| now < at + LINE_EVERY) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    /// Until when nobody is let in, if that is so.
    fn rest(&self) -> Option<Instant> {
        let until = self.turn_began + REFUSAL_TURN;
        (self.in_turn >= MAX_REFUSALS && Instant::now() < until).then_some(until)
    }
}

impl Slot {
    /// Whether the engine has just said that the main program is another process.
    fn is_another(&self, process: u32) -> bool {
        lock(&self.main).is_some_and(|(at, main)| main != process && at.elapsed() < MAIN_HOLDS)
    }

    fn note_main(&self, process: Option<u32>) {
        *lock(&self.main) = process.map(|process| (Instant::now(), process));
    }

    /// A main program is about to be started.
    pub(super) fn forget_main(&self) {
        *lock(&self.main) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Greets who was let in, after the pause of one that made no sense before, and takes the connection.
    pub(super) async fn greet(
        &self,
        slot: &Arc<Slot>,
        mut socket: UnixStream,
        sandbox: Observed,
    ) -> Result<(), String> {
        let before = slot.current.borrow().clone();
        if let Some(before) = before {
            // Its end may not have been seen yet.
            slot.note_nonsense(&before);
        }
        let rest = slot.rest().until();
        if let Some(until) = rest {
            sleep_until(until).await;
        }
        let hello = greet(&mut socket).await.map_err(|error| error.to_string())?;
        tracing::info!(session = %slot.session, build = ?hello.build, uid = hello.uid, "a sandbox is connected");
        let (noting, usage) = (Arc::downgrade(slot), self.usage.clone());
        let events = Box::new(move |event| {
            if let Some(slot) = noting.upgrade() {
                slot.note(event, &usage);
            }
        });
        let session = slot.session.clone();
        let link = Link::new(socket, events).map_err(|error| error.to_string())?;
        let live = slot.put(Live { session, link, sandbox });
        self.catch_up(slot, &live, Unknown::TakeUp).await;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_of_in_a_line_a_minute_and_waits_its_turn() {
        let mut refusals = Refusals::new();
        let told = |refusals: &mut Refusals| (0..MAX_REFUSALS).filter_map(|_| refusals.note()).sum::<u64>();
        assert_eq!((refusals.rest(), told(&mut refusals)), (None, 1));
        let until = refusals.rest().expect("it rests");
        sleep_until(until).await;
        assert_eq!((refusals.rest(), told(&mut refusals)), (None, 0));
        sleep(LINE_EVERY).await;
        assert_eq!(told(&mut refusals), u64::from(2 * MAX_REFUSALS));
    }
}
