//! What runs a command: the engine, or abx-init in the sandbox.

use super::launches::Launched;
use crate::daemon::guests::Command;
use crate::engine::{Engine, EngineError, ExecState, WindowSize};
use crate::model::exec::signal;
use crate::model::session::Session;

/// A command that was started, by whoever did it.
pub(super) enum Running {
    /// Through the engine.
    Engine {
        /// What the engine calls it.
        launched: Launched,
        /// The user that it was started as.
        user: Option<String>,
    },
    /// Through abx-init.
    Guest(Command),
}

impl Running {
    /// What became of it.
    pub(super) async fn state(&self, engine: &dyn Engine) -> Result<ExecState, EngineError> {
        match self {
            Self::Engine { launched, .. } => engine.exec_state(launched.engine_id()).await,
            Self::Guest(command) => Ok(command.state()),
        }
    }

    /// Sets the size of its terminal.
    pub(super) async fn resize(&self, engine: &dyn Engine, size: WindowSize) -> Result<(), EngineError> {
        match self {
            Self::Engine { launched, .. } => engine.exec_resize(launched.engine_id(), size).await,
            Self::Guest(command) => {
                command.resize(size);
                Ok(())
            }
        }
    }

    /// Sends a signal to every process of it.
    pub(super) async fn signal(
        &self,
        engine: &dyn Engine,
        session: &Session,
        exec_id: &str,
        signal: i32,
    ) -> Result<(), EngineError> {
        match self {
            Self::Engine { user, .. } => {
                let sandbox = session.sandbox_id.as_deref().unwrap_or_default();
                engine.exec_signal(sandbox, exec_id, user.as_deref(), signal).await
            }
            Self::Guest(command) => command.signal(signal).await,
        }
    }

    /// The signal that ended it. The engine tells of that by the code alone.
    pub(super) fn signal_of(&self, code: i32) -> Option<u8> {
        match self {
            Self::Engine { .. } => signal::of_code(code),
            Self::Guest(command) => command.ended_by(),
        }
    }

    /// Why it never started, where that is known in a line of ours.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Engine { .. } => None,
            Self::Guest(command) => command.refusal(),
        }
    }

    /// Whether the kernel is known to have ended it for want of memory.
    pub(super) fn is_oom(&self) -> bool {
        matches!(self, Self::Guest(command) if command.is_oom())
    }
}
