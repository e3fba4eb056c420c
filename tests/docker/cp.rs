//! `abx cp` and `file.*` on the real engine.

mod names;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::engine::busybox_image;
use crate::support::{World, until};

/// Far more than any buffer on the way holds.
const BIG_BYTES: usize = 256 * 1024 * 1024;

/// Most memory that daemon and client may have taken for it, in KiB.
const MAX_RESIDENT_KIB: u64 = 96 * 1024;

impl World {
    fn copy(&self, args: &[&str], stdin: &[u8]) -> Output {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_abx"));
        let mut child = command
            .arg("cp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("abx runs");
        let mut input = child.stdin.take().expect("piped");
        // One that refuses does not read to the end.
        let _ = input.write_all(stdin);
        drop(input);
        child.wait_with_output().expect("abx ends")
    }

    fn copied(&self, from: &str, to: &str) {
        let output = self.copy(&["-q", from, to], b"");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && error.is_empty(), "{from} {to}: {error}");
    }

    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.copy(args, b"");
        assert!(!output.status.success(), "{args:?} succeeded");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.dir().join(name)
    }

    fn lines(&self, script: &str) -> String {
        self.sh("a", script)["stdout"].as_str().expect("text").to_owned()
    }
}

/// What is below a directory: name, mode, time, and content or where a link leads.
fn tree(at: &Path) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![at.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("read") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("there");
            let content = if meta.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).expect("read")
            };
            let mode = if meta.is_symlink() { 0 } else { meta.mode() & 0o777 };
            let name = path.strip_prefix(at).expect("below").to_owned();
            all.push((name, mode, meta.mtime(), content));
        }
    }
    all.sort();
    all
}

fn sample(at: &Path) {
    fs::create_dir_all(at.join("deep/er")).expect("made");
    for name in ["a b", "line\nbreak", "数据 👩\u{200d}💻", "-rf", "a:b", "*", &"n".repeat(200)] {
        fs::write(at.join("deep").join(name), name).expect("written");
    }
    fs::write(at.join("deep/er/empty"), "").expect("written");
    fs::write(at.join(OsStr::from_bytes(b"no\xfftext")), "bytes").expect("written");
    fs::set_permissions(at.join("deep/a b"), fs::Permissions::from_mode(0o751)).expect("set");
    symlink("../../../etc/passwd", at.join("deep/out")).expect("linked");
    symlink("/nonexistent", at.join("dangling")).expect("linked");
    let old = fs::File::options().write(true).open(at.join("deep/-rf")).expect("open");
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).expect("set");
}

#[test]
fn a_tree_comes_back_as_it_went_whatever_its_names_and_links() {
    let Some(world) = World::new() else { return };
    world.start("a");
    sample(&world.at("t"));
    let want = tree(&world.at("t"));
    world.copied("t", "a:/tmp");
    world.copied("a:/tmp/t", "back");
    assert_eq!(tree(&world.at("back")), want);
    // Into what is there, under its own name; the content alone; onto a new name.
    fs::create_dir(world.at("there")).expect("made");
    world.copied("a:/tmp/t", "there");
    world.copied("a:/tmp/t/.", "content");
    assert_eq!(tree(&world.at("there/t")), want);
    assert_eq!(tree(&world.at("content")), want);
    world.copied("t/.", "a:/tmp/renamed");
    world.copied("a:/tmp/renamed/deep/a b", "file");
    assert_eq!(fs::read_to_string(world.at("file")).expect("read"), "a b");
    // The same once more replaces what is there.
    world.copied("a:/tmp/t", "there/");
    assert_eq!(tree(&world.at("there/t")), want);
}

#[test]
fn files_are_at_hand_as_they_lie_while_the_session_is_paused_stopped_or_saved() {
    let Some(world) = World::new() else { return };
    world.start("a");
    fs::write(world.at("f"), "1").expect("written");
    for (verb, status) in [("pause", "paused"), ("stop", "stopped"), ("save", "saved")] {
        world.call(&format!("session.{verb}"), json!({"name": "a"}));
        assert_eq!(world.field("a", "status"), status);
        let at = |name: String| world.at(&name).to_str().expect("text").to_owned();
        world.text(&["cp", "--no-resume", "a:/etc/passwd", &at(format!("passwd-{verb}"))]);
        let path = format!("/tmp/{verb}");
        let file = json!({"session": "a", "path": path, "content": "é", "resume": false});
        let wrote = world.call("file.write", file);
        assert_eq!(wrote, json!({"path": path, "size_bytes": 2}));
        let read = world.call("file.read", json!({"session": "a", "path": path, "resume": false}));
        assert_eq!(read, json!({"content": "é", "encoding": "utf-8", "size_bytes": 2, "truncated": false}));
        world.text(&["cp", "--no-resume", &at("f".to_owned()), &format!("a:/tmp/f-{verb}")]);
    }
    // What was written after the save is in no snapshot, and must not be lost by going back to one.
    assert_eq!(world.field("a", "status"), "stopped");
    world.call("session.resume", json!({"name": "a"}));
    assert_eq!(world.lines("ls /tmp"), "f-pause\nf-save\nf-stop\npause\nsave\nstop\n");
}

#[test]
fn a_copy_from_one_sandbox_to_another_keeps_the_tree() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.start("b");
    sample(&world.at("t"));
    world.copied("t", "a:/tmp/t");
    world.copied("a:/tmp/t", "b:/root/new");
    world.copied("b:/root/new", "back");
    assert_eq!(tree(&world.at("back")), tree(&world.at("t")));
    world.copied("a:/etc/passwd", "b:");
    assert_eq!(world.sh("b", "ls -d /passwd")["stdout"], "/passwd\n");
}

#[test]
fn a_copy_from_one_place_of_a_sandbox_to_another_does_not_wait_for_itself() {
    let Some(world) = World::new() else { return };
    world.start("a");
    // More than the engine, the daemon and the sockets between them hold.
    world.sh("a", "dd if=/dev/urandom of=/tmp/y bs=1M count=16 2>/dev/null");
    world.copied("a:/tmp/y", "a:/tmp/y.2");
    world.copied("a:/tmp/y", &format!("{}:/tmp/y.3", world.field("a", "sandbox").as_str().expect("text")));
    assert_eq!(world.lines("cmp /tmp/y /tmp/y.2 && cmp /tmp/y /tmp/y.3 && echo same"), "same\n");
    let told = world.copy(&["a:/tmp/y", "a:/tmp/y.4"], b"");
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.ends_with("Copied 1 file (16.0 MiB) to a:/tmp/y.4\n"), "{told}");
}

#[test]
fn a_tar_stream_goes_both_ways() {
    let Some(world) = World::new() else { return };
    world.start("a");
    sample(&world.at("t"));
    let packed = Command::new("tar").arg("-C").arg(world.at("")).args(["-c", "t"]).output();
    let packed = packed.expect("tar runs").stdout;
    let output = world.copy(&["-", "a:/tmp"], &packed);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = world.copy(&["a:/tmp/t", "-"], b"");
    assert!(out.status.success() && out.stderr.is_empty());
    let mut unpack = Command::new("tar");
    unpack.current_dir(world.at("")).args(["-x", "--transform", "s/^t/back/"]).stdin(Stdio::piped());
    let mut unpack = unpack.spawn().expect("tar runs");
    unpack.stdin.take().expect("piped").write_all(&out.stdout).expect("written");
    assert!(unpack.wait().expect("tar ends").success());
    let content =
        |at: &Path| tree(at).into_iter().map(|(name, .., content)| (name, content)).collect::<Vec<_>>();
    assert_eq!(content(&world.at("back")), content(&world.at("t")));
    let (code, text) = world.refused(&["-", "a:/etc/passwd"]);
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "Error: a tar stream is unpacked in a directory, which '/etc/passwd' is not\n")
    );
    let garbage = world.copy(&["-", "a:/tmp"], &[b'x'; 4096]);
    assert_eq!(
        String::from_utf8_lossy(&garbage.stderr),
        "Error: cannot read a tar stream from standard input\nCaused by: it is no tar stream, or a damaged one\n"
    );
}

#[test]
fn a_large_file_passes_through_in_bounded_memory() {
    let Some(mut world) = World::new() else { return };
    world.start("a");
    // A period that is no power of two shows lost, doubled and swapped pieces.
    let period: Vec<u8> = (0..=250).collect();
    let mut file = std::io::BufWriter::new(fs::File::create(world.at("big")).expect("made"));
    for _ in 0..BIG_BYTES.div_ceil(period.len()) {
        file.write_all(&period).expect("written");
    }
    file.into_inner().expect("written");
    world.copied("big", "a:/big");
    world.copied("a:/big", "back");
    let same = Command::new("cmp").args([world.at("big"), world.at("back")]).status();
    assert!(same.expect("cmp runs").success());
    let status = fs::read_to_string(format!("/proc/{}/status", world.daemon().pid())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    if let Some(peak) = peak {
        let peak: u64 = peak.parse().expect("a number");
        assert!(peak < MAX_RESIDENT_KIB, "the daemon took {peak} KiB");
    }
}

#[test]
fn two_thousand_files_are_copied_each() {
    let Some(world) = World::new() else { return };
    world.start("a");
    for at in 0..2_000 {
        let directory = world.at("many").join(format!("{}", at % 50));
        fs::create_dir_all(&directory).expect("made");
        fs::write(directory.join(format!("{at}")), at.to_string()).expect("written");
    }
    world.copied("many", "a:/tmp/many");
    world.copied("a:/tmp/many", "back");
    assert_eq!(tree(&world.at("back")), tree(&world.at("many")));
    let listed = world.call("file.list", json!({"session": "a", "path": "/tmp/many/7"}));
    assert_eq!(listed["entries"].as_array().expect("entries").len(), 40);
}

#[test]
fn links_in_a_sandbox_lead_nowhere_on_this_machine() {
    let Some(world) = World::new() else { return };
    world.start("a");
    fs::create_dir(world.at("outside")).expect("made");
    let outside = world.at("outside").display().to_string();
    // What an archive holds behind a link must not be written through it, nor read through one on the way in.
    world.lines(&format!("mkdir -p /tmp/t/sub; echo x >/tmp/t/sub/f; ln -s {outside} /tmp/t/l"));
    fs::create_dir(world.at("here")).expect("made");
    symlink(&outside, world.at("here/sub")).expect("linked");
    let (code, text) = world.refused(&["a:/tmp/t/.", "here"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("'sub' is a link or a file, and nothing is written through it"), "{text}");
    assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
    // A link to the root of this machine is one to the root of the sandbox, for whoever follows it there.
    world.lines("ln -s / /tmp/root; ln -s ../../../../../etc /tmp/up");
    fs::write(world.at("mark"), "inside").expect("written");
    world.copied("mark", "a:/tmp/root/mark-of-a-test");
    world.copied("mark", "a:/tmp/up/mark");
    assert!(!Path::new("/mark-of-a-test").exists());
    assert_eq!(world.lines("cat /mark-of-a-test /etc/mark"), "insideinside");
    world.lines("ln -s /etc/shadow-of-a-test /tmp/dangling");
    world.copied("mark", "a:/tmp/dangling");
    assert_eq!(world.lines("cat /etc/shadow-of-a-test"), "inside");
    // A link itself stays a link; with -L it is what it leads to.
    world.copied("a:/tmp/up/mark", "copied");
    world.lines("ln -s /etc/mark /tmp/link");
    world.copied("a:/tmp/link", "link");
    assert_eq!(fs::read_link(world.at("link")).expect("a link"), Path::new("/etc/mark"));
    let output = world.copy(&["-q", "-L", "a:/tmp/link", "followed"], b"");
    assert!(output.status.success());
    assert_eq!(fs::read_to_string(world.at("followed")).expect("read"), "inside");
}

#[test]
fn what_goes_in_belongs_to_the_user_that_commands_run_as() {
    let Some(mut world) = World::new() else { return };
    let image = busybox_image();
    let template = format!("[templates.dev]\nimage = \"{image}\"\nuser = \"dev\"\n");
    fs::write(world.home.root().join("config.toml"), template).expect("written");
    world.restart(None);
    world.call("session.start", json!({"name": "a", "template": "dev"}));
    fs::write(world.at("f"), "x").expect("written");
    let output = world.copy(&["-a", "-q", "f", "a:/tmp/kept"], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.copied("f", "a:/tmp/given");
    let packed = Command::new("tar").arg("-C").arg(world.at("")).args(["--owner=77", "-c", "f"]).output();
    let output = world.copy(&["-q", "-", "a:/home"], &packed.expect("tar runs").stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.call("file.write", json!({"session": "a", "path": "/home/dev/written", "content": ""}));
    let owner = |path: &str| {
        let listed = world.lines(&format!("ls -ln {path}"));
        listed
            .split_whitespace()
            .skip(2)
            .take(2)
            .map(|id| id.parse().expect("a number"))
            .collect::<Vec<u32>>()
    };
    let own = fs::metadata(world.at("f")).expect("there");
    assert_eq!(owner("/tmp/kept"), [own.uid(), own.gid()]);
    for path in ["/tmp/given", "/home/f", "/home/dev/written"] {
        assert_eq!(owner(path), [1000, 1000], "{path}");
    }
}

#[test]
fn what_cannot_be_copied_is_said_in_full() {
    let Some(world) = World::new() else { return };
    world.start("a");
    fs::write(world.at("f"), "x").expect("written");
    fs::create_dir(world.at("d")).expect("made");
    world.sh("a", "mkfifo /pipe");
    for (args, code, text) in [
        (["a:/nope", "x"], 1, "Error: session 'a' has no '/nope'\n"),
        (["a:/pipe", "x"], 1, "Error: '/pipe' is a device or a pipe, and those are not copied\n"),
        (["b:/x", "x"], 3, "Error: no session is named 'b'\nHint: abx session list\n"),
        (
            ["nope", "a:/tmp"],
            1,
            "Error: cannot read 'nope'\nCaused by: No such file or directory (os error 2)\n",
        ),
        (["d", "a:/etc/passwd"], 1, "Error: a directory cannot be copied onto the file '/etc/passwd'\n"),
        (["a:/etc", "f"], 1, "Error: a directory cannot be copied onto the file 'f'\n"),
        (["f", "a:/nope/"], 1, "Error: there is no directory '/nope'\n"),
        (["f", "a:/nope/x"], 1, "Error: session 'a' has no '/nope'\n"),
        (["a:/etc/passwd", "nope/"], 1, "Error: there is no directory 'nope/'\n"),
        (
            ["f", "a:/dev/shm"],
            2,
            "Error: '/dev/shm' in session 'a' cannot be written from outside: '/dev' is in the memory of a running \
             sandbox\nHint: tar c FILE | abx exec -i a -- tar x -C /dev/shm\n",
        ),
        (["f/", "a:/tmp"], 1, "Error: cannot read 'f/'\nCaused by: Not a directory (os error 20)\n"),
        (
            ["f", "d"],
            2,
            "Error: neither SRC nor DST is in a session\nHint: abx cp NAME:/path/in/sandbox ./here\n",
        ),
    ] {
        let (got, said) = world.refused(&args);
        assert_eq!((got, said.as_str()), (Some(code), text), "{args:?}");
    }
    assert_eq!(world.lines("ls /tmp"), "");
    let document = world.copy(&["--json", "f", "a:/tmp/"], b"");
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).expect("JSON");
    let want = json!({"source": "f", "destination": "a:/tmp/", "entries": 1, "size_bytes": 1, "skipped": []});
    assert_eq!(document, want);
}

#[test]
fn programs_read_and_write_files_as_values() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let write = |path: &str, more: serde_json::Value| {
        let mut params = json!({"session": "a", "path": path});
        params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        world.call("file.write", params)
    };
    write(
        "/tmp/x/y/z.bin",
        json!({"content": "/wA=", "encoding": "base64", "create_dirs": true, "mode": 0o600}),
    );
    let read = world.call("file.read", json!({"session": "a", "path": "/tmp/x/y/z.bin"}));
    assert_eq!(read, json!({"content": "/wA=", "encoding": "base64", "size_bytes": 2, "truncated": false}));
    let listed = world.call("file.list", json!({"session": "a", "path": "/tmp/x/y"}));
    assert_eq!((&listed["path"], &listed["entries"][0]["mode"]), (&json!("/tmp/x/y"), &json!(0o600)));
    let large = "0123456789".repeat(200_000);
    write("/tmp/large", json!({"content": large}));
    let mut got = String::new();
    while got.len() < large.len() {
        let part =
            world.call("file.read", json!({"session": "a", "path": "/tmp/large", "offset": got.len()}));
        got.push_str(part["content"].as_str().expect("text"));
        assert_eq!(part["truncated"], got.len() < large.len());
    }
    assert_eq!(got, large);
    for (method, params, kind) in [
        ("file.read", json!({"session": "a", "path": "/nope"}), "file_not_found"),
        ("file.read", json!({"session": "a", "path": "/etc/passwd/x"}), "file_not_found"),
        ("file.read", json!({"session": "a", "path": "/etc"}), "invalid_params"),
        ("file.list", json!({"session": "a", "path": "/etc/passwd"}), "invalid_params"),
        ("file.write", json!({"session": "a", "path": "/no/x", "content": ""}), "file_not_found"),
        ("file.write", json!({"session": "b", "path": "/x", "content": ""}), "session_not_found"),
        (
            "file.write",
            json!({"session": "a", "path": "/x", "content": "?", "encoding": "base64"}),
            "invalid_params",
        ),
    ] {
        assert_eq!(world.refuse(method, params.clone())["data"]["kind"], kind, "{method} {params}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_copy_and_nothing_else() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let mut command = world.home.command(env!("CARGO_BIN_EXE_abx"));
    let mut child = command.args(["cp", "a:/bin", "-"]).stdout(Stdio::piped()).spawn().expect("abx runs");
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 512]).expect("a header");
    drop(out);
    child.wait().expect("it ends");
    world.copied("a:/etc/passwd", "passwd");
}

#[test]
fn a_reader_that_sleeps_does_not_hold_up_a_stop_and_hears_of_it() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.sh("a", "truncate -s 1G /big");
    let mut command = world.home.command(env!("CARGO_BIN_EXE_abx"));
    command.args(["cp", "a:/big", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("abx runs");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0; 512]).expect("a header");
    world.call("session.stop", json!({"name": "a"}));
    assert_eq!(world.field("a", "status"), "stopped");
    let output = child.wait_with_output().expect("abx ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let heard = said.contains("Error: session 'a' is being stopped; the copy was ended\n");
    assert!(output.status.code() == Some(4) && heard, "{:?} {said}", output.status);
}

#[test]
fn a_copy_that_is_told_to_end_ends_by_that_signal_and_leaves_nothing_half_made() {
    let Some(world) = World::new() else { return };
    world.start("a");
    world.sh("a", "truncate -s 64G /big");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let to = world.at(signal.as_str());
        fs::create_dir(&to).expect("made");
        let mut command = world.home.command(env!("CARGO_BIN_EXE_abx"));
        let mut copy = command.args(["-q", "cp", "a:/big"]).arg(&to).spawn().expect("abx runs");
        let entries = || fs::read_dir(&to).expect("there").count();
        until("it to write", || (entries() > 0).then_some(()));
        kill(Pid::from_raw(copy.id().cast_signed()), signal).expect("signalled");
        assert_eq!(copy.wait().expect("ends").signal(), Some(signal as i32));
        assert_eq!(entries(), 0);
    }
}
