//! `abx notify`: what a session's agent is doing, said by somebody outside.

use crate::cli::args_attention::NotifyArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::proto::methods::SessionNotify;
use crate::proto::sessions::NotifyParams;
use crate::proto::types::{Attention, Session};

/// Says it.
pub(crate) fn run(context: &Context, args: NotifyArgs) -> Result<u8, Failure> {
    let NotifyArgs { state, name, text } = args;
    let text = Some(text.join(" ")).filter(|text| !text.is_empty());
    let params = NotifyParams { name, state: Some(Attention::from_word(&state)), text };
    let raw = context.call::<SessionNotify>(&params)?;
    context.deliver::<SessionNotify>(&raw, |session| clean(&session.name), said)?;
    Ok(0)
}

fn said(session: &Session) -> String {
    let state = session.attention.as_ref().map(|word| clean(word.as_str())).unwrap_or_default();
    format!("Session '{}' is {state}.", clean(&session.name))
}
