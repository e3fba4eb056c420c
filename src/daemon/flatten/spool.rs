//! An engine's archive of one image, on this machine's disk: its parts come in any order, and are needed in another.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde_json::{Map, Value};
use tar::EntryType;

use crate::daemon::layers::beside;

/// Most parts of an archive: four for each of some hundred layers.
const MAX_PARTS: usize = 4096;
/// Longest description in an archive that is read, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 4 << 20;
/// Bytes that are read of a part at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    at: u64,
    pub(super) bytes: u64,
}

/// The parts of an archive, in a file without a name.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    parts: HashMap<String, Part>,
    links: HashMap<String, String>,
}

/// The one image of an archive.
#[derive(Debug)]
pub(super) struct Listed {
    /// Its configuration.
    pub(super) config: Map<String, Value>,
    /// Its layers, the lowest first.
    pub(super) layers: Vec<Part>,
}

impl Spool {
    /// Takes an archive in.
    ///
    /// # Errors
    /// When it is none, or the disk is full.
    pub(super) fn fill<R: Read>(file: File, mut archive: tar::Archive<R>) -> io::Result<Self> {
        let mut to = BufWriter::new(file);
        let (mut parts, mut links, mut at) = (HashMap::new(), HashMap::new(), 0);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Ok(place) = str::from_utf8(&entry.path_bytes()).map(str::to_owned) else { continue };
            match entry.header().entry_type() {
                EntryType::Regular => {
                    let bytes = io::copy(&mut entry, &mut to)?;
                    parts.insert(place, Part { at, bytes });
                    at += bytes;
                }
                EntryType::Symlink => {
                    let target = entry.link_name()?.and_then(|link| beside(&place, &link));
                    links.extend(target.map(|target| (place, target)));
                }
                _ => {}
            }
            if parts.len() + links.len() > MAX_PARTS {
                return Err(strange());
            }
        }
        Ok(Self { file: to.into_inner()?, parts, links })
    }

    /// What the archive says of its image.
    ///
    /// # Errors
    /// When it holds none, or another number, or not all of it.
    pub(super) fn image(&self) -> io::Result<Listed> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Entry {
            config: String,
            layers: Vec<String>,
        }
        let images: Vec<Entry> = serde_json::from_slice(&self.text("manifest.json")?)?;
        let [image] = images.as_slice() else { return Err(strange()) };
        let config = serde_json::from_slice(&self.text(&image.config)?)?;
        let layers = image.layers.iter().map(|place| self.part(place).ok_or_else(strange));
        Ok(Listed { config, layers: layers.collect::<io::Result<_>>()? })
    }

    /// Reads a part from its beginning.
    pub(super) fn open(&self, part: Part) -> BufReader<Section<'_>> {
        BufReader::with_capacity(CHUNK_BYTES, Section { file: &self.file, at: part.at, left: part.bytes })
    }

    fn part(&self, place: &str) -> Option<Part> {
        self.parts.get(place).or_else(|| self.parts.get(self.links.get(place)?)).copied()
    }

    fn text(&self, place: &str) -> io::Result<Vec<u8>> {
        let part = self.part(place).filter(|part| part.bytes <= MAX_DESCRIPTION_BYTES).ok_or_else(strange)?;
        let mut text = Vec::new();
        self.open(part).read_to_end(&mut text)?;
        Ok(text)
    }
}

/// A part that is being read.
#[derive(Debug)]
pub(super) struct Section<'f> {
    file: &'f File,
    at: u64,
    left: u64,
}

impl<'f> Section<'f> {
    /// All of a file.
    pub(super) fn whole(file: &'f File, bytes: u64) -> Self {
        Self { file, at: 0, left: bytes }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

pub(super) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the engine's archive does not hold the image as it should")
}
