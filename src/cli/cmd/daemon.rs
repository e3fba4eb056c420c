//! `abx daemon`, and `abx --version`.

mod end;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub(crate) use end::stop;

use super::install;
use crate::cli::args::DaemonCommand;
use crate::cli::context::{Context, understand};
use crate::cli::failure::{Failure, chain};
use crate::cli::output::{clean, clean_lines};
use crate::cli::table::pairs;
use crate::client::{ConnectError, Connector, daemon_program, same_protocol};
use crate::proto::daemon::{DaemonInfoResult, HelloResult};
use crate::proto::methods::{DaemonInfo, Empty};
use crate::proto::types::EngineInfo;
use crate::proto::version::{PROTOCOL, VERSION};

/// Pause between two looks whether a log has grown.
const FOLLOW: Duration = Duration::from_millis(200);

/// How much of the log's end is read for its last lines, in bytes.
const LOG_TAIL_BYTES: u64 = 8 * 1024 * 1024;

/// Runs a daemon verb.
pub(crate) fn run(context: &Context, verb: DaemonCommand) -> Result<u8, Failure> {
    match verb {
        DaemonCommand::Run { engine, log } => Err(exec(context, engine, log)),
        DaemonCommand::Start => start(context),
        DaemonCommand::Stop => {
            let text = match stop(context)? {
                Some(pid) => format!("abxd stopped (process {pid})."),
                None => "abxd is not running.".to_owned(),
            };
            say(context, &text, &serde_json::json!({ "running": false }));
            Ok(0)
        }
        DaemonCommand::Restart => end::restart(context),
        DaemonCommand::Status => status(context),
        DaemonCommand::Logs { follow, tail } => logs(context, follow, tail),
        DaemonCommand::Install { dry_run } => install::install(context, dry_run),
        DaemonCommand::Uninstall => install::uninstall(context),
    }
}

/// Prints this program's version, and the daemon's if one runs. Never starts one.
pub(crate) fn versions(context: &Context) -> Result<u8, Failure> {
    let daemon = || context.greet(&quiet_connector(context)).ok().map(|c| c.hello().clone());
    if context.output.json {
        let daemon = daemon().map(|h| serde_json::json!({ "version": h.version, "protocol": h.protocol }));
        let document = serde_json::json!({ "version": VERSION, "protocol": PROTOCOL, "daemon": daemon });
        context.output.data(&document.to_string());
        return Ok(0);
    }
    // Before asking: a daemon that hangs takes its time.
    context.output.data(&format!("abx {VERSION}"));
    if let Some(hello) = daemon() {
        let protocol = if hello.protocol == PROTOCOL {
            String::new()
        } else {
            format!(" (protocol {}, abx speaks {PROTOCOL}: run abx daemon restart)", hello.protocol)
        };
        context.output.data(&format!("abxd {}{protocol}", clean(&hello.version)));
    }
    Ok(0)
}

fn start(context: &Context) -> Result<u8, Failure> {
    let running = context.greet(&quiet_connector(context)).is_ok();
    let client = context.greet(&Connector::new(context.connector.home().clone(), true))?;
    same_protocol(client.hello())?;
    let HelloResult { pid, version, .. } = client.hello();
    let text = match running {
        true => format!("abxd is already running (process {pid})."),
        false => format!("abxd started (process {pid})."),
    };
    say(context, &text, &serde_json::json!({ "running": true, "pid": pid, "version": version }));
    Ok(0)
}

fn say(context: &Context, text: &str, document: &serde_json::Value) {
    if context.output.json {
        context.output.data(&document.to_string());
    } else if !context.output.quiet {
        context.output.data(text);
    }
}

fn quiet_connector(context: &Context) -> Connector {
    Connector::new(context.connector.home().clone(), false)
}

/// Becomes the daemon; comes back only when that fails.
fn exec(context: &Context, engine: Option<String>, log: Option<String>) -> Failure {
    let program = daemon_program();
    let mut command = Command::new(&program);
    let home = context.connector.home();
    command.arg("--home").arg(home.root()).arg("--socket").arg(home.socket());
    for (flag, value) in [("--engine", engine), ("--log", log)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    let error = command.exec();
    Failure::daemon(format!("failed to run {}", program.display()), chain(&error))
        .with_hint("install abxd beside abx")
}

fn status(context: &Context) -> Result<u8, Failure> {
    let mut client = context.greet(&quiet_connector(context)).map_err(|error| {
        // Nobody has asked for that option here.
        let away = matches!(error, ConnectError::NotListening { .. });
        let failure = Failure::from(error);
        if away { failure.with_hint("abx daemon start") } else { failure }
    })?;
    let hello = client.hello().clone();
    let raw = client.call_document::<DaemonInfo>(&Empty {})?;
    if context.output.json {
        context.output.data(raw.get());
        return Ok(0);
    }
    if context.output.quiet {
        context.output.data(&hello.pid.to_string());
        return Ok(0);
    }
    let service = install::state(context.connector.home());
    context.output.data(&status_text(&understand::<DaemonInfo>(&raw)?, service));
    Ok(0)
}

fn status_text(info: &DaemonInfoResult, service: Option<String>) -> String {
    let mut rows = vec![
        ("abx", format!("{VERSION} (protocol {PROTOCOL})")),
        ("abxd", format!("{} (protocol {})", info.version, info.protocol)),
        ("process", info.pid.to_string()),
        ("started", info.started_at.clone()),
        ("socket", info.socket.clone()),
        ("home", info.home.clone()),
        ("sessions", info.sessions.to_string()),
    ];
    for engine in &info.engines {
        rows.push(("engine", engine_text(engine)));
        if let Some(problem) = &engine.problem {
            rows.push(("problem", problem.lines().map(str::trim).collect::<Vec<_>>().join("; ")));
        }
    }
    rows.extend(service.map(|state| ("service", state)));
    for notice in &info.notices {
        rows.push(("notice", notice.clone()));
    }
    if info.version != VERSION || info.protocol != PROTOCOL {
        rows.push(("notice", "the versions differ; to use one version, run abx daemon restart".to_owned()));
    }
    pairs(&rows)
}

/// One line about an engine.
pub(crate) fn engine_text(engine: &EngineInfo) -> String {
    let mut text = format!("{} {}", engine.name, engine.health);
    if let Some(address) = &engine.address {
        text.push_str(&format!(", {address}"));
    }
    if let Some(source) = &engine.source {
        text.push_str(&format!(" (from {source})"));
    }
    if let Some(version) = &engine.version {
        text.push_str(&format!(", version {version}"));
    }
    if let Some(api) = &engine.api_version {
        text.push_str(&format!(", API {api}"));
    }
    if let Some(skew) = clock_skew(engine) {
        text.push_str(&format!(", its clock is {skew} s off"));
    }
    text
}

/// A clock further off than this, in milliseconds, confuses what runs in sandboxes.
const MAX_SKEW_MS: i64 = 5_000;

/// What to do about it.
pub(crate) const CLOCK_FIX: &str = "set the engine's clock; restart its machine if it slept";

/// By how many seconds an engine's clock is off, if that is worth a word.
fn clock_skew(engine: &EngineInfo) -> Option<i64> {
    engine.clock_skew_ms.filter(|ms| ms.abs() > MAX_SKEW_MS).map(|ms| ms / 1_000)
}

/// One line about an engine's clock, if it is off.
pub(crate) fn clock_text(engine: &EngineInfo) -> Option<String> {
    clock_skew(engine).map(|skew| format!("the clock of {} is {skew} s off ours", engine.name))
}

fn logs(context: &Context, follow: bool, tail: usize) -> Result<u8, Failure> {
    if follow && context.output.json {
        return Err(Failure::usage("--json gives one document, and --follow has no end")
            .with_hint("leave one of them out"));
    }
    let path = context.connector.home().log_file();
    let fail = |error| Failure::local(format!("failed to read {}", path.display()), &error);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && !follow => {
            return Err(Failure::refused(format!("there is no log yet at {}", path.display()))
                .with_hint("abx daemon start"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => wait_for(&path),
        Err(error) => return Err(fail(error)),
    };
    let length = file.metadata().map_err(fail)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES))).map_err(fail)?;
    let mut bytes = Vec::new();
    file.by_ref().take(LOG_TAIL_BYTES).read_to_end(&mut bytes).map_err(fail)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(clean).collect();
    let shown = &lines[lines.len().saturating_sub(tail)..];
    if context.output.json {
        context.output.data(&serde_json::json!({ "lines": shown }).to_string());
    } else if !shown.is_empty() {
        context.output.data(&shown.join("\n"));
    }
    if follow {
        go_on(context, file, &path).map_err(fail)?;
    }
    Ok(0)
}

fn wait_for(path: &Path) -> File {
    loop {
        match File::open(path) {
            Ok(file) => return file,
            Err(_) => sleep(FOLLOW),
        }
    }
}

/// Prints lines as they come; goes over to the new file when the log is renamed away. Ends only by an error.
fn go_on(context: &Context, file: File, path: &Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        if reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            context.output.data(&clean_lines(String::from_utf8_lossy(&line).trim_end()));
            line.clear();
            continue;
        }
        let same = std::fs::metadata(path).is_ok_and(|named| {
            reader
                .get_ref()
                .metadata()
                .is_ok_and(|open| (named.dev(), named.ino()) == (open.dev(), open.ino()))
        });
        if same {
            sleep(FOLLOW);
        } else {
            reader = BufReader::new(wait_for(path));
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_both_sides_and_each_engine() {
        let info = DaemonInfoResult {
            version: "9.0.0".to_owned(),
            protocol: 1,
            pid: 42,
            home: "/h".to_owned(),
            socket: "/h/daemon.sock".to_owned(),
            started_at: "2026-02-01T09:00:00.000Z".to_owned(),
            sessions: 3,
            engines: vec![EngineInfo {
                name: "docker".to_owned(),
                address: Some("unix:///var/run/docker.sock".to_owned()),
                source: Some("default".to_owned()),
                version: Some("20.10.24".to_owned()),
                api_version: Some("1.41".to_owned()),
                health: "ok".to_owned(),
                problem: None,
                clock_skew_ms: Some(-7_500),
            }],
            settings: Vec::new(),
            notices: vec!["the table was rebuilt".to_owned()],
        };
        let want = format!(
            "abx:      {VERSION} (protocol 1)\n\
             abxd:     9.0.0 (protocol 1)\n\
             process:  42\n\
             started:  2026-02-01T09:00:00.000Z\n\
             socket:   /h/daemon.sock\n\
             home:     /h\n\
             sessions: 3\n\
             engine:   docker ok, unix:///var/run/docker.sock (from default), version 20.10.24, API 1.41, its clock is -7 s off\n\
             service:  not installed\n\
             notice:   the table was rebuilt\n\
             notice:   the versions differ; to use one version, run abx daemon restart"
        );
        assert_eq!(status_text(&info, Some("not installed".to_owned())), want);
    }
}
