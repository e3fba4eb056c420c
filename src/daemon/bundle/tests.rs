//! Files as abx writes them, and as nobody should.

use super::*;

const CONFIG: &str = r#"{"rootfs": {"diff_ids": []}, "config": {"Cmd": ["sh"], "Labels": {"mine": "1",
    "dev.abx.snapshot.home": "elsewhere", "dev.abx.session.id": "theirs"}}}"#;

const MANIFEST: &str =
    r#"[{"Config": "aa.json", "RepoTags": ["debian:stable-slim"], "Layers": ["1/layer.tar"]}]"#;

fn index() -> Index {
    Index {
        format: FORMAT,
        name: "a-20260201".to_owned(),
        note: None,
        created_at: "2026-02-01T10:00:00Z".to_owned(),
        excluded: Vec::new(),
        session: Origin { name: "a".to_owned(), ..Origin::default() },
    }
}

/// A file with these entries behind its index; a name `PLACE>TARGET` is a link.
fn file(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(index().head().expect("short"));
    for (place, content) in entries {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        let (place, target) = place.split_once('>').map_or((*place, None), |(p, t)| (p, Some(t)));
        // As nobody but an attacker would: the crate refuses such names.
        header.as_mut_bytes()[..place.len()].copy_from_slice(place.as_bytes());
        if let Some(target) = target {
            header.set_entry_type(EntryType::Symlink);
            header.set_link_name_literal(target).expect("short");
            header.set_cksum();
            builder.append(&header, io::empty()).expect("packs");
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content.as_bytes()).expect("packs");
        }
    }
    builder.into_inner().expect("packs")
}

/// What the engine gets of a file.
fn passed(file: &[u8]) -> io::Result<BTreeMap<String, String>> {
    let stamp = Stamp {
        labels: [("dev.abx.snapshot.home".to_owned(), "ours".to_owned())].into(),
        reference: "abx-snapshot:1".to_owned(),
    };
    let mut bytes = Vec::new();
    let read = pass::<_, _, _, io::Error>(file, &mut bytes, |index| Ok((stamp, index.name)))?;
    assert_eq!(read, "a-20260201");
    let mut all = BTreeMap::new();
    for entry in tarball::archive(&bytes[..]).entries()? {
        let mut entry = entry?;
        let mut content = String::new();
        entry.read_to_string(&mut content)?;
        all.insert(String::from_utf8_lossy(&entry.path_bytes()).into_owned(), content);
    }
    Ok(all)
}

#[test]
fn an_image_gets_our_labels_and_our_name_and_no_other() {
    let whole = file(&[
        ("1/layer.tar", "files"),
        ("2/layer.tar>../1/layer.tar", ""),
        ("aa.json", CONFIG),
        (
            "index.json",
            r#"{"manifests": [{"digest": "x", "annotations": {"io.containerd.image.name": "debian"}}]}"#,
        ),
        ("manifest.json", MANIFEST),
        ("repositories", r#"{"debian": {}}"#),
    ]);
    let got = passed(&whole).expect("passes");
    assert_eq!(got["1/layer.tar"], "files");
    assert!(got.contains_key("2/layer.tar") && !got.contains_key("repositories") && !got.contains_key(INDEX));
    let config: Value = serde_json::from_str(&got["aa.json"]).expect("JSON");
    let labels = &config["config"]["Labels"];
    assert_eq!(*labels, serde_json::json!({"mine": "1", "dev.abx.snapshot.home": "ours"}));
    assert_eq!(config["config"]["Cmd"][0], "sh");
    let manifest: Value = serde_json::from_str(&got["manifest.json"]).expect("JSON");
    assert_eq!(manifest[0]["RepoTags"], serde_json::json!(["abx-snapshot:1"]));
    assert!(!got["index.json"].contains("debian"));
}

#[test]
fn what_no_engine_writes_is_refused() {
    let good = [("aa.json", CONFIG), ("manifest.json", MANIFEST)];
    passed(&file(&good)).expect("passes");
    for bad in ["../x", "/etc/x", "a/../../x", "a//b", "x>/etc/passwd", "x>../../y"] {
        assert!(passed(&file(&[&[(bad, "")], &good[..]].concat())).is_err(), "{bad}");
    }
    assert!(passed(&file(&good[..1])).is_err(), "cut off");
    assert!(passed(&file(&good[1..])).is_err(), "an image without our labels");
    let two = MANIFEST.replace("}]", "}, {\"Config\": \"bb.json\"}]");
    assert!(passed(&file(&[good[0], ("manifest.json", &two)])).is_err(), "two images");
    assert!(passed(&[]).is_err() && passed(b"noise").is_err());
    let mut newer = index();
    newer.format = FORMAT + 1;
    let error = passed(&newer.head().expect("short")).expect_err("of the future");
    assert!(error.to_string().contains("newer abx"), "{error}");
}
