//! Ctrl-C while an operation goes on that abxd finishes by itself: the user is told so before this process ends. A save
//! is given up instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::{emulate_default_handler, unregister};

use super::cmd::session::quoted;
use super::output::Output;
use crate::client::{Cancel, Client};
use crate::proto::methods::Method;

/// Catches SIGINT until it is dropped, for the methods that are worth it.
pub(crate) struct Interrupt {
    caught: Option<(SigId, Arc<AtomicBool>)>,
    session: String,
    cancels: bool,
}

impl Interrupt {
    /// For one call with these params.
    pub(crate) fn during<M: Method>(params: &M::Params) -> Self {
        let field = match M::NAME {
            "session.start" | "session.stop" | "session.save" | "session.resume" | "session.connect" => {
                "name"
            }
            "session.fork" => "new_name",
            _ => return Self { caught: None, session: String::new(), cancels: false },
        };
        let params = serde_json::to_value(params).unwrap_or_default();
        let session = params[field].as_str().unwrap_or_default().to_owned();
        let pressed = Arc::new(AtomicBool::new(false));
        // Where it cannot be caught, it ends this process as ever.
        let caught = signal_hook::flag::register(SIGINT, pressed.clone()).ok().map(|id| (id, pressed));
        Self { caught, session, cancels: M::NAME == "session.save" }
    }

    /// What gives up the call that comes next on this connection, where that is what the user means.
    pub(crate) fn cancel(&self, client: &Client) -> Option<Cancel> {
        // Where there is none, leaving ends the waiting alone.
        if self.cancels { client.cancel_next().ok() } else { None }
    }

    /// Whether the user wants to leave.
    pub(crate) fn pressed(&self) -> bool {
        self.caught.as_ref().is_some_and(|(_, pressed)| pressed.load(Ordering::Relaxed))
    }

    /// Says what goes on, or is given up, and ends the process as the signal would have.
    pub(crate) fn leave(&self, cancel: Option<&mut Cancel>, output: &Output) {
        let what = match cancel {
            Some(cancel) => {
                cancel.now();
                "The save is given up; to see how the session is left"
            }
            None => "The operation goes on in abxd; to see how it ends",
        };
        output.note(&format!("{what}: abx session get {}", quoted(&self.session)));
        // Does not come back; should it fail, the wait goes on.
        let _ = emulate_default_handler(SIGINT);
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if let Some((id, _)) = self.caught {
            unregister(id);
        }
    }
}
