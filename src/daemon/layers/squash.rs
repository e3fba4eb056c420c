//! Several layers as one: what they make of those below them, in as few entries as that takes.
//!
//! An entry keeps what engines have of one in a layer: owner, rights, time, attributes, and which names are one file. What
//! hides something of the layers below still does; what hid something of the layers that became one is left out.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use tar::{Entry, EntryType, Header};

use super::{Layer, Name, OPAQUE, Reader, WHITEOUT, find, plain, split};
use crate::tarball;

/// What stands for the root in a layer.
const ROOT: &[u8] = b"./";

/// Blocks of zeros at the end of a tar stream, in bytes.
const END_BYTES: usize = 1024;

/// Writes one layer that does to `below` what the layers of `upper` do, the lowest first. Each of those is read twice.
///
/// # Errors
/// When one is no layer, past all bounds ([`io::ErrorKind::QuotaExceeded`]), or cannot be written.
pub(in crate::daemon) fn squash<R: Read>(
    reader: &mut Reader,
    below: &[Layer],
    upper: &[impl Fn() -> R],
    to: impl Write,
) -> io::Result<()> {
    let mut squashing = Squashing { above: Layer::default(), root: false, to };
    for open in upper.iter().rev() {
        let layer = reader.layer(tarball::archive(open()), |_| true)?;
        let heirs = squashing.heirs(&layer)?;
        for entry in tarball::archive(open()).entries()? {
            squashing.entry(entry?, &layer, &heirs)?;
        }
        squashing.above.absorb(layer);
    }
    squashing.finish(&below.iter().collect::<Vec<_>>())
}

/// The layers that are done, the highest first.
struct Squashing<W> {
    above: Layer,
    /// Whether one of them said what the root is like.
    root: bool,
    to: W,
}

impl<W: Write> Squashing<W> {
    /// The names that hold a file whose first name a higher layer took, by that first name.
    fn heirs(&self, layer: &Layer) -> io::Result<BTreeMap<Name, Name>> {
        let mut heirs = BTreeMap::new();
        for (link, first) in &layer.links {
            if !layer.entries.contains_key(first) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a link leads out of its layer"));
            }
            if self.above.covers(first) && !self.above.covers(link) {
                heirs.entry(first.clone()).or_insert_with(|| link.clone());
            }
        }
        Ok(heirs)
    }

    fn entry<R: Read>(
        &mut self,
        mut entry: Entry<'_, R>,
        layer: &Layer,
        heirs: &BTreeMap<Name, Name>,
    ) -> io::Result<()> {
        let path = plain(&entry.path_bytes());
        if path.is_empty() {
            return if std::mem::replace(&mut self.root, true) {
                Ok(())
            } else {
                self.copy(&mut entry, ROOT, None)
            };
        }
        if split(&path).1.starts_with(WHITEOUT) {
            return Ok(());
        }
        let covered = self.above.covers(&path);
        if entry.header().entry_type() == EntryType::Link {
            let first = layer.links.get(&path);
            let holder = first.and_then(|first| heirs.get(first)).or(first);
            return match holder {
                Some(holder) if !covered && *holder != path => self.copy(&mut entry, &path, Some(holder)),
                _ => Ok(()),
            };
        }
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        match heirs.get(&path) {
            _ if !covered => self.copy(&mut entry, &path, link.as_deref()),
            Some(heir) => self.copy(&mut entry, heir, link.as_deref()),
            None => Ok(()),
        }
    }

    fn copy<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        path: &[u8],
        link: Option<&[u8]>,
    ) -> io::Result<()> {
        self.to.write_all(&tarball::head(entry, path, link)?)?;
        let bytes = io::copy(entry, &mut self.to)?;
        self.to.write_all(&tarball::padding(bytes))
    }

    /// Says what is hidden of the layers below.
    fn finish(mut self, below: &[&Layer]) -> io::Result<()> {
        let gone = self.above.gone.iter().filter(|path| find(below, path).is_some());
        let gone = gone.map(|path| match split(path) {
            (b"", name) => [WHITEOUT, name].concat(),
            (above, name) => [above, b"/", WHITEOUT, name].concat(),
        });
        let hides = |path: &&Name| path.is_empty() || find(below, path).is_some_and(|print| print.directory);
        let opaque = self.above.opaque.iter().filter(hides).map(|path| match &**path {
            b"" => OPAQUE.to_vec(),
            path => [path, b"/", OPAQUE].concat(),
        });
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        for set in [Header::set_uid, Header::set_gid, Header::set_mtime, Header::set_size] {
            set(&mut header, 0);
        }
        header.set_mode(0);
        for path in gone.chain(opaque) {
            self.to.write_all(&tarball::named(&header, &path, None, Vec::new()))?;
        }
        self.to.write_all(&[0; END_BYTES])?;
        self.to.flush()
    }
}

impl Layer {
    /// Whether a path of a lower layer is not to be seen any more.
    fn covers(&self, path: &[u8]) -> bool {
        self.entries.contains_key(path) || self.hides(path)
    }

    /// Puts another layer below, as if they had always been one.
    fn absorb(&mut self, lower: Self) {
        for (path, print) in lower.entries {
            match self.entries.get(&path) {
                // What is below the other layer in this place was hidden by it.
                Some(own) if own.directory && !print.directory => drop(self.opaque.insert(path)),
                Some(_) => {}
                None if self.hides(&path) => {}
                None => drop(self.entries.insert(path, print)),
            }
        }
        for path in lower.gone {
            match self.entries.get(&path) {
                Some(own) if own.directory => drop(self.opaque.insert(path)),
                Some(_) => {}
                None if self.hides(&path) => {}
                None => drop(self.gone.insert(path)),
            }
        }
        for path in lower.opaque {
            let is_file = self.entries.get(&path).is_some_and(|own| !own.directory);
            if !is_file && !self.hides(&path) {
                self.opaque.insert(path);
            }
        }
    }
}

#[cfg(test)]
mod tests;
