//! What an engine can answer instead of doing it.

use std::time::Duration;

/// Why an engine call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Nothing answers. `tried` has one line per address, in the order tried.
    #[error("no engine answers ({})", tried.join("; "))]
    Unavailable {
        /// `ADDRESS (from SOURCE): why not`.
        tried: Vec<String>,
    },
    /// The address is of a kind that abx cannot speak.
    #[error("engine address {address:?} (from {source_of}) is not supported: {why}")]
    Unsupported {
        /// The address.
        address: String,
        /// Where it came from.
        source_of: String,
        /// What is supported.
        why: String,
    },
    /// What answers is another engine than the one that the sandbox is on.
    #[error("the sandbox of session '{session}' is on another engine ({theirs}) than the one at {address}")]
    Elsewhere {
        /// The session's name.
        session: String,
        /// The id of the one that it is on.
        theirs: String,
        /// Where that was last, if that is known.
        place: Option<String>,
        /// Where the one is that answers.
        address: String,
    },
    /// The engine is too old for abx, or abx for the engine.
    #[error("the engine speaks API {engine}, abx needs {ours}")]
    Version {
        /// The engine's.
        engine: String,
        /// Ours.
        ours: String,
    },
    /// No answer in time. What was asked may still happen.
    #[error("the engine did not answer {call} within {} s", after.as_secs_f32())]
    Timeout {
        /// The call.
        call: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The main program of the sandbox did not answer in time. What it was asked for may still happen.
    #[error("abx-init, the main program of session '{session}', did not answer within {} s", after.as_secs_f32())]
    Silent {
        /// The session's name.
        session: String,
        /// The deadline.
        after: Duration,
    },
    /// It has no such container.
    #[error("the engine has no sandbox {id}")]
    NoSandbox {
        /// The id asked for.
        id: String,
    },
    /// There is nothing at this path in the sandbox.
    #[error("there is no {path:?} in the sandbox")]
    NoPath {
        /// The path asked for.
        path: String,
    },
    /// It has no such image and could not pull it.
    #[error("image {reference:?} is not there and cannot be pulled: {text}")]
    NoImage {
        /// The image asked for.
        reference: String,
        /// The engine's own words.
        text: String,
    },
    /// The sandbox is in a state in which this cannot be done (paused, stopped, name in use).
    #[error("the engine refused {call}: {text}")]
    Conflict {
        /// The call.
        call: &'static str,
        /// The engine's own words.
        text: String,
    },
    /// It was asked for more than abx or the engine can take.
    #[error("{text}")]
    Limit {
        /// What the limit is, and the way round it.
        text: String,
    },
    /// Anything else that the engine answered.
    #[error("the engine failed at {call}: {text}")]
    Failed {
        /// The call.
        call: &'static str,
        /// The engine's own words.
        text: String,
    },
}
