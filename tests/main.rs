//! Integration tests: one binary, so that everything is linked once. Run with `--all-features`: daemons under test are
//! built with the feature `fault`. Tests under `docker` and `crash` need a container engine.
#![cfg(feature = "fault")]

mod cli;
mod clients;
mod compat;
mod crash;
mod docker;
mod docs;
mod guest;
mod rpc;
mod support;
