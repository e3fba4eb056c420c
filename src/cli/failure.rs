//! What went wrong, for people and for programs: text, hints, exit codes.

use serde_json::value::RawValue;

use super::output::{clean, clean_lines};
use crate::client::{CallError, ConnectError, StreamError};
use crate::proto::errors::{ErrorData, Kind, WireError};

/// Failed or refused.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;
/// No such session, snapshot or exec.
pub(crate) const NOT_FOUND: u8 = 3;
/// Exists, busy, or in the wrong state.
pub(crate) const CONFLICT: u8 = 4;
/// No engine answers.
pub(crate) const ENGINE: u8 = 5;
/// No daemon answers.
pub(crate) const DAEMON: u8 = 6;
/// `exec` or `attach`: abx, abxd or the engine failed.
pub(crate) const EXEC_FAILED: u8 = 125;

/// `data.kind` of errors that come from the client itself, and their codes. Beyond those of the daemon.
const DAEMON_UNREACHABLE: (i32, &str) = (101, "daemon_unreachable");
const PROTOCOL_MISMATCH: (i32, &str) = (102, "protocol_mismatch");
const CLIENT_FAILED: (i32, &str) = (103, "client_failed");

/// A failure of the command line.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) exit: u8,
    // Boxed: a failure is passed up through every function, and is rare.
    error: Box<WireError>,
    raw: Option<Box<RawValue>>,
    aside: Box<Aside>,
}

/// What people are shown, and no document has.
#[derive(Debug, Default)]
struct Aside {
    /// Where the daemon gave no hint.
    hint: Option<String>,
    /// The id by which the daemon's log has the request that failed.
    request: Option<String>,
}

impl Failure {
    /// The user asked for something that cannot be asked for.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        let kind = Kind::InvalidParams;
        Self::own(USAGE, (-32602, kind.name()), message.into(), Vec::new(), None)
    }

    /// Something of this machine failed.
    pub(crate) fn local(message: impl Into<String>, source: &dyn std::error::Error) -> Self {
        Self::own(FAILED, CLIENT_FAILED, message.into(), chain(source), None)
    }

    /// A check or a condition of the client's own failed.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::own(FAILED, CLIENT_FAILED, message.into(), Vec::new(), None)
    }

    /// The daemon cannot be used.
    pub(crate) fn daemon(message: impl Into<String>, causes: Vec<String>) -> Self {
        Self::own(DAEMON, DAEMON_UNREACHABLE, message.into(), causes, None)
    }

    /// The same, with causes, outermost first.
    pub(crate) fn caused_by(mut self, causes: Vec<String>) -> Self {
        if let Some(data) = &mut self.error.data {
            data.causes = causes;
        }
        self
    }

    /// The same, with a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        match &mut self.error.data {
            Some(data) if self.raw.is_none() => data.hint = hint,
            _ => self.aside.hint = hint,
        }
        self
    }

    /// The same, with the id of the request that failed.
    pub(crate) fn of_request(mut self, id: Option<&str>) -> Self {
        self.aside.request = id.map(str::to_owned);
        self
    }

    /// The same, with the exit code of `exec` and `attach`.
    pub(crate) fn for_exec(self) -> Self {
        let exit = match self.kind() {
            Some(Kind::CommandNotExecutable) => 126,
            Some(Kind::CommandNotFound) => 127,
            _ => EXEC_FAILED,
        };
        Self { exit, ..self }
    }

    /// The kind, if this version knows it.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.error.kind()
    }

    /// The message alone.
    pub(crate) fn message(&self) -> String {
        clean(&self.error.message)
    }

    /// The error object of the protocol.
    pub(crate) fn document(&self) -> String {
        match &self.raw {
            Some(raw) => raw.get().to_owned(),
            None => serde_json::to_string(&self.error).unwrap_or_else(|_| "{}".to_owned()),
        }
    }

    /// The same with the hint that people are shown, for a reader that is neither.
    pub(crate) fn document_with_hint(&self) -> String {
        let document = self.document();
        let (Some(hint), Ok(mut value)) =
            (&self.aside.hint, serde_json::from_str::<serde_json::Value>(&document))
        else {
            return document;
        };
        if let Some(data) = value.get_mut("data").and_then(serde_json::Value::as_object_mut) {
            data.entry("hint").or_insert_with(|| hint.as_str().into());
        }
        value.to_string()
    }

    /// `Error:`, `Caused by:`, `Hint:` and `Request:` lines.
    pub(crate) fn text(&self, color: bool) -> String {
        let label = |code: &str, text: &str| {
            if color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
        };
        let mut text = format!("{} {}\n", label("1;31", "Error:"), clean_lines(&self.error.message));
        let data = self.error.data.as_ref();
        for cause in data.map(|d| d.causes.as_slice()).unwrap_or_default() {
            text.push_str(&format!("{} {}\n", label("1", "Caused by:"), clean_lines(cause)));
        }
        let hint = data.and_then(|d| d.hint.as_ref()).or(self.aside.hint.as_ref());
        if let Some(hint) = hint {
            text.push_str(&format!("{} {}\n", label("1;36", "Hint:"), clean_lines(hint)));
        }
        if let Some(request) = &self.aside.request {
            text.push_str(&format!("{} {}\n", label("1", "Request:"), clean(request)));
        }
        text
    }

    fn own(
        exit: u8,
        (code, kind): (i32, &str),
        message: String,
        causes: Vec<String>,
        hint: Option<String>,
    ) -> Self {
        let data = ErrorData { kind: kind.to_owned(), hint, causes, ..ErrorData::default() };
        let error = Box::new(WireError { code, message, data: Some(data) });
        Self { exit, error, raw: None, aside: Box::default() }
    }

    /// An error that the daemon sent on a raw stream.
    pub(crate) fn from_wire(error: WireError, raw: Option<Box<RawValue>>) -> Self {
        let exit = exit_code(&error);
        let aside = Box::new(Aside { hint: default_hint(&error), request: None });
        Self { exit, error: Box::new(error), raw, aside }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let mut hint = connect_hint(&error);
        let (id, causes) = match &error {
            ConnectError::Protocol { .. } => (PROTOCOL_MISMATCH, Vec::new()),
            ConnectError::Failed { words, log, .. } | ConnectError::NotReady { words, log, .. } => {
                let said = Said::read(words);
                hint = Some(said.hint.unwrap_or_else(|| {
                    let logged = log.metadata().is_ok_and(|meta| meta.len() > 0);
                    if logged { "abx daemon logs" } else { "abx doctor" }.to_owned()
                }));
                (DAEMON_UNREACHABLE, said.causes)
            }
            ConnectError::Greeting { source: CallError::Remote(remote) } => {
                return Self::from_wire(remote.error.clone(), Some(remote.raw.clone()));
            }
            other => (DAEMON_UNREACHABLE, chain(other).split_off(1)),
        };
        Self::own(DAEMON, id, error.to_string(), causes, hint)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Remote(remote) => Self::from_wire(remote.error, Some(remote.raw)),
            CallError::TooLarge { .. } => Self::usage(error.to_string()),
            CallError::Encode { ref source, .. } => Self::local(error.to_string(), source),
            other => {
                let causes = chain(&other).split_off(1);
                let hint = match other {
                    CallError::Garbled { .. } | CallError::Silent { .. } => "abx daemon restart",
                    CallError::Gone { .. } => "abx daemon status",
                    _ => "abx daemon logs",
                };
                Self::daemon(other.to_string(), causes).with_hint(hint)
            }
        }
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Connect { source } => source.into(),
            StreamError::Refused(remote) => Self::from_wire(remote.error, Some(remote.raw)),
            StreamError::TooLarge { .. } => Self::usage(error.to_string()),
            other => {
                let causes = chain(&other).split_off(1);
                let hint = match other {
                    StreamError::Gone { .. } => "abx daemon status",
                    _ => "abx daemon logs",
                };
                Self::daemon(other.to_string(), causes).with_hint(hint)
            }
        }
    }
}

/// The exit code for an error of the daemon.
pub(crate) fn exit_code(error: &WireError) -> u8 {
    // JSON-RPC's own code for wrong parameters is the user's fault whether or not a kind stands beside it.
    if error.code == -32602 {
        return USAGE;
    }
    match error.kind() {
        Some(Kind::SessionNotFound | Kind::SnapshotNotFound | Kind::ExecNotFound) => NOT_FOUND,
        Some(Kind::SessionExists | Kind::Busy | Kind::StoreBusy | Kind::WrongState) => CONFLICT,
        Some(Kind::EngineUnavailable | Kind::EngineTimeout) => ENGINE,
        Some(Kind::InvalidName | Kind::InvalidParams) => USAGE,
        _ => FAILED,
    }
}

/// What to do about an error for which the daemon gave no hint.
fn default_hint(error: &WireError) -> Option<String> {
    let hint = match error.kind()? {
        Kind::SessionNotFound => "abx list",
        Kind::SnapshotNotFound => "abx snapshot list",
        Kind::SessionExists => "choose another name, or use --reuse to connect to the one that exists",
        Kind::EngineUnavailable | Kind::EngineTimeout => "abx doctor",
        Kind::SandboxLost => "abx snapshot list, or abx delete",
        Kind::Busy => "try again when the other operation has ended; abx get shows it",
        Kind::ShuttingDown => "try again; abx starts a new abxd",
        Kind::StoreNewer => "use the abx that wrote it, or another ABX_HOME",
        Kind::Internal => "abx daemon logs",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn connect_hint(error: &ConnectError) -> Option<String> {
    let hint = match error {
        ConnectError::NotListening { .. } => "abx daemon start, or leave --no-autostart out",
        ConnectError::NotASocket { .. } => "move that file away, or name another socket with --socket",
        ConnectError::Denied { .. } | ConnectError::Foreign { .. } => {
            "use a home of your own: --home DIR, or ABX_HOME"
        }
        ConnectError::Dial { .. } => "abx doctor",
        ConnectError::Home { .. } => "choose another home with --home or ABX_HOME, or mend its owner",
        ConnectError::NoDaemon { .. } => "install abxd beside abx",
        ConnectError::Elsewhere { .. } => "leave --socket and ABX_SOCKET out, or first: abx daemon stop",
        ConnectError::Hung { .. } | ConnectError::Protocol { .. } => "abx daemon restart",
        ConnectError::Stranger { .. } => "name another socket with --socket or ABX_SOCKET",
        ConnectError::Greeting { .. } => "abx daemon restart",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// An error's text and those of its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        // That the other side closed says nothing that the error around it has not said in better words.
        let closed = cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof);
        if !closed {
            texts.push(cause.to_string());
        }
        next = cause.source();
    }
    texts
}

/// What a daemon wrote before it ended, in its own order: error and causes, each with the lines that belong to it.
#[derive(Default)]
struct Said {
    causes: Vec<String>,
    hint: Option<String>,
}

impl Said {
    /// Lines without a label, of a log or of a program that is no `abxd`, stay together as one cause.
    fn read(words: &[String]) -> Self {
        let mut said = Self::default();
        for line in words {
            let label = ["Error: ", "Caused by: "].into_iter().find_map(|label| line.strip_prefix(label));
            if let Some(text) = label {
                said.causes.push(text.to_owned());
            } else if let Some(hint) = line.strip_prefix("Hint: ") {
                said.hint = Some(hint.to_owned());
            } else if let Some(last) = said.hint.as_mut().or(said.causes.last_mut()) {
                last.push('\n');
                last.push_str(line);
            } else {
                said.causes.push(line.clone());
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(kind: Kind) -> WireError {
        let data = ErrorData { kind: kind.name().to_owned(), ..ErrorData::default() };
        WireError { code: kind.code(), message: "m".to_owned(), data: Some(data) }
    }

    #[test]
    fn every_kind_has_its_exit_code() {
        let want = |kind: Kind| match kind.name() {
            "session_not_found" | "snapshot_not_found" | "exec_not_found" => 3,
            "session_exists" | "busy" | "store_busy" | "wrong_state" => 4,
            "engine_unavailable" | "engine_timeout" => 5,
            "invalid_name" | "invalid_params" => 2,
            _ => 1,
        };
        for kind in Kind::ALL {
            assert_eq!(exit_code(&of_kind(*kind)), want(*kind), "{}", kind.name());
        }
        let unknown = ErrorData { kind: "of_tomorrow".to_owned(), ..ErrorData::default() };
        let unknown = WireError { code: 99, message: String::new(), data: Some(unknown) };
        assert_eq!(exit_code(&unknown), 1);
        assert_eq!(exit_code(&WireError { code: -32602, message: String::new(), data: None }), 2);
    }

    #[test]
    fn under_exec_every_failure_is_125_but_for_commands_that_cannot_run() {
        for kind in Kind::ALL {
            let want = match kind.name() {
                "command_not_executable" => 126,
                "command_not_found" => 127,
                _ => 125,
            };
            assert_eq!(Failure::from_wire(of_kind(*kind), None).for_exec().exit, want, "{}", kind.name());
        }
    }

    #[test]
    fn an_error_is_three_kinds_of_lines_without_control_characters() {
        let data = ErrorData {
            kind: "engine_error".to_owned(),
            hint: Some("abx doctor".to_owned()),
            causes: vec!["tried a\ntried \u{1b}[31mb".to_owned(), "no route".to_owned()],
            ..ErrorData::default()
        };
        let error = WireError { code: 13, message: "the engine \u{7} refused".to_owned(), data: Some(data) };
        let failure = Failure::from_wire(error, None);
        let want = "Error: the engine \\u{7} refused\n\
                    Caused by: tried a\n  tried \\u{1b}[31mb\n\
                    Caused by: no route\n\
                    Hint: abx doctor\n";
        assert_eq!(failure.text(false), want);
        assert!(failure.text(true).starts_with("\u{1b}[1;31mError:\u{1b}[0m "));
    }

    #[test]
    fn a_daemon_that_could_not_start_is_quoted_as_causes() {
        let error = ConnectError::Failed {
            status: "exit status: 1".to_owned(),
            words: vec!["Error: the table is newer".to_owned(), "Caused by: schema 9".to_owned()],
            log: "/h/log/abxd.log".into(),
        };
        let failure = Failure::from(error);
        assert_eq!(failure.exit, 6);
        let want = "Error: abxd could not start (exit status: 1); its log is /h/log/abxd.log\n\
                    Caused by: the table is newer\n\
                    Caused by: schema 9\n\
                    Hint: abx doctor\n";
        assert_eq!(failure.text(false), want);
    }

    #[test]
    fn a_daemon_that_could_not_start_keeps_its_lines_together_and_its_own_hint() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let log = dir.path().join("abxd.log");
        let text = |words: &[&str]| {
            let words = words.iter().map(|w| (*w).to_owned()).collect();
            let status = "exit status: 1".to_owned();
            let failure = Failure::from(ConnectError::Failed { status, words, log: log.clone() });
            failure.text(false).lines().skip(1).collect::<Vec<_>>().join("\n")
        };
        let words = ["Error: no settings", "Caused by: line 2", "  |", "2 | x = y", "Hint: mend it"];
        let want = "Caused by: no settings\nCaused by: line 2\n    |\n  2 | x = y\nHint: mend it";
        assert_eq!(text(&words), want);
        let panic = ["thread 'main' panicked", "note: run it again"];
        let want = "Caused by: thread 'main' panicked\n  note: run it again\nHint: ";
        assert_eq!(text(&panic), format!("{want}abx doctor"));
        std::fs::write(&log, "one line").expect("write");
        assert_eq!(text(&panic), format!("{want}abx daemon logs"));
    }

    #[test]
    fn a_connection_that_ends_is_said_in_words_of_ours_alone() {
        let source = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        for failure in [
            Failure::from(CallError::Gone { source: source() }),
            Failure::from(StreamError::Gone { source: source() }),
        ] {
            let text = failure.text(false);
            assert!(text.starts_with("Error: abxd went away"), "{text}");
            assert!(text.ends_with("\nHint: abx daemon status\n") && text.lines().count() == 2, "{text}");
        }
    }

    #[test]
    fn the_clients_own_errors_are_documents_like_the_daemons() {
        let failure = Failure::from(ConnectError::NotListening { socket: "/h/daemon.sock".into() });
        let want = r#"{"code":101,"message":"no abxd listens on /h/daemon.sock","data":{"kind":"daemon_unreachable","hint":"abx daemon start, or leave --no-autostart out"}}"#;
        assert_eq!(failure.document(), want);
    }
}
