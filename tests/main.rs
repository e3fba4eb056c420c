//! Integration tests.

mod compat;
