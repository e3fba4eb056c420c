//! Pure rules: what a session is, what may happen to it, and what follows.
//!
//! Reads no clock, no environment and no files, awaits nothing, and names neither SQL nor Docker. Whoever calls it
//! passes the time in.

pub mod attention;
pub mod budget;
pub mod event;
pub mod exec;
pub mod id;
pub mod idle;
pub mod limits;
pub mod prune;
pub mod reconcile;
pub mod session;
mod snapshot;
pub mod step;
pub mod until;
