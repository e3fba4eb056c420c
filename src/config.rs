//! Settings: defaults < system file < user file < environment < flags. Each value remembers where it came from.
//!
//! Reads `config.toml`; with `paths`, the only module that reads the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::paths;

/// The image of the built-in template.
pub const BASE_IMAGE: &str = "debian:stable-slim";

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
        source: Box<toml::de::Error>,
    },
    /// The file is larger than any configuration.
    #[error("{path:?} is larger than {MAX_CONFIG_BYTES} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// A named set of defaults for sandboxes. Absent values come from `base`, then from the profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    /// The image.
    pub image: Option<String>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Memory, such as `2g`.
    pub memory: Option<String>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// `bridge` or `none`.
    pub network: Option<String>,
    /// User name or id.
    pub user: Option<String>,
    /// `permissive`, `moderate` or `restrictive`.
    pub profile: Option<String>,
    /// Timeout, such as `2h`.
    pub timeout: Option<String>,
    /// Idle time, such as `30m`.
    pub idle: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    engine: EngineSection,
    log: LogSection,
    templates: BTreeMap<String, Template>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EngineSection {
    address: Option<String>,
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
    /// Templates by name; `base` is always there.
    pub templates: BTreeMap<String, Setting<Template>>,
}

impl Config {
    /// Reads the system's file, the file at `user_file` and the environment; a missing file is no error.
    ///
    /// # Errors
    /// When a file is there but cannot be read or understood.
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
            templates: BTreeMap::new(),
        };
        let base = Template { image: Some(BASE_IMAGE.to_owned()), ..Template::default() };
        config.templates.insert("base".to_owned(), Setting { value: base, source: Source::Default });
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
        for (name, mut template) in file.templates {
            if name == "base" && template.image.is_none() {
                template.image = Some(BASE_IMAGE.to_owned());
            }
            self.templates.insert(name, Setting { value: template, source: source.clone() });
        }
    }

    /// Every setting by its name in the file, for `abx doctor` and `daemon.info`. Environment values of templates are
    /// masked.
    pub fn explain(&self) -> Vec<(String, String, Source)> {
        let mut rows = vec![("log.level".to_owned(), self.log.value.clone(), self.log.source.clone())];
        if let Some(engine) = &self.engine {
            rows.push(("engine.address".to_owned(), engine.value.clone(), engine.source.clone()));
        } else if let Some(host) = &self.docker_host {
            rows.push(("engine.address".to_owned(), host.clone(), Source::Environment("DOCKER_HOST")));
        }
        for (name, template) in &self.templates {
            let image = template.value.image.clone().unwrap_or_else(|| BASE_IMAGE.to_owned());
            rows.push((format!("templates.{name}.image"), image, template.source.clone()));
        }
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
    toml::from_str(&text)
        .map(Some)
        .map_err(|error| ConfigError::Parse { path: path.to_owned(), source: Box::new(error) })
}

/// Parses a duration: seconds as a plain number, or `90s`, `30m`, `2h`, `3d` and sums such as `1h 30m`. Gives
/// milliseconds.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a duration: give seconds, or 30m, 2h, 3d");
    if let Ok(seconds) = text.trim().parse::<f64>() {
        let ms = seconds * 1000.0;
        if !(0.0..=9.0e15).contains(&ms) {
            return Err(bad());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to lie in 0..=9e15"
        )]
        return Ok(ms.round() as u64);
    }
    let duration = humantime::parse_duration(text.trim()).map_err(|_| bad())?;
    u64::try_from(duration.as_millis()).map_err(|_| bad())
}

/// Parses a size as docker does: bytes, or a number with `b`, `k`, `m`, `g`, `t` (powers of 1,024).
///
/// # Errors
/// What is wrong with it, as a sentence.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size: give bytes, or 512m, 2g");
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (number, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        Some('t') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let value: f64 = number.trim().parse().map_err(|_| bad())?;
    let bytes = value * f64::from(1_u32 << (shift % 30)) * if shift >= 30 { 1_073_741_824.0 } else { 1.0 };
    if !(1.0..=9.0e15).contains(&bytes) {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie in 1..=9e15")]
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_carry_a_unit() {
        for (text, want) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1_500),
            ("30m", 1_800_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(want), "{text}");
        }
        for text in ["", "-1", "soon", "NaN", "inf", "1e300", "5 parsecs"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, want) in [
            ("1", 1),
            ("512m", 512 << 20),
            ("2g", 2 << 30),
            ("1.5G", 3 << 29),
            ("64KiB", 64 << 10),
            ("1t", 1 << 40),
            ("10b", 10),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(want), "{text}");
        }
        for text in ["", "g", "-1g", "0", "1x"] {
            assert!(parse_size_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_wins_over_the_default_and_a_flag_over_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("config.toml");
        std::fs::write(&file, "[engine]\naddress = \"unix:///x\"\n[templates.py]\nimage = \"python\"\n")
            .expect("write");
        let config = Config::load(&file, &Flags::default()).expect("loads");
        let engine = config.engine.clone().expect("set");
        assert_eq!((engine.value.as_str(), &engine.source), ("unix:///x", &Source::File(file.clone())));
        assert_eq!(config.templates["base"].value.image.as_deref(), Some(BASE_IMAGE));
        let flags = Flags { engine: Some("tcp://y:1".to_owned()), ..Flags::default() };
        let config = Config::load(&file, &flags).expect("loads");
        assert_eq!(config.engine.expect("set").source, Source::Flag("--engine"));
    }

    #[test]
    fn a_typo_in_the_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("config.toml");
        std::fs::write(&file, "[template.py]\nimage = \"python\"\n").expect("write");
        let error = Config::load(&file, &Flags::default()).expect_err("unknown section");
        assert!(matches!(error, ConfigError::Parse { .. }));
    }
}
