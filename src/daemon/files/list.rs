//! What is in a directory. The engine gives all that is below it; what is deeper is passed over.

use std::collections::BTreeMap;
use std::io::Read;

use tar::EntryType;

use super::Files;
use super::unpack::{Refusal, unpack};
use crate::daemon::awake::Use;
use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::failure::{Failure, quoted};
use crate::model::id::Timestamp;
use crate::proto::errors::Kind;
use crate::proto::files::{FileEntry, FileKind, FileListResult, MAX_ENTRIES};

/// Most bytes that are passed over on the way to a directory's own entries. Past it the list is refused.
const MAX_PASSED_BYTES: u64 = 1024 * 1024 * 1024;

/// Most files that are passed over, for the same reason.
const MAX_PASSED_FILES: u64 = 200_000;

impl Driver {
    /// Lists a directory.
    ///
    /// # Errors
    /// As documented for `file.list`.
    pub async fn list_files(&self, session: impl Into<Use>, path: &str) -> Result<FileListResult, Failure> {
        let files = self.files(session).await?;
        let cleaned = files.clean(path).await?;
        let path = files.directory(&cleaned.path).await?;
        let (entries, truncated) = files.bounded(files.entries(&path)).await?;
        Ok(FileListResult { path, entries, truncated })
    }
}

impl Files {
    async fn entries(&self, path: &str) -> Result<(Vec<FileEntry>, bool), Failure> {
        let contents = format!("{}/.", path.trim_end_matches('/'));
        let archive = self.driver.0.engine.read_archive(&self.sandbox, &contents).await;
        let archive = archive.map_err(|error| self.explain(error))?;
        let name = quoted(self.session.name.as_str());
        let too_much = Failure::new(Kind::Limit, format!("'{path}' has too much below it to be listed"))
            .hint(format!("abx exec {name} -- ls -la {}", quoted(path)))
            .about(self.session.name.as_str());
        unpack(archive, move |archive| collect(archive, too_much)).await
    }
}

fn collect<R: Read>(
    mut archive: tar::Archive<R>,
    too_much: Failure,
) -> Result<(Vec<FileEntry>, bool), Refusal> {
    let mut all: BTreeMap<String, FileEntry> = BTreeMap::new();
    let (mut truncated, mut passed, mut seen) = (false, 0_u64, 0_u64);
    for entry in archive.entries()? {
        let entry = entry?;
        passed = passed.saturating_add(entry.size());
        seen += 1;
        if passed > MAX_PASSED_BYTES || seen > MAX_PASSED_FILES {
            return Err(too_much.into());
        }
        let place = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let place = place.trim_start_matches("./").trim_end_matches('/');
        if place.is_empty() || place == "." || place.contains('/') {
            continue;
        }
        if all.len() == MAX_ENTRIES && !all.contains_key(place) {
            truncated = true;
            continue;
        }
        let mut listed = listed(place, &entry)?;
        if entry.header().entry_type() == EntryType::Link {
            // Its bytes came with the name that stood first, which may be in this directory too.
            let first = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
            let first = first.and_then(|name| all.get(name.trim_start_matches("./")));
            listed.size_bytes = first.map_or(0, |first| first.size_bytes);
        }
        all.insert(place.to_owned(), listed);
    }
    Ok((all.into_values().collect(), truncated))
}

fn listed<R: Read>(name: &str, entry: &tar::Entry<'_, R>) -> std::io::Result<FileEntry> {
    let header = entry.header();
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Link => FileKind::File,
        EntryType::Directory => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let target = entry.link_name_bytes().filter(|_| kind == FileKind::Symlink);
    let seconds = i64::try_from(header.mtime()?).unwrap_or(0);
    Ok(FileEntry {
        name: name.to_owned(),
        kind,
        size_bytes: if kind == FileKind::File { entry.size() } else { 0 },
        mode: header.mode()? & 0o7777,
        modified_at: clock::rfc3339(Timestamp(seconds.saturating_mul(1000))),
        link_target: target.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    })
}
