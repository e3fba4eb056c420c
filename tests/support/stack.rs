//! An image of any layers, which goes when the test ends.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::engine::{busybox_image, docker};

/// Layers on top of the test image's.
pub(crate) struct Stack {
    name: String,
}

impl Stack {
    /// Has the engine take it in, with this configuration.
    pub(crate) fn load(name: &str, upper: Vec<Vec<u8>>, config: &Value) -> Self {
        let name = format!("abx-test-stack:{name}-{}", std::process::id());
        let mut layers = vec![base_layer()];
        layers.extend(upper);
        let digests: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let history: Vec<Value> = digests.iter().map(|digest| json!({"comment": digest})).collect();
        let image = json!({
            "architecture": docker(&["version", "--format", "{{.Server.Arch}}"]), "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": digests}, "history": history,
        });
        let places: Vec<String> = (0..layers.len()).map(|n| format!("{n}/layer.tar")).collect();
        let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": places}]);
        let mut archive = Builder::new(Vec::new());
        let texts = [("config.json", image.to_string()), ("manifest.json", manifest.to_string())];
        let texts = texts.into_iter().map(|(place, text)| (place.to_owned(), text.into_bytes()));
        for (place, content) in places.into_iter().zip(layers).chain(texts) {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, place, content.as_slice()).expect("packs");
        }
        load(&archive.into_inner().expect("ends"));
        Self { name }
    }

    /// Its reference.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        docker(&["rmi", &self.name]);
    }
}

/// A layer that holds these files of root's, by path.
pub(crate) fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_700_000_000);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_bytes()).expect("packs");
    }
    builder.into_inner().expect("ends")
}

/// A layer of directories.
pub(crate) fn directories(paths: &[&str]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for path in paths {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_700_000_000);
        header.set_size(0);
        builder.append_data(&mut header, path, std::io::empty()).expect("packs");
    }
    builder.into_inner().expect("ends")
}

/// The one layer of the test image.
fn base_layer() -> Vec<u8> {
    let saved = Command::new("docker").args(["save", &busybox_image()]).output().expect("docker runs").stdout;
    let mut archive = abx::tarball::archive(saved.as_slice());
    let mut largest = Vec::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        if entry.size() > largest.len() as u64 {
            largest.clear();
            entry.read_to_end(&mut largest).expect("reads");
        }
    }
    largest
}

fn load(archive: &[u8]) {
    let mut command = Command::new("docker");
    let mut child = command
        .args(["load", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("docker runs");
    child.stdin.take().expect("a pipe").write_all(archive).expect("docker reads");
    assert!(child.wait().expect("docker ends").success(), "the image was not taken in");
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
