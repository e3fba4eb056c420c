//! Archives, configuration, and what an engine's own files and labels say.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};

use super::{number, pieces};
use crate::config::{Config, Flags};
use crate::engine::address::{Settings, candidates};
use crate::engine::{CreateSpec, Image, Observed, RunState, labels};
use crate::model::limits::rights;
use crate::model::session::{Limits, Session};
use crate::tarball;

/// Bytes of a header, and what everything is filled up to.
const BLOCK_BYTES: usize = 512;

/// Most bytes of a file in an archive that are looked at: a sparse one may claim any number.
const MAX_CONTENT_BYTES: u64 = 64 * 1024;

/// Most entries of an archive that are looked at.
const MAX_ENTRIES: usize = 256;

/// A tar stream is read alike in whatever pieces it comes.
pub(super) fn tarball(mut data: &[u8]) {
    let length = number(&mut data);
    let mut data = data.to_vec();
    // A fuzzer hardly finds a sum by chance, and would see nothing of what is behind it.
    if length.is_multiple_of(2) {
        data.chunks_exact_mut(BLOCK_BYTES).filter(|block| block[257..].starts_with(b"ustar")).for_each(sum);
    }
    let (whole, in_pieces) = (entries(&data[..]), entries(Pieces(pieces(&data, length).collect(), 0)));
    assert_eq!(in_pieces, whole, "in pieces of {length} and one");
}

/// Puts a header's sum right.
fn sum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// What can be read, and whether it ended in an error.
fn entries(from: impl Read) -> (Vec<String>, bool) {
    let mut all = Vec::new();
    let mut archive = tarball::archive(from);
    let Ok(entries) = archive.entries() else { return (all, true) };
    for entry in entries.take(MAX_ENTRIES) {
        let Ok(mut entry) = entry else { return (all, true) };
        let said = tarball::extensions(&mut entry).map_err(|error| error.kind());
        let name = entry.path_bytes().into_owned();
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        let (size, kind) = (entry.size(), entry.header().entry_type());
        let mut content = Vec::new();
        let read = entry.by_ref().take(MAX_CONTENT_BYTES).read_to_end(&mut content);
        let ended = read.map_err(|error| error.kind());
        assert!(content.len() as u64 <= size, "{name:?} has more than its {size} bytes");
        all.push(format!("{kind:?} {name:?} {link:?} {size} {said:?} {ended:?} {content:?}"));
    }
    (all, false)
}

/// Bytes that come in pieces; which is next.
struct Pieces<'d>(Vec<&'d [u8]>, usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(piece) = self.0.get_mut(self.1) {
            let read = piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.1 += 1;
        }
        Ok(0)
    }
}

/// A configuration file is refused, or every setting of it can be explained.
pub(super) fn config(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("config.toml");
    fs::write(&path, data).expect("its file");
    match Config::load(&path, &Flags::default()) {
        Ok(config) => {
            for name in config.templates.keys() {
                assert!(config.template(name).is_some(), "the template {name:?} is not there");
            }
            for name in config.agents.keys() {
                config.agent(name);
            }
            assert!(!config.explain().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An engine's address, and Docker's own files: whatever is chosen is the only one, and is written as it is
/// read.
pub(super) fn engine(mut data: &[u8]) {
    let kind = number(&mut data);
    let mut settings = Settings::default();
    let dir = tempfile::tempdir().expect("a temporary directory");
    match (kind % 3, str::from_utf8(data)) {
        (0, Ok(text)) => settings.address = Some((text.to_owned(), "the fuzzer".to_owned())),
        (1, _) => {
            fs::write(dir.path().join("config.json"), data).expect("its file");
            settings.docker_config = Some(dir.path().to_owned());
        }
        (2, _) => {
            let meta = dir.path().join("contexts/meta/one");
            fs::create_dir_all(&meta).expect("its directory");
            fs::write(meta.join("meta.json"), data).expect("its file");
            settings.docker_config = Some(dir.path().to_owned());
            settings.docker_context = Some("one".to_owned());
        }
        _ => return,
    }
    let Ok(all) = candidates(&settings) else { return };
    if settings.docker_config.is_some() && settings.docker_context.is_none() {
        return;
    }
    assert_eq!(all.len(), 1, "a chosen address is the only one");
    let text = all[0].address.to_string();
    let again = Settings { address: Some((text, String::new())), ..Settings::default() };
    let again = candidates(&again).expect("what is written can be read");
    assert_eq!(again[0].address, all[0].address);
}

/// Labels of containers and images, a line each: what they rebuild is within the bounds of a row.
pub(super) fn labels(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default().to_owned();
    let labels: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (format!("{}{key}", labels::PREFIX), value.to_owned()))
        .collect();
    labels::is_fixed(&labels, 80, "tcp");
    let image = Image { size_bytes: 7, labels: labels.clone(), ..Image::default() };
    labels::rebuild_from_snapshot(&image);
    if let Some(snapshot) = labels::rebuild_snapshot(&image) {
        assert!(snapshot.own_bytes.is_none_or(|own| own <= snapshot.size_bytes));
    }
    if let Some(session) = labels::rebuild(&observed(name.clone(), labels)) {
        assert!(session.spec.env.is_empty(), "labels hold no value of the environment");
        let labels = labels::session(&create_spec(session.clone()));
        let again = labels::rebuild(&observed(session.sandbox.clone(), labels)).expect("its own labels");
        assert_eq!(again.spec, session.spec, "what labels say, said again");
        assert_eq!((again.id, again.metadata), (session.id, session.metadata));
    }
}

fn observed(name: String, labels: BTreeMap<String, String>) -> Observed {
    Observed {
        id: "container".to_owned(),
        name,
        state: RunState::Running,
        exit_code: None,
        finished_at_ms: None,
        oom_killed: false,
        image_id: "image".to_owned(),
        labels,
        ports: Vec::new(),
        mounts: Vec::new(),
        pid: None,
        env: Vec::new(),
        directory: None,
        limits: Limits::default(),
        networked: true,
    }
}

fn create_spec(session: Session) -> CreateSpec {
    CreateSpec {
        sandbox: session.sandbox.clone(),
        image: "base".to_owned(),
        rights: rights(session.spec.profile),
        home: "home".to_owned(),
        guest: None,
        session,
    }
}
