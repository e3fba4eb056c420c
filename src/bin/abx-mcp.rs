//! `abx mcp`: a program of its own, since what it takes would make every other start of `abx` slower.

use std::process::ExitCode;

fn main() -> ExitCode {
    abx::cli::run_mcp(std::env::args_os())
}
