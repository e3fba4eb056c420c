//! The inputs that are kept, given to parsers: no fuzzer is needed, and each run is the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Most bytes of all that is kept: a corpus is minimised before it is committed.
const MAX_CORPUS_BYTES: u64 = 1024 * 1024;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn name(of: &Path) -> String {
    of.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Whether a fuzzer found it: then its name is its sum, and it is of use to the parser alone that it was found for.
fn is_found(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn inputs(of: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(of).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    all.sort();
    all
}

#[test]
fn every_input_that_is_kept_is_taken_by_its_parser_and_one_with_a_name_by_every_parser() {
    let mut faults = Vec::new();
    for (of, path) in
        inputs(&corpus()).iter().flat_map(|of| inputs(of).into_iter().map(move |path| (of, path)))
    {
        let data = fs::read(&path).expect("an input");
        let own = is_found(&name(&path)).then(|| name(of));
        for target in TARGETS.iter().filter(|target| own.as_ref().is_none_or(|own| target.name == own)) {
            if std::panic::catch_unwind(|| (target.run)(&data)).is_err() {
                faults.push(format!("{} does not take {}", target.name, path.display()));
            }
        }
    }
    assert_eq!(faults, [""; 0], "why is told above");
}

#[test]
fn every_parser_has_inputs_and_all_of_them_are_few() {
    let named: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let kept: BTreeSet<String> = inputs(&corpus()).iter().map(|directory| name(directory)).collect();
    assert_eq!(kept, named, "the directories of fuzz/corpus are the names of the parsers");
    let mut bytes = 0;
    for directory in inputs(&corpus()) {
        let inputs = inputs(&directory);
        assert!(inputs.len() > 1, "{} has no inputs", directory.display());
        bytes += inputs.iter().map(|path| fs::metadata(path).expect("there").len()).sum::<u64>();
    }
    assert!(bytes <= MAX_CORPUS_BYTES, "{bytes} bytes: minimise them (fuzz/README.md)");
}
