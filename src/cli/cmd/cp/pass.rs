//! A tar stream on its way into a sandbox: from another sandbox, or from standard input.

use std::io::{self, Read, Write};

use tar::{Builder, Entry, EntryType, Header};

use super::entry::{Names, append, joined};
use super::watch::{Exactly, Watch, Watched};
use crate::proto::copy::Owner;

/// Extensions of an entry that are passed on: what a file may do beyond its mode, as capabilities.
const PASSED_EXTENSIONS: &str = "SCHILY.xattr.";

/// Passes on every entry under its new name, and gives the end back.
///
/// # Errors
/// Either side's, or an entry's name that leaves its directory.
pub(super) fn pass<W: Write>(
    from: impl Read,
    to: W,
    names: &Names,
    owner: Option<Owner>,
    watch: &mut Watch<'_>,
) -> io::Result<W> {
    let mut builder = Builder::new(to);
    for entry in tar::Archive::new(from).entries()? {
        let entry = entry?;
        let parts = names.place(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        // The directory that everything goes into stays as it is.
        if parts.is_empty() || kind == EntryType::XGlobalHeader {
            continue;
        }
        one(entry, &mut builder, &joined(&parts), names, owner, watch)?;
        watch.entry()?;
    }
    builder.into_inner()
}

fn one<W: Write>(
    mut entry: Entry<'_, impl Read>,
    builder: &mut Builder<W>,
    name: &[u8],
    names: &Names,
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
    header.set_uid(owner.map_or(old.uid()?, |owner| owner.uid.into()));
    header.set_gid(owner.map_or(old.gid()?, |owner| owner.gid.into()));
    header.set_mode(old.mode()? & 0o7777);
    header.set_mtime(old.mtime()?);
    header.set_size(size);
    if matches!(kind, EntryType::Char | EntryType::Block) {
        header.set_device_major(old.device_major()?.unwrap_or(0))?;
        header.set_device_minor(old.device_minor()?.unwrap_or(0))?;
    }
    let link = match (kind, entry.link_name_bytes()) {
        (EntryType::Symlink, Some(target)) => Some(target.into_owned()),
        (EntryType::Link, Some(first)) => Some(joined(&names.place(&first)?)),
        _ => None,
    };
    if !extensions.is_empty() {
        let all = extensions.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        builder.append_pax_extensions(all)?;
    }
    let data = Watched { from: Exactly::new(&mut entry, size), watch };
    append(builder, &mut header, name, link.as_deref(), data)
}

fn extensions(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut passed = Vec::new();
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        if let Ok(key) = extension.key()
            && key.starts_with(PASSED_EXTENSIONS)
        {
            passed.push((key.to_owned(), extension.value_bytes().to_vec()));
        }
    }
    Ok(passed)
}
