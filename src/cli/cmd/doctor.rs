//! `abx doctor`: what abx needs, what is wrong, and how to mend it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::daemon::engine_text;
use crate::cli::context::Context;
use crate::cli::failure::{FAILED, Failure, chain};
use crate::cli::output::clean;
use crate::cli::table::bytes;
use crate::client::{CallError, Client};
use crate::config::{Config, Flags};
use crate::paths::{self, Home};
use crate::proto::methods::{DaemonInfo, DaemonInfoResult, Empty};
use crate::proto::version::{PROTOCOL, VERSION};

/// Less free space than this, in bytes, is worth a warning; the table needs little, an engine on the same disk much.
const LOW_SPACE_BYTES: u64 = 1 << 30;

/// Less than this and the table cannot grow.
const NO_SPACE_BYTES: u64 = 16 << 20;

/// A clock further off than this, in milliseconds, confuses what runs in sandboxes.
const MAX_SKEW_MS: i64 = 5_000;

/// How long a daemon may take from its start until it has found its engines.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);

/// Pause between two questions whether it has.
const SETTLE_LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    verdict: Verdict,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, why: why.into(), fix: None }
    }

    fn warning(what: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Warning, why: why.into(), fix: Some(fix.into()) }
    }

    fn failed(what: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Failed, why: why.into(), fix: Some(fix.into()) }
    }
}

/// Runs every check. Exits with 1 if one failed.
pub(crate) fn run(context: &Context) -> Result<u8, Failure> {
    let home = context.connector.home();
    let mut checks = vec![home_check(home), socket_check(home)];
    let (config, settings) = settings_check(home);
    checks.push(config);
    match context.connector.connect_any_protocol() {
        Ok(mut client) => {
            checks.push(daemon_check(&client));
            checks.extend(info_checks(&mut client));
        }
        Err(error) => {
            let failure = Failure::from(error);
            let fix = if context.connector.autostart() { "abx daemon logs" } else { "abx daemon start" };
            checks.push(Check::failed("daemon", failure.message(), fix));
        }
    }
    checks.push(space_check(home.root()));
    checks.push(legacy_check());
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    if context.output.json {
        let document = serde_json::json!({ "checks": checks, "settings": settings });
        context.output.data(&document.to_string());
    } else {
        context.output.data(&text(&checks, &settings));
    }
    Ok(if failed { FAILED } else { 0 })
}

fn text(checks: &[Check], settings: &[SettingRow]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "FAILED",
        };
        let why: Vec<String> = check.why.lines().map(clean).collect();
        lines.push(format!("{mark:<8} {:<10} {}", check.what, why.join("\n                    ")));
        if let Some(fix) = &check.fix {
            lines.push(format!("                    fix: {}", clean(fix)));
        }
    }
    lines.push("settings:".to_owned());
    for setting in settings {
        lines.push(format!(
            "  {} = {} ({})",
            clean(&setting.name),
            clean(&setting.value),
            clean(&setting.source)
        ));
    }
    lines.join("\n")
}

fn home_check(home: &Home) -> Check {
    let root = home.root();
    let shown = root.display();
    match fs::metadata(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::ok("home", format!("{shown} (does not exist yet; abxd makes it)"))
        }
        Err(error) => Check::failed("home", format!("{shown}: {error}"), "choose another with ABX_HOME"),
        Ok(meta) if !meta.is_dir() => {
            Check::failed("home", format!("{shown} is not a directory"), "move it away, or set ABX_HOME")
        }
        Ok(meta) if meta.uid() != nix::unistd::geteuid().as_raw() => Check::failed(
            "home",
            format!("{shown} belongs to user {}", meta.uid()),
            "choose another with ABX_HOME, or change its owner",
        ),
        Ok(meta) if meta.mode() & 0o077 != 0 => Check::failed(
            "home",
            format!("{shown} is open to others (mode {:o})", meta.mode() & 0o777),
            format!("chmod 700 {shown}"),
        ),
        Ok(meta) => Check::ok("home", format!("{shown} (mode {:o})", meta.mode() & 0o777)),
    }
}

fn socket_check(home: &Home) -> Check {
    let socket = home.socket();
    let length = socket.as_os_str().len();
    match fs::metadata(socket) {
        Ok(meta) if meta.mode() & 0o077 != 0 => Check::failed(
            "socket",
            format!("{} is open to others (mode {:o})", socket.display(), meta.mode() & 0o777),
            "abx daemon restart",
        ),
        _ => Check::ok("socket", format!("{} ({length} bytes)", socket.display())),
    }
}

#[derive(Debug, Serialize)]
struct SettingRow {
    name: String,
    value: String,
    source: String,
}

fn settings_check(home: &Home) -> (Check, Vec<SettingRow>) {
    let place = home.config();
    match Config::load(&place, &Flags::default()) {
        Ok(config) => {
            let rows = config.explain().into_iter().map(|(name, value, source)| SettingRow {
                name,
                value,
                source: source.to_string(),
            });
            let there = if place.exists() { "" } else { " (not there: defaults apply)" };
            (Check::ok("settings", format!("{}{there}", place.display())), rows.collect())
        }
        Err(error) => {
            let why = chain(&error).join(": ");
            (Check::failed("settings", why, format!("mend or move away {}", place.display())), Vec::new())
        }
    }
}

fn daemon_check(client: &Client) -> Check {
    let hello = client.hello();
    let why = format!(
        "abxd {} (protocol {}), abx {VERSION} (protocol {PROTOCOL}), process {}",
        hello.version, hello.protocol, hello.pid
    );
    if hello.protocol != PROTOCOL {
        Check::failed("daemon", why, "abx daemon restart")
    } else if hello.version != VERSION {
        Check::warning("daemon", why, "abx daemon restart")
    } else {
        Check::ok("daemon", why)
    }
}

fn info_checks(client: &mut Client) -> Vec<Check> {
    let info = match settled_info(client) {
        Ok(info) => info,
        Err(error) => {
            let failure = Failure::from(error);
            return vec![Check::failed("engine", failure.message(), "abx daemon restart")];
        }
    };
    let DaemonInfoResult { engines, notices, .. } = info;
    let mut checks = Vec::new();
    for engine in &engines {
        let mut why = engine_text(engine);
        if engine.health == "ok" {
            checks.push(Check::ok("engine", why));
        } else {
            if let Some(problem) = &engine.problem {
                why.push_str(&format!("\n{problem}"));
            }
            checks.push(Check::failed(
                "engine",
                why,
                "start the engine, or name another with DOCKER_HOST or engine.address in config.toml",
            ));
        }
        if let Some(skew) = engine.clock_skew_ms.filter(|ms| ms.abs() > MAX_SKEW_MS) {
            let why = format!("the clock of {} is {} s off ours", engine.name, skew / 1_000);
            checks.push(Check::warning(
                "clock",
                why,
                "set the engine's clock; restart its machine if it slept",
            ));
        }
    }
    checks.extend(notices.into_iter().map(|n| Check::warning("notice", n, "abx daemon logs")));
    checks
}

/// Asks until the engines have been looked for: a daemon that has only just started knows none yet.
fn settled_info(client: &mut Client) -> Result<DaemonInfoResult, CallError> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let info = client.call::<DaemonInfo>(&Empty {})?;
        let started = info.started_at.parse::<Timestamp>().unwrap_or_default();
        let young =
            Timestamp::now().as_second() - started.as_second() <= SETTLE_LIMIT.as_secs().cast_signed();
        if !young || Instant::now() >= deadline || info.engines.iter().all(|e| e.health == "ok") {
            return Ok(info);
        }
        sleep(SETTLE_LOOK);
    }
}

fn space_check(root: &Path) -> Check {
    let existing = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let stat = match nix::sys::statvfs::statvfs(existing) {
        Ok(stat) => stat,
        Err(errno) => return Check::warning("disk", format!("{}: {errno}", existing.display()), "df"),
    };
    #[expect(clippy::useless_conversion, reason = "the fields are narrower on other platforms")]
    let free = u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()));
    let why = format!("{} free at {}", bytes(free), existing.display());
    match free {
        0..NO_SPACE_BYTES => Check::failed("disk", why, "free some space: the table cannot grow"),
        NO_SPACE_BYTES..LOW_SPACE_BYTES => Check::warning("disk", why, "free some space"),
        _ => Check::ok("disk", why),
    }
}

fn legacy_check() -> Check {
    let found: Vec<String> = paths::legacy_stores()
        .into_iter()
        .filter_map(|store| {
            let entries = fs::read_dir(&store.dir).ok()?;
            let count =
                entries.flatten().filter(|e| e.path().extension().is_some_and(|x| x == "json")).count();
            (count > 0).then(|| format!("{count} of {} in {}", store.origin, store.dir.display()))
        })
        .collect();
    if found.is_empty() {
        return Check::ok("import", "no session files of older tools");
    }
    let why = format!("session files of older tools: {}", found.join(", "));
    Check::ok("import", format!("{why}\nto take them over: abx import"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_open_home_fails_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("open it");
        let home = Home::find(Some(dir.path()), None).expect("a home");
        let check = home_check(&home);
        assert_eq!(check.verdict, Verdict::Failed);
        assert_eq!(check.fix, Some(format!("chmod 700 {}", dir.path().display())));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("close it");
        assert_eq!(home_check(&home).verdict, Verdict::Ok);
    }

    #[test]
    fn a_broken_file_of_settings_fails_and_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = Home::find(Some(dir.path()), None).expect("a home");
        fs::write(home.config(), "[nonsense]\n").expect("write");
        let (check, _) = settings_check(&home);
        assert_eq!(check.verdict, Verdict::Failed);
        assert!(check.why.contains("config.toml"), "{}", check.why);
    }

    #[test]
    fn the_report_lines_up_and_is_clean() {
        let checks = [Check::ok("home", "/h"), Check::failed("engine", "docker\ntried \u{1b}a", "start it")];
        let settings =
            [SettingRow { name: "log.level".into(), value: "info".into(), source: "default".into() }];
        let want = "ok       home       /h\n\
                    FAILED   engine     docker\n                    tried \\u{1b}a\n\
                    \u{20}                   fix: start it\n\
                    settings:\n  log.level = info (default)";
        assert_eq!(text(&checks, &settings), want);
    }
}
