//! `abx doctor`: what abx needs, what is wrong, and how to mend it.

mod settings;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::daemon::{CLOCK_FIX, clock_text, engine_text};
use crate::cli::context::Context;
use crate::cli::failure::{FAILED, Failure};
use crate::cli::output::clean;
use crate::cli::table::bytes;
use crate::client::{CallError, Client, ConnectError};
use crate::paths::{self, Home};
use crate::proto::daemon::DaemonInfoResult;
use crate::proto::methods::{DaemonInfo, Empty};
use crate::proto::version::{PROTOCOL, VERSION};

/// Less free space than this, in bytes, is worth a warning; the table needs little, an engine on the same disk much.
const LOW_SPACE_BYTES: u64 = 1 << 30;

/// Less than this and the table cannot grow.
const NO_SPACE_BYTES: u64 = 16 << 20;

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
    let (file, own) = settings::file(home);
    let mut checks = vec![home_check(home), socket_check(home), file];
    let mut info = None;
    match context.greet(&context.connector) {
        Ok(mut client) => {
            checks.push(daemon_check(&client));
            match settled_info(&mut client) {
                Ok(found) => {
                    checks.extend(info_checks(&found));
                    info = Some(found);
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    checks.push(Check::failed("engine", failure.message(), "abx daemon restart"));
                }
            }
        }
        Err(error) => {
            let fix = match &error {
                ConnectError::Hung { .. } | ConnectError::Greeting { .. } => "abx daemon restart",
                _ if context.connector.autostart() => "abx daemon logs",
                _ => "abx daemon start",
            };
            checks.push(Check::failed("daemon", Failure::from(error).message(), fix));
        }
    }
    checks.push(space_check(home.root()));
    checks.push(legacy_check());
    let settings = settings::rows(home, info.as_ref(), own);
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    if context.output.json {
        let document = serde_json::json!({ "checks": checks, "settings": settings });
        context.output.data(&document.to_string());
    } else {
        let title = if info.is_some() { "settings:" } else { "settings that abxd would start with:" };
        context.output.data(&format!("{}\n{title}\n{}", text(&checks), settings::text(&settings)));
    }
    Ok(if failed { FAILED } else { 0 })
}

fn text(checks: &[Check]) -> String {
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
    match fs::metadata(socket) {
        Ok(meta) if meta.mode() & 0o077 != 0 => Check::failed(
            "socket",
            format!("{} is open to others (mode {:o})", socket.display(), meta.mode() & 0o777),
            "abx daemon restart",
        ),
        _ => Check::ok("socket", format!("{} ({} bytes)", socket.display(), socket.as_os_str().len())),
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

fn info_checks(info: &DaemonInfoResult) -> Vec<Check> {
    let DaemonInfoResult { engines, notices, .. } = info;
    let mut checks = Vec::new();
    for engine in engines {
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
        checks.extend(clock_text(engine).map(|why| Check::warning("clock", why, CLOCK_FIX)));
    }
    checks.extend(notices.iter().map(|n| Check::warning("notice", n, "abx daemon logs")));
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
            let count = store.count()?;
            Some(format!("{count} of {} in {}", store.origin, store.dir.display()))
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
    fn the_report_lines_up_and_is_clean() {
        let checks = [Check::ok("home", "/h"), Check::failed("engine", "docker\ntried \u{1b}a", "start it")];
        let want = "ok       home       /h\n\
                    FAILED   engine     docker\n                    tried \\u{1b}a\n\
                    \u{20}                   fix: start it";
        assert_eq!(text(&checks), want);
    }
}
