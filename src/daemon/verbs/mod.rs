//! What each verb does, step by step: the intent, the engine, the outcome.

pub mod adopt;
pub mod carry;
pub mod change;
pub mod diff;
pub mod export;
pub mod fork;
pub mod import;
pub mod merge;
pub mod power;
pub mod remove;
pub mod save;
pub mod start;
pub mod stored;
pub mod timeline;
