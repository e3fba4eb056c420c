//! Integration tests: one binary, so that everything is linked once. Tests under `docker` need a container engine.

mod compat;
#[cfg(feature = "fault")]
mod crash;
mod docker;
mod docs;
#[cfg(feature = "fault")]
mod rpc;
mod support;
