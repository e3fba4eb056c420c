//! `abx`: the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    abx::cli::run(std::env::args_os())
}
