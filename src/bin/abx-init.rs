//! `abx-init`: PID 1 of a sandbox.

use std::process::ExitCode;

fn main() -> ExitCode {
    abx::guest::run()
}
