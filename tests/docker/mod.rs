//! Tests that need a container engine.

mod agents;
mod away;
mod caller;
mod cli;
mod cp;
mod engine;
mod exec;
mod execs;
mod guest;
mod link;
mod pid1;
mod pull;
mod sessions;
mod snapshot;
mod terminals;
