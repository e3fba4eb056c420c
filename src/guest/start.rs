//! What abx-init is called to be, and what PID 1 does before it serves.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit};

use super::arguments::{Init, Role, parse, parse_abx};
use super::dial::Dialer;
use super::exec::{OOM_SCORE, Rights};
use super::notices::Mailbox;
use super::notify::TOOL;
use super::poller::Poller;
use super::reap::{Signals, adopt_orphans};
use super::serve::Guest;
use super::stop::MAIN;
use super::wire::Run;
use super::{bridge, notify};

/// The build, as `--version` prints it.
pub(super) const BUILD: &str = concat!("abx-init ", env!("CARGO_PKG_VERSION"));

/// Exit code for arguments that make no sense.
const USAGE: u8 = 2;

/// Output of the image's own program that is kept, in bytes.
const MAIN_KEEP: u32 = 1024 * 1024;

/// How much more gladly the kernel kills a command than abx-init for want of memory: as if it had half of all that the
/// sandbox may have. A crowd of small programs would leave abx-init as the largest.
const MORE_GLADLY: i32 = 500;

/// The kernel's limit of it.
const MAX_OOM_SCORE: i32 = 1000;

/// The bits of the capabilities to change groups and users.
const SETGID_SETUID: u64 = 1 << 6 | 1 << 7;

/// Runs what the arguments say.
pub(in crate::guest) fn run() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().map(PathBuf::from).unwrap_or_default();
    let name = if name.file_name().is_some_and(|name| name == TOOL) { TOOL } else { "abx-init" };
    let role = match name {
        TOOL => parse_abx(arguments),
        _ => parse(arguments, std::process::id() == 1),
    };
    let complain = |text: &str| complain(name, text);
    let done = match role {
        Ok(Role::Init(init)) => serve(init),
        Ok(Role::Bridge(name)) => bridge::run(&name).map(|()| ExitCode::SUCCESS),
        Ok(Role::Notify(notify)) => notify::run(&notify).map(|()| ExitCode::SUCCESS),
        Ok(Role::Version) => writeln!(io::stdout(), "{BUILD}").map(|()| ExitCode::SUCCESS),
        Err(text) => {
            complain(&text);
            return ExitCode::from(USAGE);
        }
    };
    done.unwrap_or_else(|error| {
        complain(&error.to_string());
        ExitCode::FAILURE
    })
}

/// Says something to whoever called, or in the engine's log of the sandbox.
fn complain(name: &str, text: &str) {
    // Without anywhere to say it there is nobody to hear it.
    let _ = writeln!(io::stderr(), "{name}: {text}");
}

fn serve(init: Init) -> io::Result<ExitCode> {
    // Before any thread is started: all of them leave the signals to this one.
    let signals = Signals::take()?;
    adopt_orphans();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let rights = rights();
    let poller = Poller::new()?;
    let dialer = Dialer::new(init.dial.clone(), init.listen.as_deref(), rights.uid, &poller);
    let mailbox = Mailbox::open(init.listen.as_deref(), &poller);
    let mut guest = Guest::new(poller, rights, dialer, mailbox, signals)?;
    if !init.main.is_empty()
        && let Err(text) = guest.start_main(&main_program(init))
    {
        complain("abx-init", &text);
    }
    guest.serve()
}

/// The image's own program, with the image's environment, which is abx-init's.
fn main_program(init: Init) -> Run {
    let env = std::env::vars_os().map(|(name, value)| {
        let mut pair = name.into_vec();
        pair.push(b'=');
        pair.extend(value.into_vec());
        pair
    });
    Run {
        id: MAIN.to_owned(),
        argv: init.main,
        env: env.collect(),
        cwd: init.cwd,
        user: init.user,
        detached: true,
        keep: MAIN_KEEP,
        ..Run::default()
    }
}

/// What commands get: anybody may raise it, and few may lower it, so abx-init keeps what the sandbox has.
fn oom_score() -> i32 {
    let path = OsStr::from_bytes(OOM_SCORE.to_bytes());
    let own = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    own.unwrap_or(0_i32).saturating_add(MORE_GLADLY).min(MAX_OOM_SCORE)
}

/// What can be done here. Raises the own limit of open files, which commands do not inherit.
fn rights() -> Rights {
    let files = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: files.maximum, maximum: files.maximum };
    // With the lower limit fewer commands can run.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    let uid = rustix::process::geteuid().as_raw();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let any_user = effective.map_or(uid == 0, |bits| bits & SETGID_SETUID == SETGID_SETUID);
    Rights { uid, any_user, files, oom_score: oom_score() }
}
