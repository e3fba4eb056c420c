//! One module per command.

pub(crate) mod adopt;
pub(crate) mod attach;
pub(crate) mod cp;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod execs;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod install;
pub(crate) mod mcp;
pub(crate) mod notify;
pub(crate) mod rpc;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod terminal;
pub(crate) mod wait;
