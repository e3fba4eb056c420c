//! `abx exec`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};

use crate::cli::args::RunArgs;
use crate::cli::context::{Context, operation_id, refused, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::relay::{self, Relay};
use crate::cli::signals::{End, Watch};
use crate::cli::start_args::environment;
use crate::cli::terminal;
use crate::paths;
use crate::proto::execs::ExecRunParams;
use crate::proto::methods::ExecRun;
use crate::proto::stream::Open;
use crate::proto::version::MAX_MESSAGE_BYTES;

/// Runs a command and gives its exit code.
pub(crate) fn run(context: &Context, args: RunArgs) -> Result<u8, Failure> {
    let mut env = environment(&[], &args.env).map_err(Failure::usage)?;
    if args.tty {
        pass_terminal_type(&mut env);
    }
    if context.output.json && !args.detach {
        return run_to_document(context, args, env);
    }
    if args.tty && args.interactive && !io::stdin().is_terminal() {
        // The end of a pipe is no end of input to a terminal: the command would wait for ever.
        return Err(Failure::refused("the input device is not a terminal").with_hint("leave -t out"));
    }
    let tty = if args.tty {
        let size = terminal::size(io::stdout()).filter(|_| io::stdout().is_terminal());
        Some(size.ok_or_else(|| {
            Failure::refused("-t needs a terminal on standard output").with_hint("leave -t out")
        })?)
    } else {
        None
    };
    let open = Open {
        session: args.name,
        cmd: args.cmd,
        env,
        cwd: args.workdir,
        user: args.user,
        tty,
        stdin: args.interactive,
        detach: args.detach,
        timeout_ms: args.timeout,
        key: operation_id(),
        resume: refused(args.no_resume),
        ..Open::default()
    };
    if args.detach {
        let stream = context.open(&open)?;
        let id = &stream.opened().exec;
        if context.output.json {
            context.output.data(&serde_json::json!({ "id": id }).to_string());
        } else {
            context.output.data(&clean(id));
        }
        return Ok(0);
    }
    let watch = Watch::start()?;
    // First: a terminal that cannot be used must not leave a command behind.
    let raw = (tty.is_some() && args.interactive && io::stdin().is_terminal())
        .then(|| relay::raw_mode(&watch))
        .transpose()?;
    let mut relay = Relay::new(context, context.open(&open)?, open, watch);
    relay.input = args.interactive;
    relay.tty = tty;
    relay.raw = raw;
    let end = relay.run()?;
    if let End::Exit(exit) = &end
        && let Some(reason) = &exit.reason
    {
        context.output.note(&format!("abx: {}", clean(reason)));
    }
    Ok(relay::exit_code(&end))
}

/// Gives the command this terminal's type, unless the user named another.
pub(crate) fn pass_terminal_type(env: &mut BTreeMap<String, String>) {
    for name in ["TERM", "COLORTERM"] {
        if let Some(value) = paths::variable(name).filter(|v| !v.is_empty()) {
            env.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// Runs a command to its end and prints what it did as one document.
fn run_to_document(context: &Context, args: RunArgs, env: BTreeMap<String, String>) -> Result<u8, Failure> {
    let mut stdin = None;
    if args.interactive {
        let mut text = String::new();
        io::stdin()
            .take(MAX_MESSAGE_BYTES as u64 + 1)
            .read_to_string(&mut text)
            .map_err(|error| Failure::local("failed to read standard input as text", &error))?;
        stdin = Some(text);
    }
    let params = ExecRunParams {
        session: args.name,
        cmd: args.cmd,
        env,
        cwd: args.workdir,
        user: args.user,
        stdin,
        timeout: args.timeout,
        tty: args.tty,
        resume: refused(args.no_resume),
    };
    let raw = context.call::<ExecRun>(&params)?;
    let code = understand::<ExecRun>(&raw)?.exit_code;
    context.output.data(raw.get());
    Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}
