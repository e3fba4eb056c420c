//! The file of an export, which has its name once it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::fcntl::OFlag;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::daemon::failure::{Failure, quoted};
use crate::proto::errors::Kind;

/// What a file is called until it is whole, after its own name.
const PARTIAL: &str = ".abx-partial";

/// A file until it is whole. One that is dropped before goes.
pub(super) struct Partial {
    file: Option<File>,
    at: PathBuf,
    path: PathBuf,
    whole: bool,
}

impl Partial {
    pub(super) fn create(path: PathBuf) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            return Err(unwritten(&path, &io::ErrorKind::AlreadyExists.into()));
        }
        let mut at = path.clone().into_os_string();
        at.push(PARTIAL);
        let at = PathBuf::from(at);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).custom_flags(OFlag::O_NOFOLLOW.bits()).mode(0o600);
        let file = options.open(&at).map_err(|error| unwritten(&path, &error))?;
        // What a daemon left that was killed is nobody's.
        file.try_lock()
            .map_err(|_| Failure::new(Kind::Busy, format!("{} is being written", path.display())))?;
        file.set_len(0).map_err(|error| unwritten(&path, &error))?;
        Ok(Self { file: Some(file), at, path, whole: false })
    }

    /// Writes all that comes. What comes must end with nothing, or it was cut off.
    pub(super) fn fill(mut self, head: &[u8], mut queue: mpsc::Receiver<Option<Bytes>>) -> io::Result<u64> {
        let Some(mut file) = self.file.take() else { return Ok(0) };
        file.write_all(head)?;
        let mut written = head.len() as u64;
        loop {
            match queue.blocking_recv() {
                Some(Some(bytes)) => {
                    file.write_all(&bytes)?;
                    written += bytes.len() as u64;
                }
                Some(None) => break,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        file.sync_all()?;
        name(&self.at, &self.path)?;
        self.whole = true;
        // It is there; whether it is after a crash of the machine is another matter, and not all file systems say.
        let dir = self.path.parent().map(|dir| File::open(dir).and_then(|dir| dir.sync_all()));
        if let Some(Err(error)) = dir {
            tracing::info!(%error, file = %self.path.display(), "the directory of an export is not synced");
        }
        Ok(written)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.whole
            && let Err(error) = fs::remove_file(&self.at)
        {
            tracing::warn!(%error, file = %self.at.display(), "a part of an export stays");
        }
    }
}

/// Gives a file its name, unless that is somebody else's by now.
fn name(at: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, at, CWD, path, RenameFlags::NOREPLACE) {
        // File systems that cannot do it at once may have a second name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(at, path)?;
            fs::remove_file(at)
        }
        named => Ok(named?),
    }
}

pub(super) fn unwritten(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let hint = match path.is_file() {
            true => format!("choose another name, or: rm {}", quoted(&path.display().to_string())),
            // A device, or a directory, is nothing to remove.
            false => "choose another name".to_owned(),
        };
        return Failure::params(format!("{} is there already", path.display())).hint(hint);
    }
    Failure::file(&format!("write {}", path.display()), error)
}

/// Opens a file that is read to its end: nothing that waits for somebody who writes, as a pipe does.
pub(super) fn open(path: &Path, doing: &str) -> Result<File, Failure> {
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = file.map_err(|error| Failure::file(doing, &error))?;
    if file.metadata().is_ok_and(|file| file.is_file()) {
        return Ok(file);
    }
    Err(Failure::params(format!("cannot {doing}: it is no file"))
        .hint("abx snapshot import - takes the standard input"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("one.abx");
        let partial = Partial::create(path.clone()).expect("nothing is there");
        fs::write(&path, "mine").expect("write");
        let (chunks, queue) = mpsc::channel(1);
        chunks.try_send(None).expect("there is room");
        let error = partial.fill(b"theirs", queue).expect_err("it is there by now");
        assert!(unwritten(&path, &error).message.ends_with("is there already"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "mine");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1, "nothing is left of the export");
    }
}
