//! `abx adopt`: a container becomes a session.

use crate::cli::args::AdoptArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::SessionAdopt;
use crate::proto::sessions::AdoptParams;
use crate::proto::types::Session;

/// Adopts, and says what that means.
pub(crate) fn run(context: &Context, args: AdoptArgs) -> Result<u8, Failure> {
    let AdoptArgs { name, container, agent } = args;
    let raw = context.call::<SessionAdopt>(&AdoptParams { name, container, agent })?;
    context.deliver::<SessionAdopt>(&raw, |session| clean(&session.name), text)?;
    Ok(0)
}

fn text(session: &Session) -> String {
    let (name, sandbox) = (clean(&session.name), clean(&session.sandbox));
    let status = clean(session.status.as_str());
    format!(
        "Container '{sandbox}' is session '{name}' now ({status}).\nabx owns it from here on: abx delete removes the \
         container."
    )
}
