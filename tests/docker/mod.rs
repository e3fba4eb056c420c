//! Tests that need a container engine.

mod away;
mod engine;
mod exec;
mod link;
mod sessions;
