//! `abx mcp`: a server of the Model Context Protocol on standard input and output, so that an agent on this machine can
//! drive sandboxes.
//!
//! The protocol is its own makers' (rmcp), and needs a runtime, which no other command has: it is made here, and calls
//! are made from it by the blocking client, each on a connection of its own, so that a slow one holds up no other. Both
//! are in a program of their own, `abx-mcp`, which `abx` becomes: within it they cost each start 24 pages and 0.2 ms,
//! a tenth of `abx ls`.

mod bound;
mod call;
mod garbled;
mod input;
mod leave;
mod part;
mod schema;
mod server;
mod tools;

use std::fs;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use tokio::runtime::Builder;

use crate::cli::args::McpArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::client::program_beside;
use call::Caller;
use garbled::Answering;
use input::Input;
use server::Server;

/// Most calls under way; more wait for one to end. Each is a thread and a connection.
const MAX_CALLS: usize = 32;

/// Becomes the program that serves, with the same arguments.
///
/// # Errors
/// When it is not there.
pub(crate) fn hand_over(_: &Context, _: McpArgs) -> Result<u8, Failure> {
    let program = program_beside("abx-mcp");
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    let message = format!("failed to run {}", program.display());
    Err(Failure::local(message, &error).with_hint("install abx-mcp beside abx"))
}

/// Serves until standard input ends.
///
/// # Errors
/// When a directory to allow is not there, or what comes is not the protocol.
pub(crate) fn run(context: &Context, args: McpArgs) -> Result<u8, Failure> {
    let allowed = args.allow_dirs.iter().map(allow).collect::<Result<_, _>>()?;
    if stdin().is_terminal() {
        context
            .output
            .note("abx mcp speaks the Model Context Protocol, and is started by a program that does too.");
        context.output.note("To have claude start it: claude mcp add abx -- abx mcp");
    }
    let connector = context.connector.calling_itself("abx mcp".to_owned());
    let caller = Caller { connector, allowed };
    let runtime = Builder::new_current_thread()
        .enable_all()
        // One more reads standard input where that is no pipe.
        .max_blocking_threads(MAX_CALLS + 2)
        .build()
        .map_err(|error| Failure::local("failed to make a runtime", &error))?;
    let served = runtime.block_on(async {
        let (input, output) = stdio_pipes();
        let (input, over, garbled) = Input::new(input);
        let server = Server::new(caller, args.read_only, over);
        let transport = Answering::new(AsyncRwTransport::new_server(input, output), garbled);
        let running = server.serve(transport).await.map_err(Box::new)?;
        // Whatever it ended by, there is nobody left to tell.
        let _ = running.waiting().await;
        Ok(())
    });
    // A thread may wait for input, or for an answer that nobody wants any more.
    runtime.shutdown_background();
    match served.map_err(|error: Box<ServerInitializeError>| *error) {
        Ok(()) | Err(ServerInitializeError::ConnectionClosed(_)) => Ok(0),
        Err(error) => Err(Failure::local("what came is not the Model Context Protocol", &error)),
    }
}

fn allow(dir: &PathBuf) -> Result<PathBuf, Failure> {
    let wrong = |error| Failure::usage(format!("--allow-dir {}: {error}", dir.display()));
    fs::canonicalize(dir).map_err(wrong)
}
