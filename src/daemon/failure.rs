//! Why the daemon did not do what it was asked: one type from every layer to the wire.

use std::io;

use super::text::{beginning, shown};
use crate::engine::EngineError;
use crate::model::id::NameError;
use crate::model::session::{Session, Status};
use crate::model::step::Refusal;
use crate::proto::errors::{ErrorData, Kind, WireError};
use crate::store::error::StoreError;

/// Longest message, and longest hint, in characters: an engine's own words on a failed pull fit in. Past it they are cut,
/// in the answer as in the log.
const MAX_MESSAGE_CHARS: usize = 4096;

/// A refusal or failure with all that a client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The stable kind.
    pub kind: Kind,
    /// One line.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The causes below the message.
    pub causes: Vec<String>,
    /// The session that it is about.
    pub session: Option<String>,
    /// Whether anything was begun, where a stop says so.
    pub begun: Option<bool>,
    /// The id of the command that it is about.
    pub exec: Option<Box<str>>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: bounded(message.into()),
            hint: None,
            causes: Vec::new(),
            session: None,
            begun: None,
            exec: None,
        }
    }

    /// The daemon stops, and has begun nothing of what was asked.
    pub fn not_begun(message: impl Into<String>) -> Self {
        Self { begun: Some(false), ..Self::new(Kind::ShuttingDown, message) }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(bounded(hint.into()));
        self
    }

    /// Says which session it is about.
    #[must_use]
    pub fn about(mut self, session: &str) -> Self {
        self.session = Some(shown(session).into_owned());
        self
    }

    /// The daemon stops while somebody waits for a command.
    pub fn goes_on(exec: &str) -> Self {
        let mut failure = Self::new(Kind::ShuttingDown, "the daemon is stopping; the command goes on")
            .hint(format!("abx exec logs {exec}"));
        failure.exec = Some(exec.into());
        failure
    }

    /// Puts what was being done in front, and the reason below it.
    #[must_use]
    pub fn while_doing(mut self, what: impl Into<String>) -> Self {
        let message = std::mem::replace(&mut self.message, bounded(what.into()));
        self.causes.insert(0, message);
        self
    }

    /// No session has this name.
    pub fn no_session(name: &str) -> Self {
        Self::new(Kind::SessionNotFound, format!("no session is named '{}'", shown(name)))
            .hint("abx session list")
            .about(name)
    }

    /// No snapshot has this name.
    pub fn no_snapshot(name: &str) -> Self {
        let text = format!("no snapshot is named '{}'", shown(name));
        Self::new(Kind::SnapshotNotFound, text).hint("abx snapshot list")
    }

    /// A parameter that cannot be used.
    pub fn params(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidParams, message)
    }

    /// A field whose value cannot be used. The value is not repeated: it may be a secret that went astray.
    pub fn field(field: &str, expected: impl std::fmt::Display) -> Self {
        Self::params(format!("{field}: expected {expected}"))
    }

    /// A file of this machine that cannot be used, as `doing` says it (`write /x`).
    pub fn file(doing: &str, error: &io::Error) -> Self {
        let (kind, hint) = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                (Kind::FileNotFound, "check the path; no directory is made for it")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (Kind::StoreFull, "free some space on that disk, or choose a place on another")
            }
            _ => (Kind::FileDenied, "choose a place that is yours to use"),
        };
        Self::new(kind, format!("cannot {doing}: {error}")).hint(hint)
    }

    /// A field that has one of some words, and has another.
    pub fn word<'a>(field: &str, words: impl Iterator<Item = &'a str>) -> Self {
        Self::field(field, format!("one of {}", words.collect::<Vec<_>>().join(", ")))
    }

    /// The verb is refused for this session.
    pub fn refused(session: &Session, refusal: Refusal) -> Self {
        let name = session.name.as_str();
        let (kind, hint) = match refusal {
            Refusal::Lost => (Kind::SandboxLost, Some(format!("abx session delete {}", quoted(name)))),
            Refusal::External => (Kind::WrongState, None),
            Refusal::Starting => (Kind::Busy, None),
            Refusal::State { status: Status::Stopped | Status::Saved, wanted }
                if wanted.starts_with("running") =>
            {
                (Kind::WrongState, Some(format!("abx session resume {}", quoted(name))))
            }
            Refusal::State { status: Status::Paused, .. } => {
                (Kind::WrongState, Some(format!("abx session unpause {}", quoted(name))))
            }
            Refusal::State { status: Status::Running, wanted } if wanted.starts_with("stopped") => {
                (Kind::WrongState, Some(format!("abx session stop {}", quoted(name))))
            }
            Refusal::State { .. } => (Kind::WrongState, None),
        };
        let mut failure = Self::new(kind, format!("session '{name}': {refusal}")).about(name);
        failure.hint = hint;
        failure
    }

    /// As it goes over the wire.
    pub fn to_wire(&self) -> WireError {
        // JSON-RPC has a code of its own for wrong params, and clients know it.
        let code = if self.kind == Kind::InvalidParams { -32602 } else { self.kind.code() };
        WireError {
            code,
            message: self.message.clone(),
            data: Some(ErrorData {
                kind: self.kind.name().to_owned(),
                hint: self.hint.clone(),
                causes: self.causes.clone(),
                session: self.session.clone(),
                begun: self.begun,
                exec: self.exec.as_deref().map(str::to_owned),
            }),
        }
    }
}

/// The value that is called by a word of a field.
///
/// # Errors
/// `invalid_params` where none of `all` is.
pub(super) fn known<T: Copy>(
    field: &str,
    word: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, Failure> {
    let found = all.iter().copied().find(|one| name(*one) == word);
    found.ok_or_else(|| Failure::word(field, all.iter().copied().map(name)))
}

fn bounded(text: String) -> String {
    beginning(&text, MAX_MESSAGE_CHARS).into_owned()
}

/// A name as a shell needs it in a hint.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '@' | '%' | '+' | ',' | '/')
    };
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\\''"))
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::new(Kind::InvalidName, error.to_string())
            .hint("a name is printable text without '/', up to 128 bytes, such as feature-x")
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        match error {
            EngineError::Unavailable { tried } => {
                let mut failure =
                    Self::new(Kind::EngineUnavailable, "no container engine answers").hint("abx doctor");
                failure.causes = tried;
                failure
            }
            EngineError::Elsewhere { session, place, address, .. } => {
                let place = place.filter(|place| *place != address);
                let back = place.map_or_else(
                    || "let abx use that engine again (engine.address, DOCKER_HOST)".to_owned(),
                    |place| format!("set engine.address in config.toml to {place}, then: abx daemon restart"),
                );
                let name = quoted(&session);
                Self::new(Kind::EngineUnavailable, text)
                    .hint(format!("{back}; if it is gone for good: abx session delete --forget {name}"))
            }
            EngineError::Unsupported { .. } => Self::new(Kind::EngineError, text)
                .hint("set DOCKER_HOST, or engine.address in config.toml, to a unix:// or tcp:// address"),
            EngineError::Silent { session, .. } => {
                let name = quoted(&session);
                Self::new(Kind::EngineTimeout, text)
                    .hint(format!("abx session stop {name}, then abx session resume {name}"))
            }
            EngineError::Timeout { .. } => Self::new(Kind::EngineTimeout, text).hint("abx doctor"),
            EngineError::NoImage { .. } => Self::new(Kind::ImageNotFound, text)
                .hint("name an image that the engine has (docker images) or can pull, with --image"),
            EngineError::Limit { .. } => Self::new(Kind::Limit, text),
            EngineError::NoSandbox { .. } | EngineError::Conflict { .. } | EngineError::Failed { .. } => {
                Self::new(Kind::EngineError, text)
            }
            _ => Self::new(Kind::EngineError, text),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::Exists { name } => {
                Self::new(Kind::SessionExists, format!("a session named '{name}' exists already"))
                    .hint(format!("abx session connect {0}, or: abx session delete {0}", quoted(&name)))
                    .about(&name)
            }
            StoreError::KeyTaken { .. } => Self::new(Kind::WrongState, text).hint("abx exec list"),
            StoreError::SnapshotExists { .. } => Self::new(Kind::WrongState, text).hint("abx snapshot list"),
            StoreError::Gone { .. } => Self::new(Kind::SessionNotFound, "the session was deleted meanwhile"),
            StoreError::Busy { .. } => Self::new(Kind::StoreBusy, text)
                .hint("end the program that has sessions.db open, then try again"),
            StoreError::Full { .. } => Self::new(Kind::StoreFull, text)
                .hint("free some space on that disk, then try again: nothing was lost"),
            StoreError::Newer { .. } => {
                Self::new(Kind::StoreNewer, text).hint("install the newer abx again, or use another --home")
            }
            StoreError::Io { .. } => Self::new(Kind::Internal, text).hint("abx daemon restart"),
            StoreError::Closed => Self::new(Kind::ShuttingDown, "the daemon is stopping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::tests::sample;

    #[test]
    fn a_refusal_names_the_command_that_helps() {
        let session = Session { status: Status::Stopped, ..sample("dev env") };
        let refusal = Refusal::State { status: Status::Stopped, wanted: "running" };
        let failure = Failure::refused(&session, refusal);
        assert_eq!(failure.kind, Kind::WrongState);
        assert_eq!(failure.message, "session 'dev env': it is stopped, not running");
        assert_eq!(failure.hint.as_deref(), Some("abx session resume 'dev env'"));
    }

    #[test]
    fn an_engines_limit_is_told_as_a_limit() {
        let failure = Failure::from(EngineError::Limit { text: "120 layers are too many".to_owned() });
        assert_eq!((failure.kind, failure.message.as_str()), (Kind::Limit, "120 layers are too many"));
    }

    #[test]
    fn a_file_that_cannot_be_used_says_whether_it_is_the_path_the_disk_or_the_rights() {
        for (error, kind) in [
            (io::ErrorKind::NotFound, Kind::FileNotFound),
            (io::ErrorKind::NotADirectory, Kind::FileNotFound),
            (io::ErrorKind::StorageFull, Kind::StoreFull),
            (io::ErrorKind::QuotaExceeded, Kind::StoreFull),
            (io::ErrorKind::PermissionDenied, Kind::FileDenied),
            (io::ErrorKind::ReadOnlyFilesystem, Kind::FileDenied),
        ] {
            let failure = Failure::file("write /x", &error.into());
            assert_eq!(
                (failure.kind, failure.message.starts_with("cannot write /x: ")),
                (kind, true),
                "{error}"
            );
        }
    }

    #[test]
    fn no_value_is_repeated_whole_that_is_longer_than_any_may_be() {
        let long = "n".repeat(8 << 20);
        for failure in [
            Failure::no_session(&long),
            Failure::no_snapshot(&long),
            Failure::new(Kind::EngineError, &*long).hint(&*long).about(&long),
            Failure::params("short").while_doing(&*long),
        ] {
            let wire = serde_json::to_string(&failure.to_wire()).expect("JSON");
            assert!(wire.len() < 16 * 1024, "{} bytes", wire.len());
        }
        assert!(Failure::no_session(&long).message.len() < 200);
    }

    #[test]
    fn a_name_is_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted("session-a.b_c-1:@%+,/"), "session-a.b_c-1:@%+,/");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's 数据"), "'it'\\''s 数据'");
    }

    #[test]
    fn the_wire_carries_kind_code_and_causes() {
        let error =
            EngineError::Unavailable { tried: vec!["unix:///a (from default): no such file".to_owned()] };
        let wire = Failure::from(error).while_doing("cannot start session 'a'").to_wire();
        assert_eq!(wire.code, 11);
        assert_eq!(wire.kind(), Some(Kind::EngineUnavailable));
        let causes = wire.data.expect("data").causes;
        assert_eq!(causes, ["no container engine answers", "unix:///a (from default): no such file"]);
    }
}
