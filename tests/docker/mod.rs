//! Tests that need a container engine.

mod agents;
mod away;
mod caller;
mod cli;
mod cp;
mod engine;
mod exec;
mod guest;
mod link;
mod orphans;
mod pid1;
mod pull;
mod reports;
mod sessions;
mod snapshot;
mod terminals;
