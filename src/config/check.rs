//! What the values of a template may be. Checked as the file is read: a template that cannot work is found where it is
//! written, and not by the start that needs it.

use std::time::Duration;

use super::{Template, parse_duration_ms, parse_size_bytes};

/// The least memory that engines give a container, in bytes.
const MIN_MEMORY_BYTES: u64 = 6 << 20;

/// The least and the most CPUs of a sandbox: below, engines refuse; above, it is a mistake.
const CPUS: std::ops::RangeInclusive<f64> = 0.01..=1024.0;

/// Output that is kept of each stream of a command unless the configuration says otherwise, in bytes.
pub(super) const KEEP_BYTES: u32 = 1024 * 1024;

/// What it may be: less would be gone before anybody could ask for it; more of many commands would fill the sandbox's
/// memory.
const KEEP_RANGE: std::ops::RangeInclusive<u64> = 64 * 1024..=64 * 1024 * 1024;

/// How long the engine may take over a snapshot unless somebody says otherwise, in milliseconds: one of tens of gigabytes
/// on a slow disk.
pub(super) const SAVE_TIMEOUT_MS: u64 = 30 * 60 * 1000;

/// What it may be, in milliseconds: a save ends, whatever the engine does.
pub const SAVE_TIMEOUT_RANGE_MS: std::ops::RangeInclusive<u64> = 1000..=24 * 60 * 60 * 1000;

/// A value that its key cannot have. Says what it must be and does not repeat it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {rule}")]
pub struct BadValue {
    key: String,
    rule: &'static str,
}

impl BadValue {
    pub(super) fn new(key: String, rule: &'static str) -> Self {
        Self { key, rule }
    }
}

/// Checks one template.
///
/// # Errors
/// The first value that it cannot have.
pub(super) fn template(name: &str, template: &Template) -> Result<(), BadValue> {
    let one_of =
        |value: &Option<String>, words: &[&str]| value.as_deref().is_none_or(|value| words.contains(&value));
    let duration = |value: &Option<String>| value.as_deref().is_none_or(|v| parse_duration_ms(v).is_ok());
    let memory = template.memory.as_deref().map(parse_size_bytes);
    let time = "a duration: seconds, or 30m, 2h, 3d; 0 is never";
    let profiles = ["permissive", "moderate", "restrictive"];
    let checks = [
        ("cpus", template.cpus.is_none_or(|n| CPUS.contains(&n)), "a number between 0.01 and 1024"),
        (
            "memory",
            memory.is_none_or(|m| m.is_ok_and(|bytes| bytes >= MIN_MEMORY_BYTES)),
            "a size of at least 6m: bytes, or 512m, 2g",
        ),
        ("pids", template.pids != Some(0), "at least 1"),
        ("network", one_of(&template.network, &["bridge", "none"]), "bridge or none"),
        ("profile", one_of(&template.profile, &profiles), "permissive, moderate or restrictive"),
        ("timeout", duration(&template.timeout), time),
        ("idle", duration(&template.idle), time),
        ("idle_action", one_of(&template.idle_action, &["stop", "pause", "save"]), "stop, pause or save"),
        ("on_boot", one_of(&template.on_boot, &ON_BOOT), ON_BOOT_RULE),
        ("attach", one_of(&template.attach, &["shell", "agent"]), "shell or agent"),
    ];
    match checks.into_iter().find(|(_, good, _)| !good) {
        Some((key, _, rule)) => Err(BadValue::new(format!("templates.{name}.{key}"), rule)),
        None => Ok(()),
    }
}

/// What becomes of a session that ran when its engine went, as the file says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBoot {
    /// It is brought back.
    Resume,
    /// It stays stopped.
    Stopped,
}

impl OnBoot {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => ON_BOOT[0],
            Self::Stopped => ON_BOOT[1],
        }
    }
}

/// What `on_boot` may be.
const ON_BOOT: [&str; 2] = ["resume", "stopped"];

/// The rule of `on_boot`.
const ON_BOOT_RULE: &str = "resume or stopped";

/// Reads what becomes of sessions that ran when their engine went.
///
/// # Errors
/// When it is another word.
pub(super) fn on_boot(word: &str) -> Result<OnBoot, BadValue> {
    [OnBoot::Resume, OnBoot::Stopped]
        .into_iter()
        .find(|known| known.as_str() == word)
        .ok_or_else(|| BadValue::new("on_boot".to_owned(), ON_BOOT_RULE))
}

/// Reads how long the engine may take over a snapshot.
///
/// # Errors
/// When it is no duration, or too short or long a one.
pub(super) fn save_timeout(text: &str) -> Result<Duration, BadValue> {
    let ms = parse_duration_ms(text).ok().filter(|ms| SAVE_TIMEOUT_RANGE_MS.contains(ms));
    let rule = "a duration from 1s to 24h";
    ms.map(Duration::from_millis).ok_or_else(|| BadValue::new("save_timeout".to_owned(), rule))
}

/// Reads how much output is kept.
///
/// # Errors
/// When it is no size, or too small or large a one.
pub(super) fn keep(text: &str) -> Result<u32, BadValue> {
    let bytes = parse_size_bytes(text).ok().filter(|bytes| KEEP_RANGE.contains(bytes));
    let rule = "a size between 64k and 64m";
    bytes
        .and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| BadValue::new("exec.keep".to_owned(), rule))
}

/// Reads how much snapshots may take; none where that is not limited.
///
/// # Errors
/// When it is no size.
pub(super) fn budget(text: &str) -> Result<Option<u64>, BadValue> {
    if text.trim() == "0" {
        return Ok(None);
    }
    let rule = "a size: bytes, or 500m, 20GiB; 0 is no limit";
    parse_size_bytes(text).map(Some).map_err(|_| BadValue::new("snapshots.budget".to_owned(), rule))
}
