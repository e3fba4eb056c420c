//! The exchange of versions that opens every connection.

use std::time::Duration;

use super::calls::{Asked, CallError, Client};
use crate::proto::daemon::{HelloParams, HelloResult};
use crate::proto::methods::DaemonHello;
use crate::proto::version::{PROTOCOL, VERSION};

/// How long a daemon may take to greet. It answers from memory, so one that takes longer hangs.
pub(super) const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// How a command line calls itself, which shows its user what the daemon has to say.
pub(super) const ABX: &str = "abx";

/// How it calls itself where it only asks whether anybody answers: what the daemon has to say once would be lost.
pub(super) const PROBE: &str = "abx probe";

/// Says who calls and asks who answers; `asked` goes with it.
///
/// # Errors
/// As [`Client::call`]; `Silent` after [`HELLO_LIMIT`].
pub(super) fn greet(
    client: &mut Client,
    caller: &str,
    asked: Option<&Asked>,
) -> Result<HelloResult, CallError> {
    let params = HelloParams { client: caller.to_owned(), version: VERSION.to_owned(), protocol: PROTOCOL };
    client.set_patience(Some(HELLO_LIMIT)).map_err(|source| CallError::Gone { source })?;
    let hello = client.greet::<DaemonHello>(&params, asked)?;
    client.set_patience(None).map_err(|source| CallError::Gone { source })?;
    Ok(hello)
}
