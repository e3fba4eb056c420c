//! The command line: grammar, text and exit codes. All it knows of the daemon is the client.

mod args;
mod args_attention;
mod args_daemon;
mod args_events;
mod args_exec;
mod args_session;
mod cmd;
mod context;
mod detach;
mod failure;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod interrupt;
mod legacy;
mod modes;
mod output;
mod progress;
mod relay;
mod signals;
mod start_args;
mod table;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Command, ExecArgs};
use context::Context;
use failure::{FAILED, Failure, USAGE};
use output::{Output, clean};

/// Runs one command line, the program's name first, and gives the process's exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_with(args, cmd::mcp::hand_over)
}

/// As [`run`], in the program that serves the Model Context Protocol.
pub fn run_mcp(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_with(args, cmd::mcp::run)
}

/// How `abx mcp` is carried out.
type Mcp = fn(&Context, args::McpArgs) -> Result<u8, Failure>;

fn run_with(args: impl IntoIterator<Item = OsString>, mcp: Mcp) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match args::parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(explain(&error, args::wants_json(&args))),
    };
    let output = Output::standard(cli.top.global.json, cli.top.global.quiet, cli.top.global.verbose);
    let context = match Context::new(&cli.top.global, output) {
        Ok(context) => context,
        Err((failure, output)) => {
            output.failure(&failure);
            return ExitCode::from(failure.exit);
        }
    };
    let exit = match perform(&context, cli.top.version, cli.command, mcp) {
        Ok(exit) => exit,
        Err(failure) => {
            context.output.failure(&failure);
            failure.exit
        }
    };
    if let Some(error) = context.output.problem() {
        context.output.note(&format!("Error: failed to write to standard output\nCaused by: {error}"));
        return ExitCode::from(if exit == 0 { FAILED } else { exit });
    }
    ExitCode::from(exit)
}

fn perform(context: &Context, version: bool, command: Option<Command>, mcp: Mcp) -> Result<u8, Failure> {
    if version {
        return cmd::daemon::versions(context);
    }
    match command {
        Some(Command::Session(verb) | Command::Direct(verb)) => cmd::session::run(context, verb),
        Some(Command::Snapshot(verb)) => cmd::snapshot::run(context, verb),
        Some(Command::Exec(ExecArgs { command: Some(command), .. })) => cmd::execs::run(context, command),
        Some(Command::Exec(ExecArgs { run: Some(args), .. })) => {
            cmd::exec::run(context, args).map_err(Failure::for_exec)
        }
        Some(Command::Exec(ExecArgs { command: None, run: None })) => Err(no_command()),
        Some(Command::Terminal(command)) => cmd::terminal::run(context, command),
        Some(Command::Attach(args)) => cmd::attach::run(context, args).map_err(Failure::for_exec),
        Some(Command::Cp(args)) => cmd::cp::run(context, &args),
        Some(Command::Wait(args)) => cmd::wait::run(context, args),
        Some(Command::Notify(args)) => cmd::notify::run(context, args),
        Some(Command::Events(args)) => cmd::events::run(context, args),
        Some(Command::History(args)) => cmd::events::history(context, args),
        Some(Command::Import(args)) => cmd::import::run(context, &args),
        Some(Command::Export(args)) => cmd::export::run(context, &args),
        Some(Command::Adopt(args)) => cmd::adopt::run(context, args),
        Some(Command::Daemon(verb)) => cmd::daemon::run(context, verb),
        Some(Command::Doctor(args)) => cmd::doctor::run(context, &args),
        Some(Command::Completions { .. }) if context.output.json => {
            Err(Failure::usage("completions are a script, and --json gives documents")
                .with_hint("leave --json out"))
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "abx", &mut script);
            context.output.out(&String::from_utf8_lossy(&script));
            Ok(0)
        }
        Some(Command::Rpc { stdio: true, .. }) => Ok(cmd::rpc::bridge(context)),
        Some(Command::Rpc { method, params, .. }) => {
            cmd::rpc::run(context, method.as_deref(), params.as_deref())
        }
        Some(Command::Mcp(args)) => mcp(context, args),
        None if context.output.json => Err(no_command()),
        None => {
            context.output.err(&args::command().render_help().to_string());
            Ok(USAGE)
        }
    }
}

/// Prints what clap has to say: help on standard output, wrong usage as an error.
fn explain(error: &clap::Error, json: bool) -> u8 {
    use clap::error::ErrorKind;
    let output = Output::standard(json, false, false);
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp) {
        output.out(&text);
        return 0;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        if json {
            output.failure(&no_command());
            return USAGE;
        }
        output.err(&text);
        return USAGE;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    if json {
        output.failure(&Failure::usage(text.trim_end()));
    } else {
        let lines: Vec<String> = text.lines().map(clean).collect();
        output.note(&format!("Error: {}", lines.join("\n")));
    }
    USAGE
}

fn no_command() -> Failure {
    Failure::usage("a command is missing").with_hint("abx --help")
}

#[cfg(test)]
mod tests;
