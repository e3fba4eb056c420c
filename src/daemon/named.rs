//! The rules for what clients name: how long it may be, and of which characters. Each refusal names the field, and never
//! repeats the value.

use super::exec::ExecRequest;
use super::failure::Failure;
use super::resolve;
use crate::model::id::{self, MAX_NAME_BYTES};
use crate::proto::errors::Kind;

/// Longest path, in bytes: what Linux takes (`PATH_MAX`).
pub(super) const MAX_PATH_BYTES: usize = 4096;

/// Longest user, in bytes: a name and a group's, each as long as Linux takes it (`LOGIN_NAME_MAX`).
const MAX_USER_BYTES: usize = 513;

/// An argument has fewer bytes: what Linux takes (`MAX_ARG_STRLEN`), with the NUL at its end.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024;

/// Most bytes of a command's arguments together: what Linux takes (a quarter of the usual stack limit).
const MAX_ARGV_BYTES: usize = 2 * 1024 * 1024;

/// Longest name that a caller may give a command or another operation, in bytes.
const MAX_KEY_BYTES: usize = 128;

/// Longest id of a command, in bytes; ours have 36.
const MAX_ID_BYTES: usize = 128;

/// Most kinds of events that one subscription or list names: several times as many as there are.
const MAX_KINDS: usize = 64;

/// Longest of them, in bytes: several times as long as the longest there is.
const MAX_KIND_BYTES: usize = 128;

/// A terminal's name, in NFC: two spellings of one name are one terminal.
///
/// # Errors
/// `invalid_params` where it breaks a rule for names of sessions, which hold for it as well.
pub(super) fn terminal(name: &str) -> Result<String, Failure> {
    id::plain_name(name).map_err(|_| {
        let expected = format!(
            "1 to {MAX_NAME_BYTES} bytes of printable text without '/', no '-' or '.' first, no white space at the ends"
        );
        Failure::field("terminal", expected)
    })
}

/// The id of a command, or the beginning of one, that is in this field.
///
/// # Errors
/// `invalid_params` where it is longer than any.
pub(super) fn exec_id(field: &str, id: &str) -> Result<(), Failure> {
    if id.len() > MAX_ID_BYTES {
        return Err(Failure::field(field, format!("at most {MAX_ID_BYTES} bytes")));
    }
    Ok(())
}

/// The name that a caller gives an operation, under which its progress is told.
///
/// # Errors
/// `invalid_params` where it is longer than any may be.
pub(super) fn operation(op: Option<&str>) -> Result<(), Failure> {
    match op {
        Some(op) if op.is_empty() || op.len() > MAX_KEY_BYTES => {
            Err(Failure::field("op", format!("1 to {MAX_KEY_BYTES} bytes")))
        }
        _ => Ok(()),
    }
}

/// What a caller has messages call a file that stands in for something else.
///
/// # Errors
/// `invalid_params` where it is longer than any path.
pub(super) fn file(called: Option<&str>) -> Result<(), Failure> {
    match called {
        Some(called) if called.is_empty() || called.len() > MAX_PATH_BYTES => {
            Err(Failure::field("called", format!("1 to {MAX_PATH_BYTES} bytes")))
        }
        _ => Ok(()),
    }
}

/// Kinds of events that somebody wants.
///
/// # Errors
/// `invalid_params` where there are too many, or one is longer than any.
pub(super) fn kinds(kinds: &[String]) -> Result<(), Failure> {
    if kinds.len() > MAX_KINDS {
        return Err(Failure::field("kinds", format!("at most {MAX_KINDS} of them")));
    }
    match kinds.iter().position(|kind| kind.len() > MAX_KIND_BYTES) {
        Some(at) => Err(Failure::field(&format!("kinds[{at}]"), format!("at most {MAX_KIND_BYTES} bytes"))),
        None => Ok(()),
    }
}

/// A command, and where, as whom and with what it is to run.
///
/// # Errors
/// `invalid_params` where a part cannot be used; `limit` where its arguments are too long together.
pub(super) fn command(request: &ExecRequest) -> Result<(), Failure> {
    arguments(request)?;
    if request.key.as_deref().is_some_and(|key| key.is_empty() || key.len() > MAX_KEY_BYTES) {
        return Err(Failure::field("key", format!("1 to {MAX_KEY_BYTES} bytes")));
    }
    let is_path = |cwd: &str| cwd.starts_with('/') && cwd.len() <= MAX_PATH_BYTES && !cwd.contains('\0');
    if request.cwd.as_deref().is_some_and(|cwd| !is_path(cwd)) {
        let expected =
            format!("an absolute path in the sandbox of at most {MAX_PATH_BYTES} bytes, without NUL");
        return Err(Failure::field("cwd", expected));
    }
    let is_user = |user: &str| (1..=MAX_USER_BYTES).contains(&user.len()) && !user.contains(char::is_control);
    if request.user.as_deref().is_some_and(|user| !is_user(user)) {
        let expected = format!("1 to {MAX_USER_BYTES} bytes without control characters");
        return Err(Failure::field("user", expected));
    }
    resolve::check_env(request.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

fn arguments(request: &ExecRequest) -> Result<(), Failure> {
    let cmd = &request.cmd;
    if cmd.iter().any(|arg| arg.contains('\0')) || cmd.first().is_some_and(String::is_empty) {
        return Err(Failure::field("cmd", "a program and its arguments, without NUL bytes"));
    }
    if cmd.is_empty() && !request.attach {
        return Err(Failure::field("cmd", "a program and its arguments"));
    }
    if cmd.first().is_some_and(|program| program.len() > MAX_PATH_BYTES) {
        return Err(Failure::field("cmd[0]", format!("at most {MAX_PATH_BYTES} bytes")));
    }
    if let Some(at) = cmd.iter().position(|arg| arg.len() >= MAX_ARGUMENT_BYTES) {
        let expected = format!("fewer than {MAX_ARGUMENT_BYTES} bytes");
        return Err(Failure::field(&format!("cmd[{at}]"), expected));
    }
    if cmd.iter().map(|arg| arg.len() + 1).sum::<usize>() > MAX_ARGV_BYTES {
        return Err(Failure::new(Kind::Limit, format!("a command has at most {MAX_ARGV_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ExecRequest {
        ExecRequest { cmd: vec!["x".to_owned()], ..ExecRequest::default() }
    }

    #[test]
    fn a_terminals_name_keeps_the_rules_of_names_of_sessions() {
        for good in ["main", "a b", "数据", "build.2", &"t".repeat(MAX_NAME_BYTES)] {
            assert_eq!(terminal(good).expect("good"), good);
        }
        assert_eq!(terminal("e\u{301}").expect("good"), "\u{e9}");
        let long = "t".repeat(MAX_NAME_BYTES + 1);
        for bad in ["", "a\nb", "a\0", "\u{1b}[2J", "a/b", "-x", ".x", " x", "a\u{202e}b", &long] {
            let failure = terminal(bad).expect_err(bad);
            assert_eq!(failure.kind, Kind::InvalidParams);
            assert!(failure.message.starts_with("terminal: expected 1 to 128 bytes"), "{failure}");
        }
    }

    #[test]
    fn what_is_longer_than_it_can_be_is_refused_by_its_field() {
        let long = |length: usize| Some("/".to_owned() + &"v".repeat(length));
        let cases = [
            ("cwd: ", ExecRequest { cwd: long(MAX_PATH_BYTES), ..request() }),
            ("user: ", ExecRequest { user: long(MAX_USER_BYTES), ..request() }),
            ("user: ", ExecRequest { user: Some(String::new()), ..request() }),
            ("user: ", ExecRequest { user: Some("a\nb".to_owned()), ..request() }),
            ("key: ", ExecRequest { key: long(MAX_KEY_BYTES), ..request() }),
            ("cmd[0]: ", ExecRequest { cmd: long(MAX_PATH_BYTES).into_iter().collect(), ..request() }),
            ("cmd[1]: ", ExecRequest { cmd: vec!["x".into(), "v".repeat(MAX_ARGUMENT_BYTES)], ..request() }),
            ("env.A: ", ExecRequest { env: [("A".into(), "v".repeat(1 << 20))].into(), ..request() }),
        ];
        for (field, asked) in cases {
            let failure = command(&asked).expect_err(field);
            assert_eq!(failure.kind, Kind::InvalidParams, "{field}");
            assert!(failure.message.starts_with(field) && failure.message.len() < 200, "{failure}");
        }
        let many = vec!["v".repeat(MAX_ARGUMENT_BYTES - 1); 17];
        let together = ExecRequest { cmd: [vec!["x".to_owned()], many].concat(), ..request() };
        assert_eq!(command(&together).expect_err("too long together").kind, Kind::Limit);
        command(&ExecRequest { cwd: long(MAX_PATH_BYTES - 1), ..request() }).expect("as long as it may be");
    }

    #[test]
    fn kinds_and_ids_are_bounded() {
        assert!(kinds(&vec!["session.".to_owned(); MAX_KINDS]).is_ok());
        assert!(
            kinds(&vec!["session.".to_owned(); MAX_KINDS + 1])
                .is_err_and(|f| f.message.starts_with("kinds: "))
        );
        let second = ["exec.".to_owned(), "k".repeat(MAX_KIND_BYTES + 1)];
        assert!(kinds(&second).is_err_and(|failure| failure.message.starts_with("kinds[1]: ")));
        let op = "o".repeat(MAX_KEY_BYTES + 1);
        operation(None).and_then(|()| operation(Some(&op[1..]))).expect("as long as it may be");
        for bad in ["", &op] {
            assert!(operation(Some(bad)).is_err_and(|failure| failure.message.starts_with("op: ")));
        }
        assert!(
            exec_id("follow", &"0".repeat(MAX_ID_BYTES + 1))
                .is_err_and(|f| f.message.starts_with("follow: "))
        );
    }
}
