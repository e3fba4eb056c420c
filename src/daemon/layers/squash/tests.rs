//! Layers of any form against what a stack of them makes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tar::Builder;

use super::*;
use crate::daemon::layers::differences;

/// An entry of a layer.
#[derive(Debug, Clone)]
enum Made {
    Directory,
    File(u8),
    /// To a name in the same layer.
    Link(&'static str),
    Symlink,
}

/// A layer as a stream: what it holds by path, whiteouts by their own names.
fn layer(entries: &[(&str, Made)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, made) in entries {
        let mut header = Header::new_ustar();
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_700_000_001);
        header.set_size(0);
        match made {
            Made::Directory => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, path, io::empty()).expect("packs");
            }
            Made::File(byte) => {
                header.set_size(3);
                builder.append_data(&mut header, path, [*byte; 3].as_slice()).expect("packs");
            }
            Made::Link(first) => {
                header.set_entry_type(EntryType::Link);
                builder.append_link(&mut header, path, first).expect("packs");
            }
            Made::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, path, "nowhere").expect("packs");
            }
        }
    }
    builder.into_inner().expect("ends")
}

fn squashed(reader: &mut Reader, below: &[Layer], upper: &[Vec<u8>]) -> Vec<u8> {
    let mut one = Vec::new();
    let open: Vec<_> = upper.iter().map(|bytes| move || bytes.as_slice()).collect();
    squash(reader, below, &open, &mut one).expect("squashes");
    one
}

/// In what a stack of layers differs from the same with all but the lowest so many as one.
fn lost(layers: &[Vec<u8>], kept: usize) -> (Vec<Name>, Vec<String>) {
    let mut reader = Reader::default();
    let mut read = |bytes: &[u8]| reader.layer(tarball::archive(bytes), |_| true).expect("a layer");
    let mut all: Vec<Layer> = layers.iter().map(|bytes| read(bytes)).collect();
    let upper = all.split_off(kept);
    let one = squashed(&mut reader, &all, &layers[kept..]);
    let mut archive = tarball::archive(one.as_slice());
    let names = archive
        .entries()
        .expect("entries")
        .map(|entry| String::from_utf8_lossy(&entry.expect("an entry").path_bytes()).into_owned());
    let names = names.collect();
    let top = reader.layer(tarball::archive(one.as_slice()), |_| true).expect("a layer");
    let was: Vec<&Layer> = all.iter().chain(&upper).collect();
    let is: Vec<&Layer> = all.iter().chain([&top]).collect();
    (differences(&was, &is).into_keys().collect(), names)
}

/// What layers hold, from below.
type Layers = &'static [&'static [(&'static str, Made)]];

#[test]
fn what_was_deleted_replaced_and_linked_in_between_is_as_it_was() {
    use Made::{Directory, File, Link, Symlink};
    let base = layer(&[
        ("a", Directory),
        ("a/x", File(1)),
        ("a/y", File(2)),
        ("b", File(3)),
        ("c", Directory),
        ("c/z", File(4)),
    ]);
    let cases: &[(Layers, &[&str])] = &[
        // A file of the base goes, one of a layer above it leaves nothing.
        (
            &[
                &[("a", Directory), ("a/new", File(9))],
                &[("a", Directory), ("a/.wh.new", File(0)), ("a/.wh.x", File(0))],
            ],
            &["a", "a/.wh.x"],
        ),
        // A directory that was deleted and made anew does not show what was in it.
        (&[&[(".wh.a", File(0))], &[("a", Directory), ("a/n", File(9))]], &["a", "a/n", "a/.wh..wh..opq"]),
        // The same where it was a file in between.
        (&[&[("c", File(9))], &[("c", Directory), ("c/n", File(8))]], &["c", "c/n", "c/.wh..wh..opq"]),
        // What hides is hidden itself.
        (
            &[&[("a", Directory), ("a/.wh..wh..opq", File(0)), ("a/n", File(1))], &[(".wh.a", File(0))]],
            &[".wh.a"],
        ),
        // A file whose first name is another's by now keeps its other names.
        (
            &[&[("one", File(5)), ("two", Link("one")), ("three", Link("one"))], &[("one", File(6))]],
            &["one", "three", "two"],
        ),
        (&[&[("b", Symlink)]], &["b"]),
    ];
    for (upper, want) in cases {
        let mut layers = vec![base.clone()];
        layers.extend(upper.iter().map(|entries| layer(entries)));
        let (lost, names) = lost(&layers, 1);
        assert_eq!(lost, [] as [Name; 0], "{upper:?}");
        assert_eq!(&names.iter().map(String::as_str).collect::<Vec<_>>(), want, "{upper:?}");
    }
}

#[test]
fn an_entry_keeps_its_long_names_owner_time_and_attributes() {
    let (path, link) = (format!("d/{}\n{}", "n".repeat(150), "é".repeat(60)), "l".repeat(200));
    let mut records = Vec::new();
    for (key, value) in [("path", path.as_bytes()), ("SCHILY.xattr.security.capability", b"\x01\n=\x00\xff")]
    {
        records.extend(tarball::record(key.as_bytes(), value));
    }
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o4751);
    header.set_uid(3_000_000);
    header.set_gid(12);
    header.set_mtime(1_700_000_123);
    header.set_size(4);
    let mut bytes = tarball::named(&header, b"short", None, records);
    bytes.extend(b"data");
    bytes.extend(tarball::padding(4));
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    bytes.extend(tarball::named(&header, b"s", Some(link.as_bytes()), Vec::new()));
    bytes.extend([0; END_BYTES]);
    let one = squashed(&mut Reader::default(), &[], &[bytes]);
    let mut archive = tarball::archive(one.as_slice());
    let mut entries = archive.entries().expect("entries");
    let mut file = entries.next().expect("the file").expect("reads");
    assert_eq!(file.path_bytes(), path.as_bytes());
    let head = file.header().clone();
    let numbers = (head.mode().expect("a mode"), head.uid().expect("a user"), head.gid().expect("a group"));
    assert_eq!((numbers, head.mtime().expect("a time")), ((0o4751, 3_000_000, 12), 1_700_000_123));
    let said: BTreeMap<_, _> = tarball::extensions(&mut file).expect("records").into_iter().collect();
    assert_eq!(said["SCHILY.xattr.security.capability"], b"\x01\n=\x00\xff");
    let mut content = String::new();
    file.read_to_string(&mut content).expect("reads");
    assert_eq!(content, "data");
    let link_name =
        entries.next().expect("the link").expect("reads").link_name_bytes().expect("a name").into_owned();
    assert_eq!(link_name, link.as_bytes());
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Entries of one layer, in which directories come before what is in them.
fn entries() -> impl Strategy<Value = Vec<u8>> {
    let step = (0..6_u8, 0..NAMES.len(), prop::option::of(0..NAMES.len()), any::<u8>());
    prop::collection::vec(step, 0..6).prop_map(|steps| {
        let mut made: BTreeMap<String, Option<Made>> = BTreeMap::new();
        for (kind, top, below, byte) in steps {
            let path = match below {
                Some(below) => format!("{}/{}", NAMES[top], NAMES[below]),
                None => NAMES[top].to_owned(),
            };
            let kind = match kind {
                0 => Some(Made::Directory),
                1 | 2 => Some(Made::File(byte)),
                3 => Some(Made::Symlink),
                _ => None,
            };
            made.insert(path, kind);
        }
        let mut all: Vec<(String, Made)> = Vec::new();
        for (path, kind) in &made {
            // Below what is no directory in this layer there is nothing.
            if let Some((top, _)) = path.split_once('/') {
                match made.get(top) {
                    Some(Some(Made::Directory)) => {}
                    None if all.iter().any(|(name, _)| name == top) => {}
                    None => all.push((top.to_owned(), Made::Directory)),
                    _ => continue,
                }
            }
            match kind {
                Some(kind) => all.push((path.clone(), kind.clone())),
                None => {
                    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                    let slash = if above.is_empty() { "" } else { "/" };
                    all.push((format!("{above}{slash}.wh.{name}"), Made::File(0)));
                }
            }
        }
        layer(&all.iter().map(|(path, made)| (path.as_str(), made.clone())).collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn one_layer_makes_what_any_number_of_them_made(layers in prop::collection::vec(entries(), 1..7), kept in 0_usize..3) {
        let kept = kept.min(layers.len() - 1);
        let (lost, _) = lost(&layers, kept);
        prop_assert!(lost.is_empty(), "{lost:?}");
    }
}
