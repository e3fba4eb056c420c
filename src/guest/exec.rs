//! Starts programs: who, where, with what, on three pipes or a terminal.
//!
//! What has to happen as the new process, before its program replaces it, happens in [`become_it`]: the only unsafe
//! code of this package.

use std::borrow::Cow;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::SigSet;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Resource, Rlimit};

use super::homes;
use super::users::User;
use super::wire::{EXEC_MARK, Failed, Run, Size};
use super::{terminal, users};

/// How gladly the kernel kills a process for want of memory.
pub(super) const OOM_SCORE: &std::ffi::CStr = c"/proc/self/oom_score_adj";

/// Where programs are looked for when the environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What can be done as whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rights {
    /// The user that abx-init runs as.
    pub(super) uid: u32,
    /// Whether it may become another.
    pub(super) any_user: bool,
    /// How many files a command may open: what it was before abx-init raised it for itself.
    pub(super) files: Rlimit,
    /// How gladly the kernel kills a command for want of memory: more so than abx-init, without which there is nothing.
    pub(super) oom_score: i32,
}

/// A program that was started.
#[derive(Debug)]
pub(super) struct Started {
    /// Its process, which leads a session and a group of its own.
    pub(super) pid: u32,
    /// Its standard output and standard error; a terminal is the first.
    pub(super) output: [Option<OwnedFd>; 2],
    /// Its standard input, unless it has none.
    pub(super) input: Option<OwnedFd>,
}

/// Starts what `run` says. `tools` is a directory of programs that it finds where the sandbox has none of their name.
///
/// # Errors
/// Why it does not run, as abxd hears it.
pub(super) fn start(run: &Run, rights: &Rights, tools: Option<&Path>) -> Result<Started, Failed> {
    let user = user_of(run, rights)?;
    let program = run.argv.first().filter(|program| !program.is_empty());
    let program = program.ok_or_else(|| failed(Failed::NOT_FOUND, "no command was given".to_owned()))?;
    let mut command = Command::new(OsStr::from_bytes(program));
    command.args(run.argv[1..].iter().map(|arg| OsStr::from_bytes(arg)));
    set_environment(&mut command, run, &user, tools);
    let owner = run.user.as_ref().map(|_| Uid::from_raw(user.uid));
    let ends = match run.tty {
        Some(size) => on_a_terminal(&mut command, size, owner),
        None => on_pipes(&mut command, run.stdin, owner),
    };
    let (output, input) = ends.map_err(|e| describe(0, &e, run))?;
    become_it(&mut command, run, user, rights)?;
    // The process is reaped with all others; its handle is not needed.
    let spawned = command.spawn().map_err(|e| explain(&e, run))?;
    Ok(Started { pid: spawned.id(), output, input })
}

fn failed(why: u8, text: String) -> Failed {
    Failed::new(why, text)
}

fn user_of(run: &Run, rights: &Rights) -> Result<User, Failed> {
    let Some(spec) = &run.user else { return Ok(users::with_id(rights.uid)) };
    let user = users::look_up(spec).map_err(|text| failed(Failed::NO_USER, text))?;
    if !rights.any_user && user.uid != rights.uid {
        let text = format!("the sandbox may not change users, so it cannot run a command as {spec:?}");
        return Err(failed(Failed::NEEDS_ENGINE, text));
    }
    Ok(user)
}

/// The defaults come first, so that what was given wins.
fn set_environment(command: &mut Command, run: &Run, user: &User, tools: Option<&Path>) {
    command.env_clear();
    let has_home = run.env.iter().any(|pair| pair.starts_with(b"HOME="));
    let home = if has_home { Cow::Borrowed("") } else { homes::of(user) };
    let path = run.env.iter().rev().find_map(|pair| pair.strip_prefix(b"PATH=")).unwrap_or(PATH.as_bytes());
    command.env("HOME", &*home).env("USER", &user.name).env("LOGNAME", &user.name);
    if run.tty.is_some() {
        command.env("TERM", "xterm-256color");
    }
    for pair in &run.env {
        // A name may begin with `=`, but must not be empty.
        let Some(at) = pair.iter().skip(1).position(|&b| b == b'=') else { continue };
        command.env(OsStr::from_bytes(&pair[..=at]), OsStr::from_bytes(&pair[at + 2..]));
    }
    command.env("PATH", OsStr::from_bytes(&with_tools(path, tools)));
    command.env(EXEC_MARK, &run.id);
}

/// Last, so that a program of the sandbox comes first. An empty place would be the working directory.
fn with_tools<'a>(path: &'a [u8], tools: Option<&Path>) -> Cow<'a, [u8]> {
    let tools = tools.map(|tools| tools.as_os_str().as_bytes());
    match tools.filter(|tools| !path.split(|b| *b == b':').any(|place| place == *tools)) {
        Some(tools) if path.is_empty() => tools.to_vec().into(),
        Some(tools) => [path, b":", tools].concat().into(),
        None => path.into(),
    }
}

type Ends = ([Option<OwnedFd>; 2], Option<OwnedFd>);

/// The command's ends belong to its user, so that it can open them again by name, as in `> /dev/stderr`.
fn on_pipes(command: &mut Command, stdin: bool, owner: Option<Uid>) -> io::Result<Ends> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (output, stdout) = pipe()?;
    let (errors, stderr) = pipe()?;
    give(&stdout, owner);
    give(&stderr, owner);
    command.stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr)).stdin(Stdio::null());
    let mut input = None;
    if stdin {
        let (reader, writer) = pipe()?;
        give(&reader, owner);
        command.stdin(Stdio::from(reader));
        input = Some(unblocked(writer)?);
    }
    Ok(([Some(unblocked(output)?), Some(unblocked(errors)?)], input))
}

/// The size is set before the program starts. Only the program holds the terminal's own side: when it ends, so does
/// the terminal.
fn on_a_terminal(command: &mut Command, size: Size, owner: Option<Uid>) -> io::Result<Ends> {
    let (ours, its) = terminal::open(size)?;
    give(&its, owner);
    command
        .stdin(Stdio::from(its.try_clone()?))
        .stdout(Stdio::from(its.try_clone()?))
        .stderr(Stdio::from(its));
    let ours = unblocked(ours)?;
    let input = ours.try_clone()?;
    Ok(([Some(ours), None], Some(input)))
}

/// Not being able to is not worth a failure: the descriptor itself works for whoever holds it.
fn give(fd: &OwnedFd, owner: Option<Uid>) {
    if owner.is_some() {
        let _ = rustix::fs::fchown(fd, owner, None);
    }
}

fn unblocked(fd: OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(fd)
}

/// Which step of [`become_it`] failed. It travels beside the system's error number, above its bits.
mod step {
    pub(super) const SESSION: i32 = 1;
    pub(super) const USER: i32 = 2;
    pub(super) const DIRECTORY: i32 = 3;
    pub(super) const SHIFT: u32 = 16;
}

fn at(step: i32, error: rustix::io::Errno) -> io::Error {
    io::Error::from_raw_os_error(step << step::SHIFT | error.raw_os_error())
}

/// Lets the new process become what the command is to be, before its program replaces it.
fn become_it(command: &mut Command, run: &Run, user: User, rights: &Rights) -> Result<(), Failed> {
    let text = |bytes: &[u8]| {
        let no = |_| failed(Failed::NO_DIRECTORY, "the working directory has a zero byte in it".to_owned());
        CString::new(bytes).map_err(no)
    };
    let given = run.cwd.as_deref().map(text).transpose()?;
    let home = text(user.home.as_bytes())?;
    let terminal = run.tty.is_some();
    let changes = run.user.is_some() && rights.any_user;
    let groups: Vec<Gid> = user.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let files = rights.files;
    let score = rights.oom_score.to_string();
    let steps = move || {
        rustix::process::setsid().map_err(|e| at(step::SESSION, e))?;
        if terminal {
            let stdin = rustix::stdio::stdin();
            rustix::process::ioctl_tiocsctty(stdin).map_err(|e| at(step::SESSION, e))?;
        }
        // abx-init takes its signals in a way of its own, which the program must not inherit.
        SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
        // The program's own limit again. Lower than what is open is no error.
        let _ = rustix::process::setrlimit(Resource::Nofile, files);
        // As abx-init's user, whose file it is. Without it the kernel chooses by size alone.
        let _ = rustix::fs::open(OOM_SCORE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| rustix::io::write(file, score.as_bytes()));
        if changes {
            // The process has one thread, so these hold for the whole of it.
            rustix::thread::set_thread_groups(&groups).map_err(|e| at(step::USER, e))?;
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|e| at(step::USER, e))?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|e| at(step::USER, e))?;
        }
        // As the user, who may be kept out of a directory or be let in where the superuser is not.
        match &given {
            Some(directory) => rustix::process::chdir(directory).map_err(|e| at(step::DIRECTORY, e)),
            None => rustix::process::chdir(&home)
                .or_else(|_| rustix::process::chdir(c"/"))
                .map_err(|e| at(step::DIRECTORY, e)),
        }
    };
    #[expect(
        unsafe_code,
        reason = "a new process can become a session's leader and another user in no other way"
    )]
    // SAFETY: the closure runs in the child between fork and exec, where only what is async-signal-safe may run.
    // It makes bare system calls (all but one without libc, which allows sigprocmask there), reads memory that was allocated before the
    // fork, allocates nothing, takes no lock, and its errors are numbers. It closes the one descriptor that it opens.
    unsafe {
        command.pre_exec(steps);
    }
    Ok(())
}

/// Why the new process did not become the program.
fn explain(error: &io::Error, run: &Run) -> Failed {
    let Some(raw) = error.raw_os_error() else {
        // Only a zero byte is found before the system is asked.
        return failed(Failed::NOT_EXECUTABLE, "an argument or variable has a zero byte in it".to_owned());
    };
    let (step, number) = (raw >> step::SHIFT, raw & ((1 << step::SHIFT) - 1));
    describe(step, &io::Error::from_raw_os_error(number), run)
}

fn describe(step: i32, error: &io::Error, run: &Run) -> Failed {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let program = run.argv.first().map(|program| text(program)).unwrap_or_default();
    let reason = number.map_or_else(|| error.to_string(), reason);
    match (step, number) {
        (_, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC)) => {
            failed(Failed::LIMIT, format!("the sandbox has no room for another command: {reason}"))
        }
        (_, Some(Errno::TOOBIG)) => failed(
            Failed::LIMIT,
            format!("arguments and environment are together longer than the sandbox takes: {reason}"),
        ),
        (step::DIRECTORY, _) => {
            let directory = run.cwd.as_deref().map(text).unwrap_or_default();
            failed(
                Failed::NO_DIRECTORY,
                format!("cannot enter the working directory {directory:?}: {reason}"),
            )
        }
        (step::USER, _) => failed(Failed::NEEDS_ENGINE, format!("cannot change the user: {reason}")),
        (step::SESSION, _) => failed(Failed::LIMIT, format!("cannot begin a session: {reason}")),
        (_, Some(Errno::NOENT)) if program.contains('/') && std::path::Path::new(&program).exists() => {
            failed(Failed::NOT_FOUND, format!("{program:?} needs an interpreter that is not in the sandbox"))
        }
        (_, Some(Errno::NOENT | Errno::NOTDIR)) => {
            failed(Failed::NOT_FOUND, format!("there is no program {program:?} in the sandbox"))
        }
        _ => failed(Failed::NOT_EXECUTABLE, format!("{program:?} cannot be run: {reason}")),
    }
}

/// The system's words without the number, which mean something to users.
fn reason(error: rustix::io::Errno) -> String {
    let text = io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str]) -> Run {
        Run {
            id: "test-exec".to_owned(),
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            ..Run::default()
        }
    }

    fn rights() -> Rights {
        let files = rustix::process::getrlimit(Resource::Nofile);
        Rights { uid: rustix::process::getuid().as_raw(), any_user: false, files, oom_score: 500 }
    }

    fn why(run: &Run) -> u8 {
        start(run, &rights(), None).expect_err("it does not run").why
    }

    #[test]
    fn what_abx_brings_is_looked_for_last() {
        let place = |path: &str, tools: Option<&str>| {
            String::from_utf8(with_tools(path.as_bytes(), tools.map(Path::new)).into_owned()).unwrap()
        };
        assert_eq!(place("/bin:/usr/bin", Some("/dev/.abx")), "/bin:/usr/bin:/dev/.abx");
        assert_eq!(place("/dev/.abx:/bin", Some("/dev/.abx")), "/dev/.abx:/bin");
        assert_eq!((place("/bin", None), place("", Some("/t"))), ("/bin".to_owned(), "/t".to_owned()));
    }

    #[test]
    fn each_failure_has_its_kind() {
        assert_eq!(why(&run(&[])), Failed::NOT_FOUND);
        assert_eq!(why(&run(&["no-such-program"])), Failed::NOT_FOUND);
        assert_eq!(why(&run(&["/no/such/program"])), Failed::NOT_FOUND);
        assert_eq!(why(&run(&["/etc"])), Failed::NOT_EXECUTABLE);
        assert_eq!(why(&run(&["/etc/passwd"])), Failed::NOT_EXECUTABLE);
        assert_eq!(why(&run(&["true", "a\0b"])), Failed::NOT_EXECUTABLE);
        assert_eq!(why(&run(&["true", &"v".repeat(1 << 20)])), Failed::LIMIT);
        assert_eq!(why(&Run { cwd: Some(b"/no/where".to_vec()), ..run(&["true"]) }), Failed::NO_DIRECTORY);
        assert_eq!(why(&Run { cwd: Some(b"/etc/passwd".to_vec()), ..run(&["true"]) }), Failed::NO_DIRECTORY);
        assert_eq!(why(&Run { user: Some("no-one".to_owned()), ..run(&["true"]) }), Failed::NO_USER);
        assert_eq!(why(&Run { user: Some("54321".to_owned()), ..run(&["true"]) }), Failed::NEEDS_ENGINE);
    }

    #[test]
    fn the_line_for_the_user_names_what_is_missing() {
        let text = start(&run(&["no-such-program"]), &rights(), None).unwrap_err().text;
        assert_eq!(text, "there is no program \"no-such-program\" in the sandbox");
        let away = Run { cwd: Some(b"/no/where".to_vec()), ..run(&["true"]) };
        let text = start(&away, &rights(), None).unwrap_err().text;
        assert_eq!(text, "cannot enter the working directory \"/no/where\": no such file or directory");
    }
}
