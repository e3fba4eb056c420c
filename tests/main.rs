//! Integration tests.

mod docs;
