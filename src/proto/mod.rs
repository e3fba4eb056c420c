//! Wire types: what crosses `daemon.sock`, and nothing else.
//!
//! Owns the names of methods, fields, error kinds and stream frames. Knows neither the model, the store nor the
//! engine, and carries no behaviour beyond encoding. Every type here is documented because its documentation is
//! rendered into `proto-docs/openrpc.json`.

pub mod copy;
pub mod daemon;
#[cfg(feature = "schema")]
pub mod document;
pub mod errors;
pub mod events;
pub mod execs;
pub mod files;
pub mod methods;
pub mod sessions;
pub mod snapshots;
pub mod stream;
pub mod table;
pub mod terminals;
pub mod types;
pub mod version;
