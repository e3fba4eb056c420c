//! `abx terminal list|peek|kill`.

use crate::cli::args_exec::{TerminalCommand, Which};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::table;
use crate::proto::execs::ExecListParams;
use crate::proto::methods::{TerminalClose, TerminalList, TerminalPeek};
use crate::proto::terminals::{TerminalInfo, TerminalParams, TerminalPeekParams};

/// Does what was asked.
pub(crate) fn run(context: &Context, command: TerminalCommand) -> Result<u8, Failure> {
    match command {
        TerminalCommand::List { name } => {
            let raw = context.call::<TerminalList>(&ExecListParams { session: name })?;
            let names = |list: &Vec<TerminalInfo>| {
                list.iter().map(|terminal| clean(&terminal.terminal)).collect::<Vec<_>>().join("\n")
            };
            context.deliver::<TerminalList>(&raw, names, |list| {
                table::terminals(list, jiff::Timestamp::now())
            })?;
        }
        TerminalCommand::Peek { which: Which { name, terminal }, scrollback } => {
            let params = TerminalPeekParams { session: name, terminal, scrollback };
            let raw = context.call::<TerminalPeek>(&params)?;
            // Of the rows below the last that shows something nobody has any use.
            let lines = |lines: &[String]| {
                let text = lines.iter().map(|line| clean(line)).collect::<Vec<_>>().join("\n");
                text.trim_end_matches(['\n', ' ']).to_owned()
            };
            context.deliver::<TerminalPeek>(&raw, |s| lines(&s.lines), |s| lines(&s.lines))?;
        }
        TerminalCommand::Kill(Which { name, terminal }) => {
            let text = format!("Terminal '{}' of session '{}' ended.", clean(&terminal), clean(&name));
            let raw = context
                .call::<TerminalClose>(&TerminalParams { session: name, terminal: terminal.clone() })?;
            context.deliver::<TerminalClose>(&raw, |_| clean(&terminal), |_| text)?;
        }
    }
    Ok(0)
}
