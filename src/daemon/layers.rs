//! What is in the layers of images, and in what they differ. Reads the archive that engines give of images, in one pass.
//!
//! An archive gives layers in any order and tells last which images they make, so every layer is kept: of each path a
//! fingerprint, no content. What comes from outside is bounded, and its names stay names: nothing is unpacked.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Component, Path};

use serde::Deserialize;
use tar::{Entry, EntryType};

use crate::tarball;

pub(super) mod squash;

/// Most paths of all layers together. A distribution with a desktop has a third of it; past it nothing is compared.
const MAX_PATHS: usize = 1_000_000;
/// Most bytes of their names, for the same reason: they are held in memory.
const MAX_NAME_BYTES: usize = 128 << 20;
/// Longest list of images in an archive, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The list of images in an archive.
const MANIFEST: &str = "manifest.json";
/// Before the name of what a layer takes away.
const WHITEOUT: &[u8] = b".wh.";
/// In a directory of which a layer hides all that is below.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A path without slashes at its ends.
pub(super) type Name = Box<[u8]>;

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// It is there now.
    Added,
    /// It is another now.
    Changed,
    /// It is gone now.
    Deleted,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    /// Of content, kind, rights, owner and link. Not of times: a file that was only touched is the same.
    hash: u64,
    directory: bool,
}

/// What one layer puts in place, and takes away.
#[derive(Debug, Default)]
pub(super) struct Layer {
    entries: BTreeMap<Name, Print>,
    gone: BTreeSet<Name>,
    opaque: BTreeSet<Name>,
    /// Further names of files, and the first name of each.
    links: BTreeMap<Name, Name>,
    /// Of all files together.
    bytes: u64,
}

/// The layers of images.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By their place in the archive.
    all: HashMap<String, Layer>,
    /// Places that are another's.
    links: HashMap<String, String>,
    images: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    layers: Vec<String>,
}

/// Reads layers: one's fingerprints are another's.
#[derive(Default)]
pub(super) struct Reader {
    random: RandomState,
    paths: usize,
    name_bytes: usize,
}

impl Reader {
    /// Reads an engine's archive of images.
    ///
    /// # Errors
    /// When it is none, or past all bounds ([`io::ErrorKind::QuotaExceeded`]).
    pub(super) fn images<R: Read>(&mut self, mut archive: tar::Archive<R>) -> io::Result<Layers> {
        let mut layers = Layers::default();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Ok(place) = str::from_utf8(&entry.path_bytes()).map(str::to_owned) else { continue };
            match entry.header().entry_type() {
                EntryType::Regular if place == MANIFEST => {
                    let mut text = Vec::new();
                    entry.by_ref().take(MAX_MANIFEST_BYTES).read_to_end(&mut text)?;
                    layers.images = serde_json::from_slice(&text)?;
                }
                EntryType::Regular if may_be_layer(&place) => {
                    match self.layer(tarball::archive(&mut entry), |_| true) {
                        Ok(layer) => drop(layers.all.insert(place, layer)),
                        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => return Err(error),
                        // An image's configuration, or packed in a way of which nothing is known: missed where it is needed.
                        Err(error) => tracing::debug!(%error, place, "what an archive holds is no layer"),
                    }
                }
                EntryType::Symlink => {
                    let target = entry.link_name()?.and_then(|link| beside(&place, &link));
                    layers.links.extend(target.map(|target| (place, target)));
                }
                _ => {}
            }
        }
        Ok(layers)
    }

    /// Reads one layer, or the whole files of a sandbox: of the paths that are wanted.
    ///
    /// # Errors
    /// As for [`Reader::images`].
    pub(super) fn layer<R: Read>(
        &mut self,
        mut archive: tar::Archive<R>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Layer> {
        let mut layer = Layer::default();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = plain(&entry.path_bytes());
            let (above, name) = split(&path);
            if path.is_empty() || !wanted(&path) {
                continue;
            }
            self.count(&path)?;
            if name == OPAQUE {
                layer.opaque.insert(above.into());
            } else if let Some(name) = name.strip_prefix(WHITEOUT) {
                let whole = if above.is_empty() { name.to_vec() } else { [above, b"/", name].concat() };
                layer.gone.insert(whole.into());
            } else {
                let print = self.print(&mut entry, &layer)?;
                layer.bytes += entry.size();
                layer.note_link(&path, &entry);
                layer.entries.insert(path, print);
            }
        }
        Ok(layer)
    }

    fn count(&mut self, path: &[u8]) -> io::Result<()> {
        self.paths += 1;
        self.name_bytes += path.len();
        if self.paths > MAX_PATHS || self.name_bytes > MAX_NAME_BYTES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(())
    }

    fn print<R: Read>(&self, entry: &mut Entry<'_, R>, layer: &Layer) -> io::Result<Print> {
        let header = entry.header();
        let kind = header.entry_type();
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        if kind == EntryType::Link
            && let Some(print) = link.as_ref().and_then(|link| layer.entries.get(&plain(link)))
        {
            // Which of its names a file is under, and which are links to that, is chance.
            return Ok(*print);
        }
        let mut hasher = self.random.build_hasher();
        kind.as_byte().hash(&mut hasher);
        (header.mode()? & 0o7777, header.uid()?, header.gid()?).hash(&mut hasher);
        // What is no device may have nothing there that is a number.
        (header.device_major().ok(), header.device_minor().ok()).hash(&mut hasher);
        link.filter(|_| kind != EntryType::Regular).hash(&mut hasher);
        io::copy(entry, &mut Hashed(&mut hasher))?;
        Ok(Print { hash: hasher.finish(), directory: kind == EntryType::Directory })
    }
}

impl Layers {
    /// The layers of an image, the lowest first; none if they are not all there.
    pub(super) fn stack(&self, image_id: &str) -> Option<Vec<&Layer>> {
        let plain = image_id.strip_prefix("sha256:").unwrap_or(image_id);
        let is = |config: &str| config.split('/').next_back().is_some_and(|last| last.starts_with(plain));
        let listed = self.images.iter().find(|listed| is(&listed.config))?;
        listed.layers.iter().map(|place| self.at(place)).collect()
    }

    fn at(&self, place: &str) -> Option<&Layer> {
        self.all.get(place).or_else(|| self.all.get(self.links.get(place)?))
    }
}

impl Layer {
    /// What a sandbox changed: what is at these paths now, and those that are gone.
    pub(super) fn over(files: Self, gone: impl Iterator<Item = Name>) -> Self {
        Self { gone: gone.collect(), ..files }
    }

    /// What its files take, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn note_link<R: Read>(&mut self, path: &Name, entry: &Entry<'_, R>) {
        if entry.header().entry_type() != EntryType::Link {
            return;
        }
        let first = entry.link_name_bytes().map(|link| plain(&link)).unwrap_or_default();
        let first = self.links.get(&first).cloned().unwrap_or(first);
        self.links.insert(path.clone(), first);
    }

    /// Whether nothing of a path shines through from below.
    fn hides(&self, path: &[u8]) -> bool {
        let above = |above: &[u8]| {
            self.gone.contains(above)
                || self.opaque.contains(above)
                || self.entries.get(above).is_some_and(|print| !print.directory)
        };
        self.gone.contains(path) || ancestors(path).any(above)
    }

    /// The paths that it says something of; those below are what it hides of others.
    fn touched<'a>(&'a self, below: &[&'a Self]) -> BTreeSet<&'a [u8]> {
        let own = self.entries.keys().chain(&self.gone);
        let mut all: BTreeSet<&[u8]> = own.map(|path| &**path).collect();
        let replaced = self.entries.iter().filter(|(_, print)| !print.directory).map(|(path, _)| path);
        for hidden in replaced.chain(&self.opaque) {
            for layer in below {
                all.extend(layer.below(hidden));
            }
        }
        all
    }

    fn below<'a>(&'a self, directory: &Name) -> impl Iterator<Item = &'a [u8]> {
        let first: Name =
            if directory.is_empty() { Name::default() } else { [directory, &b"/"[..]].concat().into() };
        let prefix = first.clone();
        let names = self.entries.range(first..).map(|(path, _)| &**path);
        names.take_while(move |path| path.starts_with(&prefix))
    }
}

/// In what two stacks of layers differ, by path.
pub(super) fn differences(from: &[&Layer], to: &[&Layer]) -> BTreeMap<Name, Difference> {
    let common = from.iter().zip(to).take_while(|(a, b)| std::ptr::eq(**a, **b)).count();
    let mut paths = BTreeSet::new();
    for stack in [from, to] {
        for at in common..stack.len() {
            paths.extend(stack[at].touched(&stack[..at]));
        }
    }
    let mut all: BTreeMap<Name, Difference> = BTreeMap::new();
    for path in paths {
        let difference = match (find(from, path), find(to, path)) {
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Deleted,
            (Some(a), Some(b)) if a != b => Difference::Changed,
            _ => continue,
        };
        // With a directory goes all that is in it.
        if difference != Difference::Deleted
            || !ancestors(path).any(|above| all.get(above) == Some(&difference))
        {
            all.insert(path.into(), difference);
        }
    }
    all
}

/// What is at a path in a stack.
fn find(stack: &[&Layer], path: &[u8]) -> Option<Print> {
    for layer in stack.iter().rev() {
        if let Some(print) = layer.entries.get(path) {
            return Some(*print);
        }
        if layer.hides(path) {
            return None;
        }
    }
    None
}

/// Without what stands for the root before it, and slashes behind it.
pub(super) fn plain(path: &[u8]) -> Name {
    let mut path = path.strip_prefix(b".").filter(|rest| rest.is_empty() || rest[0] == b'/').unwrap_or(path);
    while let Some(rest) = path.strip_prefix(b"/") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    path.into()
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// The directories above a path, the root last.
pub(super) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        rest = split(rest).0;
        Some(rest)
    })
}

/// What archives hold beside layers: descriptions, with these names.
fn may_be_layer(place: &str) -> bool {
    let last = place.rsplit('/').next().unwrap_or_default();
    !last.ends_with("json") && !["VERSION", "repositories", "oci-layout"].contains(&last)
}

/// The place that a link leads to, in the archive.
pub(super) fn beside(place: &str, link: &Path) -> Option<String> {
    let mut parts: Vec<&str> = place.split('/').collect();
    parts.pop();
    for part in link.components() {
        match part {
            Component::ParentDir => drop(parts.pop()?),
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// Hashes what is written to it.
struct Hashed<'h, H>(&'h mut H);

impl<H: Hasher> io::Write for Hashed<'_, H> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
