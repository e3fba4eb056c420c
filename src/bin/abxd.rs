//! The daemon's program: parse, run, turn the result into an exit code.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use abx::config::{Config, Flags};
use abx::daemon::handover::Inherited;
use abx::daemon::{self, DaemonError, Options};
use abx::paths::Home;
use abx::proto::version::VERSION;
use clap::Parser;

/// Most threads that serve; calls wait for engines far more than they compute.
const MAX_THREADS: usize = 4;

/// Serves named, persistent sandboxes to abx and other programs. `abx` starts it when it is needed.
#[derive(Debug, Parser)]
#[command(name = "abxd", version, about)]
struct Arguments {
    /// Directory of the table, settings and logs [env: ABX_HOME] [default: ~/.abx]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Socket to listen on [env: ABX_SOCKET] [default: daemon.sock in the home]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Address of the engine, such as unix:///var/run/docker.sock
    #[arg(long, value_name = "ADDRESS")]
    engine: Option<String>,
    /// How much to log: a level, or directives such as abx=debug [env: ABX_LOG] [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// A client started this and waits until it is ready
    #[arg(long, hide = true)]
    spawned: bool,
    /// Standard input is the socket that the program before this one listened on, whose it is
    #[arg(long, hide = true, value_name = "WHOSE")]
    succeeds: Option<String>,
    /// Say whether this program would start here, and its version
    #[arg(long, hide = true)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let spawned = arguments.spawned;
    let Err(error) = run(arguments) else { return ExitCode::SUCCESS };
    // Of several clients that start a daemon at once, all but one find that it was done.
    if spawned && matches!(error.downcast_ref(), Some(DaemonError::AlreadyRunning { .. })) {
        say(&format!("{error}\n"));
        return ExitCode::SUCCESS;
    }
    say(&account(&*error));
    ExitCode::FAILURE
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let home = Home::find(arguments.home.as_deref(), arguments.socket.as_deref())?;
    let config = Config::load(&home.config(), &Flags { engine: arguments.engine, log: arguments.log })?;
    if arguments.check {
        daemon::check(&home, &config)?;
        return Ok(writeln!(std::io::stdout(), "abxd {VERSION}")?);
    }
    let inherited = arguments.succeeds.as_deref().map(Inherited::take).transpose()?;
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let ended =
        runtime.block_on(daemon::run(Options { home, config, spawned: arguments.spawned, inherited }));
    // What could not be waited for in the stop is not waited for now.
    runtime.shutdown_background();
    match ended? {
        None => Ok(()),
        Some(handover) => Err(handover.go().into()),
    }
}

fn account(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("Error: {error}\n");
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!("Caused by: {inner}\n"));
        cause = inner.source();
    }
    if let Some(hint) = error.downcast_ref().and_then(DaemonError::hint) {
        text.push_str(&format!("Hint: {hint}\n"));
    }
    text
}

fn say(text: &str) {
    // Without standard error there is nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
