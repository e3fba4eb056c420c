//! Layers as engines write them, and what is told of them.

use tar::{Builder, Header};

use super::*;

/// A file with content, `NAME/` a directory, `NAME>TARGET` a link.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        if let Some((name, target)) = name.split_once('>') {
            header.set_entry_type(EntryType::Symlink);
            builder.append_link(&mut header, name, target).expect("packs");
            continue;
        }
        let kind = if name.ends_with('/') { EntryType::Directory } else { EntryType::Regular };
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).expect("packs");
    }
    builder.into_inner().expect("packs")
}

/// What `to` has otherwise than `from`, as `A path`; both are stacks of layers, of which the first is common.
fn told(from: &[&[(&str, &str)]], to: &[&[(&str, &str)]]) -> Vec<String> {
    let mut reader = Reader::default();
    let mut read = |stack: &[&[(&str, &str)]]| -> Vec<Layer> {
        stack
            .iter()
            .map(|files| reader.layer(tarball::archive(&layer(files)[..]), |_| true).expect("reads"))
            .collect()
    };
    let (from, to) = (read(from), read(&to[1..]));
    let whole: Vec<&Layer> = from.iter().collect();
    let to: Vec<&Layer> = from.iter().take(1).chain(&to).collect();
    let word = |difference: &Difference| match difference {
        Difference::Added => "A",
        Difference::Changed => "C",
        Difference::Deleted => "D",
    };
    let all = differences(&whole, &to);
    all.iter().map(|(path, d)| format!("{} {}", word(d), String::from_utf8_lossy(path))).collect()
}

const BASE: &[(&str, &str)] =
    &[("etc/", ""), ("etc/a", "1"), ("etc/b", "2"), ("var/", ""), ("var/c", "3"), ("link>etc/a", "")];

#[test]
fn what_a_layer_above_adds_changes_and_deletes_is_told() {
    let above: &[(&str, &str)] =
        &[("etc/", ""), ("etc/a", "new"), ("etc/.wh.b", ""), ("etc/d", "4"), ("link>etc/b", "")];
    assert_eq!(told(&[BASE], &[BASE, above]), ["C etc/a", "D etc/b", "A etc/d", "C link"]);
    assert_eq!(told(&[BASE, above], &[BASE]), ["C etc/a", "A etc/b", "D etc/d", "C link"]);
}

#[test]
fn what_is_the_same_in_the_end_is_not_told() {
    let (there, back): (&[_], &[_]) =
        (&[("etc/a", "x"), ("etc/.wh.b", "")], &[("etc/a", "1"), ("etc/b", "2")]);
    assert_eq!(told(&[BASE], &[BASE, there, back]), [""; 0]);
    let other: &[(&str, &str)] = &[("etc/a", "x"), ("new", "n")];
    assert_eq!(told(&[BASE, there], &[BASE, other]), ["A etc/b", "A new"]);
}

#[test]
fn with_a_directory_goes_what_is_in_it_and_one_that_hides_tells_what() {
    assert_eq!(told(&[BASE], &[BASE, &[(".wh.etc", "")]]), ["D etc"]);
    assert_eq!(told(&[BASE], &[BASE, &[("etc", "a file")]]), ["C etc", "D etc/a", "D etc/b"]);
    let opaque: &[(&str, &str)] = &[("etc/", ""), ("etc/.wh..wh..opq", ""), ("etc/b", "2")];
    assert_eq!(told(&[BASE], &[BASE, opaque]), ["D etc/a"]);
}

#[test]
fn images_are_found_in_an_archive_whatever_its_order() {
    let manifest = r#"[{"Config":"aa11.json","RepoTags":null,"Layers":["1/layer.tar"]},
        {"Config":"blobs/sha256/bb22","Layers":["1/layer.tar","2/layer.tar"]}]"#;
    let (below, above) = (layer(BASE), layer(&[("new", "n")]));
    let mut builder = Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content).expect("packs");
    };
    add("2/layer.tar", &above);
    add("2/json", b"{}");
    add("blobs/sha256/bb22", b"{\"not\": \"a layer\"}");
    add("3/layer.tar", &below);
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "1/layer.tar", "../3/layer.tar").expect("packs");
    let mut header = Header::new_gnu();
    header.set_size(manifest.len() as u64);
    builder.append_data(&mut header, "manifest.json", manifest.as_bytes()).expect("packs");
    let bytes = builder.into_inner().expect("packs");
    let layers = Reader::default().images(tarball::archive(&bytes[..])).expect("reads");
    let (one, two) =
        (layers.stack("sha256:aa11").expect("there"), layers.stack("sha256:bb22").expect("there"));
    assert_eq!(differences(&one, &two).into_keys().collect::<Vec<_>>(), [Name::from(&b"new"[..])]);
    assert!(layers.stack("sha256:cc33").is_none());
}

#[test]
fn a_path_is_the_same_however_it_is_written() {
    for path in ["etc/a", "./etc/a", "/etc/a", "/etc/a/", "//etc/a"] {
        assert_eq!(&*plain(path.as_bytes()), b"etc/a", "{path}");
    }
    assert_eq!((&*plain(b"./"), &*plain(b".x/y")), (&b""[..], &b".x/y"[..]));
    assert_eq!(ancestors(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a", b""]);
}
