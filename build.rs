//! What cargo has to be told about linking, and the program that abxd puts into sandboxes.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to build scripts through the environment and their standard output"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// What abx-init is made of. It is built again only when one of these changes.
const GUEST_SOURCES: [&str; 5] =
    ["src/bin/abx-init.rs", "src/guest", "src/lib.rs", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if set("CARGO_FEATURE_HOST") {
        link_unwinder_into_the_programs();
        build_guest();
    }
}

fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

fn text(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("cargo sets {variable}"))
}

/// Builds abx-init as a static program, which no setting of this package can ask for: flags hold for all that cargo
/// builds, and macros cannot be built static. So it is a build of its own, with only what it needs, and its place is
/// told to the daemon. Elsewhere than on Linux there is none, and commands run through the engine.
fn build_guest() {
    let place = Path::new(&text("OUT_DIR")).join("abx-init");
    println!("cargo::rustc-env=ABX_INIT={}", place.display());
    for source in GUEST_SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    if text("CARGO_CFG_TARGET_OS") != "linux" {
        std::fs::write(&place, []).expect("cargo's own directory can be written");
        return;
    }
    let built = build_static(&text("TARGET"));
    std::fs::copy(&built, &place).unwrap_or_else(|e| panic!("cannot copy {}: {e}", built.display()));
}

fn build_static(target: &str) -> PathBuf {
    let directory = Path::new(&text("OUT_DIR")).join("guest");
    let mut cargo = Command::new(text("CARGO"));
    cargo
        .args(["build", "--release", "--locked", "--bin", "abx-init"])
        .args(["--no-default-features", "--features", "guest", "--target", target])
        .arg("--manifest-path")
        .arg(Path::new(&text("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&directory);
    // What the outer cargo says to its own build is not meant for this one: features, targets, a lint's driver.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let kept = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR"].contains(&&*name);
        if !kept && ["CARGO", "RUSTFLAGS", "RUSTC_W"].iter().any(|outer| name.starts_with(outer)) {
            cargo.env_remove(&variable);
        }
    }
    cargo
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        // Its screen model is caught when it panics: PID 1 must not end for what a program wrote.
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "abx-init cannot be built: {status}");
    directory.join(target).join("release/abx-init")
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
