//! Integration tests: one binary, so that everything is linked once.

#[cfg(feature = "fault")]
mod rpc;
mod support;
