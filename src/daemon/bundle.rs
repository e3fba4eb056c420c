//! Snapshots as files: an index, and behind it the engine's own archive of the image.
//!
//! A file is one tar stream: its first entry is the index, all others are the engine's. Nothing of one that comes from
//! elsewhere is trusted: what it says is bounded and checked as a start is, its image gets our labels and our name, and
//! no entry is unpacked by abx.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tar::{Builder, Entry, EntryType, Header};

use super::layers::beside;
use crate::proto::types::{Excluded, IdleAction, Limits, OnBoot, Port};
use crate::tarball;

/// The index's name in the file.
const INDEX: &str = "abx-snapshot.json";
/// The format that this abx writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// Longest index, in bytes.
const MAX_INDEX_BYTES: u64 = 1 << 20;
/// Longest description in an engine's archive that is looked into, in bytes. A layer may be as short; it stays as it is.
const MAX_DESCRIPTION_BYTES: u64 = 4 << 20;
/// Most entries of an engine's archive: four for each of some hundred layers.
const MAX_ENTRIES: usize = 4096;

/// What a file says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Index {
    /// Which format.
    pub(super) format: u32,
    /// The snapshot's name.
    pub(super) name: String,
    /// The user's words.
    #[serde(default)]
    pub(super) note: Option<String>,
    /// RFC 3339.
    pub(super) created_at: String,
    /// What it does not hold.
    #[serde(default)]
    pub(super) excluded: Vec<Excluded>,
    /// The session that it was of.
    pub(super) session: Origin,
}

/// The session that a snapshot was of, as far as another machine can have it: no values of variables, no paths of the host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Origin {
    pub(super) name: String,
    pub(super) agent: Option<String>,
    pub(super) template: Option<String>,
    pub(super) image: Option<String>,
    pub(super) user: Option<String>,
    pub(super) network: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) limits: Limits,
    /// With a port of the host where that was asked for.
    pub(super) ports: Vec<Port>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) idle_ms: Option<u64>,
    pub(super) idle_action: Option<IdleAction>,
    pub(super) on_boot: Option<OnBoot>,
    pub(super) keep: Option<u32>,
    pub(super) metadata: BTreeMap<String, String>,
    /// Names alone.
    pub(super) env: Vec<String>,
}

impl Index {
    /// An index of the format that this abx writes.
    pub(super) const FORMAT: u32 = FORMAT;

    /// The index as it begins a file.
    ///
    /// # Errors
    /// When it is longer than any that is read.
    pub(super) fn head(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec_pretty(self)?;
        if text.len() as u64 > MAX_INDEX_BYTES {
            return Err(bad("the index is too long"));
        }
        let mut builder = Builder::new(Vec::new());
        put(&mut builder, INDEX, &text)?;
        // Without the end of the archive: the engine's entries follow.
        let length = builder.get_ref().len();
        let mut bytes = builder.into_inner()?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// What the image of an import gets.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    /// All labels of abx.
    pub(super) labels: BTreeMap<String, String>,
    /// Its one name.
    pub(super) reference: String,
}

/// Reads a file's index, and passes the image on with its stamp. `decide` says what that is, or why there is none.
///
/// # Errors
/// When it is no such file, is cut off, or holds what no engine's archive does; else those of `decide`.
pub(super) fn pass<R: Read, W: Write, T, E: From<io::Error>>(
    from: R,
    to: W,
    decide: impl FnOnce(Index) -> Result<(Stamp, T), E>,
) -> Result<T, E> {
    let mut archive = tarball::archive(from);
    let mut entries = archive.entries()?;
    let index = read_index(entries.next().ok_or_else(|| bad("it is empty"))??)?;
    let (stamp, decided) = decide(index)?;
    let mut passing = Passing { to: Builder::new(to), stamp, stamped: BTreeSet::new(), listed: false };
    for (count, entry) in entries.enumerate() {
        if count >= MAX_ENTRIES {
            return Err(bad("its image has too many parts").into());
        }
        passing.entry(entry?)?;
    }
    if !passing.listed {
        return Err(bad("it ends before its image does").into());
    }
    passing.to.into_inner()?.flush()?;
    Ok(decided)
}

fn read_index<R: Read>(mut entry: Entry<'_, R>) -> io::Result<Index> {
    if &*entry.path_bytes() != INDEX.as_bytes() {
        return Err(bad("it is no snapshot that abx exported"));
    }
    if entry.size() > MAX_INDEX_BYTES {
        return Err(bad("its index is too long"));
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text)?;
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let head: Head = serde_json::from_slice(&text)?;
    if head.format > FORMAT {
        return Err(bad("it was exported by a newer abx"));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// An image on its way to the engine.
struct Passing<W: Write> {
    to: Builder<W>,
    stamp: Stamp,
    /// The configurations that have the stamp, by their place.
    stamped: BTreeSet<String>,
    listed: bool,
}

impl<W: Write> Passing<W> {
    fn entry<R: Read>(&mut self, mut entry: Entry<'_, R>) -> io::Result<()> {
        let place = str::from_utf8(&entry.path_bytes()).map(str::to_owned).map_err(|_| strange())?;
        let inside = beside(&place, std::path::Path::new("x")).is_some()
            && place.trim_end_matches('/').split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !inside {
            return Err(strange());
        }
        match entry.header().entry_type() {
            EntryType::Directory => {
                let mut header = entry.header().clone();
                self.to.append_data(&mut header, &place, io::empty())
            }
            EntryType::Symlink => {
                let link = entry.link_name()?.ok_or_else(strange)?.into_owned();
                beside(&place, &link).ok_or_else(strange)?;
                let mut header = entry.header().clone();
                self.to.append_link(&mut header, &place, &link)
            }
            EntryType::Regular => match place.as_str() {
                "repositories" => Ok(()),
                "manifest.json" => self.manifest(&description(&mut entry)?),
                "index.json" => self.index(&description(&mut entry)?),
                _ if is_description(&place) && entry.size() <= MAX_DESCRIPTION_BYTES => {
                    self.described(&place, &description(&mut entry)?)
                }
                _ => {
                    let mut header = entry.header().clone();
                    self.to.append_data(&mut header, &place, &mut entry)
                }
            },
            _ => Err(strange()),
        }
    }

    /// An image's configuration gets our labels; all else stays.
    fn described(&mut self, place: &str, content: &[u8]) -> io::Result<()> {
        let Ok(Value::Object(mut config)) = serde_json::from_slice(content) else {
            return put(&mut self.to, place, content);
        };
        if !config.contains_key("rootfs") {
            return put(&mut self.to, place, content);
        }
        let inner = config.entry("config").or_insert_with(|| Value::Object(Default::default()));
        let inner = inner.as_object_mut().ok_or_else(strange)?;
        let mut labels: BTreeMap<String, Value> = match inner.remove("Labels") {
            Some(Value::Object(labels)) => labels.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        labels.retain(|key, _| !key.starts_with(crate::engine::labels::PREFIX));
        labels
            .extend(self.stamp.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
        inner.insert("Labels".to_owned(), Value::Object(labels.into_iter().collect()));
        self.stamped.insert(place.to_owned());
        put(&mut self.to, place, &serde_json::to_vec(&config)?)
    }

    /// The one image gets our name, and no other.
    fn manifest(&mut self, content: &[u8]) -> io::Result<()> {
        let mut images: Vec<serde_json::Map<String, Value>> = serde_json::from_slice(content)?;
        let [image] = images.as_mut_slice() else { return Err(bad("it does not hold one image")) };
        if !image.get("Config").and_then(Value::as_str).is_some_and(|config| self.stamped.contains(config)) {
            return Err(strange());
        }
        image.insert("RepoTags".to_owned(), Value::from(vec![self.stamp.reference.as_str()]));
        self.listed = true;
        put(&mut self.to, "manifest.json", &serde_json::to_vec(&images)?)
    }

    /// The names that engines find there go.
    fn index(&mut self, content: &[u8]) -> io::Result<()> {
        let mut index: Value = serde_json::from_slice(content)?;
        for listed in index["manifests"].as_array_mut().into_iter().flatten() {
            if let Some(listed) = listed.as_object_mut() {
                listed.remove("annotations");
            }
        }
        put(&mut self.to, "index.json", &serde_json::to_vec(&index)?)
    }
}

fn description<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Vec<u8>> {
    if entry.size() > MAX_DESCRIPTION_BYTES {
        return Err(strange());
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content)?;
    Ok(content)
}

/// Whether an image's configuration may be at this place.
fn is_description(place: &str) -> bool {
    place.starts_with("blobs/") || (place.ends_with(".json") && !place.contains('/'))
}

fn put<W: Write>(builder: &mut Builder<W>, place: &str, content: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    builder.append_data(&mut header, place, content)
}

fn strange() -> io::Error {
    bad("its image holds what no engine writes")
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
