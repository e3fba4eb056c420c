//! Settings: defaults < system file < user file < environment < flags. Each value remembers where it came from.
//!
//! Reads `config.toml`; with `paths`, the only module that reads the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::paths;

mod agents;
mod check;
mod size;
mod template;

pub use agents::{Agent, AgentSection};
pub use check::{BadValue, OnBoot, SAVE_TIMEOUT_RANGE_MS};
pub use size::{parse_size_bytes, size};
pub use template::Template;

/// The image of the built-in template.
pub const BASE_IMAGE: &str = "debian:stable-slim";

/// The template that is always there, and that the others fall back on.
const BASE: &str = "base";

/// The setting of the engine's address.
pub const ENGINE_ADDRESS: &str = "engine.address";

/// What stands for an environment value.
const MASK: &str = "***";

/// What is shown of a budget that is none.
const NO_BUDGET: &str = "none";

/// Largest configuration file that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// The settings that all users of a machine share.
const SYSTEM_FILE: &str = "/etc/abx/config.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Environment(&'static str),
    /// This option of the command line.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("failed to understand {path:?}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Wrong,
    },
    /// A value is none that its key may have.
    #[error("failed to understand {path:?}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Which, and what it must be.
        source: BadValue,
    },
    /// The file is larger than any configuration.
    #[error("{path:?} is larger than {MAX_CONFIG_BYTES} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// What is wrong with a file. Quotes no value of it: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Wrong {
    line: usize,
    why: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    auto_resume: Option<bool>,
    on_boot: Option<String>,
    save_timeout: Option<String>,
    engine: EngineSection,
    log: LogSection,
    exec: ExecSection,
    snapshots: SnapshotsSection,
    templates: BTreeMap<String, Template>,
    agents: BTreeMap<String, AgentSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EngineSection {
    address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExecSection {
    keep: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SnapshotsSection {
    budget: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogSection {
    level: Option<String>,
}

/// What the command line said.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--engine`.
    pub engine: Option<String>,
    /// `--log`.
    pub log: Option<String>,
}

/// All settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The engine's address as set by flag or file; none leaves the search to the engine (`DOCKER_HOST`, the current
    /// context, the known sockets).
    pub engine: Option<Setting<String>>,
    /// `DOCKER_HOST`, for the search.
    pub docker_host: Option<String>,
    /// `DOCKER_CONTEXT`, for the search.
    pub docker_context: Option<String>,
    /// Docker's configuration directory (`DOCKER_CONFIG`, else `~/.docker`), for the search.
    pub docker_config: Option<PathBuf>,
    /// The user's runtime directory, for rootless engines.
    pub runtime_dir: Option<PathBuf>,
    /// How much the daemon logs: a level, or directives such as `abx=debug`.
    pub log: Setting<String>,
    /// Output that is kept of each command, in bytes of each stream.
    pub keep: Setting<u32>,
    /// Bytes that snapshots may take on the engine's disk; no limit but the disk's if none.
    pub budget: Setting<Option<u64>>,
    /// Whether use brings a session back that does not run.
    pub auto_resume: Setting<bool>,
    /// Whether sessions that ran when the engine went come back with it, unless they say so themselves.
    pub on_boot: Setting<OnBoot>,
    /// How long the engine may take over a snapshot.
    pub save_timeout: Setting<Duration>,
    /// Templates by name; `base` is always there.
    pub templates: BTreeMap<String, Setting<Template>>,
    /// What the files say of agents, by name; see [`Config::agent`].
    pub agents: BTreeMap<String, Setting<AgentSection>>,
}

impl Config {
    /// Reads the system's file, the file at `user_file` and the environment; a missing file is no error.
    ///
    /// # Errors
    /// When a file is there but cannot be read or understood, or a template of it has a value that no sandbox could.
    pub fn load(user_file: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let mut config = Self {
            engine: None,
            docker_host: paths::variable("DOCKER_HOST").filter(|v| !v.is_empty()),
            docker_context: paths::variable("DOCKER_CONTEXT").filter(|v| !v.is_empty()),
            docker_config: paths::variable("DOCKER_CONFIG")
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
                .or_else(|| paths::user_home().map(|home| home.join(".docker"))),
            runtime_dir: paths::variable("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()).map(PathBuf::from),
            log: Setting { value: "info".to_owned(), source: Source::Default },
            keep: Setting { value: check::KEEP_BYTES, source: Source::Default },
            budget: Setting { value: None, source: Source::Default },
            auto_resume: Setting { value: true, source: Source::Default },
            on_boot: Setting { value: OnBoot::Stopped, source: Source::Default },
            save_timeout: Setting {
                value: Duration::from_millis(check::SAVE_TIMEOUT_MS),
                source: Source::Default,
            },
            templates: BTreeMap::new(),
            agents: BTreeMap::new(),
        };
        let base = Setting { value: Template::default(), source: Source::Default };
        config.templates.insert(BASE.to_owned(), base);
        for path in [Path::new(SYSTEM_FILE), user_file] {
            if let Some(file) = read(path)? {
                config.apply(path, file);
            }
        }
        if let Some(level) = paths::variable("ABX_LOG").filter(|v| !v.is_empty()) {
            config.log = Setting { value: level, source: Source::Environment("ABX_LOG") };
        }
        if let Some(address) = &flags.engine {
            config.engine = Some(Setting { value: address.clone(), source: Source::Flag("--engine") });
        }
        if let Some(level) = &flags.log {
            config.log = Setting { value: level.clone(), source: Source::Flag("--log") };
        }
        Ok(config)
    }

    fn apply(&mut self, path: &Path, file: File) {
        let source = Source::File(path.to_owned());
        if let Some(address) = file.engine.address {
            self.engine = Some(Setting { value: address, source: source.clone() });
        }
        if let Some(level) = file.log.level {
            self.log = Setting { value: level, source: source.clone() };
        }
        if let Some(keep) = file.exec.keep.and_then(|text| check::keep(&text).ok()) {
            self.keep = Setting { value: keep, source: source.clone() };
        }
        if let Some(budget) = file.snapshots.budget.and_then(|text| check::budget(&text).ok()) {
            self.budget = Setting { value: budget, source: source.clone() };
        }
        if let Some(auto_resume) = file.auto_resume {
            self.auto_resume = Setting { value: auto_resume, source: source.clone() };
        }
        if let Some(on_boot) = file.on_boot.and_then(|word| check::on_boot(&word).ok()) {
            self.on_boot = Setting { value: on_boot, source: source.clone() };
        }
        if let Some(limit) = file.save_timeout.and_then(|text| check::save_timeout(&text).ok()) {
            self.save_timeout = Setting { value: limit, source: source.clone() };
        }
        for (name, template) in file.templates {
            self.templates.insert(name, Setting { value: template, source: source.clone() });
        }
        for (name, agent) in file.agents {
            self.agents.insert(name, Setting { value: agent, source: source.clone() });
        }
    }

    /// Every setting by its name in the file, for `abx doctor` and `daemon.info`: of a template what it sets itself.
    /// Environment values of templates are masked.
    pub fn explain(&self) -> Vec<(String, String, Source)> {
        let mut rows = vec![
            ("log.level".to_owned(), self.log.value.clone(), self.log.source.clone()),
            ("exec.keep".to_owned(), self.keep.value.to_string(), self.keep.source.clone()),
            (
                "snapshots.budget".to_owned(),
                self.budget.value.map_or_else(|| NO_BUDGET.to_owned(), size),
                self.budget.source.clone(),
            ),
            ("auto_resume".to_owned(), self.auto_resume.value.to_string(), self.auto_resume.source.clone()),
        ];
        rows.push((
            "on_boot".to_owned(),
            self.on_boot.value.as_str().to_owned(),
            self.on_boot.source.clone(),
        ));
        let save_timeout = humantime::format_duration(self.save_timeout.value).to_string();
        rows.push(("save_timeout".to_owned(), save_timeout, self.save_timeout.source.clone()));
        let engine = match (&self.engine, &self.docker_host, &self.docker_context) {
            (Some(engine), ..) => Some((engine.value.clone(), engine.source.clone())),
            (None, Some(host), _) => Some((host.clone(), Source::Environment("DOCKER_HOST"))),
            (None, None, Some(name)) => {
                Some((format!("that of the context {name}"), Source::Environment("DOCKER_CONTEXT")))
            }
            (None, None, None) => None,
        };
        rows.extend(engine.map(|(value, source)| (ENGINE_ADDRESS.to_owned(), value, source)));
        for (name, template) in &self.templates {
            if name == BASE && template.value.image.is_none() {
                let image = format!("templates.{name}.image");
                rows.push((image, BASE_IMAGE.to_owned(), Source::Default));
            }
            let set = template.value.explain().into_iter();
            rows.extend(
                set.map(|(key, value)| (format!("templates.{name}.{key}"), value, template.source.clone())),
            );
        }
        rows.extend(self.explain_agents());
        rows
    }
}

fn read(path: &Path) -> Result<Option<File>, ConfigError> {
    let fail = |source| ConfigError::Read { path: path.to_owned(), source };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    if meta.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(fail)?;
    let file: File = toml::from_str(&text).map_err(|error: toml::de::Error| {
        let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        ConfigError::Parse {
            path: path.to_owned(),
            source: Wrong { line, why: without_value(error.message()) },
        }
    })?;
    let bad = |source| ConfigError::Value { path: path.to_owned(), source };
    for (name, template) in &file.templates {
        check::template(name, template).map_err(bad)?;
    }
    for (name, agent) in &file.agents {
        agents::check(name, agent).map_err(bad)?;
    }
    if let Some(word) = &file.on_boot {
        check::on_boot(word).map_err(bad)?;
    }
    if let Some(limit) = &file.save_timeout {
        check::save_timeout(limit).map_err(bad)?;
    }
    if let Some(keep) = &file.exec.keep {
        check::keep(keep).map_err(bad)?;
    }
    if let Some(budget) = &file.snapshots.budget {
        check::budget(budget).map_err(bad)?;
    }
    Ok(Some(file))
}

/// What a parser says is wrong, without the value that it quotes, which may be a secret: what was expected is enough.
pub fn without_value(message: &str) -> String {
    let message = match message.rsplit_once(" at line ") {
        Some((rest, place)) if place.replace(" column ", "").bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => message,
    };
    let quotes = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant "];
    if !quotes.iter().any(|words| message.starts_with(words)) {
        return message.to_owned();
    }
    // The value may hold any text, this word too; what is expected holds none of a user's.
    match message.rsplit_once("expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => "not a value that is understood".to_owned(),
    }
}

/// Parses a duration: seconds as a plain number, or `90s`, `30m`, `2h`, `3d` and sums such as `1h 30m`. Gives
/// milliseconds.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a duration: give seconds, or 30m, 2h, 3d");
    let seconds = match text.trim().parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => humantime::parse_duration(text.trim()).map_err(|_| bad())?.as_secs_f64(),
    };
    let ms = seconds * 1000.0;
    if !(0.0..=9.0e15).contains(&ms) {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie in 0..=9e15")]
    Ok(ms.round() as u64)
}

#[cfg(test)]
mod tests;
