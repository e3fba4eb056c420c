//! The Python package: installed as a user installs it, typed, and passing its own tests on a live daemon with a real
//! engine.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use crate::support::Home;
use crate::support::engine::{busybox_image, has_engine};

/// What the tests need, and what builds the package.
const PACKAGES: [&str; 4] = ["hatchling==1.27.0", "mypy==1.19.1", "pytest==8.4.2", "ruff==0.17.6"];

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python")
}

/// A Python with the package in it, made once for all tests and again when the package changes.
fn python() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-client");
    std::fs::create_dir_all(&dir).expect("a directory");
    let lock = std::fs::File::create(dir.join("lock")).expect("a file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("a lock");
    let python = dir.join("venv/bin/python");
    once(&dir.join("tools"), &PACKAGES.join(" "), || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir.join("venv")));
        run(Command::new(&python).args(["-m", "pip", "install", "-q"]).args(PACKAGES));
    });
    once(&dir.join("package"), &content(&package()), || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", "--no-build-isolation"]);
        run(pip.arg(package()));
    });
    python
}

/// Does something unless it was done with these words.
fn once(done: &Path, wanted: &str, work: impl FnOnce()) {
    if std::fs::read_to_string(done).is_ok_and(|installed| installed == wanted) {
        return;
    }
    work();
    std::fs::write(done, wanted).expect("write");
}

/// Tells one state of the package from another.
fn content(package: &Path) -> String {
    let sources = std::fs::read_dir(package.join("src/abx")).expect("sources");
    let mut files: Vec<PathBuf> = sources.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.is_file());
    files.extend([package.join("pyproject.toml"), package.join("README.md")]);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        (&file, std::fs::read(&file).expect("read")).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{text}\n{errors}", output.status);
}

/// Runs some of the package's tests.
#[track_caller]
fn passes(tests: &[&str]) {
    let home = Home::new();
    let mut command = home.command("timeout");
    command.args(["--kill-after=5", "280"]).arg(python()).current_dir(package());
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).args(tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("ABX_PROGRAM", env!("CARGO_BIN_EXE_abx"));
    if has_engine() {
        command.env("ABX_TEST_ENGINE", "1").env("ABX_TEST_IMAGE", busybox_image());
    }
    run(&mut command);
}

#[test]
fn the_python_package_is_typed_and_reads_what_the_older_sdk_wrote() {
    passes(&["tests/test_wire.py", "tests/test_faults.py", "tests/test_info.py", "tests/test_types.py"]);
}

#[test]
fn the_python_package_works_in_sessions_as_its_readme_says() {
    passes(&["tests/test_sessions.py", "tests/test_async.py", "tests/test_readme.py"]);
}

#[test]
fn the_python_package_starts_the_daemon_and_goes_on_after_it_was_restarted() {
    passes(&["tests/test_daemon.py", "tests/test_protocol.py"]);
}
