//! Ctrl-C while an operation goes on that abxd finishes by itself: the user is told so before this process ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::{emulate_default_handler, unregister};

use super::cmd::session::quoted;
use super::output::Output;
use crate::proto::methods::Method;

/// Catches SIGINT until it is dropped, for the methods that are worth it.
pub(crate) struct Interrupt {
    caught: Option<(SigId, Arc<AtomicBool>)>,
    session: String,
}

impl Interrupt {
    /// For one call with these params.
    pub(crate) fn during<M: Method>(params: &M::Params) -> Self {
        let field = match M::NAME {
            "session.start" | "session.stop" | "session.save" | "session.resume" | "session.connect" => {
                "name"
            }
            "session.fork" => "new_name",
            _ => return Self { caught: None, session: String::new() },
        };
        let params = serde_json::to_value(params).unwrap_or_default();
        let session = params[field].as_str().unwrap_or_default().to_owned();
        let pressed = Arc::new(AtomicBool::new(false));
        // Where it cannot be caught, it ends this process as ever.
        let caught = signal_hook::flag::register(SIGINT, pressed.clone()).ok().map(|id| (id, pressed));
        Self { caught, session }
    }

    /// Whether the user wants to leave.
    pub(crate) fn pressed(&self) -> bool {
        self.caught.as_ref().is_some_and(|(_, pressed)| pressed.load(Ordering::Relaxed))
    }

    /// Says what goes on, and ends the process as the signal would have.
    pub(crate) fn leave(&self, output: &Output) {
        output.note(&format!(
            "The operation goes on in abxd; to see how it ends: abx session get {}",
            quoted(&self.session)
        ));
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
