//! `abx doctor`: what abx needs, what is wrong, and how to mend it.

mod engine;
mod files;
mod mend;
mod report;
mod settings;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use self::mend::Mend;
use super::daemon::{CLOCK_FIX, clock_text, engine_text};
use crate::cli::args::DoctorArgs;
use crate::cli::context::Context;
use crate::cli::failure::{FAILED, Failure};
use crate::cli::output::clean;
use crate::client::{CallError, Client, ConnectError};
use crate::config::size;
use crate::paths::{self, Home};
use crate::proto::daemon::DaemonInfoResult;
use crate::proto::errors::Kind;
use crate::proto::methods::{DaemonCheck, DaemonInfo, Empty};
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
    /// What `--fix` does about it.
    #[serde(skip)]
    mend: Option<Mend>,
}

impl Check {
    fn ok(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, why: why.into(), fix: None, mend: None }
    }

    fn warning(what: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Warning, why: why.into(), fix: Some(fix.into()), mend: None }
    }

    fn failed(what: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Failed, why: why.into(), fix: Some(fix.into()), mend: None }
    }

    fn mended_by(self, mend: Mend) -> Self {
        Self { mend: Some(mend), ..self }
    }
}

/// So many of something.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Runs every check, and mends what can be if that is wanted. Exits with 1 if one failed.
pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<u8, Failure> {
    let mut found = Found::look(context);
    if args.fix {
        mend::all(context, &found.checks, args.yes)?;
        found = Found::look(context);
    }
    let Found { checks, info, own } = found;
    let home = context.connector.home();
    let settings = settings::rows(home, info.as_ref(), own);
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    if context.output.json {
        let document = serde_json::json!({ "checks": checks, "settings": settings }).to_string();
        context.output.data(&if args.report { report::mask_for(home, &document) } else { document });
    } else {
        let title = if info.is_some() { "settings:" } else { "settings that abxd would start with:" };
        let text = format!("{}\n{title}\n{}", text(&checks), settings::text(&settings));
        context.output.data(&if args.report { report::fit(&text, home) } else { text });
    }
    Ok(if failed { FAILED } else { 0 })
}

/// What one look at everything found.
struct Found {
    checks: Vec<Check>,
    /// What the daemon says of itself, if there is one.
    info: Option<DaemonInfoResult>,
    /// The settings that one would start with.
    own: Vec<settings::Row>,
}

impl Found {
    fn look(context: &Context) -> Self {
        let home = context.connector.home();
        let (file, own) = settings::file(home);
        // Before a daemon is started, which mends some of it by itself.
        let mut checks = vec![home_check(home), files::rights(home), files::socket(home), file];
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
                checks.extend(engine_checks(&mut client));
            }
            Err(error) => checks.push(no_daemon(context, error)),
        }
        checks.extend(files::table(home));
        checks.push(space_check(home.root()));
        checks.push(legacy_check());
        Self { checks, info, own }
    }
}

fn no_daemon(context: &Context, error: ConnectError) -> Check {
    let fix = match &error {
        ConnectError::Hung { .. } | ConnectError::Greeting { .. } => "abx daemon restart",
        ConnectError::NoDaemon { .. } => "install abxd beside abx, or into a directory of PATH",
        ConnectError::Failed { .. } | ConnectError::NotReady { .. } => "abx daemon logs",
        _ if context.connector.autostart() => "abx daemon logs",
        _ => "abx daemon start",
    };
    Check::failed("daemon", Failure::from(error).message(), fix)
}

/// What abx has on the engine. One that does not answer has a check of its own.
fn engine_checks(client: &mut Client) -> Vec<Check> {
    match client.call::<DaemonCheck>(&Empty {}) {
        Ok(found) => engine::checks(&found),
        Err(error) => {
            let kind = error.remote().and_then(|wire| wire.kind());
            if matches!(kind, Some(Kind::EngineUnavailable | Kind::EngineTimeout)) {
                return Vec::new();
            }
            vec![Check::warning("orphans", Failure::from(error).message(), "abx daemon restart")]
        }
    }
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
        )
        .mended_by(Mend::Modes(vec![(root.to_owned(), 0o700)])),
        Ok(meta) => Check::ok("home", format!("{shown} (mode {:o})", meta.mode() & 0o777)),
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
        match (clock_text(engine), engine.clock_skew_ms) {
            (Some(why), _) => checks.push(Check::warning("clock", why, CLOCK_FIX)),
            (None, Some(_)) => {
                checks.push(Check::ok("clock", format!("that of {} agrees with ours", engine.name)))
            }
            (None, None) => {}
        }
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
    let free = match paths::free_bytes(existing) {
        Ok(free) => free,
        Err(error) => return Check::warning("disk", format!("{}: {error}", existing.display()), "df"),
    };
    let why = format!("{} free at {}", size(free), existing.display());
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
    fn a_program_that_is_missing_is_to_be_installed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = Home::find(Some(dir.path()), None).expect("a home");
        let (output, _) = crate::cli::output::Output::captured(false, false);
        let context = Context::with(crate::client::Connector::new(home, true), output);
        let check = no_daemon(&context, ConnectError::NoDaemon { program: "abxd".into() });
        assert_eq!(check.fix.as_deref(), Some("install abxd beside abx, or into a directory of PATH"));
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
