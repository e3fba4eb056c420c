//! Single files as values: reading a part of one, and putting one in place.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tar::{EntryType, Header};
use tokio::time::timeout;

use super::path::{self, Cleaned};
use super::unpack::unpack;
use super::{Files, Found};
use crate::daemon::awake::Use;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::engine::FileKind;
use crate::proto::copy::Owner;
use crate::proto::errors::Kind;
use crate::proto::files::{self, MAX_READ_BYTES};

/// How long reading one file or directory may take in all: what is far into a file of many gigabytes comes after all
/// that stands before it.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(120);

/// Permission bits of a new file, and of a new directory above it.
const NEW_MODES: (u32, u32) = (0o644, 0o755);

/// All permission bits, set-user-id, set-group-id and sticky included.
const MAX_MODE: u32 = 0o7777;

/// A part of a file.
pub struct Part {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// Whether the file goes on.
    pub truncated: bool,
}

/// A file to write.
pub struct NewFile {
    /// Where.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Permission bits; those of the file that is there if none.
    pub mode: Option<u32>,
    /// Make directories that are missing above it.
    pub create_dirs: bool,
}

impl Driver {
    /// Reads a part of a file.
    ///
    /// # Errors
    /// As documented for `file.read`.
    pub async fn read_file(
        &self,
        session: impl Into<Use>,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<Part, Failure> {
        let files = self.files(session).await?;
        let Cleaned { path, directory, .. } = files.clean(path).await?;
        let found = files.follow(&path).await?;
        match found.stat.map(|stat| stat.kind) {
            None => return Err(files.missing(&path)),
            Some(FileKind::File) if !directory => {}
            Some(FileKind::File) => return Err(files.not_a_directory(&path)),
            Some(_) => return Err(files.not_a_file(&path)),
        }
        let limit = limit.min(MAX_READ_BYTES);
        files.bounded(files.part(&found.path, offset, limit)).await
    }

    /// Puts a file in place and gives its path and size.
    ///
    /// # Errors
    /// As documented for `file.write`.
    pub async fn write_file(&self, session: impl Into<Use>, file: NewFile) -> Result<(String, u64), Failure> {
        if file.mode.is_some_and(|mode| mode > MAX_MODE) {
            return Err(Failure::field("mode", format!("permission bits, from 0 to {MAX_MODE}")));
        }
        let this = self.clone();
        let session = session.into();
        // Once begun, it is finished whatever becomes of the caller.
        self.submit(async move {
            let files = this.files(session).await?;
            files.write(file).await
        })
        .await
    }
}

impl Files {
    fn not_a_file(&self, path: &str) -> Failure {
        let name = self.session.name.as_str();
        Failure::params(format!("path: '{path}' in session '{name}' is not a file")).about(name)
    }

    /// Gives what `work` does, within the time that a read may take.
    pub(super) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let late = || {
            let text = format!("the files did not come within {} s", READ_LIMIT.as_secs());
            Failure::new(Kind::EngineTimeout, text).about(self.session.name.as_str())
        };
        timeout(READ_LIMIT, work).await.map_err(|_| late())?
    }

    async fn part(&self, path: &str, offset: u64, limit: u64) -> Result<Part, Failure> {
        let archive = self.driver.0.engine.read_archive(&self.sandbox, path).await;
        let archive = archive.map_err(|error| self.explain(error))?;
        unpack(archive, move |mut archive| {
            let mut entries = archive.entries()?;
            let mut entry = entries.next().ok_or(io::ErrorKind::UnexpectedEof)??;
            let size = entry.size();
            io::copy(&mut entry.by_ref().take(offset), &mut io::sink())?;
            let mut bytes = Vec::new();
            entry.take(limit).read_to_end(&mut bytes)?;
            let truncated = offset.saturating_add(bytes.len() as u64) < size;
            Ok(Part { bytes, size_bytes: size, truncated })
        })
        .await
    }

    async fn write(&self, file: NewFile) -> Result<(String, u64), Failure> {
        let Cleaned { path, directory, .. } = self.clean(&file.path).await?;
        let Found { path, stat } = self.follow(&path).await?;
        let Some((parent, _)) = path::split(&path).filter(|_| !directory) else {
            return Err(self.not_a_file(&path));
        };
        let (owner, mode) = match stat.map(|stat| stat.kind) {
            Some(FileKind::File) => self.owner_and_mode(&path).await?,
            Some(_) => return Err(self.not_a_file(&path)),
            None => (self.owner().await?, NEW_MODES.0),
        };
        // What is missing is below `base`: the parent's own path may lead through links, which are behind it.
        let (base, missing) = match file.create_dirs {
            true => self.nearest(parent).await?,
            false => (self.directory(parent).await?, Vec::new()),
        };
        let size = file.bytes.len() as u64;
        let name = path::split(&path).map_or("", |(_, name)| name);
        let (root, prefix) = self.root(&base).await?;
        let archive = pack(prefix, &missing, name, &file.bytes, file.mode.unwrap_or(mode), owner)
            .map_err(|error| Failure::params(format!("path: it cannot be written: {error}")))?;
        self.note_change().await?;
        let source = stream::iter([Ok(Bytes::from(archive))]).boxed();
        let written = self.driver.0.engine.write_archive(&self.sandbox, &root, source).await;
        written.map_err(|error| {
            let what = format!("cannot write '{path}' in session '{}'", self.session.name);
            self.explain(error).while_doing(what)
        })?;
        Ok((path, size))
    }

    /// Whose a file is, and its permission bits.
    async fn owner_and_mode(&self, path: &str) -> Result<(Owner, u32), Failure> {
        let archive = self.driver.0.engine.read_archive(&self.sandbox, path).await;
        let archive = archive.map_err(|error| self.explain(error))?;
        let reading = unpack(archive, |mut archive| {
            let mut entries = archive.entries()?;
            let entry = entries.next().ok_or(io::ErrorKind::UnexpectedEof)??;
            let (uid, gid) = (entry.header().uid()?, entry.header().gid()?);
            let id = |number: u64| u32::try_from(number).unwrap_or(0);
            Ok((Owner { uid: id(uid), gid: id(gid) }, entry.header().mode()? & MAX_MODE))
        });
        self.bounded(reading).await
    }

    /// The nearest directory that is there, at a path or above it, and the names of those that are missing below it.
    async fn nearest(&self, path: &str) -> Result<(String, Vec<String>), Failure> {
        let (mut at, mut missing) = (path, Vec::new());
        loop {
            let found = self.follow(at).await?;
            match (found.stat.map(|stat| stat.kind), path::split(at)) {
                (Some(FileKind::Directory), _) | (None, None) => {
                    missing.reverse();
                    return Ok((found.path, missing));
                }
                (Some(_), _) => return Err(self.not_a_directory(at)),
                (None, Some((parent, name))) => {
                    missing.push(name.to_owned());
                    at = parent;
                }
            }
        }
    }
}

fn pack(
    prefix: String,
    directories: &[String],
    name: &str,
    bytes: &[u8],
    mode: u32,
    owner: Owner,
) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_uid(owner.uid.into());
    header.set_gid(owner.gid.into());
    header.set_mtime(u64::try_from(clock::now().0 / 1000).unwrap_or(0));
    let mut above = prefix;
    for directory in directories {
        above.push_str(directory);
        above.push('/');
        header.set_entry_type(EntryType::Directory);
        header.set_mode(NEW_MODES.1);
        header.set_size(0);
        builder.append_data(&mut header, &above, io::empty())?;
    }
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, format!("{above}{name}"), bytes)?;
    builder.into_inner()
}

/// A kind of file as it goes over the wire.
pub(super) fn wire_kind(kind: FileKind) -> files::FileKind {
    match kind {
        FileKind::File => files::FileKind::File,
        FileKind::Directory => files::FileKind::Directory,
        FileKind::Symlink => files::FileKind::Symlink,
        FileKind::Other => files::FileKind::Other,
    }
}
