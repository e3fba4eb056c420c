//! `abx attach`.

use std::collections::BTreeMap;
use std::io;

use super::exec::pass_terminal_type;
use super::session::quoted;
use crate::cli::args::AttachArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::relay::{self, Relay};
use crate::cli::signals::{End, Watch};
use crate::cli::terminal;
use crate::proto::stream::Open;

/// Opens a terminal and gives the exit code of what ran in it.
pub(crate) fn run(context: &Context, args: AttachArgs) -> Result<u8, Failure> {
    if !relay::on_terminal() {
        let hint = format!("abx exec -i {} -- CMD", quoted(&args.name));
        return Err(Failure::refused("attach needs a terminal on standard input and output").with_hint(hint));
    }
    let watch = Watch::start()?;
    let mut env = BTreeMap::new();
    pass_terminal_type(&mut env);
    let size = terminal::size(io::stdout());
    let open = Open {
        session: args.name.clone(),
        cmd: args.cmd,
        env,
        tty: size,
        stdin: true,
        attach: true,
        ..Open::default()
    };
    // First: a terminal that cannot be used must not leave a shell behind.
    let raw = relay::raw_mode(&watch)?;
    let stream = context.open(&open)?;
    let keys = args.detach_keys;
    context.output.note(&if keys.is_none() {
        "Attached; it ends with what runs in it (detach keys are off)".to_owned()
    } else {
        format!("Detach with {keys}")
    });
    let mut relay = Relay::new(stream, watch);
    relay.input = true;
    relay.tty = size;
    relay.keys = Some(keys);
    relay.raw = Some(raw);
    let end = relay.run()?;
    if let Some(line) = last_line(&end, &args.name) {
        context.output.note(&line);
    }
    Ok(relay::exit_code(&end))
}

fn last_line(end: &End, name: &str) -> Option<String> {
    match end {
        End::Detached => Some(format!(
            "Detached from {}. What runs in it goes on; abx attach {} opens a fresh shell.",
            clean(name),
            quoted(name)
        )),
        End::Exit(exit) => exit.reason.as_ref().map(|reason| format!("abx: {}", clean(reason))),
        End::Signal(_) => None,
    }
}
