//! Words about sessions that rest: when they do, and when they come back.

use serde::{Deserialize, Serialize};

wire_enum! {
    /// What is done to a session that was idle for long enough.
    IdleAction {
        /// It is stopped. The default.
        Stop = "stop",
        /// It is frozen, with its memory.
        Pause = "pause",
        /// It is saved.
        Save = "save",
    }
}

wire_enum! {
    /// Why a session is not idle.
    Busy {
        /// A command runs.
        Exec = "exec",
        /// A terminal writes, or did in the last seconds.
        Terminal = "terminal",
        /// A client is attached, or copies files.
        Client = "client",
        /// Its processes use 1 % of a core or more.
        Cpu = "cpu",
    }
}

wire_enum! {
    /// What becomes of a session that ran when its engine went, once that is back.
    OnBoot {
        /// It is brought back.
        Resume = "resume",
        /// It stays stopped. The default.
        Stopped = "stopped",
    }
}
