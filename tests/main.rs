//! Integration tests.

mod docker;
mod support;
