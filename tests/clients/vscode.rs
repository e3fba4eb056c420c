//! The extension for VS Code: its types are those of the protocol document, it compiles, and its own tests pass on a live
//! daemon with a real engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use crate::support::Home;
use crate::support::engine::{busybox_image, has_engine};

/// The extension's directory, with the packages of its lock file, installed once for all test runs.
fn extension() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/vscode");
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vscode-client.lock");
    let lock = std::fs::File::create(lock).expect("a file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("a lock");
    let wanted = std::fs::read(dir.join("package-lock.json")).expect("it is checked in");
    let done = dir.join("node_modules/.abx-installed");
    if std::fs::read(&done).is_ok_and(|installed| installed == wanted) {
        return dir;
    }
    let output = Command::new("npm").arg("ci").current_dir(&dir).output().expect("npm is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(done, wanted).expect("write");
    dir
}

#[test]
fn the_types_are_those_of_the_document_and_the_extension_passes_its_own_tests() {
    let dir = extension();
    let home = Home::new();
    let mut command = home.command("timeout");
    command.args(["--kill-after=5", "200", "npm", "test"]).current_dir(dir);
    command.env("ABX_TEST_PROGRAM", env!("CARGO_BIN_EXE_abx"));
    if has_engine() {
        command.env("ABX_TEST_IMAGE", busybox_image());
    } else {
        command.env("ABX_TEST_ENGINE", "0");
    }
    let output = command.output().expect("timeout is part of coreutils");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "npm test ended with {}\n{text}\n{errors}", output.status);
}
