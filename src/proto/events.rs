//! What happened, as clients hear it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The method that notifications of events are of.
pub const EVENT_NOTIFICATION: &str = "event";
/// Every kind that is kept, and [`PROGRESS`], which is not.
pub const KINDS: &[&str] = &[
    "session.created",
    "session.status",
    "session.operation",
    "session.connected",
    "session.renamed",
    "session.changed",
    "session.oom",
    "session.idle",
    "session.attention",
    "session.rebuilt",
    "session.deleted",
    "snapshot.created",
    "snapshot.deleted",
    "exec.started",
    "exec.ended",
    "terminal.opened",
    "terminal.ended",
    "engine.available",
    "engine.unavailable",
    "daemon.started",
    "table.replaced",
    PROGRESS,
];

/// The kind of a step of an operation. It is sent only to those who name it.
pub const PROGRESS: &str = "progress";

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Event"))]
pub struct Event<D = Value> {
    /// Its number: one higher than the event before it. Those that are kept nowhere have another's: `subscribed` that of
    /// the event after which the stream begins, `lagged` that of the last event of which its subscriber was told or that
    /// was not for it, `progress` that of the newest.
    pub seq: u64,
    /// When, in RFC 3339.
    pub at: String,
    /// What happened. A client passes over kinds that it does not know.
    pub kind: String,
    /// The session's name then; null where it is about none.
    pub session: Option<String>,
    /// The session's id.
    #[serde(default)]
    pub session_id: Option<String>,
    /// The session's revision from then on: a row with a higher one is newer than this.
    pub revision: Option<u64>,
    /// Who asked for it; null where the daemon did it by itself.
    #[serde(default)]
    pub by: Option<By>,
    /// What else there is to say, by kind.
    pub data: D,
    /// Of which subscription; only in notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<u64>,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct By {
    /// What it called itself in `daemon.hello`, else the name of its program.
    pub client: String,
    /// Its process, where the system tells.
    pub pid: Option<u32>,
}

/// Which events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubscribeParams {
    /// Begin after this number with what is kept; absent for what comes from now on.
    #[serde(default)]
    pub since: Option<u64>,
    /// Only of this session, by name or id.
    #[serde(default)]
    pub session: Option<String>,
    /// Only of these kinds, or all that begin with one that ends in a dot, such as `session.`; empty for all.
    #[serde(default)]
    pub kinds: Vec<String>,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnsubscribeParams {
    /// Its id, as it was given when it began.
    pub subscription: u64,
}

/// Which events, at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventListParams {
    /// Begin after this number; 0 for the oldest that is kept. An answer ends after some 1 MiB: go on after the last of it,
    /// until one is empty.
    #[serde(default)]
    pub since: u64,
    /// Only of this session, by name or id; of one that is gone, also by the name that it had.
    #[serde(default)]
    pub session: Option<String>,
    /// Only of these kinds, as in `event.subscribe`.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// The last so many of them, as far as they fit into an answer; absent for all.
    #[serde(default)]
    pub limit: Option<u64>,
}
