//! `abx daemon install|uninstall`: the user's service manager starts `abxd` when its socket is used.
//!
//! And what of that `abx daemon status` tells.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;

use super::daemon::stop;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::client::{daemon_program, take_place};
use crate::paths::{self, Home};

/// What stands for the daemon's path in the files.
const PROGRAM: &str = "@ABXD@";

/// What stands for the socket's path where a manager knows no word for a user's home.
const SOCKET: &str = "@SOCKET@";

/// How long it is tried to find the daemon's place free.
const ROOM_LIMIT: Duration = Duration::from_secs(20);

/// Pause between two tries.
const LOOK: Duration = Duration::from_millis(20);

struct Manager {
    /// How a path is written in the files.
    quote: fn(&str) -> String,
    /// The directory of the user's units.
    dir: Option<PathBuf>,
    /// File names and texts.
    files: &'static [(&'static str, &'static str)],
    /// A command that works only where the manager runs for this user.
    probe: Vec<String>,
    /// Commands that put the files into force.
    enable: Vec<Vec<String>>,
    /// Commands that undo that.
    disable: Vec<Vec<String>>,
    /// Commands after the files are gone.
    forget: Vec<Vec<String>>,
}

#[cfg(not(target_os = "macos"))]
fn manager() -> Manager {
    let systemctl = |words: &[&str]| {
        ["systemctl", "--user"].iter().chain(words).map(|w| (*w).to_owned()).collect::<Vec<_>>()
    };
    Manager {
        quote: systemd_word,
        dir: paths::systemd_user_dir(),
        files: &[
            ("abxd.service", include_str!("../../../systemd/abxd.service")),
            ("abxd.socket", include_str!("../../../systemd/abxd.socket")),
        ],
        probe: systemctl(&["show-environment"]),
        enable: vec![systemctl(&["daemon-reload"]), systemctl(&["enable", "--now", "abxd.socket"])],
        disable: vec![systemctl(&["disable", "--now", "abxd.socket", "abxd.service"])],
        forget: vec![systemctl(&["daemon-reload"])],
    }
}

#[cfg(target_os = "macos")]
fn manager() -> Manager {
    let domain = format!("gui/{}", nix::unistd::getuid());
    let launchctl = |words: &[&str]| {
        std::iter::once("launchctl").chain(words.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    let dir = paths::launchd_dir();
    let plist = dir.clone().unwrap_or_default().join("dev.abx.abxd.plist").display().to_string();
    Manager {
        quote: xml_text,
        dir,
        files: &[("dev.abx.abxd.plist", include_str!("../../../launchd/dev.abx.abxd.plist"))],
        probe: launchctl(&["print", &domain]),
        enable: vec![launchctl(&["bootstrap", &domain, &plist])],
        disable: vec![launchctl(&["bootout", &format!("{domain}/dev.abx.abxd")])],
        forget: Vec::new(),
    }
}

impl Manager {
    /// The files with the paths in their places.
    ///
    /// # Errors
    /// When there is no home directory for them, or a path cannot be written in them.
    fn filled(&self, home: &Home) -> Result<Vec<(PathBuf, String)>, Failure> {
        let dir = directory(self)?;
        let program = daemon_program();
        let program = fs::canonicalize(&program).map_err(|error| {
            Failure::local(format!("failed to find {}", program.display()), &error)
                .with_hint("install abxd beside abx")
        })?;
        let (program, socket) = (self.word(&program)?, self.word(home.socket())?);
        let filled = |text: &str| text.replace(PROGRAM, &program).replace(SOCKET, &socket);
        Ok(self.files.iter().map(|(name, text)| (dir.join(name), filled(text))).collect())
    }

    fn word(&self, path: &Path) -> Result<String, Failure> {
        path.to_str().map(self.quote).ok_or_else(|| {
            let text = format!("{} is not UTF-8; the service manager's files cannot name it", path.display());
            Failure::refused(text)
        })
    }
}

/// What is so of a home as a service, in a line; none of a home that cannot be one.
pub(crate) fn state(home: &Home) -> Option<String> {
    refuse_other_homes(home).ok()?;
    let wanted = manager().filled(home).ok()?;
    let is_there = |(path, _): &(PathBuf, String)| path.exists();
    if !wanted.iter().any(is_there) {
        return Some("not installed; abx daemon install has the system start abxd".to_owned());
    }
    let differs = |(path, text): &&(PathBuf, String)| fs::read_to_string(path).ok().as_ref() != Some(text);
    Some(match wanted.iter().find(differs) {
        None => format!("installed, {}", wanted[0].0.display()),
        Some((path, _)) => {
            format!("{} is not what abx daemon install of this abx writes; run it again", path.display())
        }
    })
}

/// Prints what [`install`] would write and run.
fn rehearse(context: &Context, manager: &Manager) -> Result<u8, Failure> {
    for (path, text) in manager.filled(context.connector.home())? {
        context.output.data(&format!("# {}\n{text}", clean(&path.display().to_string())));
    }
    for words in &manager.enable {
        context.output.data(&words.join(" "));
    }
    Ok(0)
}

/// Writes the files and puts them into force, or prints them.
pub(crate) fn install(context: &Context, dry_run: bool) -> Result<u8, Failure> {
    refuse_other_homes(context.connector.home())?;
    let manager = manager();
    if dry_run {
        return rehearse(context, &manager);
    }
    // First: without a manager, files would help nobody, and the daemon that runs would be missed.
    succeeds(&manager.probe).map_err(|problem| {
        Failure::refused(format!("no service manager answers for this user: {problem}"))
            .with_hint("in a login session of this user, run: abx daemon install")
    })?;
    let fail = |path: &Path| {
        let message = format!("failed to write {}", path.display());
        move |error| Failure::local(message, &error)
    };
    let (files, dir) = (manager.filled(context.connector.home())?, directory(&manager)?);
    fs::create_dir_all(&dir).map_err(fail(&dir))?;
    for (path, text) in files {
        fs::write(&path, text).map_err(fail(&path))?;
        context.output.note(&format!("wrote {}", clean(&path.display().to_string())));
    }
    let place = make_room(context)?;
    let exit = perform(context, &manager.enable);
    drop(place);
    if exit == 0 {
        context.output.data("abxd is installed: it starts when its socket is used.");
    }
    Ok(exit)
}

/// Ends the daemon that runs, since one has the home, and keeps its place: one that a client starts meanwhile would take it
/// before the manager's.
fn make_room(context: &Context) -> Result<Flock<File>, Failure> {
    let home = context.connector.home();
    let deadline = Instant::now() + ROOM_LIMIT;
    loop {
        if stop(context)?.is_some() {
            context.output.note("stopped the abxd that ran; sandboxes keep running");
        }
        let taken = home.prepare().map_err(io::Error::other).and_then(|()| take_place(home));
        match taken.map_err(|error| Failure::local("failed to keep the daemon's place", &error))? {
            Some(place) => return Ok(place),
            None if Instant::now() < deadline => sleep(LOOK),
            None => {
                let text = "abxd is started again and again by others";
                return Err(Failure::refused(text).with_hint("end them, then: abx daemon install"));
            }
        }
    }
}

/// Undoes [`install`].
pub(crate) fn uninstall(context: &Context) -> Result<u8, Failure> {
    let manager = manager();
    let dir = directory(&manager)?;
    refuse_other_homes(context.connector.home())?;
    let mut files = Vec::new();
    for (name, text) in manager.files {
        let path = dir.join(name);
        match fs::read_to_string(&path) {
            Ok(there) if there.lines().next() == text.lines().next() => files.push(path),
            Ok(_) => {
                let text = format!("{} is not what abx wrote, and stays", path.display());
                return Err(Failure::refused(text).with_hint("remove it yourself if nothing needs it"));
            }
            Err(_) => {}
        }
    }
    if files.is_empty() {
        context.output.data("abxd is not installed.");
        return Ok(0);
    }
    let mut exit = perform(context, &manager.disable);
    for path in files {
        fs::remove_file(&path)
            .map_err(|error| Failure::local(format!("failed to remove {}", path.display()), &error))?;
        context.output.note(&format!("removed {}", clean(&path.display().to_string())));
    }
    if exit == 0 {
        exit = perform(context, &manager.forget);
    }
    if exit == 0 {
        context.output.data("abxd is uninstalled; abx starts it by itself from now on.");
    }
    Ok(exit)
}

fn directory(manager: &Manager) -> Result<PathBuf, Failure> {
    manager
        .dir
        .clone()
        .ok_or_else(|| Failure::refused("there is no home directory for the service manager's files"))
}

/// A path as a word of a unit file.
#[cfg_attr(target_os = "macos", expect(dead_code, reason = "for the other service manager"))]
fn systemd_word(path: &str) -> String {
    let path = path.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"");
    if path.contains(char::is_whitespace) { format!("\"{path}\"") } else { path }
}

/// A path as text of a property list.
#[cfg_attr(not(any(target_os = "macos", test)), expect(dead_code, reason = "for the other service manager"))]
fn xml_text(path: &str) -> String {
    path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The files name the usual places.
fn refuse_other_homes(home: &Home) -> Result<(), Failure> {
    let usual = paths::user_home().map(|home| home.join(".abx"));
    if usual.as_deref() == Some(home.root()) && home.socket() == home.root().join("daemon.sock") {
        return Ok(());
    }
    Err(Failure::usage("only the usual home, ~/.abx, can be installed as a service")
        .with_hint("leave out --home, --socket, ABX_HOME and ABX_SOCKET"))
}

/// Runs the commands; where one fails, says what is left to do by hand.
fn perform(context: &Context, commands: &[Vec<String>]) -> u8 {
    for (at, words) in commands.iter().enumerate() {
        let Err(problem) = succeeds(words) else { continue };
        let rest: Vec<String> = commands[at..].iter().map(|words| words.join(" ")).collect();
        let failure =
            Failure::refused(problem).with_hint(format!("in a login session, run: {}", rest.join(" && ")));
        context.output.failure(&failure);
        return failure.exit;
    }
    0
}

/// Runs a command.
///
/// # Errors
/// That it failed, and why.
fn succeeds(words: &[String]) -> Result<(), String> {
    let problem = match Command::new(&words[0]).args(&words[1..]).output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("{} failed: {problem}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_home_becomes_a_service() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let home = Home::find(Some(dir.path()), None).expect("a home");
        assert!(refuse_other_homes(&home).is_err());
    }

    #[test]
    fn the_service_files_leave_a_place_for_the_daemons_path() {
        let (_, service) = manager().files[0];
        assert!(service.lines().any(|line| line.contains(PROGRAM) && !line.starts_with('#')));
        assert_eq!(systemd_word("/opt/abx/abxd"), "/opt/abx/abxd");
        assert_eq!(systemd_word("/o p/100%/abxd"), "\"/o p/100%%/abxd\"");
        assert_eq!(xml_text("/a&b/abxd"), "/a&amp;b/abxd");
    }
}
