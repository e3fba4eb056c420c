//! The session table.

pub mod error;
