//! Errors on the wire: one stable `kind` and one positive code each.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $name:literal;)+) => {
        /// What went wrong, for programs. The name is stable; the message beside it is prose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[doc = $doc])+ $variant,)+ }

        impl Kind {
            /// Every kind, in the order of its code.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),+];

            /// The JSON-RPC error code. Positive: -32768 to -32000 belong to JSON-RPC.
            pub const fn code(self) -> i32 { match self { $(Kind::$variant => $code),+ } }

            /// The name that stands in `data.kind`.
            pub const fn name(self) -> &'static str { match self { $(Kind::$variant => $name),+ } }

            /// One sentence for the error table.
            pub const fn doc(self) -> &'static str { match self { $(Kind::$variant => concat!($($doc, " "),+)),+ } }

            /// The kind of this name, if this version knows it.
            pub fn from_name(name: &str) -> Option<Kind> {
                match name { $($name => Some(Kind::$variant),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// No session has this name.
    SessionNotFound = 1, "session_not_found";
    /// A session of this name exists already.
    SessionExists = 2, "session_exists";
    /// The name breaks a rule for session names; the message says which.
    InvalidName = 3, "invalid_name";
    /// A parameter is missing, of the wrong type, or has a value that cannot be used. Sent with JSON-RPC's own code -32602.
    InvalidParams = 4, "invalid_params";
    /// The verb cannot be applied to a session in this state.
    WrongState = 5, "wrong_state";
    /// Another operation holds the session and this one does not wait.
    Busy = 6, "busy";
    /// The sandbox is gone and no snapshot can bring it back.
    SandboxLost = 7, "sandbox_lost";
    /// No snapshot has this name, or its image is gone from the engine.
    SnapshotNotFound = 8, "snapshot_not_found";
    /// The engine neither has the image nor can pull it.
    ImageNotFound = 9, "image_not_found";
    /// A mount source does not exist, or may not be mounted.
    WorkspaceMissing = 10, "workspace_missing";
    /// No engine answers; the message lists each address tried.
    EngineUnavailable = 11, "engine_unavailable";
    /// The engine did not answer before the call's deadline.
    EngineTimeout = 12, "engine_timeout";
    /// The engine refused; its own words are in the message.
    EngineError = 13, "engine_error";
    /// No exec has this id.
    ExecNotFound = 14, "exec_not_found";
    /// The sandbox has no such command.
    CommandNotFound = 15, "command_not_found";
    /// The command exists but cannot be run.
    CommandNotExecutable = 16, "command_not_executable";
    /// A limit of the daemon was reached; the message names it.
    Limit = 17, "limit";
    /// Another process holds the database.
    StoreBusy = 18, "store_busy";
    /// The disk that holds the database, or a file that is to be written, is full.
    StoreFull = 19, "store_full";
    /// The database was written by a newer abx.
    StoreNewer = 20, "store_newer";
    /// The daemon is stopping and takes no new work.
    ShuttingDown = 21, "shutting_down";
    /// A fault in abx itself. The daemon's log has the whole chain.
    Internal = 22, "internal";
    /// The sandbox, or the daemon's machine, has nothing at this path.
    FileNotFound = 23, "file_not_found";
    /// A file of the daemon's machine cannot be read or written: the rights to it are missing, or its file system or disk
    /// refuses.
    FileDenied = 24, "file_denied";
}

/// The `data` of every error of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorData {
    /// The stable kind; unknown kinds must be treated as `internal`.
    pub kind: String,
    /// What to do next, with the command to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The causes below the message, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// The session that the error is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `shutting_down`: false says that nothing was begun of what was asked, so that it may be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<bool>,
    /// The command that the error is about: with kind `shutting_down`, one that goes on without who waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
}

/// The error object of JSON-RPC, as abx sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WireError {
    /// Positive for our kinds; JSON-RPC's own codes are negative.
    pub code: i32,
    /// One line for people.
    pub message: String,
    /// Absent on errors of JSON-RPC itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorData>,
}

impl WireError {
    /// The kind, if the error has one that this version knows.
    pub fn kind(&self) -> Option<Kind> {
        self.data.as_ref().and_then(|d| Kind::from_name(&d.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_positive_distinct_and_names_round_trip() {
        let mut seen = std::collections::HashSet::new();
        for kind in Kind::ALL {
            assert!(kind.code() > 0);
            assert!(seen.insert(kind.code()), "{kind:?} shares its code");
            assert_eq!(Kind::from_name(kind.name()), Some(*kind));
        }
    }
}
