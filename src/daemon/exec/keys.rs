//! Commands that their callers name: asking twice starts one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::{ExecRequest, Live};
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::guests::Wanted;
use crate::model::exec::code::UNSEEN;
use crate::model::exec::{Exec, Verdict};
use crate::model::id::SessionId;
use crate::model::session::Session;
use crate::proto::errors::Kind;

/// How old a command may be that is started again when abx-init does not know it. A client asks again within seconds of
/// a daemon's end, and abx-init knows the last hundreds of commands that have ended.
const YOUNG: Duration = Duration::from_secs(30);

/// Which keys are being looked for or given to a command. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Keys(Arc<Mutex<Turns>>);

/// What is held by whoever asks by a key.
type Turns = HashMap<(SessionId, String), Weak<tokio::sync::Mutex<()>>>;

impl Keys {
    /// Waits until nobody else asks for a command by this key, and keeps it so until the guard is dropped.
    async fn hold(&self, session: &SessionId, key: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let place = turns.entry((session.clone(), key.to_owned())).or_default();
            place.upgrade().unwrap_or_else(|| {
                let turn = Arc::default();
                *place = Arc::downgrade(&turn);
                turn
            })
        };
        turn.lock_owned().await
    }
}

impl Driver {
    /// Waits for the turn of a request with a key: whoever comes second with it finds the command of the first. To be held
    /// until the command is started.
    pub(super) async fn turn_of_key(
        &self,
        session: &Session,
        request: &ExecRequest,
    ) -> Option<OwnedMutexGuard<()>> {
        Some(self.0.keys.hold(&session.id, request.key.as_deref()?).await)
    }

    /// The command that has the request's key, and what came of following it. The note of one that never began is taken
    /// back. To be called in the key's turn.
    pub(super) async fn keyed(
        &self,
        session: &Session,
        request: &ExecRequest,
        wanted: &Wanted,
    ) -> Option<(Arc<Exec>, Result<Live, Failure>)> {
        let exec = self.0.store.exec_keyed(&session.id, request.key.as_deref()?)?;
        match self.follow_exec(exec.id.as_str(), wanted).await {
            // The daemon before this one noted it, and ended before it asked for it.
            Err(failure) if failure.kind == Kind::ExecNotFound && never_began(&exec) => {
                self.forget_exec(&session.id, exec.id.as_str(), request.attach).await;
                None
            }
            followed => Some((exec, followed)),
        }
    }
}

/// Whether a command that abx-init does not know cannot have been started: so young, it would know it. One that was given
/// up may start yet.
fn never_began(exec: &Exec) -> bool {
    let unseen = exec.ended.as_ref().is_none_or(|end| end.code == UNSEEN);
    let age = clock::now().0.saturating_sub(exec.started_at.0);
    let young = u64::try_from(age).is_ok_and(|age| Duration::from_millis(age) < YOUNG);
    unseen && young && !exec.verdict.is_some_and(Verdict::gives_up)
}
