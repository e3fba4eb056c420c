//! `abx exec list|logs|kill|wait`: commands that were started before.

mod logs;

use crate::cli::args_exec::ExecsCommand;
use crate::cli::context::{Context, Patience, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::cli::table;
use crate::proto::execs::{ExecInfo, ExecKillParams, ExecListParams, ExecWaitParams};
use crate::proto::methods::{ExecKill, ExecList, ExecWait};

/// The code for a wait that was given up, as for a command whose time ran out.
const GAVE_UP: u8 = 124;

/// Does what was asked.
pub(crate) fn run(context: &Context, command: ExecsCommand) -> Result<u8, Failure> {
    match command {
        ExecsCommand::List { name } => {
            let raw = context.call::<ExecList>(&ExecListParams { session: name })?;
            let ids =
                |list: &Vec<ExecInfo>| list.iter().map(|exec| clean(&exec.id)).collect::<Vec<_>>().join("\n");
            context.deliver::<ExecList>(&raw, ids, |list| table::execs(list, jiff::Timestamp::now()))?;
            Ok(0)
        }
        ExecsCommand::Logs { follow, id } => logs::run(context, id, follow),
        ExecsCommand::Kill { signal, id } => {
            let raw = context.call::<ExecKill>(&ExecKillParams { id, signal })?;
            context.deliver::<ExecKill>(
                &raw,
                |exec| clean(&exec.id),
                |exec| {
                    let done = if exec.status == "exited" { "has ended" } else { "was sent the signal" };
                    format!("Command {} {done}.", clean(&exec.id))
                },
            )?;
            Ok(0)
        }
        // Its code is the command's: what fails here must not be taken for that.
        ExecsCommand::Wait { timeout, id } => wait(context, id, timeout).map_err(Failure::for_exec),
    }
}

fn wait(context: &Context, id: String, timeout: Option<u64>) -> Result<u8, Failure> {
    let patience = Patience::new(timeout);
    let params = || ExecWaitParams { id: id.clone(), timeout: patience.left_ms() };
    let raw = context.call_through::<ExecWait>(&mut context.connect()?, params)?;
    let exec = understand::<ExecWait>(&raw)?;
    if context.output.json {
        context.output.data(raw.get());
    }
    let Some(code) = exec.exit_code else {
        context.output.note(&format!("abx: command {} still runs", clean(&exec.id)));
        return Ok(GAVE_UP);
    };
    if let Some(reason) = &exec.reason {
        context.output.note(&format!("abx: {}", clean(reason)));
    }
    Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}
