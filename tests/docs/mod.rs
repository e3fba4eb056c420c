//! Tests that keep documents, layout and code together.

mod claims;
#[cfg(feature = "schema")]
mod examples;
mod imports;
mod layout;
#[cfg(feature = "schema")]
mod rendered;
mod scan;
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};

/// The package's root.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `dir` whose names end in `suffix`, in order, as paths relative to the package's root.
fn files_under(dir: &str, suffix: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_str().is_some_and(|p| p.ends_with(suffix)) {
                found.push(relative(&path));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "nothing under {dir} ends in {suffix}");
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8").to_owned()
}

fn read(relative: &str) -> String {
    fs::read_to_string(root().join(relative)).unwrap_or_else(|e| panic!("cannot read {relative}: {e}"))
}

/// A variable of the test run's environment.
fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "switches of the test run itself")]
    std::env::var(name).ok()
}
