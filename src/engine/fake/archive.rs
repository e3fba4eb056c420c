//! Files of the containers in memory. No links are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use super::FakeEngine;
use super::world::{State, no_image};
use crate::engine::{Archive, EngineError, FileKind, Image, PathStat, SandboxDefaults};
use crate::tarball;

/// When everything was changed, in seconds since 1970-01-01 UTC.
const MODIFIED_S: u64 = 1_700_000_000;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeFile {
    /// What it is.
    pub kind: FileKind,
    /// Its bytes, or where a link leads.
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// User and group by id.
    pub owner: (u64, u64),
}

impl FakeFile {
    /// A file of root's with these bytes.
    pub fn bytes(content: &[u8]) -> Self {
        Self { kind: FileKind::File, content: content.to_vec(), mode: 0o644, owner: (0, 0) }
    }

    /// An empty directory of root's.
    pub fn directory() -> Self {
        Self { kind: FileKind::Directory, content: Vec::new(), mode: 0o755, owner: (0, 0) }
    }

    /// A symbolic link.
    pub fn link(target: &str) -> Self {
        Self { kind: FileKind::Symlink, content: target.as_bytes().to_vec(), mode: 0o777, owner: (0, 0) }
    }
}

impl FakeEngine {
    /// Puts something at an absolute path of a container.
    pub fn put_file(&self, id: &str, path: &str, file: FakeFile) {
        if let Some(container) = self.lock().containers.get_mut(id) {
            container.files.insert(path.to_owned(), file);
        }
    }

    /// What is at an absolute path of a container.
    pub fn file(&self, id: &str, path: &str) -> Option<FakeFile> {
        self.lock().containers.get(id).and_then(|container| container.files.get(path).cloned())
    }

    /// What every image says of its commands from now on.
    pub fn set_sandbox_defaults(&self, defaults: SandboxDefaults) {
        self.lock().sandbox_defaults = defaults;
    }
}

/// A failure of a call, as the engine tells it.
pub(super) fn failed(call: &'static str, error: &dyn std::error::Error) -> EngineError {
    EngineError::Failed { call, text: error.to_string() }
}

impl State {
    fn file_at(&self, id: &str, path: &str) -> Result<Option<FakeFile>, EngineError> {
        let container =
            self.containers.get(id).ok_or_else(|| EngineError::NoSandbox { id: id.to_owned() })?;
        let below = format!("{}/", path.trim_end_matches('/'));
        let implied = path == "/" || container.files.keys().any(|other| other.starts_with(&below));
        Ok(container.files.get(path).cloned().or_else(|| implied.then(FakeFile::directory)))
    }

    pub(super) fn stat_path(&self, id: &str, path: &str) -> Result<Option<PathStat>, EngineError> {
        let path = plain(path);
        Ok(self.file_at(id, path)?.map(|file| PathStat {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            kind: file.kind,
            size_bytes: file.content.len() as u64,
            mode: file.mode,
            modified_at_ms: i64::try_from(MODIFIED_S * 1000).ok(),
            link_target: (file.kind == FileKind::Symlink)
                .then(|| String::from_utf8_lossy(&file.content).into_owned()),
        }))
    }

    pub(super) fn read_archive(&self, id: &str, path: &str) -> Result<Archive, EngineError> {
        let (dot, path) = (path.ends_with("/."), plain(path));
        let top = self.file_at(id, path)?.ok_or_else(|| EngineError::NoPath { path: path.to_owned() })?;
        let base = if dot { "." } else { path.rsplit('/').next().unwrap_or_default() };
        let below = format!("{}/", path.trim_end_matches('/'));
        let files = &self.containers[id].files;
        let mut all = vec![(base.to_owned(), top)];
        let mut implied = BTreeSet::new();
        for (place, file) in files.iter().filter(|(place, _)| place.starts_with(&below)) {
            let rest = &place[below.len()..];
            for (at, _) in rest.match_indices('/') {
                let directory = &rest[..at];
                if !files.contains_key(&format!("{below}{directory}")) && implied.insert(directory.to_owned())
                {
                    all.push((format!("{base}/{directory}"), FakeFile::directory()));
                }
            }
            all.push((format!("{base}/{rest}"), file.clone()));
        }
        let bytes = Bytes::from(pack(&all).map_err(|error| failed("read_archive", &error))?);
        Ok(stream::iter([Ok(bytes)]).boxed())
    }

    /// Images have no files here, and their layers are empty.
    pub(super) fn image_archive(&self, ids: &[&str]) -> Result<Archive, EngineError> {
        if let Some(gone) = ids.iter().find(|id| self.image(id).is_none()) {
            return Err(no_image(gone));
        }
        let file = |name: String, content: Value| (name, FakeFile::bytes(content.to_string().as_bytes()));
        let place = |layer: &String| format!("{layer}/layer.tar");
        let mut files = BTreeMap::new();
        let mut manifest = Vec::new();
        for id in ids {
            let Image { layers, labels, .. } = self.image(id).unwrap_or_default();
            let places: Vec<_> = layers.iter().map(place).collect();
            files.extend(places.iter().map(|place| (place.clone(), FakeFile::bytes(&[0; 1024]))));
            let config = json!({"rootfs": {"diff_ids": layers}, "config": {"Labels": labels}});
            files.extend([file(format!("{id}.json"), config)]);
            manifest.push(json!({"Config": format!("{id}.json"), "RepoTags": null, "Layers": places}));
        }
        files.extend([file("manifest.json".to_owned(), json!(manifest))]);
        let packed = pack(&files.into_iter().collect::<Vec<_>>());
        let bytes = Bytes::from(packed.map_err(|error| failed("image_archive", &error))?);
        Ok(stream::iter([Ok(bytes)]).boxed())
    }

    pub(super) fn load_images(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        let files = unpack(bytes).map_err(|error| failed("load_images", &error))?;
        let json = |place: &str| {
            let found = files.iter().find(|(name, _)| name == place);
            found
                .and_then(|(_, file)| serde_json::from_slice::<Value>(&file.content).ok())
                .unwrap_or_default()
        };
        for listed in json("manifest.json").as_array().into_iter().flatten() {
            let config = json(listed["Config"].as_str().unwrap_or_default());
            let labels = serde_json::from_value(config["config"]["Labels"].clone()).unwrap_or_default();
            for tag in listed["RepoTags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let id = self.add_image(tag, BTreeMap::clone(&labels));
                let layers: Vec<String> =
                    serde_json::from_value(config["rootfs"]["diff_ids"].clone()).unwrap_or_default();
                if let Some(stored) = self.images.get_mut(&id).filter(|_| !layers.is_empty()) {
                    stored.image.layers = layers;
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_archive(
        &mut self,
        id: &str,
        directory: &str,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let directory = plain(directory);
        let there = self.file_at(id, directory)?;
        if there.is_none_or(|file| file.kind != FileKind::Directory) {
            return Err(EngineError::NoPath { path: directory.to_owned() });
        }
        let files = unpack(bytes).map_err(|error| failed("write_archive", &error))?;
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        for (name, file) in files {
            let name = name.trim_end_matches('/').trim_start_matches("./");
            container.files.insert(format!("{}/{name}", directory.trim_end_matches('/')), file);
        }
        Ok(())
    }
}

fn plain(path: &str) -> &str {
    let path = path.strip_suffix("/.").unwrap_or(path);
    if path.is_empty() || path == "/" { "/" } else { path.trim_end_matches('/') }
}

fn pack(files: &[(String, FakeFile)]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, file) in files {
        let mut header = Header::new_gnu();
        header.set_mode(file.mode);
        header.set_uid(file.owner.0);
        header.set_gid(file.owner.1);
        header.set_mtime(MODIFIED_S);
        header.set_size(0);
        match file.kind {
            FileKind::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, name, &*String::from_utf8_lossy(&file.content))?;
                continue;
            }
            FileKind::Directory => header.set_entry_type(EntryType::Directory),
            FileKind::File => header.set_size(file.content.len() as u64),
            FileKind::Other => header.set_entry_type(EntryType::Fifo),
        }
        let content: &[u8] = if file.kind == FileKind::File { &file.content } else { &[] };
        builder.append_data(&mut header, name, content)?;
    }
    builder.into_inner()
}

fn unpack(bytes: &[u8]) -> std::io::Result<Vec<(String, FakeFile)>> {
    let mut all = Vec::new();
    for entry in tarball::archive(bytes).entries()? {
        let mut entry = entry?;
        let header = entry.header();
        let (mode, owner) = (header.mode()?, (header.uid()?, header.gid()?));
        let kind = match header.entry_type() {
            EntryType::Regular => FileKind::File,
            EntryType::Directory => FileKind::Directory,
            EntryType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        };
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut content = Vec::new();
        match kind {
            FileKind::Symlink => content.extend_from_slice(&entry.link_name_bytes().unwrap_or_default()),
            _ => drop(entry.read_to_end(&mut content)?),
        }
        all.push((name, FakeFile { kind, content, mode, owner }));
    }
    Ok(all)
}
