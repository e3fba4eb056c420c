//! `abx exec list|logs|kill|wait`: commands that were started before.

use std::io::Write;

use base64::Engine as _;

use crate::cli::args_exec::ExecsCommand;
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::cli::output::{clean, raw_stderr, raw_stdout};
use crate::cli::table;
use crate::proto::execs::{
    ExecInfo, ExecKillParams, ExecListParams, ExecLogsParams, ExecLogsResult, ExecWaitParams,
};
use crate::proto::methods::{ExecKill, ExecList, ExecLogs, ExecWait, Method};

/// The code for a wait that was given up, as for a command whose time ran out.
const GAVE_UP: u8 = 124;

/// How long one question for more output waits for the command's end, in milliseconds: output shows that much later.
const FOLLOW_MS: u64 = 250;

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
        ExecsCommand::Logs { follow, id } => logs(context, id, follow),
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
        ExecsCommand::Wait { timeout, id } => wait(context, id, timeout),
    }
}

fn wait(context: &Context, id: String, timeout: Option<u64>) -> Result<u8, Failure> {
    let raw = context.call::<ExecWait>(&ExecWaitParams { id, timeout })?;
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

/// Prints the output, each stream to ours.
fn logs(context: &Context, id: String, follow: bool) -> Result<u8, Failure> {
    let mut client = context.connect()?;
    let mut params = ExecLogsParams { id, ..ExecLogsParams::default() };
    loop {
        let raw = context.call_on::<ExecLogs>(&mut client, &params)?;
        let output = understand::<ExecLogs>(&raw)?;
        if context.output.json {
            context.output.data(raw.get());
        } else {
            print(&output)?;
        }
        if output.dropped_bytes > 0 && params.stdout_from == 0 && params.stderr_from == 0 {
            context
                .output
                .note(&format!("abx: {} bytes before this are no longer kept", output.dropped_bytes));
        }
        let came = !output.stdout.is_empty() || !output.stderr.is_empty();
        (params.stdout_from, params.stderr_from) = (output.stdout_next, output.stderr_next);
        if came && (follow || !context.output.json) {
            continue;
        }
        if output.ended || !follow {
            return Ok(0);
        }
        let wait = ExecWaitParams { id: params.id.clone(), timeout: Some(FOLLOW_MS) };
        context.call_on::<ExecWait>(&mut client, &wait)?;
    }
}

fn print(output: &ExecLogsResult) -> Result<(), Failure> {
    let bytes = |text: &str| match output.encoding.as_str() {
        "base64" => base64::engine::general_purpose::STANDARD.decode(text).map_err(|error| {
            Failure::local(format!("failed to read the result of {}", ExecLogs::NAME), &error)
        }),
        _ => Ok(text.as_bytes().to_vec()),
    };
    let failed = |error| Failure::local("failed to write output", &error);
    raw_stderr()
        .and_then(|mut err| err.write_all(&bytes(&output.stderr).unwrap_or_default()))
        .map_err(failed)?;
    raw_stdout().and_then(|mut out| out.write_all(&bytes(&output.stdout).unwrap_or_default())).map_err(failed)
}
