//! `abx wait`: blocks until a session or its agent is as wanted.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cli::args_attention::WaitArgs;
use crate::cli::context::{Context, understand};
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::client::CallError;
use crate::proto::errors::Kind;
use crate::proto::methods::SessionWait;
use crate::proto::sessions::{WaitParams, WaitResult};
use crate::proto::types::{Session, WaitFor};

/// The code for a wait that was given up, as for a command whose time ran out.
const GAVE_UP: u8 = 124;

/// Before a daemon that stops is asked again, or the one after it.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits. A daemon that stops is waited for, and asked again.
pub(crate) fn run(context: &Context, args: WaitArgs) -> Result<u8, Failure> {
    let WaitArgs { until, timeout, name } = args;
    let end =
        timeout.filter(|ms| *ms > 0).and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    let mut params = WaitParams { name, until: WaitFor::from_word(&until), timeout_ms: None };
    let mut client = context.connect()?;
    let raw = loop {
        // Never 0, which would be no limit.
        let left = end.map(|end| end.saturating_duration_since(Instant::now()).as_millis().max(1));
        params.timeout_ms = left.map(|left| u64::try_from(left).unwrap_or(u64::MAX));
        match client.call_document::<SessionWait>(&params) {
            Ok(raw) => break raw,
            Err(error) if is_over(&error) => {
                // It may still take connections.
                sleep(PAUSE);
                client = context.come_back(matches!(error, CallError::Remote(_)))?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let WaitResult { reached, session } = understand::<SessionWait>(&raw)?;
    if context.output.json {
        context.output.data(raw.get());
    } else if let Some(session) = session.filter(|_| !context.output.quiet) {
        context.output.data(&state(&session));
    }
    Ok(if reached { 0 } else { GAVE_UP })
}

/// Whether the daemon that was asked is gone, or about to go.
fn is_over(error: &CallError) -> bool {
    let stops = error.remote().is_some_and(|error| error.kind() == Some(Kind::ShuttingDown));
    stops || matches!(error, CallError::Gone { .. })
}

/// What the session is doing, in a line.
fn state(session: &Session) -> String {
    let attention = session.attention.as_ref().map(|word| word.as_str());
    let note = session.attention_note.as_ref().map(|note| format!(": {}", clean(note))).unwrap_or_default();
    format!("{}{note}", clean(attention.unwrap_or(session.status.as_str())))
}
