//! A home of abx that belongs to one test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Temporary directories for the user's home, abx's home and the runtime directory.
pub(crate) struct Home {
    dir: TempDir,
    root: PathBuf,
}

impl Home {
    /// Makes one.
    pub(crate) fn new() -> Self {
        Self::at("abx")
    }

    /// Makes one in which abx's home has this relative path.
    pub(crate) fn at(path: impl AsRef<Path>) -> Self {
        let dir = TempDir::with_prefix("abx-test-").expect("temporary directory");
        std::fs::create_dir(dir.path().join("run")).expect("runtime directory");
        let root = dir.path().join(path);
        Self { dir, root }
    }

    /// The directory around it all, for a test's own files.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// abx's home; it may not exist yet.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The socket, as the programs compute it.
    pub(crate) fn socket(&self) -> PathBuf {
        abx::paths::Home::find(Some(&self.root), None).expect("a home").socket().to_owned()
    }

    /// The daemon's log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.root.join("log/abxd.log")).unwrap_or_default()
    }

    /// A program that sees this home and nothing of the environment that the tests run in.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.dir()).env("ABX_HOME", &self.root);
        command.env("XDG_RUNTIME_DIR", self.dir().join("run")).env("PATH", path()).env("LANG", "C.UTF-8");
        command.current_dir(self.dir());
        command
    }

    /// The daemon's program as this script starts it, as `"$@"`.
    pub(crate) fn abxd_by(&self, script: &str) -> Command {
        let mut command = self.command("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_abxd")]).env("ABX_FAULT_METHODS", "1");
        command
    }

    /// The daemon's program, with the methods for tests.
    pub(crate) fn abxd(&self) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_abxd"));
        command.env("ABX_FAULT_METHODS", "1");
        command
    }
}

fn path() -> String {
    #[expect(clippy::disallowed_methods, reason = "tests find programs where the user does")]
    std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned())
}
