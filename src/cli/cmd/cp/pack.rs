//! Files of this machine on their way into a sandbox. Below what the user named no link is followed, also not one that
//! takes a directory's place meanwhile: a sandbox may be writing there.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use tar::{Builder, EntryType, Header};

use super::beneath;
use super::entry::{about, append, joined, prefixed};
use super::watch::{Exactly, Watch, Watched};
use crate::proto::copy::Owner;

/// What is packed.
pub(super) enum What {
    /// A directory, and all below it.
    Tree(OwnedFd),
    /// A single file, open.
    File(File),
    /// A symbolic link, and where it leads.
    Link(Stat, Vec<u8>),
}

impl What {
    /// Opens what is at a path. A link in its last place is followed if `follow` says so.
    ///
    /// # Errors
    /// The system's, or when it is nothing that is copied.
    pub(super) fn open(path: &std::path::Path, follow: bool) -> io::Result<Self> {
        let link = rustix::fs::lstat(path)?;
        if beneath::kind(&link) == FileType::Symlink && !follow {
            let target = rustix::fs::readlinkat(CWD, path, Vec::new())?;
            return Ok(Self::Link(link, target.into_bytes()));
        }
        // A pipe must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !matches!(beneath::kind(&rustix::fs::stat(path)?), FileType::RegularFile | FileType::Directory) {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        match beneath::kind(&rustix::fs::fstat(&fd)?) {
            FileType::Directory => Ok(Self::Tree(fd)),
            FileType::RegularFile => Ok(Self::File(fd.into())),
            _ => Err(io::Error::other("it is neither a file nor a directory")),
        }
    }

    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Tree(_))
    }

    /// Its size, where it is a file.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.metadata().ok().map(|meta| meta.len()),
            Self::Tree(_) | Self::Link(..) => None,
        }
    }
}

/// Packs files into a tar stream.
pub(super) struct Packer<'w, 'a, W: Write> {
    builder: Builder<W>,
    /// What stands in front of every name.
    prefix: Vec<u8>,
    /// To whom all of them will belong; to whom they belong now if none.
    owner: Option<Owner>,
    /// Files with several names, by device and number, and the first of those.
    linked: HashMap<(u64, u64), Vec<u8>>,
    watch: &'w mut Watch<'a>,
}

impl<'w, 'a, W: Write> Packer<'w, 'a, W> {
    /// Packs to this end.
    pub(super) fn new(to: W, prefix: &str, owner: Option<Owner>, watch: &'w mut Watch<'a>) -> Self {
        Self { builder: Builder::new(to), prefix: prefix.into(), owner, linked: HashMap::new(), watch }
    }

    /// Packs it under a name, a directory's content right into the top where there is none, and gives the end back.
    ///
    /// # Errors
    /// The first that comes, with the name of the file that it is about.
    pub(super) fn pack(mut self, what: What, name: Option<OsString>) -> io::Result<W> {
        let mut parts: Vec<OsString> = name.into_iter().collect();
        match what {
            What::Tree(directory) => self.tree(&directory, &mut parts)?,
            What::File(file) => self.file(file, &parts).map_err(|error| about(error, &parts))?,
            What::Link(stat, target) => self.link(&stat, &target, &parts)?,
        }
        self.builder.into_inner()
    }

    fn tree(&mut self, directory: &OwnedFd, parts: &mut Vec<OsString>) -> io::Result<()> {
        let listed = rustix::fs::fstat(directory).map_err(io::Error::from).and_then(|stat| {
            if !parts.is_empty() {
                let mut header = self.header(&stat, EntryType::Directory, 0);
                append(&mut self.builder, &mut header, &prefixed(&self.prefix, parts), None, io::empty())?;
                self.watch.entry()?;
            }
            beneath::names(directory)
        });
        for name in listed.map_err(|error| about(error, parts))? {
            parts.push(name);
            self.below(directory, parts)?;
            parts.pop();
        }
        Ok(())
    }

    fn below(&mut self, at: &OwnedFd, parts: &mut Vec<OsString>) -> io::Result<()> {
        let name = parts.last().cloned().unwrap_or_default();
        let looked = beneath::look(at, &name).map_err(|error| about(error, parts))?;
        // One that went away since it was listed is not missed.
        let Some(stat) = looked else { return Ok(()) };
        match beneath::kind(&stat) {
            FileType::Directory => {
                let directory = beneath::open_directory(at, &name).map_err(|error| about(error, parts))?;
                self.tree(&directory, parts)
            }
            FileType::RegularFile => {
                let packed = open_file(at, &name).and_then(|file| self.file(file, parts));
                packed.map_err(|error| about(error, parts))
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(at, name.as_os_str(), Vec::new());
                let packed = target.map_err(io::Error::from);
                let packed = packed.and_then(|target| self.link(&stat, target.as_bytes(), parts));
                packed.map_err(|error| about(error, parts))
            }
            _ => {
                self.watch.skip(&joined(parts), "it is a device, a pipe or a socket");
                Ok(())
            }
        }
    }

    fn file(&mut self, mut file: File, parts: &[OsString]) -> io::Result<()> {
        let stat = rustix::fs::fstat(&file)?;
        if beneath::kind(&stat) != FileType::RegularFile {
            return Err(io::Error::other("it is no file any more"));
        }
        let name = prefixed(&self.prefix, parts);
        if stat.st_nlink > 1 {
            let id = (stat.st_dev as u64, stat.st_ino as u64);
            if let Some(first) = self.linked.get(&id).cloned() {
                let mut header = self.header(&stat, EntryType::Link, 0);
                append(&mut self.builder, &mut header, &name, Some(&first), io::empty())?;
                return self.watch.entry();
            }
            self.linked.insert(id, name.clone());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut header = self.header(&stat, EntryType::Regular, size);
        let data = Watched { from: Exactly::new(&mut file, size), watch: &mut *self.watch };
        append(&mut self.builder, &mut header, &name, None, data)?;
        self.watch.entry()
    }

    fn link(&mut self, stat: &Stat, target: &[u8], parts: &[OsString]) -> io::Result<()> {
        let mut header = self.header(stat, EntryType::Symlink, 0);
        append(&mut self.builder, &mut header, &prefixed(&self.prefix, parts), Some(target), io::empty())?;
        self.watch.entry()
    }

    fn header(&self, stat: &Stat, kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        let owner = self.owner.unwrap_or(Owner { uid: stat.st_uid, gid: stat.st_gid });
        header.set_entry_type(kind);
        header.set_uid(owner.uid.into());
        header.set_gid(owner.gid.into());
        #[expect(clippy::useless_conversion, reason = "the mode is a smaller number on other systems")]
        header.set_mode(u32::from(stat.st_mode) & 0o7777);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(size);
        header
    }
}

fn open_file(at: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?.into())
}
