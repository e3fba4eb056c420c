//! Integration tests: one binary, so that everything is linked once. Run with `--all-features`: daemons under test are
//! built with the feature `fault`.
#![cfg(feature = "fault")]

mod rpc;
mod support;
