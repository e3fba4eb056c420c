//! Packing and unpacking against directories of this machine, with archives that no honest sandbox would send.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::*;

/// An entry's kind, name, link and content.
type Item<'i> = (EntryType, &'i str, &'i str, &'i [u8]);

const FILE: EntryType = EntryType::Regular;
const DIRECTORY: EntryType = EntryType::Directory;
const SYMLINK: EntryType = EntryType::Symlink;
const LINK: EntryType = EntryType::Link;

fn archive(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, link, content) in items {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(if *kind == DIRECTORY { 0o555 } else { 0o6640 });
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        let link = (!link.is_empty()).then_some(link.as_bytes());
        entry::append(&mut builder, &mut header, name.as_bytes(), link, *content).expect("written");
    }
    builder.into_inner().expect("whole")
}

fn names(strip: bool, top: Option<&str>) -> Names {
    Names { strip, top: top.map(OsString::from) }
}

fn unpack(bytes: &[u8], at: &Path, names: Names) -> (io::Result<()>, Vec<String>) {
    let (output, _) = crate::cli::output::Output::captured(false, false);
    let mut watch = Watch::start(&output);
    let root = beneath::open_root(at).expect("a directory");
    let done = Unpacker::new(root, names, &mut watch).unpack(bytes);
    (done, watch.skipped)
}

fn pack(path: &Path, top: Option<&str>, owner: Option<Owner>) -> io::Result<(Vec<u8>, Vec<String>)> {
    let (output, _) = crate::cli::output::Output::captured(false, false);
    let mut watch = Watch::start(&output);
    let packer = Packer::new(Vec::new(), "", owner, &mut watch);
    let bytes = packer.pack(What::open(path, false)?, top.map(OsString::from))?;
    Ok((bytes, watch.skipped))
}

fn listed(bytes: &[u8]) -> Vec<(EntryType, String, String)> {
    let text = |bytes: Option<std::borrow::Cow<'_, [u8]>>| {
        bytes.map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    };
    let mut archive = crate::tarball::archive(bytes);
    let entries = archive.entries().expect("entries").map(|entry| entry.expect("an entry"));
    entries
        .map(|e| (e.header().entry_type(), text(Some(e.path_bytes())), text(e.link_name_bytes())))
        .collect()
}

#[test]
fn a_tree_is_unpacked_under_its_new_name_with_modes_and_times() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let bytes = archive(&[
        (DIRECTORY, "d/", "", b""),
        (FILE, "d/a\nb ü", "", b"one"),
        (DIRECTORY, "d/deep/", "", b""),
        (FILE, "d/deep/f", "", b"two"),
        (SYMLINK, "d/link", "../../../etc/passwd", b""),
        (LINK, "d/again", "d/deep/f", b""),
        (EntryType::Fifo, "d/pipe", "", b""),
        (EntryType::Char, "d/device", "", b""),
    ]);
    let (done, skipped) = unpack(&bytes, dir.path(), names(true, Some("new")));
    done.expect("unpacked");
    let at = |name: &str| dir.path().join("new").join(name);
    assert_eq!(fs::read(at("a\nb ü")).expect("read"), b"one");
    let file = fs::metadata(at("deep/f")).expect("a file");
    // Bits that change the user are not taken over.
    assert_eq!((file.mode() & 0o7777, file.mtime(), file.nlink()), (0o640, 1_000_000_000, 2));
    assert_eq!(file.ino(), fs::metadata(at("again")).expect("a file").ino());
    let deep = fs::metadata(at("deep")).expect("a directory");
    assert_eq!((deep.mode() & 0o7777, deep.mtime()), (0o555, 1_000_000_000));
    assert_eq!(fs::read_link(at("link")).expect("a link"), Path::new("../../../etc/passwd"));
    assert_eq!(skipped, ["new/pipe: it is a device or a pipe", "new/device: it is a device or a pipe"]);
    for directory in ["", "deep"] {
        fs::set_permissions(at(directory), fs::Permissions::from_mode(0o755)).expect("set");
    }
}

#[test]
fn nothing_is_written_outside_whatever_the_archive_says() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    let out = outside.to_str().expect("text").to_owned();
    let dangling = format!("{out}/new");
    let attacks: &[&[Item<'_>]] = &[
        &[(FILE, "../out/x", "", b"x")],
        &[(FILE, "d/../../out/x", "", b"x")],
        &[(FILE, &dangling, "", b"x")],
        &[(SYMLINK, "d/l", &out, b""), (FILE, "d/l/x", "", b"x")],
        &[(SYMLINK, "d/l", "../../out", b""), (DIRECTORY, "d/l", "", b""), (FILE, "d/l/x", "", b"x")],
        &[(SYMLINK, "d/l", &out, b""), (DIRECTORY, "d/l/x", "", b"")],
        &[(SYMLINK, "d/l", &out, b""), (SYMLINK, "d/l/x", "y", b"")],
        &[(SYMLINK, "d/l", &out, b""), (LINK, "d/m", "d/l/secret", b"")],
        &[(LINK, "d/m", "../out/secret", b"")],
        &[(LINK, "d/m", "/etc/passwd", b"")],
    ];
    for (at, attack) in attacks.iter().enumerate() {
        for part in [&inside, &outside] {
            let _ = fs::remove_dir_all(part);
            fs::create_dir(part).expect("made");
        }
        fs::write(outside.join("secret"), "kept").expect("written");
        let (done, _) = unpack(&archive(attack), &inside, names(false, None));
        assert!(done.is_err(), "attack {at} succeeded");
        let left: Vec<_> =
            fs::read_dir(&outside).expect("read").map(|e| e.expect("one").file_name()).collect();
        assert_eq!(left, ["secret"], "attack {at}");
        assert_eq!(fs::metadata(outside.join("secret")).expect("there").nlink(), 1, "attack {at}");
    }
}

/// A file or link whose name and link stand in records, as the engine writes them.
fn recorded(kind: EntryType, records: &[(&str, &str)], content: &[u8]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
    builder.append_pax_extensions(records).expect("written");
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_path("cut").expect("short");
    header.set_mode(0o644);
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).expect("written");
    builder.into_inner().expect("whole")
}

#[test]
fn names_in_records_are_taken_whole_and_leave_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let inside = dir.path().join("in");
    fs::create_dir(&inside).expect("made");
    let put = |bytes: &[u8]| unpack(bytes, &inside, names(false, None)).0;
    put(&recorded(FILE, &[("path", "d\nü/é\nx")], b"one")).expect("unpacked");
    put(&recorded(SYMLINK, &[("path", "l\nü"), ("linkpath", "é\n22 linkpath=/etc/evil\n")], b""))
        .expect("unpacked");
    assert_eq!(fs::read(inside.join("d\nü/é\nx")).expect("read"), b"one");
    let link = fs::read_link(inside.join("l\nü")).expect("a link");
    assert_eq!(link, Path::new("é\n22 linkpath=/etc/evil\n"));
    let absolute = format!("{}/x\n", dir.path().display());
    for (kind, path, link) in [
        (FILE, "d\n/../../ü\nx", ""),
        (FILE, absolute.as_str(), ""),
        (FILE, "x\n\0", ""),
        (LINK, "x\n", "../ü\nx"),
        (LINK, "x\n", "/etc/passwd\n"),
    ] {
        put(&recorded(kind, &[("path", path), ("linkpath", link)], b"")).expect_err(path);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
    assert_eq!(fs::read_dir(&inside).expect("read").count(), 2);
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_and_not_written_through() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let inside = dir.path().join("in");
    fs::create_dir(&inside).expect("made");
    fs::write(dir.path().join("secret"), "kept").expect("written");
    let bytes = archive(&[(SYMLINK, "l", "../secret", b""), (FILE, "l", "", b"new"), (LINK, "l2", "l", b"")]);
    unpack(&bytes, &inside, names(false, None)).0.expect("unpacked");
    assert_eq!(fs::read_to_string(inside.join("l")).expect("read"), "new");
    assert_eq!(fs::read_to_string(inside.join("l2")).expect("read"), "new");
    assert_eq!(fs::read_to_string(dir.path().join("secret")).expect("read"), "kept");
    // And once more: the second name is there already, and is the same file.
    unpack(&bytes, &inside, names(false, None)).0.expect("unpacked");
    let mut left: Vec<_> =
        fs::read_dir(&inside).expect("read").map(|e| e.expect("one").file_name()).collect();
    left.sort();
    assert_eq!(left, ["l", "l2"]);
}

#[test]
fn a_directory_is_not_replaced_by_a_file_nor_a_file_by_a_directory() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(dir.path().join("d")).expect("made");
    fs::write(dir.path().join("f"), "kept").expect("written");
    for (item, want) in [
        ((FILE, "d", "", &b"x"[..]), "'d': a directory is in its place"),
        ((SYMLINK, "d", "x", b""), "'d': a directory is in its place"),
        ((DIRECTORY, "f", "", b""), "'f': 'f' is a link or a file, and nothing is written through it"),
    ] {
        let (done, _) = unpack(&archive(&[item]), dir.path(), names(false, None));
        assert_eq!(done.expect_err("refused").to_string(), want);
    }
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("read"), "kept");
}

#[test]
fn an_archive_that_breaks_off_leaves_the_old_file_and_no_trace() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("f"), "old").expect("written");
    let bytes = archive(&[(FILE, "f", "", &[7; 4096])]);
    let (done, _) = unpack(&bytes[..2048], dir.path(), names(false, None));
    done.expect_err("cut off");
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("read"), "old");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
    let (done, _) = unpack(&[b'x'; 1024], dir.path(), names(false, None));
    assert_eq!(done.expect_err("no archive").to_string(), "it is no tar stream, or a damaged one");
}

#[test]
fn a_tree_is_packed_with_its_links_as_links_and_without_its_pipes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("b")).expect("made");
    fs::write(tree.join("a"), "one").expect("written");
    fs::hard_link(tree.join("a"), tree.join("b/same")).expect("linked");
    symlink("/etc", tree.join("etc")).expect("linked");
    nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let owner = Some(Owner { uid: 1234, gid: 5678 });
    let (bytes, skipped) = pack(&tree, Some("top"), owner).expect("packed");
    let entry = |kind, name: &str, link: &str| (kind, name.to_owned(), link.to_owned());
    let want = [
        entry(DIRECTORY, "top", ""),
        entry(FILE, "top/a", ""),
        entry(DIRECTORY, "top/b", ""),
        entry(LINK, "top/b/same", "top/a"),
        entry(SYMLINK, "top/etc", "/etc"),
    ];
    assert_eq!(listed(&bytes), want);
    assert_eq!(skipped, ["top/pipe: it is a device, a pipe or a socket"]);
    let mut packed = crate::tarball::archive(&bytes[..]);
    for entry in packed.entries().expect("entries") {
        let header = entry.expect("an entry").header().clone();
        assert_eq!((header.uid().expect("uid"), header.gid().expect("gid")), (1234, 5678));
    }
    let (content, _) = pack(&tree, None, None).expect("packed");
    assert_eq!(listed(&content)[0].1, "a");
    let error = What::open(&tree.join("pipe"), false).err().expect("refused").to_string();
    assert_eq!(error, "it is neither a file nor a directory");
}

#[test]
fn a_stream_is_passed_on_under_new_names_and_keeps_what_it_may() {
    let long = format!("d/{}", "n".repeat(180));
    let items = [
        (DIRECTORY, "d", "", &b""[..]),
        (FILE, long.as_str(), "", b"bytes"),
        (LINK, "d/two", long.as_str(), b""),
        (SYMLINK, "d/s", "../x//y", b""),
        (EntryType::Fifo, "d/p", "", b""),
    ];
    let (output, _) = crate::cli::output::Output::captured(false, false);
    let mut watch = Watch::start(&output);
    let owner = Some(Owner { uid: 7, gid: 8 });
    let bytes = archive(&items);
    let passed = pass::pass(&bytes[..], Vec::new(), (&names(true, Some("e")), "tmp/x/"), owner, &mut watch);
    let passed = passed.expect("passed");
    let renamed = format!("tmp/x/e/{}", "n".repeat(180));
    let entry = |kind, name: &str, link: &str| (kind, name.to_owned(), link.to_owned());
    let want = [
        entry(DIRECTORY, "tmp/x/e", ""),
        entry(FILE, &renamed, ""),
        entry(LINK, "tmp/x/e/two", &renamed),
        entry(SYMLINK, "tmp/x/e/s", "../x//y"),
        entry(EntryType::Fifo, "tmp/x/e/p", ""),
    ];
    assert_eq!(listed(&passed), want);
    assert_eq!((watch.entries, watch.bytes), (5, 5));
    let bad = archive(&[(FILE, "../x", "", b"")]);
    pass::pass(&bad[..], Vec::new(), (&names(false, None), ""), None, &mut watch).expect_err("refused");
}

#[test]
fn a_destination_is_found_through_the_users_own_links() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(dir.path().join("d")).expect("made");
    fs::write(dir.path().join("f"), "").expect("written");
    symlink("d", dir.path().join("to-d")).expect("linked");
    symlink("f", dir.path().join("to-f")).expect("linked");
    symlink("d/new", dir.path().join("to-new")).expect("linked");
    let named = |name: &str, exists, directory| Destination::Named { name: name.into(), exists, directory };
    for (path, want) in [
        ("d", Destination::Into),
        ("to-d", Destination::Into),
        ("f", named("f", true, false)),
        ("to-f", named("f", true, false)),
        ("to-new", named("new", false, false)),
        ("nothing", named("nothing", false, false)),
        ("nothing/", named("nothing", false, true)),
    ] {
        let (_, found) = local_destination(&dir.path().join(path)).expect(path);
        assert_eq!(found, want, "{path}");
    }
    for path in ["f/", "nothing/below", "f/below", "/dev/null"] {
        assert!(local_destination(&dir.path().join(path)).is_err(), "{path}");
    }
}

#[test]
fn a_copy_into_a_sandbox_that_broke_off_says_what_it_may_have_left() {
    let place = CopyPlace {
        path: "/tmp/f".to_owned(),
        kind: Some(FileKind::File),
        size_bytes: Some(7),
        directory: Some("/tmp".to_owned()),
        prefix: "tmp/".to_owned(),
        name: Some("f".to_owned()),
        owner: None,
    };
    let told = |bytes: u64, whole: bool| {
        let (output, captured) = crate::cli::output::Output::captured(false, true);
        let mut watch = Watch::start(&output);
        watch.goes_to("a", &place);
        watch.moved(bytes).expect("nobody wants to leave");
        watch.finish(whole);
        captured.err.text()
    };
    let want = "Warning: a:/tmp/f may hold a part of what was copied, in the place of what was there\n";
    assert_eq!(told(1, false), want);
    assert_eq!((told(1, true), told(0, false)), (String::new(), String::new()));
}
