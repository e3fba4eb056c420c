//! Files below a directory that is held open. Each directory on the way is opened by itself, and never through a
//! symbolic link: whatever an archive or a sandbox puts there, nothing outside is reached.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

/// How a directory is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory that the user named, through whatever links.
///
/// # Errors
/// The system's.
pub(super) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory in another one.
///
/// # Errors
/// The system's; `ELOOP` or `ENOTDIR` where a link or a file is in its place.
pub(super) fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?)
}

/// What is in a directory under a name; none if nothing is.
///
/// # Errors
/// The system's.
pub(super) fn look(at: impl AsFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What kind of file it is.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A time of change, in seconds since 1970-01-01 UTC, as both times of a file.
pub(super) fn times(seconds: u64) -> Timestamps {
    let time = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(0), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// A directory that is held open, and those below it that were used last.
pub(super) struct Root {
    root: Rc<OwnedFd>,
    last: (Vec<OsString>, Rc<OwnedFd>),
}

impl Root {
    /// Holds this directory.
    pub(super) fn new(root: OwnedFd) -> Self {
        let root = Rc::new(root);
        Self { last: (Vec::new(), root.clone()), root }
    }

    /// The directory at these parts; with `make`, those that are missing are made.
    ///
    /// # Errors
    /// When there is none, or a link or a file is in the place of one.
    pub(super) fn directory(&mut self, parts: &[OsString], make: bool) -> io::Result<Rc<OwnedFd>> {
        if self.last.0 == parts {
            return Ok(self.last.1.clone());
        }
        let mut at = self.root.clone();
        for (depth, part) in parts.iter().enumerate() {
            let next = match open_directory(&*at, part) {
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                    rustix::fs::mkdirat(&*at, part.as_os_str(), Mode::from_raw_mode(0o755))?;
                    open_directory(&*at, part)
                }
                other => other,
            };
            at = Rc::new(next.map_err(|error| in_the_way(error, &parts[..=depth]))?);
        }
        self.last = (parts.to_vec(), at.clone());
        Ok(at)
    }
}

/// Says what is in the place of a directory.
fn in_the_way(error: io::Error, parts: &[OsString]) -> io::Error {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    if !matches!(errno, Some(Errno::LOOP | Errno::NOTDIR | Errno::MLINK)) {
        return error;
    }
    let name = String::from_utf8_lossy(&super::entry::joined(parts)).into_owned();
    io::Error::other(format!("'{name}' is a link or a file, and nothing is written through it"))
}

/// The last part, and those before it.
pub(super) fn split(parts: &[OsString]) -> Option<(&OsString, &[OsString])> {
    parts.split_last()
}

/// The names in a directory, in the order of their bytes.
///
/// # Errors
/// The system's.
pub(super) fn names(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
