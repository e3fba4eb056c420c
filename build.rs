//! What cargo has to be told about linking.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to build scripts through the environment and their standard output"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link_unwinder_into_the_programs();
}

/// On Linux with glibc the unwinder is a shared library of its own. Loading it takes a tenth of the time of a short
/// command such as `abx ls`, so it is linked in where the C compiler has it as an archive. Nothing else in these
/// programs unwinds, so there are never two.
fn link_unwinder_into_the_programs() {
    let is =
        |key: &str, value: &str| std::env::var(format!("CARGO_CFG_TARGET_{key}")).is_ok_and(|v| v == value);
    let native = std::env::var("HOST") == std::env::var("TARGET");
    if !(native && is("OS", "linux") && is("ENV", "gnu")) {
        return;
    }
    // The compiler gives the bare name back where it has no such file.
    let Ok(output) = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output() else { return };
    let Ok(archive) = String::from_utf8(output.stdout) else { return };
    let archive = Path::new(archive.trim());
    if let Some(dir) = archive.parent().filter(|_| archive.is_absolute() && archive.exists()) {
        println!("cargo::rustc-link-search=native={}", dir.display());
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}
