//! libFuzzer's program: feeds the parser that `ABX_FUZZ` names. `run.sh` builds and starts it.
#![no_main]

use std::sync::OnceLock;

use abx::fuzzing::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

/// The parser, chosen once.
static CHOSEN: OnceLock<&Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("ABX_FUZZ").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("ABX_FUZZ names no target: one of {}", names.join(", "))
    })
}

fuzz_target!(|data: &[u8]| (CHOSEN.get_or_init(chosen).run)(data));
