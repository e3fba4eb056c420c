//! The settings in force, and where each came from.

use serde::Serialize;

use super::Check;
use crate::cli::failure::chain;
use crate::cli::output::clean;
use crate::config::{Config, ENGINE_ADDRESS, Flags};
use crate::paths::Home;
use crate::proto::daemon::DaemonInfoResult;

/// One setting.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    name: String,
    value: String,
    source: String,
}

impl Row {
    fn new(name: &str, value: impl ToString, source: impl ToString) -> Self {
        Self { name: name.to_owned(), value: value.to_string(), source: source.to_string() }
    }
}

/// Whether the file of settings can be used, and what a daemon that is started here and now would take from it.
pub(super) fn file(home: &Home) -> (Check, Vec<Row>) {
    let place = home.config();
    match Config::load(&place, &Flags::default()) {
        Ok(config) => {
            let rows = config.explain().into_iter();
            let rows = rows.map(|(name, value, source)| Row::new(&name, value, source)).collect();
            let there = if place.exists() { "" } else { " (not there: defaults apply)" };
            (Check::ok("settings", format!("{}{there}", place.display())), rows)
        }
        Err(error) => {
            let why = chain(&error).join(": ");
            (Check::failed("settings", why, format!("mend or move away {}", place.display())), Vec::new())
        }
    }
}

/// What the running daemon says, else `own`; with the places, and the engine that was found.
pub(super) fn rows(home: &Home, info: Option<&DaemonInfoResult>, own: Vec<Row>) -> Vec<Row> {
    let mut rows = vec![
        Row::new("home", home.root().display(), home.root_source()),
        Row::new("socket", home.socket().display(), home.socket_source()),
    ];
    let found = info.and_then(|info| {
        let engine = info.engines.iter().find(|engine| engine.address.is_some())?;
        Some(Row::new(
            ENGINE_ADDRESS,
            engine.address.as_ref()?,
            engine.source.as_deref().unwrap_or("unknown"),
        ))
    });
    let settings = match info {
        Some(info) => info.settings.iter().map(|s| Row::new(&s.name, &s.value, &s.source)).collect(),
        None => own,
    };
    let chosen = settings.iter().any(|row| row.name == ENGINE_ADDRESS);
    let searched = "not set: that of the current Docker context, else the first usual socket that answers";
    rows.extend(match found {
        None if !chosen => Some(Row::new(ENGINE_ADDRESS, searched, "default")),
        found => found,
    });
    let replaced = rows.iter().any(|row| row.name == ENGINE_ADDRESS);
    rows.extend(settings.into_iter().filter(|row| !(replaced && row.name == ENGINE_ADDRESS)));
    rows
}

/// One line for each.
pub(super) fn text(rows: &[Row]) -> String {
    let line = |row: &Row| format!("  {} = {} ({})", clean(&row.name), clean(&row.value), clean(&row.source));
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::Verdict;
    use super::*;
    use crate::proto::daemon::Setting;
    use crate::proto::types::EngineInfo;

    fn home(dir: &Path) -> Home {
        Home::find(Some(dir), Some(Path::new("/run/s"))).expect("a home")
    }

    fn info(address: Option<&str>) -> DaemonInfoResult {
        let setting = |name: &str, value: &str, source: &str| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
        };
        DaemonInfoResult {
            version: String::new(),
            protocol: 1,
            pid: 1,
            home: String::new(),
            socket: String::new(),
            started_at: String::new(),
            sessions: 0,
            engines: vec![EngineInfo {
                name: "docker".to_owned(),
                address: address.map(str::to_owned),
                source: address.map(|_| "context \"far\", the current context of /c.json".to_owned()),
                version: None,
                api_version: None,
                health: "ok".to_owned(),
                problem: None,
                clock_skew_ms: None,
            }],
            settings: vec![
                setting("log.level", "debug", "flag --log"),
                setting(ENGINE_ADDRESS, "that of the context far", "environment DOCKER_CONTEXT"),
            ],
            notices: Vec::new(),
        }
    }

    #[test]
    fn a_broken_file_of_settings_fails_and_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = home(dir.path());
        fs::write(home.config(), "[nonsense]\n").expect("write");
        let (check, _) = file(&home);
        assert_eq!(check.verdict, Verdict::Failed);
        assert!(check.why.contains("config.toml"), "{}", check.why);
    }

    #[test]
    fn the_running_daemons_settings_count_and_the_engine_that_it_found() {
        let home = home(Path::new("/h\u{7}"));
        let own = || vec![Row::new("log.level", "info", "default")];
        let want = "  home = /h\\u{7} (flag --home)\n  socket = /run/s (flag --socket)\n\
                    \u{20} engine.address = unix:///e (context \"far\", the current context of /c.json)\n\
                    \u{20} log.level = debug (flag --log)";
        assert_eq!(text(&rows(&home, Some(&info(Some("unix:///e"))), own())), want);
        let away = text(&rows(&home, Some(&info(None)), own()));
        assert!(
            away.ends_with("engine.address = that of the context far (environment DOCKER_CONTEXT)"),
            "{away}"
        );
        let without = text(&rows(&home, None, own()));
        assert!(without.contains("engine.address = not set"), "{without}");
        assert!(without.ends_with("log.level = info (default)"), "{without}");
    }
}
