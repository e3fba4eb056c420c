//! Files of sandboxes: values of JSON, and copies on raw streams.

use std::io::Read;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;
use crate::daemon::awake::Use;
use crate::daemon::files::NewFile;
use crate::daemon::framing::replay::Replay;
use crate::daemon::framing::{Framing, Peer, RawHandler};
use crate::daemon::shutdown::Shutdown;
use crate::daemon::stream::RawStreams;
use crate::engine::fake::FakeFile;
use crate::engine::{FileKind, SandboxDefaults};
use crate::proto::copy::{CopyOpen, CopyPlace, Direction, Owner};
use crate::proto::errors::Kind;
use crate::proto::files;
use crate::proto::stream::{FrameKind, HEADER_BYTES, Open, header, parse_header};

const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\ndev:x:1000:100::/home/dev:/bin/sh\n";

async fn world() -> (World, String) {
    let world = World::new();
    world.start("a").await.expect("starts");
    let id = world.sandbox("a");
    world.engine.put_file(&id, "/etc/passwd", FakeFile::bytes(PASSWD));
    world.engine.put_file(&id, "/etc/group", FakeFile::bytes(b"root:x:0:\nusers:x:100:\nstaff:x:50:dev\n"));
    (world, id)
}

/// A use that brings no session back.
fn content() -> Use {
    Use { resume: Some(false), ..Use::from("a") }
}

fn file(path: &str, content: &[u8]) -> NewFile {
    NewFile { path: path.to_owned(), bytes: content.to_vec(), mode: None, create_dirs: false }
}

#[tokio::test]
async fn a_part_of_a_file_is_read_and_links_are_followed() {
    let (world, id) = world().await;
    world.engine.put_file(&id, "/etc/link", FakeFile::link("../etc/passwd"));
    world.engine.put_file(&id, "/round", FakeFile::link("round"));
    let part = world.driver.read_file("a", "/etc/link", 5, 3).await.expect("read");
    assert_eq!((&part.bytes[..], part.size_bytes, part.truncated), (&b"x:0"[..], PASSWD.len() as u64, true));
    let part = world.driver.read_file("a", "etc/passwd", 1 << 40, 9).await.expect("read");
    assert_eq!((part.bytes.len(), part.truncated), (0, false));
    for (path, kind, text) in [
        ("/nope", Kind::FileNotFound, "session 'a' has no '/nope'"),
        ("/etc", Kind::InvalidParams, "path: '/etc' in session 'a' is not a file"),
        ("/etc/passwd/", Kind::InvalidParams, "path: '/etc/passwd' in session 'a' is not a directory"),
        ("/round", Kind::InvalidParams, "'/round' in session 'a' leads through too many symbolic links"),
        ("", Kind::InvalidParams, "path: expected one that is not empty and has no NUL bytes"),
    ] {
        let failure = world.driver.read_file("a", path, 0, 9).await.err().expect(path);
        assert_eq!((failure.kind, failure.message.as_str()), (kind, text));
    }
}

#[tokio::test]
async fn a_file_is_written_for_the_user_that_commands_run_as_and_keeps_what_it_was() {
    let (world, id) = world().await;
    let defaults = SandboxDefaults {
        user: Some("dev:staff".to_owned()),
        cwd: Some("/home/dev".to_owned()),
        ..SandboxDefaults::default()
    };
    world.engine.set_sandbox_defaults(defaults);
    world.engine.put_file(&id, "/home/dev", FakeFile { owner: (1000, 100), ..FakeFile::directory() });
    let (path, size) = world.driver.write_file("a", file("new.txt", b"hello")).await.expect("written");
    assert_eq!((path.as_str(), size), ("/home/dev/new.txt", 5));
    let new = world.engine.file(&id, "/home/dev/new.txt").expect("a file");
    assert_eq!((&new.content[..], new.mode, new.owner), (&b"hello"[..], 0o644, (1000, 50)));
    world.driver.write_file("a", file("/etc/passwd", b"")).await.expect("written");
    let old = world.engine.file(&id, "/etc/passwd").expect("a file");
    assert_eq!((old.content.len(), old.owner), (0, (0, 0)));
    let deep = NewFile { mode: Some(0o750), create_dirs: true, ..file("x/y/z", b"!") };
    world.driver.write_file("a", deep).await.expect_err("the user is not in the list any more");
    world.engine.put_file(&id, "/etc/passwd", FakeFile::bytes(PASSWD));
    let deep = NewFile { mode: Some(0o750), create_dirs: true, ..file("x/y/z", b"!") };
    world.driver.write_file("a", deep).await.expect("written");
    let made = world.engine.file(&id, "/home/dev/x/y").expect("a directory");
    assert_eq!((made.kind, made.owner, made.mode), (FileKind::Directory, (1000, 50), 0o755));
    assert_eq!(world.engine.file(&id, "/home/dev/x/y/z").expect("a file").mode, 0o750);
    let failure = world.driver.write_file("a", file("/no/such/f", b"")).await.expect_err("refused");
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (Kind::FileNotFound, "session 'a' has no '/no/such'")
    );
    let failure = world.driver.write_file("a", file("/etc", b"")).await.expect_err("refused");
    assert_eq!(failure.kind, Kind::InvalidParams);
}

#[tokio::test]
async fn a_directory_is_listed_without_what_is_below_it() {
    let (world, id) = world().await;
    world.engine.put_file(&id, "/etc/deep/er/file", FakeFile::bytes(b"12345"));
    world.engine.put_file(&id, "/etc/link", FakeFile::link("../x"));
    let listed = world.driver.list_files("a", "/etc/.").await.expect("listed");
    let entries: Vec<_> = listed.entries.iter().map(|e| (e.name.as_str(), e.kind, e.size_bytes)).collect();
    let want = [
        ("deep", files::FileKind::Directory, 0),
        ("group", files::FileKind::File, 38),
        ("link", files::FileKind::Symlink, 0),
        ("passwd", files::FileKind::File, PASSWD.len() as u64),
    ];
    assert_eq!(entries, want);
    assert_eq!(listed.entries[2].link_target.as_deref(), Some("../x"));
    assert_eq!((listed.path.as_str(), listed.truncated), ("/etc", false));
    assert_eq!(listed.entries[1].modified_at, "2023-11-14T22:13:20.000Z");
    let failure = world.driver.list_files("a", "/etc/passwd").await.expect_err("refused");
    assert_eq!(failure.message, "path: '/etc/passwd' in session 'a' is not a directory");
}

#[tokio::test]
async fn a_saved_session_that_is_not_brought_back_is_a_stopped_one_once_its_files_change() {
    let (world, _) = world().await;
    world.save("a").await.expect("saved");
    world.driver.read_file(content(), "/etc/passwd", 0, 9).await.expect("read");
    assert_eq!(world.status("a"), Status::Saved);
    world.driver.write_file(content(), file("/f", b"x")).await.expect("written");
    assert_eq!(world.status("a"), Status::Stopped);
    world.resume("a").await.expect("resumed");
    world.driver.pause("a").await.expect("paused");
    world.driver.write_file("a", file("/f", b"x")).await.expect("written");
    assert_eq!(world.status("a"), Status::Paused);
}

#[tokio::test]
async fn a_session_whose_container_is_gone_says_how_to_get_at_its_files() {
    let (world, id) = world().await;
    world.save("a").await.expect("saved");
    world.engine.vanish(&id);
    let failure = world.driver.read_file(content(), "/etc/passwd", 0, 9).await.err().expect("refused");
    assert_eq!((failure.kind, failure.hint.as_deref()), (Kind::WrongState, Some("abx session resume a")));
}

struct Copying {
    socket: BufReader<UnixStream>,
    answer: serde_json::Value,
}

impl Copying {
    async fn open(world: &World, direction: Direction, path: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let peer = Peer { uid: 0, gid: 0, pid: None, connection: 1, framing: Framing::Raw };
        let streams = RawStreams::new(world.driver.clone(), Shutdown::new());
        tokio::spawn(async move { streams.serve(Replay::new(Bytes::new(), theirs), peer).await });
        let mut socket = BufReader::new(ours);
        let copy = Some(CopyOpen { direction, path: path.to_owned(), follow: false, op: None });
        let open = Open { session: "a".to_owned(), copy, ..Open::default() };
        let mut opening = serde_json::to_vec(&open).expect("encodes");
        opening.push(b'\n');
        socket.write_all(&opening).await.expect("sent");
        let mut line = String::new();
        socket.read_line(&mut line).await.expect("an answer");
        Self { socket, answer: serde_json::from_str(&line).expect("JSON") }
    }

    fn place(&self) -> CopyPlace {
        serde_json::from_value(self.answer["copy"].clone()).expect("a place")
    }

    async fn send(&mut self, payload: &[u8]) {
        self.socket.write_all(&header(FrameKind::Input, payload.len())).await.expect("sent");
        self.socket.write_all(payload).await.expect("sent");
    }

    async fn frame(&mut self) -> (FrameKind, Vec<u8>) {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).await.expect("a frame");
        let (kind, length) = parse_header(head).expect("short");
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).await.expect("its payload");
        (kind.expect("a known kind"), payload)
    }
}

fn tar_of(name: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    builder.append_data(&mut header, name, content).expect("written");
    builder.into_inner().expect("whole")
}

#[tokio::test]
async fn a_copy_out_names_what_comes_and_ends_with_its_last_frame() {
    let (world, _) = world().await;
    let mut copy = Copying::open(&world, Direction::Out, "/etc/passwd").await;
    let place = copy.place();
    assert_eq!((place.kind, place.name.as_deref()), (Some(files::FileKind::File), Some("passwd")));
    assert_eq!((place.size_bytes, place.owner), (Some(PASSWD.len() as u64), None));
    let mut tar = Vec::new();
    loop {
        match copy.frame().await {
            (FrameKind::Stdout, bytes) => tar.extend(bytes),
            (kind, _) => break assert_eq!(kind, FrameKind::Exit),
        }
    }
    let mut archive = crate::tarball::archive(&tar[..]);
    let mut entry = archive.entries().expect("entries").next().expect("one").expect("whole");
    let mut content = Vec::new();
    entry.read_to_end(&mut content).expect("read");
    assert_eq!(content, PASSWD);
    let contents = Copying::open(&world, Direction::Out, "/etc/.").await.place();
    assert_eq!((contents.kind, contents.name), (Some(files::FileKind::Directory), None));
    let refused = Copying::open(&world, Direction::Out, "/nope").await;
    assert_eq!(refused.answer["error"]["data"]["kind"], "file_not_found");
}

#[tokio::test]
async fn a_copy_in_goes_into_a_directory_or_gets_the_name_that_was_asked_for() {
    let (world, id) = world().await;
    let place = Copying::open(&world, Direction::In, "/etc").await.place();
    assert_eq!((place.directory.as_deref(), place.name), (Some("/etc"), None));
    assert_eq!(place.owner, Some(Owner { uid: 0, gid: 0 }));
    let mut copy = Copying::open(&world, Direction::In, "/etc/new").await;
    let place = copy.place();
    assert_eq!(
        (place.kind, place.directory.as_deref(), place.name.as_deref()),
        (None, Some("/etc"), Some("new"))
    );
    assert_eq!(place.prefix, "etc/");
    let tar = tar_of("etc/new", b"content");
    for piece in tar.chunks(700) {
        copy.send(piece).await;
    }
    copy.send(b"").await;
    assert_eq!(copy.frame().await.0, FrameKind::Exit);
    assert_eq!(world.engine.file(&id, "/etc/new").expect("a file").content, b"content");
    for (path, kind) in [("/etc/passwd/", "invalid_params"), ("/no/where", "file_not_found")] {
        let refused = Copying::open(&world, Direction::In, path).await;
        assert_eq!(refused.answer["error"]["data"]["kind"], kind, "{path}");
    }
}

#[tokio::test]
async fn what_would_end_up_below_a_mount_from_memory_is_refused() {
    let (world, id) = world().await;
    let defaults = SandboxDefaults { tmpfs: vec!["/fast".to_owned()], ..SandboxDefaults::default() };
    world.engine.set_sandbox_defaults(defaults);
    world.engine.put_file(&id, "/fast/old", FakeFile::directory());
    world.engine.put_file(&id, "/dev/shm", FakeFile::directory());
    world.engine.put_file(&id, "/shm", FakeFile::link("/dev/shm"));
    for (path, directory, place) in
        [("/fast/old/x", "/fast/old", "/fast"), ("/fast", "/fast", "/fast"), ("/shm", "/dev/shm", "/dev")]
    {
        let refused = Copying::open(&world, Direction::In, path).await.answer;
        let text = format!(
            "'{directory}' in session 'a' cannot be written from outside: '{place}' is in the memory of a running \
             sandbox"
        );
        assert_eq!(refused["error"]["message"], text, "{path}");
        let hint = format!("tar c FILE | abx exec -i a -- tar x -C {directory}");
        assert_eq!(refused["error"]["data"]["hint"], hint, "{path}");
    }
    let failure = world.driver.write_file("a", file("/dev/shm/x", b"")).await.expect_err("refused");
    assert_eq!(failure.kind, Kind::InvalidParams);
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_is_no_end_of_the_archive() {
    let (world, id) = world().await;
    let mut copy = Copying::open(&world, Direction::In, "/etc/new").await;
    let tar = tar_of("etc/new", &[7; 4096]);
    copy.send(&tar[..1024]).await;
    drop(copy);
    // The session is in use for as long as anything is done about the copy.
    let row = world.row("a");
    until(|| world.driver.0.usage.standing(&row.id, std::time::Duration::ZERO).since.is_some()).await;
    assert_eq!(world.engine.file(&id, "/etc/new"), None);
    assert!(world.engine.calls().iter().all(|call| !call.starts_with("write_archive")));
}

impl Copying {
    /// How it ended: the kind and the words.
    async fn error(&mut self) -> (String, String) {
        loop {
            match self.frame().await {
                (FrameKind::Stdout, _) => {}
                (kind, payload) => {
                    assert_eq!(kind, FrameKind::Error);
                    let error: serde_json::Value = serde_json::from_slice(&payload).expect("JSON");
                    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
                    break (text(&error["data"]["kind"]), text(&error["message"]));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_copy_that_nobody_reads_does_not_hold_up_a_stop_and_hears_of_it() {
    let (world, id) = world().await;
    world.engine.put_file(&id, "/big", FakeFile::bytes(&[7; 8 << 20]));
    let mut out = Copying::open(&world, Direction::Out, "/big").await;
    let mut into = Copying::open(&world, Direction::In, "/etc/new").await;
    into.send(&tar_of("etc/new", &[7; 4096])[..1024]).await;
    world.stop("a").await.expect("stopped");
    let want = ("busy".to_owned(), "session 'a' is being stopped; the copy was ended".to_owned());
    assert_eq!((out.error().await, into.error().await), (want.clone(), want));
    assert_eq!(world.engine.file(&id, "/etc/new"), None);
    // Where nothing is left to stop, nothing is ended.
    let mut out = Copying::open(&world, Direction::Out, "/etc/passwd").await;
    world.stop("a").await.expect("stopped");
    assert_eq!(out.frame().await.0, FrameKind::Stdout);
    assert_eq!(out.frame().await.0, FrameKind::Exit);
}

#[tokio::test]
async fn a_client_that_takes_nothing_for_long_loses_the_copy_and_is_told() {
    let (world, id) = world().await;
    world.engine.put_file(&id, "/big", FakeFile::bytes(&[7; 8 << 20]));
    let mut copy = Copying::open(&world, Direction::Out, "/big").await;
    let row = world.row("a");
    tokio::time::pause();
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    until(|| world.driver.0.usage.standing(&row.id, std::time::Duration::ZERO).since.is_some()).await;
    let want = ("limit".to_owned(), "nobody took the files for 30 s; the copy was ended".to_owned());
    assert_eq!(copy.error().await, want);
}

#[tokio::test]
async fn an_engine_that_refuses_is_heard_by_the_client() {
    let (world, _) = world().await;
    world.engine.fail_next("write_archive", broken("write_archive"));
    let mut copy = Copying::open(&world, Direction::In, "/etc/new").await;
    copy.send(&tar_of("etc/new", b"x")).await;
    copy.send(b"").await;
    let (kind, payload) = copy.frame().await;
    let error: serde_json::Value = serde_json::from_slice(&payload).expect("JSON");
    assert_eq!((kind, &error["data"]["kind"]), (FrameKind::Error, &"engine_error".into()));
    assert_eq!(error["message"], "cannot copy to '/etc/new' in session 'a'");
    world.engine.fail_next("read_archive", broken("read_archive"));
    let refused = Copying::open(&world, Direction::Out, "/etc").await;
    assert_eq!(refused.answer["error"]["data"]["kind"], "engine_error");
}
