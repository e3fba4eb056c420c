//! Integration tests: one binary, so that it links once. Tests under `docker` need a container engine.

mod compat;
mod docker;
mod docs;
mod support;
