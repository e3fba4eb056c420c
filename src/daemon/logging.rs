//! The daemon's log: one file, bounded, for this user alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Size past which the log is set aside as `.1`, in bytes. Two such files are all that is kept.
const MAX_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be opened or set aside.
    #[error("failed to open the log {path:?}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The setting is neither a level nor a list of directives.
    #[error("log setting {setting:?} is not understood")]
    Setting {
        /// The setting.
        setting: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Sends what the daemon has to say, and every panic, to the file at `path`; and to standard error if that is a terminal
/// and `terminal` is set. A second call in one process changes nothing.
///
/// # Errors
/// When the file cannot be written or the setting is not understood.
pub fn install(path: &Path, setting: &str, terminal: bool) -> Result<(), LogError> {
    let filter = filter(setting)?;
    let log = LogFile::open(path, MAX_LOG_BYTES)?;
    let file = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(log);
    let screen = (terminal && io::stderr().is_terminal())
        .then(|| tracing_subscriber::fmt::layer().with_target(false).with_writer(io::stderr));
    let installed = tracing_subscriber::registry().with(filter).with(file).with(screen).try_init();
    if installed.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            let backtrace = std::backtrace::Backtrace::capture();
            let message = panic.payload_as_str().unwrap_or("no message");
            tracing::error!(place, %backtrace, "panic: {message}");
        }));
    }
    Ok(())
}

/// Looks whether a setting says what to log.
///
/// # Errors
/// `Setting` when it does not.
pub fn check(setting: &str) -> Result<(), LogError> {
    filter(setting).map(drop)
}

/// A plain level is meant for abx: what libraries say below warnings drowns it.
fn filter(setting: &str) -> Result<EnvFilter, LogError> {
    let directives = match setting.parse::<tracing::Level>() {
        Ok(level) => format!("warn,abx={level}"),
        Err(_) => setting.to_owned(),
    };
    EnvFilter::try_new(directives)
        .map_err(|source| LogError::Setting { setting: setting.to_owned(), source: source.into() })
}

#[derive(Debug, Clone)]
struct LogFile {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    bytes: u64,
    path: PathBuf,
    limit: u64,
}

impl LogFile {
    fn open(path: &Path, limit: u64) -> Result<Self, LogError> {
        let fail = |source| LogError::Open { path: path.to_owned(), source };
        if fs::metadata(path).is_ok_and(|meta| meta.len() >= limit) {
            set_aside(path).map_err(fail)?;
        }
        let file = append(path).map_err(fail)?;
        let bytes = file.metadata().map_err(fail)?.len();
        let inner = Inner { file, bytes, path: path.to_owned(), limit };
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.bytes >= inner.limit {
            match set_aside(&inner.path).and_then(|()| append(&inner.path)) {
                Ok(file) => (inner.file, inner.bytes) = (file, 0),
                // A log that cannot be set aside is worth more than none, but not a full disk.
                Err(_) if inner.bytes >= inner.limit.saturating_mul(2) => return Ok(line.len()),
                Err(_) => {}
            }
        }
        inner.file.write_all(line)?;
        inner.bytes += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a LogFile;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn set_aside(path: &Path) -> io::Result<()> {
    let mut older = path.as_os_str().to_owned();
    older.push(".1");
    match fs::rename(path, older) {
        // It was set aside before, and the next could not be made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_full_log_is_set_aside_once_and_no_more_than_two_are_kept() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("abxd.log");
        let log = LogFile::open(&path, 10).expect("opens");
        for line in ["first line\n", "second line\n", "third line\n"] {
            (&log).write_all(line.as_bytes()).expect("writes");
        }
        assert_eq!(fs::read_to_string(&path).expect("read"), "third line\n");
        assert_eq!(fs::read_to_string(dir.path().join("abxd.log.1")).expect("read"), "second line\n");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 2);
        assert_eq!(fs::metadata(&path).expect("meta").permissions().mode() & 0o777, 0o600);
        LogFile::open(&path, 10).expect("opens");
        assert_eq!(fs::read_to_string(dir.path().join("abxd.log.1")).expect("read"), "third line\n");
    }

    #[test]
    fn a_log_that_cannot_be_set_aside_goes_on_and_stops_at_twice_the_limit() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("abxd.log");
        let in_the_way = dir.path().join("abxd.log.1");
        fs::create_dir(&in_the_way).expect("create");
        let log = LogFile::open(&path, 10).expect("opens");
        let write = |line: &str| (&log).write_all(line.as_bytes()).expect("writes");
        (0..100).for_each(|_| write("a line\n"));
        assert_eq!(fs::read_to_string(&path).expect("read"), "a line\n".repeat(3));
        fs::remove_dir(&in_the_way).expect("remove");
        write("on again\n");
        assert_eq!(fs::read_to_string(&path).expect("read"), "on again\n");
        assert_eq!(fs::read_to_string(&in_the_way).expect("read"), "a line\n".repeat(3));
    }

    #[test]
    fn a_level_or_directives_are_understood_and_nonsense_is_refused() {
        for setting in ["info", "DEBUG", "abx=trace,bollard=debug", "off"] {
            assert!(filter(setting).is_ok(), "{setting}");
        }
        assert!(matches!(filter("abx=loud"), Err(LogError::Setting { .. })));
    }
}
