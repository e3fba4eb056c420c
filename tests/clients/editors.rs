//! Neovim and Emacs, each with the tests that its client brings.

use std::path::Path;

use nix::sys::signal::Signal;

use crate::support::World;
use crate::support::engine::busybox_image;

/// Runs a client's tests in a home without a daemon: starting one is part of what is tested.
#[track_caller]
fn passes(script: &str) {
    let Some(mut world) = World::new() else { return };
    world.daemon().signal(Signal::SIGTERM);
    world.daemon().wait();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let mut command = world.home.command("timeout");
    command.args(["--kill-after=10", "280"]).arg(script);
    command.env("ABX_TEST_ABX", env!("CARGO_BIN_EXE_abx")).env("ABX_TEST_IMAGE", busybox_image());
    command.env("ABX_TEST_HOME", world.home.root());
    let output = command.output().expect("timeout is part of coreutils");
    // The daemon that a client started is not the test's child: it would outlive one that was cut short.
    let _ = world.home.command(env!("CARGO_BIN_EXE_abx")).args(["daemon", "stop"]).output();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "it ended with {}\n{text}\n{errors}", output.status);
}

#[test]
fn neovim_lists_starts_attaches_saves_forks_deletes_and_follows() {
    passes("clients/nvim/tests/run.sh");
}

#[test]
fn emacs_lists_starts_attaches_saves_forks_deletes_and_follows() {
    passes("clients/emacs/tests/run.sh");
}
