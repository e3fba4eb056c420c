//! Whose files are those that are made in a workspace: of whoever made the session, who need not be root.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::engine::{busybox_image, docker, engine_socket, has_engine};

/// A user whom neither this machine nor the image knows, for tests that root runs.
const UNKNOWN: u32 = 54_321;

/// A home of abx of somebody who is not root, with programs that they may run.
struct Other {
    dir: TempDir,
    uid: u32,
    gid: u32,
    /// What runs a program as that user.
    become_them: Vec<String>,
}

impl Other {
    fn new() -> Self {
        let dir = TempDir::with_prefix("abx-test-").expect("a directory");
        for name in ["bin", "work"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        for (name, program) in [("abx", env!("CARGO_BIN_EXE_abx")), ("abxd", env!("CARGO_BIN_EXE_abxd"))] {
            fs::copy(program, dir.path().join("bin").join(name)).expect("a copy");
        }
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        if !uid.is_root() {
            return Self { dir, uid: uid.as_raw(), gid: gid.as_raw(), become_them: Vec::new() };
        }
        for path in [dir.path().to_owned(), dir.path().join("work")] {
            chown(&path, Some(UNKNOWN), Some(UNKNOWN)).expect("root may");
        }
        let engine_group = fs::metadata(engine_socket()).expect("the engine's socket").gid();
        let become_them = [
            "setpriv".to_owned(),
            format!("--reuid={UNKNOWN}"),
            format!("--regid={UNKNOWN}"),
            format!("--groups={engine_group}"),
        ];
        Self { dir, uid: UNKNOWN, gid: UNKNOWN, become_them: become_them.to_vec() }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn abx(&self, arguments: &[&str]) -> String {
        let program = self.dir.path().join("bin/abx").display().to_string();
        let words: Vec<&str> = self
            .become_them
            .iter()
            .chain([&program])
            .map(String::as_str)
            .chain(arguments.iter().copied())
            .collect();
        let output = Command::new(words[0])
            .args(&words[1..])
            .env_clear()
            .env("HOME", self.dir.path())
            .env("ABX_HOME", self.dir.path().join("abx"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.work())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.abx(&["daemon", "stop"]);
        let home = format!("label=dev.abx.session.home={}", self.dir.path().join("abx").display());
        for id in docker(&["ps", "-aq", "--filter", &home]).lines() {
            docker(&["rm", "-fv", id]);
        }
    }
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (found.uid(), found.gid())
}

#[test]
fn what_is_made_in_a_workspace_belongs_to_the_caller_who_has_a_home_there() {
    if !has_engine() {
        return;
    }
    let other = Other::new();
    let (uid, gid) = (other.uid, other.gid);
    let work = other.work();
    other.abx(&["start", "a", "--image", &busybox_image(), "-w", work.to_str().expect("text")]);
    let script = "touch made && echo kept > $HOME/note && echo $(id -u):$(id -g) $HOME";
    // The image knows user 1000.
    let home = if uid == 1000 { "/home/dev".to_owned() } else { format!("/home/{uid}") };
    assert_eq!(other.abx(&["exec", "a", "--", "sh", "-c", script]), format!("{uid}:{gid} {home}"));
    assert_eq!(owner(&work.join("made")), (uid, gid));
    assert_eq!(other.abx(&["exec", "-u", "root", "a", "--", "sh", "-c", "echo $(id -u) $HOME"]), "0 /root");
    fs::write(work.join("in"), "x").expect("a file");
    other.abx(&["cp", "-q", "in", "a:/tmp/in"]);
    let listed = other.abx(&["exec", "a", "--", "ls", "-ln", "/tmp/in"]);
    let owners: Vec<&str> = listed.split_whitespace().skip(2).take(2).collect();
    assert_eq!(owners, [uid.to_string(), gid.to_string()], "{listed}");
    for verbs in [&["stop", "a"][..], &["resume", "a"], &["save", "a"], &["resume", "a"]] {
        other.abx(verbs);
    }
    assert_eq!(other.abx(&["exec", "a", "--", "sh", "-c", "cat $HOME/note"]), "kept");
}
