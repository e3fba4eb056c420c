//! Names that the engine's tar streams carry in records of their own: longer than 100 bytes, or not ASCII, and with
//! newlines.

use super::*;

/// Makes the names in a directory of this machine: as files, directories, and links from and to them.
fn odd(at: &Path) {
    let long = format!("{}\ny", "l".repeat(120));
    fs::create_dir_all(at).expect("made");
    for (nth, name) in ["ü\nx", "é\nx", &long, "a\nb", "öä"].into_iter().enumerate() {
        fs::write(at.join(name), name).expect("written");
        let below = at.join(format!("ñ\n{nth}"));
        fs::create_dir_all(&below).expect("made");
        fs::write(below.join(name), "below").expect("written");
        symlink(name, below.join(format!("to {name}"))).expect("linked");
    }
    symlink("é\n22 linkpath=/etc/evil\n", at.join("sly\nü")).expect("linked");
    fs::hard_link(at.join("ü\nx"), at.join("zweiter\nü")).expect("linked");
}

#[test]
fn names_with_newlines_come_back_as_they_went_by_every_way() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.start("b");
    odd(&world.at("t"));
    let want = tree(&world.at("t"));
    world.copied("t", "a:/root/d");
    world.copied("a:/root/d", "back");
    assert_eq!(tree(&world.at("back")), want);
    let second = |name: &str| fs::metadata(world.at("back").join(name)).expect("a file").ino();
    assert_eq!(second("ü\nx"), second("zweiter\nü"));
    world.copied("a:/root/d", "b:/root/new");
    world.copied("b:/root/new/.", "again");
    assert_eq!(tree(&world.at("again")), want);
    let name = "ü\nx";
    world.copied(&format!("a:/root/d/{name}"), "one");
    assert_eq!(fs::read_to_string(world.at("one")).expect("read"), name);
    // As a stream, which another sandbox is given.
    let out = world.copy(&["a:/root/d", "-"], b"");
    let taken = world.copy(&["-", "b:/tmp"], &out.stdout);
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    world.copied("b:/tmp/d", "streamed");
    assert_eq!(tree(&world.at("streamed")), want);
}

#[test]
fn names_with_newlines_are_listed_and_read_as_they_are() {
    let Some(world) = World::new() else { return };
    world.start("a");
    odd(&world.at("t"));
    world.copied("t", "a:/root/d");
    let mut want: Vec<_> = tree(&world.at("t")).into_iter().map(|(name, ..)| name).collect();
    want.retain(|name| name.components().count() == 1);
    let listed = world.call("file.list", json!({"session": "a", "path": "/root/d"}));
    let entries = listed["entries"].as_array().expect("entries");
    let mut names: Vec<_> =
        entries.iter().map(|entry| PathBuf::from(entry["name"].as_str().expect("text"))).collect();
    names.sort();
    assert_eq!(names, want);
    let sly = entries.iter().find(|entry| entry["name"] == "sly\nü").expect("listed");
    assert_eq!(sly["link_target"], "é\n22 linkpath=/etc/evil\n");
    for name in ["ü\nx", "é\nx"] {
        let read = world.call("file.read", json!({"session": "a", "path": format!("/root/d/{name}")}));
        assert_eq!(read["content"], name);
    }
}

#[test]
fn capabilities_with_a_newline_among_their_bytes_pass_between_sandboxes() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.start("b");
    // Another writer's records, as GNU tar and the engine write them.
    let value = b"\x01\0\0\x02\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("SCHILY.xattr.security.capability", &value[..])]).expect("written");
    let mut header = tar::Header::new_ustar();
    header.set_path("able").expect("short");
    header.set_mode(0o755);
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, &b""[..]).expect("written");
    let given = world.copy(&["-", "a:/root"], &builder.into_inner().expect("whole"));
    assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
    world.copied("a:/root/able", "b:/root/able");
    let out = world.copy(&["b:/root/able", "-"], b"").stdout;
    assert!(out.windows(value.len()).any(|bytes| bytes == value), "the capability was lost");
}
