//! What abx-init was called with.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::wire::Notice;

/// The abstract name of the socket on which PID 1 waits for bridges.
const NAME: &str = "abx-init";

/// What to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// PID 1.
    Init(Init),
    /// What passes abxd's words on to PID 1, at this name.
    Bridge(String),
    /// What tells PID 1 what a program is doing.
    Notify(Notify),
    /// What says which build it is.
    Version,
}

/// What follows that name in the name at which programs say what they are doing.
pub(super) const NOTICES: &str = "-notices";

const NOTIFY_USAGE: &str = "abx notify [--state working|waiting|idle|done] [TEXT]";

/// What to tell, and to whom.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notify {
    /// Where PID 1 listens, an abstract name.
    pub(super) to: String,
    /// What the program is doing: one of the constants of [`Notice`].
    pub(super) state: u8,
    /// One line.
    pub(super) text: String,
}

/// How to be PID 1.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Init {
    /// Where abxd's socket is.
    pub(super) dial: Option<PathBuf>,
    /// Where bridges connect, an abstract name.
    pub(super) listen: Option<String>,
    /// The image's user.
    pub(super) user: Option<String>,
    /// The image's directory.
    pub(super) cwd: Option<Vec<u8>>,
    /// The image's own entrypoint and command.
    pub(super) main: Vec<Vec<u8>>,
}

/// Reads the arguments of the program under the name that users call.
///
/// # Errors
/// A line that says what is wrong.
pub(super) fn parse_abx(mut arguments: impl Iterator<Item = OsString>) -> Result<Role, String> {
    match arguments.next().as_ref().and_then(|word| word.to_str()) {
        Some("notify") => notify(arguments).map(Role::Notify),
        Some("--version" | "-V") => Ok(Role::Version),
        _ => Err(format!("in a sandbox, abx knows this alone: {NOTIFY_USAGE}")),
    }
}

/// Reads the arguments after the program's name. `is_first` is whether this is PID 1, which alone waits for bridges
/// unless it is told to.
///
/// # Errors
/// A line that says what is wrong.
pub(super) fn parse(arguments: impl Iterator<Item = OsString>, is_first: bool) -> Result<Role, String> {
    let mut arguments = arguments;
    match arguments.next().as_ref().and_then(|role| role.to_str()) {
        Some("init") => init(arguments, is_first).map(Role::Init),
        Some("bridge") => bridge(arguments).map(Role::Bridge),
        Some("notify") => notify(arguments).map(Role::Notify),
        Some("--version") => Ok(Role::Version),
        _ => Err("the first argument is `init`, `bridge`, `notify` or `--version`".to_owned()),
    }
}

fn init(mut arguments: impl Iterator<Item = OsString>, is_first: bool) -> Result<Init, String> {
    let mut init = Init { listen: is_first.then(|| NAME.to_owned()), ..Init::default() };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{} needs a value", argument.display()));
        match argument.to_str() {
            Some("--dial") => init.dial = Some(value()?.into()),
            Some("--listen") => init.listen = Some(text(value()?)?),
            Some("--user") => init.user = Some(text(value()?)?).filter(|user| !user.is_empty()),
            Some("--cwd") => init.cwd = Some(value()?.into_vec()).filter(|cwd| !cwd.is_empty()),
            Some("--") => {
                init.main = arguments.map(OsStringExt::into_vec).collect();
                return Ok(init);
            }
            _ => return Err(format!("there is no argument {}", argument.display())),
        }
    }
    Ok(init)
}

fn bridge(mut arguments: impl Iterator<Item = OsString>) -> Result<String, String> {
    match arguments.next() {
        None => Ok(NAME.to_owned()),
        Some(to) if to == "--to" => text(arguments.next().unwrap_or_default()),
        Some(other) => Err(format!("there is no argument {}", other.display())),
    }
}

fn notify(mut arguments: impl Iterator<Item = OsString>) -> Result<Notify, String> {
    let mut notify = Notify { to: format!("{NAME}{NOTICES}"), state: Notice::WAITING, text: String::new() };
    let mut words = Vec::new();
    let mut options = true;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{} needs a value", argument.display()));
        match argument.to_str() {
            Some("--state") if options => notify.state = state(&text(value()?)?)?,
            Some("--to") if options => notify.to = format!("{}{NOTICES}", text(value()?)?),
            Some("--") if options => options = false,
            Some(option) if options && option.starts_with("--") => {
                return Err(format!("there is no option {option}: {NOTIFY_USAGE}"));
            }
            _ => words.push(argument.to_string_lossy().into_owned()),
        }
    }
    notify.text = words.join(" ");
    Ok(notify)
}

fn state(word: &str) -> Result<u8, String> {
    let states = [
        ("working", Notice::WORKING),
        ("waiting", Notice::WAITING),
        ("idle", Notice::IDLE),
        ("done", Notice::DONE),
    ];
    let found = states.iter().find(|(name, _)| *name == word);
    found.map(|(_, state)| *state).ok_or_else(|| format!("there is no state {word:?}: {NOTIFY_USAGE}"))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{} is not UTF-8", value.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Role, String> {
        super::parse(line.split(' ').map(OsString::from), true)
    }

    #[test]
    fn each_role_is_read_with_its_arguments() {
        let init = Init {
            dial: Some("/dev/.abx/sock".into()),
            listen: Some("abx-init".to_owned()),
            user: Some("1000:1000".to_owned()),
            cwd: Some(b"/w".to_vec()),
            main: vec![b"sh".to_vec(), b"-c".to_vec(), b"--".to_vec()],
        };
        let line = "init --dial /dev/.abx/sock --user 1000:1000 --cwd /w -- sh -c --";
        assert_eq!(parse(line), Ok(Role::Init(init)));
        assert_eq!(parse("bridge"), Ok(Role::Bridge("abx-init".to_owned())));
        assert_eq!(parse("bridge --to x"), Ok(Role::Bridge("x".to_owned())));
        assert_eq!(parse("--version"), Ok(Role::Version));
    }

    #[test]
    fn a_notice_is_read_under_both_names() {
        let notice = |state, text: &str| {
            let to = "abx-init-notices".to_owned();
            Ok(Role::Notify(Notify { to, state, text: text.to_owned() }))
        };
        let abx = |line: &str| parse_abx(line.split(' ').map(OsString::from));
        assert_eq!(abx("notify"), notice(Notice::WAITING, ""));
        assert_eq!(abx("notify --state idle all is done"), notice(Notice::IDLE, "all is done"));
        assert_eq!(parse("notify --state working -- --state"), notice(Notice::WORKING, "--state"));
        for line in ["notify --state asleep", "notify --stat", "ls", "init", ""] {
            assert!(abx(line).is_err_and(|text| text.contains("abx notify [--state")), "{line:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in ["", "run", "init --dial", "init sh", "bridge x"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
