//! A tar stream on its way into a sandbox: from another sandbox, or from standard input.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use tar::{Builder, Entry, EntryType, Header};

use super::entry::{self, Names, append, prefixed};
use super::watch::{Exactly, Watch, Watched};
use crate::proto::copy::Owner;
use crate::tarball;

/// Extensions of an entry that are passed on: what a file may do beyond its mode, as capabilities.
const PASSED_EXTENSIONS: &str = "SCHILY.xattr.";

/// Passes on every entry under its new name, and gives the end back.
///
/// # Errors
/// Either side's, or an entry's name that leaves its directory.
pub(super) fn pass<W: Write>(
    from: impl Read,
    to: W,
    (names, prefix): (&Names, &str),
    owner: Option<Owner>,
    watch: &mut Watch<'_>,
) -> io::Result<W> {
    let mut builder = Builder::new(to);
    for entry in tarball::archive(from).entries()? {
        let entry = entry::read(entry)?;
        let parts = names.place(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        // The directory that everything goes into stays as it is.
        if parts.is_empty() || kind == EntryType::XGlobalHeader {
            continue;
        }
        let name = |parts: &[OsString]| prefixed(prefix.as_bytes(), parts);
        let link = link(&entry, |first| Ok(name(&names.place(first)?)))?;
        one(entry, &mut builder, (&name(&parts), link.as_deref()), owner, watch)?;
        watch.entry()?;
    }
    builder.into_inner()
}

fn one<W: Write>(
    mut entry: Entry<'_, impl Read>,
    builder: &mut Builder<W>,
    (name, link): (&[u8], Option<&[u8]>),
    owner: Option<Owner>,
    watch: &mut Watch<'_>,
) -> io::Result<()> {
    let extensions = extensions(&mut entry)?;
    let old = entry.header();
    let kind = match old.entry_type() {
        EntryType::Continuous | EntryType::GNUSparse => EntryType::Regular,
        kind => kind,
    };
    let size = if kind == EntryType::Regular { entry.size() } else { 0 };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    // Some writers leave fields empty that they have nothing for.
    let (uid, gid) = (old.uid().unwrap_or(0), old.gid().unwrap_or(0));
    header.set_uid(owner.map_or(uid, |owner| owner.uid.into()));
    header.set_gid(owner.map_or(gid, |owner| owner.gid.into()));
    header.set_mode(old.mode()? & 0o7777);
    header.set_mtime(old.mtime().unwrap_or(0));
    header.set_size(size);
    if matches!(kind, EntryType::Char | EntryType::Block) {
        header.set_device_major(old.device_major()?.unwrap_or(0))?;
        header.set_device_minor(old.device_minor()?.unwrap_or(0))?;
    }
    if !extensions.is_empty() {
        let all = extensions.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        builder.append_pax_extensions(all)?;
    }
    let data = Watched { from: Exactly::new(&mut entry, size), watch };
    append(builder, &mut header, name, link, data)
}

/// What an entry leads to: a symbolic link as it is, a hard link under the new name of what it links.
fn link(
    entry: &Entry<'_, impl Read>,
    rename: impl Fn(&[u8]) -> io::Result<Vec<u8>>,
) -> io::Result<Option<Vec<u8>>> {
    match (entry.header().entry_type(), entry.link_name_bytes()) {
        (EntryType::Symlink, Some(target)) => Ok(Some(target.into_owned())),
        (EntryType::Link, Some(first)) => rename(&first).map(Some),
        _ => Ok(None),
    }
}

fn extensions(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = tarball::extensions(entry)?;
    all.retain(|(key, _)| key.starts_with(PASSED_EXTENSIONS));
    Ok(all)
}
