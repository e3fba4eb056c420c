//! A snapshot on too many layers, before and after it was flattened, as the engine has it.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Command;

use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::support::engine::docker;
use crate::support::stack::{Stack, directories, layer};
use crate::support::{World, until};

/// What a layer may hold: rights, owners, attributes, further names, and what hides other layers' files.
fn odd_layers() -> Vec<Vec<u8>> {
    let mut first = directories(&["data", "old", "old/below"]);
    first.truncate(first.len() - 1024);
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o4755);
    header.set_uid(1000);
    header.set_gid(1001);
    header.set_mtime(1_600_000_001);
    header.set_size(3);
    // As the kernel keeps a capability: its version, then what is permitted.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let record = abx::tarball::record(b"SCHILY.xattr.security.capability", &capability);
    let mut file = |path: &[u8], records: Vec<u8>| {
        first.extend(abx::tarball::named(&header, path, None, records));
        first.extend(b"abc");
        first.extend(abx::tarball::padding(3));
    };
    file(b"data/able", record);
    file(b"data/one", Vec::new());
    file(format!("data/{}", "é".repeat(90)).as_bytes(), Vec::new());
    header.set_entry_type(EntryType::Link);
    header.set_size(0);
    first.extend(abx::tarball::named(&header, b"data/two", Some(b"data/one"), Vec::new()));
    header.set_entry_type(EntryType::Symlink);
    first.extend(abx::tarball::named(
        &header,
        b"data/link",
        Some("nowhere/".repeat(20).as_bytes()),
        Vec::new(),
    ));
    first.extend([0; 1024]);
    let files = layer(&[("data/a", "1"), ("data/b", "2"), ("old/x", "3"), ("old/below/y", "4")]);
    let gone = layer(&[("data/.wh.a", ""), ("old/.wh..wh..opq", ""), ("old/z", "5"), ("bin/.wh.seq", "")]);
    vec![first, files, gone]
}

/// Everything that an image may say of how it is run.
fn config() -> Value {
    json!({
        "Env": ["PATH=/bin", "KEPT=a \"b\" c"], "Cmd": ["sh", "-c", "true"], "Entrypoint": ["env"], "User": "0:0",
        "WorkingDir": "/data", "ExposedPorts": {"80/tcp": {}}, "Volumes": {"/vol": {}}, "StopSignal": "SIGUSR1",
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 3_000_000_000_u64}, "OnBuild": ["RUN true"],
        "Shell": ["/bin/sh", "-eu"],
        // As if it had been made of a snapshot whose first image was the one layer.
        "Labels": {"mine": "kept", "dev.abx.snapshot.id": "0", "dev.abx.snapshot.base_layers": "1"},
    })
}

/// What is at each path of an image, as its container would have it; but for what the engine puts there itself.
fn files(image: &str) -> BTreeMap<Vec<u8>, String> {
    let container = docker(&["create", image, "none"]);
    let exported = Command::new("docker").args(["export", &container]).output().expect("docker runs").stdout;
    docker(&["rm", "-v", &container]);
    let mut all = BTreeMap::new();
    for entry in abx::tarball::archive(exported.as_slice()).entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let path = entry.path_bytes().into_owned();
        if [&b"dev"[..], b"etc", b"proc", b"sys", b"vol", b".dockerenv"]
            .iter()
            .any(|own| path.starts_with(own))
        {
            continue;
        }
        let mut said = abx::tarball::extensions(&mut entry).expect("records");
        said.retain(|(key, _)| key.starts_with("SCHILY.xattr"));
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("reads");
        let header = entry.header();
        let numbers = (header.mode(), header.uid(), header.gid(), header.mtime());
        let link = entry.link_name_bytes();
        let sum: u64 = content.iter().enumerate().map(|(at, byte)| at as u64 * u64::from(*byte)).sum();
        let what = format!("{:?} {numbers:?} {link:?} {said:?} {} {sum}", header.entry_type(), content.len());
        all.insert(path, what);
    }
    all
}

fn inspect(image: &str, field: &str) -> Value {
    let text = docker(&["image", "inspect", image, "--format", &format!("{{{{json .{field}}}}}")]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{field} of {image}: {error}"))
}

fn snapshot_image(world: &World, name: &str) -> String {
    let all = world.call("snapshot.list", json!({}));
    let found = all.as_array().expect("an array").iter().find(|snapshot| snapshot["name"] == name);
    found.expect("the snapshot")["image_id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_flattened_snapshot_has_the_files_and_the_configuration_that_it_had() {
    let mut layers = odd_layers();
    layers.extend((3..61).map(|n| layer(&[(&format!("data/{n}"), "x"), ("data/same", &format!("{n}"))])));
    let stack = Stack::load("odd", layers, &config());
    let Some(mut world) = World::new() else { return };
    let go = world.home.dir().join("go");
    world.restart(Some(&format!("flatten.before=pause:{}", go.display())));
    world.call("session.start", json!({"name": "a", "image": stack.name()}));
    world.call("session.save", json!({"name": "a", "snapshot": "one"}));
    world.call("session.resume", json!({"name": "a", "snapshot": "one"}));
    let changes = "rm /data/b /data/7; rm -r /old; mkdir /old; echo n > /old/n; echo changed > /data/one; \
                   B=/bin/busybox; $B ln /data/two /data/three; $B chmod 1777 /data; $B chown 7:8 /data/8; \
                   touch -d '2001-02-03 04:05:06' /data/9; rm /bin/od; dd if=/dev/zero of=/hole bs=1 seek=30000000 count=1; echo end >> /hole";
    assert_eq!(world.sh("a", changes)["exit_code"], 0);
    world.call("session.save", json!({"name": "a", "snapshot": "two"}));
    let old = snapshot_image(&world, "two");
    let (had, config, was) = (files(&old), inspect(&old, "Config"), inspect(&old, "RootFS.Layers"));
    assert_eq!(was.as_array().map(Vec::len), Some(64));
    assert_eq!(had.get(&b"data/a"[..]), None);
    assert!(had[&b"data/able"[..]].contains("security.capability"), "{had:?}");

    std::fs::write(&go, "").expect("write");
    until("it to be flattened", || (snapshot_image(&world, "two") != old).then_some(()));
    let new = snapshot_image(&world, "two");
    let is = inspect(&new, "RootFS.Layers");
    assert_eq!((is.as_array().map(Vec::len), &is[0]), (Some(2), &was[0]), "it shares the base's layer");
    assert_eq!(files(&new), had);
    let strip = |mut config: Value| {
        config["Labels"].as_object_mut().expect("labels").remove("dev.abx.snapshot.base_bytes");
        config
    };
    assert_eq!(strip(inspect(&new, "Config")), strip(config));
    assert_eq!(docker(&["history", "-q", &new]).lines().count(), 2, "the engine can tell its history");

    // What stands on the first snapshot goes on; the other image is nobody's.
    assert_eq!(world.field("a", "image_id"), snapshot_image(&world, "one"));
    until("the old image to go", || {
        docker(&["image", "inspect", "-f", "{{.Id}}", &old]).is_empty().then_some(())
    });
    world.call("session.resume", json!({"name": "a", "snapshot": "two"}));
    assert_eq!(world.sh("a", "cat /data/same /old/*")["stdout"], "60n\n");
    let listed = world.call("snapshot.list", json!({}));
    let own = |name: &str| {
        let rows = listed.as_array().expect("an array");
        rows.iter().find(|row| row["name"] == name).expect("there")["own_bytes"].as_u64()
    };
    assert!(own("two").is_some_and(|bytes| (30_000_000..40_000_000).contains(&bytes)), "{listed}");
}
