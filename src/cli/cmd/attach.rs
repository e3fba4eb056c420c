//! `abx attach`.

mod agent;

use std::collections::BTreeMap;
use std::io;

use self::agent::Agent;
use super::exec::pass_terminal_type;
use super::session::quoted;
use crate::cli::args::AttachArgs;
use crate::cli::context::{Context, operation_id, refused};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::relay::{self, Relay};
use crate::cli::signals::{End, Watch};
use crate::cli::terminal;
use crate::proto::stream::{Exit, Open};
use crate::proto::terminals::MAIN_TERMINAL;

/// Opens a terminal and gives the exit code of what ran in it.
pub(crate) fn run(context: &Context, args: AttachArgs) -> Result<u8, Failure> {
    if !relay::on_terminal() {
        let hint = format!("abx exec -i {} -- CMD", quoted(&args.name));
        return Err(Failure::refused("attach needs a terminal on standard input and output").with_hint(hint));
    }
    let watch = Watch::start()?;
    let mut env = BTreeMap::new();
    pass_terminal_type(&mut env);
    let agent = Agent::wanted(context, &args)?;
    if let Some(agent) = &agent {
        agent.add_credentials(&mut env);
    }
    let size = terminal::size(io::stdout());
    let open = Open {
        session: args.name.clone(),
        cmd: args.cmd.clone(),
        env,
        tty: size,
        stdin: true,
        attach: true,
        terminal: Some(args.terminal.clone()),
        read_only: args.read_only,
        scrollback: args.scrollback,
        agent: agent.as_ref().map(|agent| agent.start),
        key: operation_id(),
        resume: refused(args.no_resume),
        ..Open::default()
    };
    // First: a terminal that cannot be used must not leave a shell behind.
    let raw = relay::raw_mode(&watch)?;
    let stream = context.open(&open)?;
    let keys = args.detach_keys.clone();
    context.output.note(&if keys.is_none() {
        "Attached; it ends with what runs in it (detach keys are off)".to_owned()
    } else {
        format!("Detach with {keys}")
    });
    if let Some(note) = &stream.opened().note {
        context.output.note(&clean(note));
    }
    let durable = stream.opened().durable;
    let mut relay = Relay::new(context, stream, open, watch);
    relay.input = true;
    relay.tty = size;
    relay.keys = Some(keys);
    relay.raw = Some(raw);
    let end = relay.run()?;
    if let Some(line) = last_line(&end, &args, durable) {
        context.output.note(&line);
    }
    if let (Some(agent), End::Exit(exit)) = (&agent, &end)
        && let Some(hint) = agent.hint(exit)
    {
        context.output.note(&hint);
    }
    Ok(relay::exit_code(&end))
}

fn last_line(end: &End, args: &AttachArgs, durable: bool) -> Option<String> {
    let name = quoted(&args.name);
    match end {
        End::Detached if durable => {
            let terminal = match args.terminal.as_str() {
                MAIN_TERMINAL => String::new(),
                terminal => format!(" --terminal {}", quoted(terminal)),
            };
            Some(format!(
                "Detached from {}. What runs in it goes on; abx attach {name}{terminal} comes back to it.",
                clean(&args.name)
            ))
        }
        End::Detached => Some(format!(
            "Detached from {}. What runs in it goes on; abx attach {name} opens a fresh shell.",
            clean(&args.name)
        )),
        End::Exit(Exit { reason: Some(reason), .. }) => Some(format!("abx: {}", clean(reason))),
        End::Exit(exit) => Some(format!("abx: the program ended with code {}", exit.exit_code)),
        End::Signal(_) => None,
    }
}
