//! Files that come out of a sandbox, written below one directory. The archive is not trusted: names that leave the
//! directory are refused, links are made and never followed, and what is no file, directory or link is left out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, futimens, utimensat};
use rustix::io::Errno;
use tar::{Entry, EntryType};

use super::beneath::{self, Root};
use super::entry::{self, Names, about, joined};
use super::watch::Watch;
use crate::tarball;

/// Permission bits that are taken over. Those that change the user are not: who wrote the file is not who copies it.
const KEPT_MODE: u32 = 0o777;

/// Where an archive is unpacked.
pub(super) struct Unpacker<'w, 'a> {
    root: Root,
    names: Names,
    /// Directories with the mode and time that they get once all is in them.
    unfinished: Vec<(Vec<OsString>, u32, u64)>,
    temporary: u64,
    watch: &'w mut Watch<'a>,
}

impl<'w, 'a> Unpacker<'w, 'a> {
    /// Unpacks below this directory.
    pub(super) fn new(root: OwnedFd, names: Names, watch: &'w mut Watch<'a>) -> Self {
        Self { root: Root::new(root), names, unfinished: Vec::new(), temporary: 0, watch }
    }

    /// Unpacks everything.
    ///
    /// # Errors
    /// The first that comes, with the name of the file that it is about. What was unpacked before it stays.
    pub(super) fn unpack(mut self, from: impl Read) -> io::Result<()> {
        let mut archive = tarball::archive(from);
        for entry in archive.entries()? {
            let mut entry = entry::read(entry)?;
            let name = entry.path_bytes().into_owned();
            let parts = self.names.place(&name)?;
            self.entry(&parts, &mut entry).map_err(|error| about(error, &parts))?;
        }
        self.finish()
    }

    fn entry(&mut self, parts: &[OsString], entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        let Some((name, above)) = beneath::split(parts) else {
            // The directory that everything goes into is the user's own and stays as it is.
            return Ok(());
        };
        match kind {
            EntryType::Directory => self.directory(parts, entry)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let at = self.root.directory(above, true)?;
                self.file(&at, name, entry)?;
            }
            EntryType::Symlink => {
                let at = self.root.directory(above, true)?;
                self.symlink(&at, name, entry)?;
            }
            EntryType::Link => {
                let at = self.root.directory(above, true)?;
                self.hard_link(&at, name, entry)?;
            }
            EntryType::XGlobalHeader => return Ok(()),
            _ => {
                self.watch.skip(&joined(parts), "it is a device or a pipe");
                return Ok(());
            }
        }
        self.watch.entry()
    }

    fn directory(&mut self, parts: &[OsString], entry: &Entry<'_, impl Read>) -> io::Result<()> {
        let Some((name, above)) = beneath::split(parts) else { return Ok(()) };
        let at = self.root.directory(above, true)?;
        match rustix::fs::mkdirat(&*at, name.as_os_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.root.directory(parts, false)?;
        let (mode, time) = (entry.header().mode()? & KEPT_MODE, entry.header().mtime()?);
        self.unfinished.push((parts.to_vec(), mode, time));
        Ok(())
    }

    fn file(&mut self, at: &Rc<OwnedFd>, name: &OsStr, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        replaceable(at, name)?;
        let new = self.new_name(at);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&**at, new.name.as_os_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        let size = entry.size();
        let written = self.watch.transfer(entry, &mut file)?;
        if written != size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its end did not come"));
        }
        let mode = entry.header().mode()? & KEPT_MODE;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode as _))?;
        futimens(&file, &beneath::times(entry.header().mtime()?))?;
        new.put(name)
    }

    fn symlink(&mut self, at: &Rc<OwnedFd>, name: &OsStr, entry: &Entry<'_, impl Read>) -> io::Result<()> {
        let target = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
        replaceable(at, name)?;
        let new = self.new_name(at);
        rustix::fs::symlinkat(OsStr::from_bytes(&target), &**at, new.name.as_os_str())?;
        let times = beneath::times(entry.header().mtime()?);
        utimensat(&**at, new.name.as_os_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        new.put(name)
    }

    /// A second name of a file that the archive holds under another one.
    fn hard_link(&mut self, at: &Rc<OwnedFd>, name: &OsStr, entry: &Entry<'_, impl Read>) -> io::Result<()> {
        let first = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
        let first = self.names.place(&first)?;
        let Some((first, above)) = beneath::split(&first) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is a second name of a directory"));
        };
        let from = self.root.directory(above, false)?;
        replaceable(at, name)?;
        let new = self.new_name(at);
        rustix::fs::linkat(&*from, first.as_os_str(), &**at, new.name.as_os_str(), AtFlags::empty())?;
        new.put(name)
    }

    /// Gives directories what is theirs, the deepest first.
    fn finish(mut self) -> io::Result<()> {
        while let Some((parts, mode, time)) = self.unfinished.pop() {
            let finish = |directory: BorrowedFd<'_>| -> io::Result<()> {
                futimens(directory, &beneath::times(time))?;
                Ok(rustix::fs::fchmod(directory, Mode::from_raw_mode(mode as _))?)
            };
            let directory = self.root.directory(&parts, false);
            directory.and_then(|d| finish(d.as_fd())).map_err(|error| about(error, &parts))?;
        }
        Ok(())
    }

    fn new_name(&mut self, at: &Rc<OwnedFd>) -> Temporary {
        self.temporary += 1;
        let name = format!(".abx-cp-{}-{}", std::process::id(), self.temporary);
        Temporary { at: at.clone(), name: name.into() }
    }
}

/// A file under a name of its own until it is whole. Dropping it removes what is there.
struct Temporary {
    at: Rc<OwnedFd>,
    name: OsString,
}

impl Temporary {
    /// Gives it its real name, in the place of what has it.
    fn put(self, name: &OsStr) -> io::Result<()> {
        // A second name of the very same file stays where it is, and is removed with `self`.
        Ok(rustix::fs::renameat(&*self.at, self.name.as_os_str(), &*self.at, name)?)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Not there any more if all went well.
        let _ = rustix::fs::unlinkat(&*self.at, self.name.as_os_str(), AtFlags::empty());
    }
}

/// Checks that what has a name may be replaced: a file or a link.
fn replaceable(at: &Rc<OwnedFd>, name: &OsStr) -> io::Result<()> {
    match beneath::look(&**at, name)?.as_ref().map(beneath::kind) {
        None | Some(FileType::RegularFile | FileType::Symlink) => Ok(()),
        Some(FileType::Directory) => Err(io::Error::other("a directory is in its place")),
        Some(_) => Err(io::Error::other("a device or a pipe is in its place")),
    }
}
