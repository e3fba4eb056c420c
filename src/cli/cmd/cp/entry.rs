//! Entries of a tar stream: the names that they are given, and writing them byte by byte as they are.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use tar::{Builder, EntryType, Header};

use crate::tarball;

/// Bytes of a name that fit a header of the oldest kind.
const SHORT_NAME_BYTES: usize = 100;

/// How entries are renamed on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The first part of each name is what was copied, and goes.
    pub(super) strip: bool,
    /// What stands in front of each name instead.
    pub(super) top: Option<OsString>,
}

impl Names {
    /// The parts of an entry's new name; none for the directory itself that everything goes into.
    ///
    /// # Errors
    /// When the name leaves that directory.
    pub(super) fn place(&self, name: &[u8]) -> io::Result<Vec<OsString>> {
        let bad = |what: &str| {
            let name = String::from_utf8_lossy(name);
            io::Error::new(io::ErrorKind::InvalidData, format!("the name {name:?} {what}"))
        };
        if name.first() == Some(&b'/') {
            return Err(bad("is absolute"));
        }
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(bad("leaves its directory")),
                part if part.contains(&0) => return Err(bad("has a NUL byte")),
                part => parts.push(part),
            }
        }
        let parts =
            parts.into_iter().skip(usize::from(self.strip)).map(OsStr::from_bytes).map(OsStr::to_owned);
        Ok(self.top.iter().cloned().chain(parts).collect())
    }
}

/// The parts of a name as a tar stream has them.
pub(super) fn joined(parts: &[OsString]) -> Vec<u8> {
    parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

/// The parts of a name, behind what stands in front of every name.
pub(super) fn prefixed(prefix: &[u8], parts: &[OsString]) -> Vec<u8> {
    [prefix, &joined(parts)].concat()
}

/// A failure, with the name of the entry that it is about.
pub(super) fn about(error: io::Error, parts: &[OsString]) -> io::Error {
    let name = String::from_utf8_lossy(&joined(parts)).into_owned();
    io::Error::new(error.kind(), format!("'{name}': {error}"))
}

/// The next entry of an archive, or why there is none, in fewer words than the reader has: it quotes the bytes.
///
/// # Errors
/// The system's, or that it is no archive.
pub(super) fn read<R: Read>(entry: io::Result<tar::Entry<'_, R>>) -> io::Result<tar::Entry<'_, R>> {
    entry.map_err(|error| match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::new(io::ErrorKind::InvalidData, "it is no tar stream, or a damaged one"),
    })
}

/// Appends an entry whose name and link are written as they are: the builder's own calls would tidy them up.
///
/// # Errors
/// The writer's.
pub(super) fn append<W: Write>(
    builder: &mut Builder<W>,
    header: &mut Header,
    name: &[u8],
    link: Option<&[u8]>,
    data: impl Read,
) -> io::Result<()> {
    if name.len() > SHORT_NAME_BYTES {
        append_long(builder, EntryType::GNULongName, name)?;
    }
    if let Some(link) = link.filter(|link| link.len() > SHORT_NAME_BYTES) {
        append_long(builder, EntryType::GNULongLink, link)?;
    }
    if let Some(gnu) = header.as_gnu_mut() {
        put(&mut gnu.name, name);
        put(&mut gnu.linkname, link.unwrap_or_default());
    }
    header.set_cksum();
    builder.append(header, data)
}

fn append_long<W: Write>(builder: &mut Builder<W>, kind: EntryType, name: &[u8]) -> io::Result<()> {
    builder.get_mut().write_all(&tarball::extension(kind, &[name, &[0]].concat()))
}

fn put(slot: &mut [u8; SHORT_NAME_BYTES], bytes: &[u8]) {
    slot.fill(0);
    let length = bytes.len().min(slot.len());
    slot[..length].copy_from_slice(&bytes[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(strip: bool, top: Option<&str>, name: &str) -> Result<String, String> {
        let names = Names { strip, top: top.map(OsString::from) };
        let placed = names.place(name.as_bytes());
        placed.map(|parts| String::from_utf8(joined(&parts)).expect("UTF-8")).map_err(|e| e.to_string())
    }

    #[test]
    fn the_first_part_is_replaced_and_nothing_leaves() {
        assert_eq!(place(true, Some("new"), "old/a/./b"), Ok("new/a/b".to_owned()));
        assert_eq!(place(true, Some("new"), "old/"), Ok("new".to_owned()));
        assert_eq!(place(false, None, "./a\nb"), Ok("a\nb".to_owned()));
        assert_eq!(place(false, None, "./"), Ok(String::new()));
        assert_eq!(place(false, Some("new"), "."), Ok("new".to_owned()));
        for name in ["/etc/passwd", "old/../../x", "..", "a\0b"] {
            assert!(place(true, Some("new"), name).is_err(), "{name:?}");
            assert!(place(false, None, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_and_links_of_any_length_come_back_as_they_were() {
        let long = format!("d/{}", "x".repeat(250));
        let mut builder = Builder::new(Vec::new());
        for (name, link) in [("a", "b//./c/"), (long.as_str(), long.as_str()), (&long[..100], "..")] {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            append(&mut builder, &mut header, name.as_bytes(), Some(link.as_bytes()), io::empty())
                .expect("written");
        }
        let bytes = builder.into_inner().expect("whole");
        let mut archive = tarball::archive(&bytes[..]);
        let mut read = Vec::new();
        for entry in archive.entries().expect("entries") {
            let entry = entry.expect("an entry");
            read.push((
                entry.path_bytes().into_owned(),
                entry.link_name_bytes().expect("a link").into_owned(),
            ));
        }
        let bytes = |text: &str| text.as_bytes().to_vec();
        let want = [("a", "b//./c/"), (&long, &long), (&long[..100], "..")];
        assert_eq!(read, want.map(|(name, link)| (bytes(name), bytes(link))));
    }
}
