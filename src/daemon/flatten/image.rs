//! The image in place of one with too many layers: the lowest of those as they are, and one for all the others.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use super::spool::{Part, Section, Spool, strange};
use crate::daemon::layers::Reader;
use crate::daemon::layers::squash::squash;
use crate::engine::labels;
use crate::tarball;

/// Where the configuration is in the archive.
const CONFIG: &str = "config.json";

/// The image, ready to be given to the engine. The same image becomes the same one each time.
#[derive(Debug)]
pub(super) struct Flat {
    spool: Spool,
    kept: Vec<Part>,
    top: File,
    top_bytes: u64,
    config: Vec<u8>,
}

impl Flat {
    /// Makes one that keeps so many of the lowest layers. `top` is an empty file.
    ///
    /// # Errors
    /// When the archive does not hold the image, has too many files ([`io::ErrorKind::QuotaExceeded`]), or the disk is full.
    pub(super) fn make(spool: Spool, top: File, kept: usize) -> io::Result<Self> {
        let image = spool.image()?;
        let (low, high) = image.layers.split_at_checked(kept).ok_or_else(strange)?;
        let mut reader = Reader::default();
        let below = low.iter().map(|part| reader.layer(tarball::archive(spool.open(*part)), |_| true));
        let below = below.collect::<io::Result<Vec<_>>>()?;
        let mut to = Hashed { to: BufWriter::new(top), hash: Sha256::new(), bytes: 0 };
        let from = &spool;
        let upper: Vec<_> = high.iter().map(|part| move || from.open(*part)).collect();
        squash(&mut reader, &below, &upper, &mut to)?;
        let Hashed { to, hash, bytes } = to;
        let below_bytes = below.iter().map(|layer| layer.bytes()).sum();
        let config = config(image.config, kept, &digest(hash), below_bytes)?;
        let kept = low.to_vec();
        Ok(Self { kept, top: to.into_inner()?, top_bytes: bytes, config, spool })
    }

    /// Writes it as an archive that engines take in, under this name.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(super) fn write(&self, to: impl Write, reference: &str) -> io::Result<()> {
        let mut builder = Builder::new(to);
        let mut places = Vec::new();
        for (n, part) in self.kept.iter().enumerate() {
            let place = format!("{n}/layer.tar");
            put(&mut builder, &place, part.bytes, self.spool.open(*part))?;
            places.push(place);
        }
        let place = "top/layer.tar".to_owned();
        put(&mut builder, &place, self.top_bytes, Section::whole(&self.top, self.top_bytes))?;
        places.push(place);
        put(&mut builder, CONFIG, self.config.len() as u64, self.config.as_slice())?;
        let manifest = json!([{"Config": CONFIG, "RepoTags": [reference], "Layers": places}]).to_string();
        put(&mut builder, "manifest.json", manifest.len() as u64, manifest.as_bytes())?;
        builder.into_inner()?.flush()
    }
}

/// The configuration as it was, but for its layers and what is told of those.
fn config(mut config: Map<String, Value>, kept: usize, top: &str, below_bytes: u64) -> io::Result<Vec<u8>> {
    let layers = config.get_mut("rootfs").and_then(|fs| fs.get_mut("diff_ids")).and_then(Value::as_array_mut);
    let layers = layers.filter(|layers| layers.len() >= kept).ok_or_else(strange)?;
    layers.truncate(kept);
    layers.push(top.into());
    let created = config.get("created").cloned();
    let history = config.get_mut("history").and_then(Value::as_array_mut);
    let is_told = history.is_some_and(|history| {
        let is_whole = shorten(history, kept);
        history.push(json!({"created": created, "created_by": "abx", "comment": "flattened"}));
        is_whole
    });
    if !is_told {
        // Engines take one without, and not one that tells of other layers.
        config.remove("history");
    }
    let labels = config.get_mut("config").and_then(|config| config.get_mut("Labels"));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.insert(labels::SNAPSHOT_BASE_BYTES.to_owned(), below_bytes.to_string().into());
    }
    Ok(serde_json::to_vec(&config)?)
}

/// Leaves of a history what tells of so many of the lowest layers. False where it tells of fewer.
fn shorten(history: &mut Vec<Value>, kept: usize) -> bool {
    let mut layers = 0;
    history.retain(|step| {
        layers += usize::from(step.get("empty_layer").and_then(Value::as_bool) != Some(true));
        layers <= kept
    });
    layers >= kept
}

fn digest(hash: Sha256) -> String {
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn put(builder: &mut Builder<impl Write>, place: &str, bytes: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(bytes);
    builder.append_data(&mut header, place, content)
}

/// Takes the digest of what passes.
struct Hashed<W> {
    to: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
