//! Ending a daemon, and having another go on in its place.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{quiet_connector, say, start};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, chain};
use crate::cli::output::clean;
use crate::client::{CallError, ConnectError, daemon_program};
use crate::config::{Config, Flags};
use crate::paths::Home;
use crate::proto::daemon::{HelloResult, RestartParams};
use crate::proto::errors::{Kind, WireError};
use crate::proto::methods::{DaemonRestart, DaemonShutdown, Empty};

/// How long a daemon that was asked to stop may take: its own limit for running operations, and some more.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// How long a hung daemon has after TERM, before KILL.
const TERM_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two looks whether a process has ended, or another goes on.
const LOOK: Duration = Duration::from_millis(20);

/// Has the `abxd` beside this program go on with the running daemon's socket. Where there is none it is started, and one
/// that is too old for that is stopped first.
pub(super) fn restart(context: &Context) -> Result<u8, Failure> {
    check_settings(context.connector.home())?;
    let mut client = match context.greet(&quiet_connector(context)) {
        Ok(client) => client,
        Err(ConnectError::NotListening { .. }) => return start(context),
        Err(_) => return stop_and_start(context),
    };
    let before = client.hello().clone();
    let program = Some(daemon_program()).filter(|program| program.is_absolute());
    let program = program.and_then(|program| program.to_str().map(str::to_owned));
    let _ = client.set_patience(Some(STOP_LIMIT));
    match client.call::<DaemonRestart>(&RestartParams { program }) {
        Ok(_) => {}
        // Somebody else has asked it already.
        Err(error) if is_going(&error) => {}
        Err(CallError::Remote(remote)) if remote.error.kind().is_none() => return stop_and_start(context),
        Err(CallError::Silent { .. }) => return stop_and_start(context),
        Err(error) => return Err(error.into()),
    }
    drop(client);
    let deadline = Instant::now() + STOP_LIMIT;
    loop {
        match context.greet(&quiet_connector(context)) {
            Ok(next) if !next.hello().is_same(&before) => {
                let HelloResult { pid, version, .. } = next.hello();
                let versions = match &before.version {
                    same if same == version => version.clone(),
                    older => format!("{older} -> {version}"),
                };
                let text = format!("abxd restarted (process {pid}, {}).", clean(&versions));
                say(context, &text, &serde_json::json!({ "running": true, "pid": pid, "version": version }));
                return Ok(0);
            }
            // What went on could not after all: this says why.
            Err(ConnectError::NotListening { .. }) => return start(context),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Ok(_) if Instant::now() >= deadline => return stop_and_start(context),
            _ => sleep(LOOK),
        }
    }
}

fn stop_and_start(context: &Context) -> Result<u8, Failure> {
    stop(context)?;
    start(context)
}

/// A daemon that runs is worth more than one that cannot start.
fn check_settings(home: &Home) -> Result<(), Failure> {
    let Err(error) = Config::load(&home.config(), &Flags::default()) else { return Ok(()) };
    let mut causes = chain(&error);
    let message = causes.remove(0);
    Err(Failure::refused(format!("abxd was not restarted: {message}"))
        .caused_by(causes)
        .with_hint("mend the file and look with abx doctor, then: abx daemon restart"))
}

/// Asks the daemon to stop and waits until it has. One that hangs is ended by TERM, then by KILL. Gives its process id,
/// or none if there was no daemon.
pub(crate) fn stop(context: &Context) -> Result<Option<i32>, Failure> {
    let deadline = Instant::now() + STOP_LIMIT;
    let pid = loop {
        let mut client = match context.greet(&quiet_connector(context)) {
            Ok(client) => client,
            Err(ConnectError::NotListening { .. }) => return Ok(None),
            Err(ConnectError::Hung { pid: Some(pid) }) => return end_hung(context, pid).map(Some),
            // Somebody else has asked it already, or it has just closed.
            Err(ConnectError::Greeting { source }) if is_going(&source) && Instant::now() < deadline => {
                sleep(LOOK);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let pid = i32::try_from(client.hello().pid).unwrap_or_default();
        // The patience is for the answer alone: the daemon answers first and drains then.
        let _ = client.set_patience(Some(STOP_LIMIT));
        match client.call::<DaemonShutdown>(&Empty {}) {
            Ok(_) => {}
            // Another one goes on in its process, and is asked.
            Err(error) if error.was_not_begun() && Instant::now() < deadline => {
                sleep(LOOK);
                continue;
            }
            // It may close before its answer has left.
            Err(error) if is_going(&error) => {}
            Err(CallError::Silent { .. }) => return end_hung(context, pid).map(Some),
            Err(error) => return Err(error.into()),
        }
        if !client.wait_closed(STOP_LIMIT) {
            return end_hung(context, pid).map(Some);
        }
        break pid;
    };
    if wait_gone(pid, STOP_LIMIT) { Ok(Some(pid)) } else { end_hung(context, pid).map(Some) }
}

fn is_going(error: &CallError) -> bool {
    let kind = error.remote().and_then(WireError::kind);
    matches!(error, CallError::Gone { .. }) || kind == Some(Kind::ShuttingDown)
}

fn end_hung(context: &Context, pid: i32) -> Result<i32, Failure> {
    if pid <= 1 {
        return Err(Failure::daemon("abxd does not answer, and its process is not known", Vec::new()));
    }
    for (signal, limit) in [(Signal::SIGTERM, TERM_LIMIT), (Signal::SIGKILL, STOP_LIMIT)] {
        context.output.note(&format!("abxd (process {pid}) does not answer: sending {}", signal.as_str()));
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(Failure::local(format!("failed to signal process {pid}"), &errno)),
        }
        if wait_gone(pid, limit) {
            return Ok(pid);
        }
    }
    Err(Failure::daemon(format!("abxd (process {pid}) does not end, even after SIGKILL"), Vec::new()))
}

/// Waits until a process has ended. One that only waits for its parent to notice has.
fn wait_gone(pid: i32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let exists = pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH);
        if !exists || is_zombie(pid) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK);
    }
}

fn is_zombie(pid: i32) -> bool {
    // The state follows the name, which stands in parentheses and may contain any character.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_gone_even_before_its_parent_looks() {
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = i32::try_from(child.id()).expect("small");
        assert!(wait_gone(pid, STOP_LIMIT));
        child.wait().expect("collected");
        let me = i32::try_from(std::process::id()).expect("small");
        assert!(!wait_gone(me, Duration::ZERO));
    }
}
