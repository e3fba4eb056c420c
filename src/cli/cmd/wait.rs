//! `abx wait`: blocks until a session or its agent is as wanted.

use crate::cli::args_attention::WaitArgs;
use crate::cli::context::{Context, Patience, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::SessionWait;
use crate::proto::sessions::{WaitParams, WaitResult};
use crate::proto::types::{Session, WaitFor};

/// The code for a wait that was given up, as for a command whose time ran out.
const GAVE_UP: u8 = 124;

/// Waits. A daemon that stops is waited for, and asked again.
pub(crate) fn run(context: &Context, args: WaitArgs) -> Result<u8, Failure> {
    let WaitArgs { until, timeout, name } = args;
    let patience = Patience::new(timeout);
    let params = || WaitParams {
        name: name.clone(),
        until: WaitFor::from_word(&until),
        timeout_ms: patience.left_ms(),
    };
    let raw = context.call_through::<SessionWait>(&mut context.connect()?, params)?;
    let WaitResult { reached, session } = understand::<SessionWait>(&raw)?;
    if context.output.json {
        context.output.data(raw.get());
    } else if let Some(session) = session.filter(|_| !context.output.quiet) {
        context.output.data(&state(&session, WaitFor::from_word(&until)));
    }
    Ok(if reached { 0 } else { GAVE_UP })
}

/// What was waited for has become, in a line: of the session itself, or of its agent.
fn state(session: &Session, until: WaitFor) -> String {
    if matches!(until, WaitFor::Running | WaitFor::Paused | WaitFor::Stopped | WaitFor::Saved) {
        return clean(session.status.as_str());
    }
    let attention = session.attention.as_ref().map(|word| word.as_str());
    let note = session.attention_note.as_ref().map(|note| format!(": {}", clean(note))).unwrap_or_default();
    format!("{}{note}", clean(attention.unwrap_or(session.status.as_str())))
}
