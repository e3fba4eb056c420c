//! Integration tests.

mod compat;
mod docker;
mod support;
