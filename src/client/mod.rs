//! The client's side of the socket: finding or starting the daemon, exchanging versions, calls, raw streams.
//!
//! Blocking, on the standard library alone: a command line that lives for two milliseconds has no use for a runtime.
//! Prints nothing and decides no exit code; that is the command line's.

mod calls;
mod connect;
#[cfg(test)]
pub(crate) mod fake;
mod hello;
mod launch;
mod peer;
mod pipe;
mod stream;

pub use calls::{Asked, CallError, Cancel, Client, HangUp, Meanwhile, Progress, RemoteError};
pub use connect::{ConnectError, Connector, same_protocol};
pub use launch::{daemon_program, program_beside, take_place};
pub use peer::{Peer, daemon_pid};
pub use pipe::Pipe;
pub use stream::{Frame, RawStream, Sender, StreamError};
