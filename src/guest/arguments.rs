//! What abx-init was called with.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The abstract name of the socket on which PID 1 waits for bridges.
const NAME: &str = "abx-init";

/// What to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// PID 1.
    Init(Init),
    /// What passes abxd's words on to PID 1, at this name.
    Bridge(String),
    /// What says which build it is.
    Version,
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
        Some("--version") => Ok(Role::Version),
        _ => Err("the first argument is `init`, `bridge` or `--version`".to_owned()),
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
    fn what_is_not_known_is_refused() {
        for line in ["", "run", "init --dial", "init sh", "bridge x"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
