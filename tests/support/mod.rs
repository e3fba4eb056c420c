//! What tests share.

pub(crate) mod engine;
