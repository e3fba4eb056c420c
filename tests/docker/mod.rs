//! Tests that need a container engine.

mod engine;
mod exec;
mod link;
