//! Where a copy begins and ends, as the command line says it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::cli::failure::Failure;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A path in a session's sandbox.
    Sandbox {
        /// The session.
        session: String,
        /// The path.
        path: String,
    },
    /// A tar stream on standard input or output.
    Stream,
}

impl Place {
    /// Understands `-`, `NAME:PATH` and a local path; one with a colon begins with `/` or `.`.
    ///
    /// # Errors
    /// When a session's name or a path in it is not UTF-8.
    pub(super) fn parse(text: &OsStr) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        if bytes.is_empty() {
            return Err(Failure::usage("a path is empty"));
        }
        let Some(colon) = session_end(bytes) else { return Ok(Self::Local(PathBuf::from(text))) };
        let text = text.to_str().ok_or_else(|| {
            Failure::usage("names of sessions and paths in them are UTF-8")
                .with_hint("a local path with a colon begins with ./ or /")
        })?;
        let path = &text[colon + 1..];
        // As with scp, no path is the directory in which commands run.
        let path = if path.is_empty() { "." } else { path };
        Ok(Self::Sandbox { session: text[..colon].to_owned(), path: path.to_owned() })
    }

    /// As it is shown to the user.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Sandbox { session, path } => format!("{session}:{path}"),
            Self::Stream => "-".to_owned(),
        }
    }
}

/// Where the colon behind a session's name is. A name may have colons of its own but no slash, so one right before the
/// first slash ends it; else the first does.
fn session_end(bytes: &[u8]) -> Option<usize> {
    if matches!(bytes[0], b'/' | b'.' | b':') {
        return None;
    }
    let head = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    if head.len() < bytes.len() && head.last() == Some(&b':') {
        return Some(head.len() - 1);
    }
    head.iter().position(|byte| *byte == b':')
}

/// What is copied, as far as its place at the other end depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// Its name; none for the content of a directory alone.
    pub(super) name: Option<OsString>,
    /// Whether it is a directory.
    pub(super) directory: bool,
}

/// What is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    /// A directory to copy into.
    Into,
    /// Something of this name in a directory that is there.
    Named {
        /// The name.
        name: OsString,
        /// Whether there is a file of this name.
        exists: bool,
        /// Whether the user's words can only mean a directory.
        directory: bool,
    },
}

/// The name under which the source will stand in the other end's directory; none where its content goes right into it.
///
/// # Errors
/// Where the two do not fit.
pub(super) fn fit(
    source: &Source,
    destination: Destination,
    shown: &str,
) -> Result<Option<OsString>, Failure> {
    match destination {
        Destination::Into => Ok(source.name.clone()),
        Destination::Named { exists: true, .. } if source.directory => {
            Err(Failure::refused(format!("a directory cannot be copied onto the file '{shown}'")))
        }
        Destination::Named { exists: false, directory: true, .. } if !source.directory => {
            Err(Failure::refused(format!("there is no directory '{shown}'")))
        }
        Destination::Named { name, .. } => Ok(Some(name)),
    }
}

/// Whether a path can only mean a directory: it ends in a slash, or in `.` or `..`.
pub(super) fn says_directory(path: &[u8]) -> bool {
    matches!(path.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"." | b".."))
}

/// Whether a path means the content of a directory alone: it is `.`, or ends in `/.`.
pub(super) fn says_contents(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next() == Some(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(session: &str, path: &str) -> Place {
        Place::Sandbox { session: session.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn places_are_told_apart_by_their_first_characters() {
        for (text, want) in [
            ("-", Place::Stream),
            ("x:/a b", sandbox("x", "/a b")),
            ("x:rel/ü", sandbox("x", "rel/ü")),
            ("x:", sandbox("x", ".")),
            ("a:b:/c:d", sandbox("a:b", "/c:d")),
            ("x:c:d", sandbox("x", "c:d")),
            ("数据:/tmp/", sandbox("数据", "/tmp/")),
            ("./a:b", Place::Local("./a:b".into())),
            ("/a:b", Place::Local("/a:b".into())),
            ("..", Place::Local("..".into())),
            (":x", Place::Local(":x".into())),
            ("a/b:c", Place::Local("a/b:c".into())),
            ("plain", Place::Local("plain".into())),
        ] {
            assert_eq!(Place::parse(OsStr::new(text)).expect("a place"), want, "{text}");
        }
        assert!(Place::parse(OsStr::new("")).is_err());
        assert!(Place::parse(OsStr::from_bytes(b"x:/\xff")).is_err());
        assert!(Place::parse(OsStr::from_bytes(b"/\xff")).is_ok());
    }

    #[test]
    fn what_is_copied_gets_the_name_that_cp_would_give_it() {
        let file = Source { name: Some("f".into()), directory: false };
        let tree = Source { name: Some("d".into()), directory: true };
        let content = Source { name: None, directory: true };
        let named = |exists, directory| Destination::Named { name: "n".into(), exists, directory };
        let fit = |source: &Source, destination| fit(source, destination, "n").map_err(|f| f.message());
        for (source, into) in [(&file, Some("f".into())), (&tree, Some("d".into())), (&content, None)] {
            assert_eq!(fit(source, Destination::Into), Ok(into));
        }
        for source in [&file, &tree, &content] {
            assert_eq!(fit(source, named(false, false)), Ok(Some("n".into())));
        }
        assert_eq!(fit(&file, named(true, false)), Ok(Some("n".into())));
        assert_eq!(fit(&tree, named(false, true)), Ok(Some("n".into())));
        let onto = "a directory cannot be copied onto the file 'n'".to_owned();
        assert_eq!(fit(&tree, named(true, false)), Err(onto.clone()));
        assert_eq!(fit(&content, named(true, false)), Err(onto));
        assert_eq!(fit(&file, named(false, true)), Err("there is no directory 'n'".to_owned()));
    }

    #[test]
    fn the_end_of_a_path_says_what_it_must_be() {
        for (path, directory, contents) in [
            ("a", false, false),
            ("a/", true, false),
            ("a/.", true, true),
            (".", true, true),
            ("..", true, false),
            ("a/..", true, false),
            ("a.", false, false),
        ] {
            assert_eq!(
                (says_directory(path.as_bytes()), says_contents(path.as_bytes())),
                (directory, contents)
            );
        }
    }
}
