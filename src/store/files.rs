//! The database's files: what lies there before SQLite looks, and how a damaged one is set aside.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::{StoreError, explain_io};

/// What lies at the database's place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, nor anything left of it.
    Nothing,
    /// Something that may be a database.
    Database {
        /// The format in its first page, which a log beside it may have raised.
        format: u32,
        /// Whether its last change was cut short under a rollback journal: only a writer can read it.
        interrupted: bool,
    },
    /// Something that SQLite would refuse, or quietly empty.
    Damaged(&'static str),
}

/// Looks without SQLite, which removes a log whose database is empty or missing, and writes beside what it reads.
///
/// # Errors
/// When the place cannot be read, or holds something other than a file.
pub(super) fn look(path: &Path) -> Result<Found, StoreError> {
    let fail = |error: io::Error| explain_io(path, &error);
    let left_over = |suffix| fs::metadata(beside(path, suffix)).is_ok_and(|meta| meta.len() > 0);
    let interrupted = left_over("-journal");
    let mut head = Vec::with_capacity(HEAD_BYTES);
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(if left_over("-wal") || interrupted {
                Found::Damaged("its log is there, but the file is not")
            } else {
                Found::Nothing
            });
        }
        Err(error) => return Err(fail(error)),
        // To open a pipe would wait for its writer.
        Ok(meta) if !meta.is_file() => {
            return Err(StoreError::Io { path: path.to_owned(), text: "not a file".to_owned() });
        }
        Ok(_) => {
            File::open(path).map_err(fail)?.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(fail)?
        }
    };
    let format = head.get(FORMAT_AT..FORMAT_AT + 4).and_then(|bytes| bytes.try_into().ok());
    Ok(match format {
        Some(bytes) if head.starts_with(MAGIC) => {
            Found::Database { format: u32::from_be_bytes(bytes), interrupted }
        }
        // The journal may hold the page that was being written.
        Some(_) if interrupted => Found::Database { format: 0, interrupted },
        _ if head.is_empty() => Found::Damaged("it is empty"),
        _ => Found::Damaged("it is not a database"),
    })
}

/// Length of a database's header.
const HEAD_BYTES: usize = 100;

/// Where the header has `user_version`.
const FORMAT_AT: usize = 60;

/// What a database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// What may lie beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The path with a suffix after the file's name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The file itself where `path` is a link, so that its log is found and the link outlives a set-aside file.
///
/// # Errors
/// When a link leads nowhere: the disk it names may come back.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    match fs::canonicalize(path) {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => Ok(path.to_owned()),
        Err(error) => Err(explain_io(path, &error)),
    }
}

/// Renames a damaged database and what lies beside it to `….damaged-<time>`, and returns the new name. Never removes and
/// never replaces a file.
///
/// The database goes first: a log without a database is seen as damage at the next start, while a database without its
/// log would pass for whole.
///
/// # Errors
/// The system's, in our words.
pub(super) fn set_aside(path: &Path, time: &str) -> Result<PathBuf, StoreError> {
    let fail = |error: io::Error| explain_io(path, &error);
    let taken = |to: &Path| {
        to.symlink_metadata().is_ok() || COMPANIONS.iter().any(|s| beside(to, s).symlink_metadata().is_ok())
    };
    let to = (1u32..)
        .map(|n| if n == 1 { format!(".damaged-{time}") } else { format!(".damaged-{time}-{n}") })
        .map(|suffix| beside(path, &suffix))
        .find(|to| !taken(to))
        .expect("there are more numbers than files");
    let mut kept = None;
    for suffix in [""].iter().chain(&COMPANIONS) {
        let target = beside(&to, suffix);
        match fs::rename(beside(path, suffix), &target) {
            Ok(()) => kept = kept.or(Some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
    }
    sync_directory(path).map_err(fail)?;
    Ok(kept.unwrap_or(to))
}

/// Makes an empty file for this user alone, in place of a left-over of the same name.
///
/// # Errors
/// The system's.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    for suffix in [""].iter().chain(&COMPANIONS) {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path).map(drop)
}

/// Takes away the rights of others on a database and what lies beside it.
///
/// # Errors
/// The system's.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    for file in [""].iter().chain(&COMPANIONS).map(|suffix| beside(path, suffix)) {
        match fs::metadata(&file) {
            Ok(meta) if meta.permissions().mode() & 0o077 != 0 => {
                fs::set_permissions(&file, Permissions::from_mode(PRIVATE))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Read and write for this user alone.
const PRIVATE: u32 = 0o600;

/// Makes a new name in the database's directory outlive the loss of power.
///
/// # Errors
/// The system's.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
