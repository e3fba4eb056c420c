//! Versions that both sides tell each other on every connection.

/// The protocol's version. Raised only by a change that an older peer cannot ignore; additions do not raise it.
pub const PROTOCOL: u32 = 1;

/// The build's version, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest message a client may send, in bytes. Past it the answer is an error and the connection closes.
/// Answers of the daemon are not limited: a list of many sessions may be longer.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
