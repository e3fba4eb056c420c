//! Paths in a sandbox, as text: nothing here looks at a file.

use crate::daemon::failure::Failure;
use crate::daemon::named::MAX_PATH_BYTES;

/// An absolute path without `.`, `..` and doubled slashes, and what the text of it said beyond that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// Without a slash at its end, but for the root.
    pub(super) path: String,
    /// It ended in `/.`, or was `.`: not the directory, but what is in it.
    pub(super) contents: bool,
    /// It must be a directory: it ended in a slash, or in `.` or `..`.
    pub(super) directory: bool,
}

/// Cleans a path; one that is relative counts from `cwd`.
///
/// As with the engines' own copy, `..` takes away what stands before it in the text: a link is not followed first.
///
/// # Errors
/// When it is empty, too long, or has a NUL byte.
pub(super) fn clean(path: &str, cwd: &str) -> Result<Cleaned, Failure> {
    if path.is_empty() || path.contains('\0') {
        return Err(Failure::field("path", "one that is not empty and has no NUL bytes"));
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(Failure::field("path", format!("at most {MAX_PATH_BYTES} bytes")));
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") };
    let last = path.rsplit('/').next().unwrap_or_default();
    Ok(Cleaned { path: normal(&whole), contents: last == ".", directory: matches!(last, "" | "." | "..") })
}

/// The path without `.`, `..` and doubled slashes. What leads above the root stays at the root.
pub(super) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The directory above, and the name in it; none of the root.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    if name.is_empty() {
        return None;
    }
    Some((if parent.is_empty() { "/" } else { parent }, name))
}

/// Where the link at `path` leads, as an absolute path.
pub(super) fn follow(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        return normal(target);
    }
    let parent = split(path).map_or("/", |(parent, _)| parent);
    normal(&format!("{parent}/{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_without_leaving_the_root_and_keep_what_their_end_says() {
        for (path, want, contents, directory) in [
            ("/a/b", "/a/b", false, false),
            ("b c/ü", "/w/b c/ü", false, false),
            ("/a//b/", "/a/b", false, true),
            ("/a/.", "/a", true, true),
            (".", "/w", true, true),
            ("/", "/", false, true),
            ("../../../etc/passwd", "/etc/passwd", false, false),
            ("/a/../..", "/", false, true),
            ("/a/...", "/a/...", false, false),
        ] {
            let got = clean(path, "/w").expect("a path");
            let want = Cleaned { path: want.to_owned(), contents, directory };
            assert_eq!(got, want, "{path}");
        }
        for path in ["", "a\0b", &"x".repeat(5000)] {
            assert!(clean(path, "/w").is_err());
        }
    }

    #[test]
    fn a_link_leads_from_where_it_is() {
        assert_eq!(follow("/a/b", "c"), "/a/c");
        assert_eq!(follow("/a/b", "../../../x"), "/x");
        assert_eq!(follow("/b", "/x/./y"), "/x/y");
        assert_eq!((split("/a/b"), split("/a"), split("/")), (Some(("/a", "b")), Some(("/", "a")), None));
    }
}
