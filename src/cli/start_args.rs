//! Values of `start` and `exec` that take more than a word: variables, mounts, ports. Errors never repeat a variable's
//! value.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::paths;
use crate::proto::types::{Mount, Port};

/// Largest file of variables that is read, in bytes; as much as a message may carry.
const MAX_ENV_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// What a value is wrong about, for people.
pub(crate) type Wrong = String;

/// Collects the variables of `--env-file` and then of `-e`, so that the latter win. A name without a value is taken
/// from this process's environment, and left out where it is not set there.
///
/// # Errors
/// What is wrong and where, without any value.
pub(crate) fn environment(files: &[PathBuf], pairs: &[String]) -> Result<BTreeMap<String, String>, Wrong> {
    environment_from(files, pairs, &paths::variable)
}

fn environment_from(
    files: &[PathBuf],
    pairs: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, Wrong> {
    let mut env = BTreeMap::new();
    for path in files {
        let text = read_env_file(path)?;
        let place = |number: usize| format!("{}, line {}", path.display(), number + 1);
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once('=').map_or((line, None), |(n, v)| (n, Some(v)));
            let name = if value.is_none() { name.trim_end() } else { name };
            if name.is_empty() {
                return Err(format!("{}: a variable without a name", place(number)));
            }
            if name.contains(char::is_whitespace) {
                return Err(format!("{}: a variable's name cannot contain white space", place(number)));
            }
            if line.contains('\0') {
                return Err(format!("{}: a variable cannot contain a null byte", place(number)));
            }
            if let Some(value) = value.map(str::to_owned).or_else(|| variable(name)) {
                env.insert(name.to_owned(), value);
            }
        }
    }
    for pair in pairs {
        let (name, value) = pair.split_once('=').map_or((pair.as_str(), None), |(n, v)| (n, Some(v)));
        if name.is_empty() {
            return Err("-e needs a name: K=V, or K to pass on this shell's value".to_owned());
        }
        if let Some(value) = value.map(str::to_owned).or_else(|| variable(name)) {
            env.insert(name.to_owned(), value);
        }
    }
    Ok(env)
}

fn read_env_file(path: &Path) -> Result<String, Wrong> {
    let shown = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_ENV_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("failed to read {shown}: {error}"))?;
    if bytes.len() as u64 > MAX_ENV_FILE_BYTES {
        return Err(format!("{shown} is larger than {MAX_ENV_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))
}

/// Parses `K=V`.
///
/// # Errors
/// When there is no `=` or no name.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), Wrong> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected K=V".to_owned()),
    }
}

/// Parses a number of CPUs.
///
/// # Errors
/// When it is not a positive number.
pub(crate) fn parse_cpus(text: &str) -> Result<f64, Wrong> {
    let cpus: f64 = text.parse().map_err(|_| "expected a number, such as 2 or 0.5".to_owned())?;
    if cpus.is_finite() && cpus > 0.0 { Ok(cpus) } else { Err("expected more than 0 CPUs".to_owned()) }
}

/// Parses `[HOST:]CONT[/udp]`. A loopback address in front is understood, any other refused.
///
/// # Errors
/// Which part is wrong.
pub(crate) fn parse_port(text: &str) -> Result<Port, Wrong> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    if !matches!(protocol.as_str(), "tcp" | "udp") {
        return Err("the protocol is tcp or udp".to_owned());
    }
    let ports = match ports.rsplitn(3, ':').nth(2) {
        Some(address @ ("127.0.0.1" | "localhost" | "[::1]")) => &ports[address.len() + 1..],
        Some(_) => return Err("ports are forwarded from the host's loopback only".to_owned()),
        None => ports,
    };
    let number =
        |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is not a port: expected 1 to 65535"));
    let (host, container) = match ports.split_once(':') {
        Some(("", container)) => (None, container),
        Some((host, container)) => (Some(number(host)?), container),
        None => (None, ports),
    };
    match number(container)? {
        0 => Err("a sandbox has no port 0".to_owned()),
        container => Ok(Port { container, host: host.filter(|p| *p != 0), protocol }),
    }
}

/// Parses `DIR[:TARGET][:ro]`. A directory that exists under the whole text wins. A relative one is taken from the
/// current directory; whether it exists is the daemon's to say.
///
/// # Errors
/// When there is no directory, the target is not absolute, or the mode is none.
pub(crate) fn parse_workspace(text: &str) -> Result<Mount, Wrong> {
    if text.is_empty() {
        return Err("-w needs a directory".to_owned());
    }
    if Path::new(text).exists() {
        return mount(text, "", false);
    }
    let (rest, read_only) = access(text);
    if Path::new(rest).exists() {
        return mount(rest, "", read_only);
    }
    if let Some((source, target)) = split_target(rest) {
        return mount(source, plain_target("-w", target)?, read_only);
    }
    let exists = |at: &usize| Path::new(&rest[..*at]).exists();
    match rest.match_indices(':').map(|(at, _)| at).filter(|at| *at > 0).find(exists) {
        Some(at) => Err(format!(
            "-w {text:?}: {:?} is neither an absolute path of the sandbox nor a mode, which is ro or rw",
            &rest[at + 1..]
        )),
        None => mount(rest, "", read_only),
    }
}

/// Parses `SRC:DST[:ro]`. A source without a slash that does not begin with a dot is a volume of the engine.
///
/// # Errors
/// When a part is missing, the target is not absolute, or the mode is none.
pub(crate) fn parse_volume(text: &str) -> Result<Mount, Wrong> {
    let (rest, read_only) = access(text);
    let (source, target) = split_target(rest)
        .ok_or_else(|| format!("-v {text:?}: expected SRC:DST[:ro] with an absolute DST"))?;
    let target = plain_target("-v", target)?;
    if source.contains('/') || source.starts_with('.') {
        return mount(source, target, read_only);
    }
    Ok(Mount { source: source.to_owned(), target: target.to_owned(), read_only })
}

fn access(text: &str) -> (&str, bool) {
    match text.rsplit_once(':') {
        Some((rest, "ro")) => (rest, true),
        Some((rest, "rw")) => (rest, false),
        _ => (text, false),
    }
}

/// A colon in a target is a mode that is not understood: as part of the path it would mount something else than was
/// asked for, and writable.
fn plain_target<'a>(option: &str, target: &'a str) -> Result<&'a str, Wrong> {
    match target.split_once(':') {
        Some((_, mode)) => Err(format!("{option}: the mode {mode:?} is not understood; a mode is ro or rw")),
        None => Ok(target),
    }
}

/// Splits at a colon before a slash: where the source exists, else at the last.
fn split_target(text: &str) -> Option<(&str, &str)> {
    let last = text.rfind(":/").filter(|at| *at > 0)?;
    let existing = text.match_indices(":/").map(|(at, _)| at).find(|at| Path::new(&text[..*at]).exists());
    let at = existing.unwrap_or(last);
    Some((&text[..at], &text[at + 1..]))
}

fn mount(source: &str, target: &str, read_only: bool) -> Result<Mount, Wrong> {
    let source = std::path::absolute(source).map_err(|error| format!("{source:?}: {error}"))?;
    let source = source.to_str().ok_or("the current directory's name is not UTF-8")?.to_owned();
    Ok(Mount { source, target: target.to_owned(), read_only })
}

#[cfg(test)]
mod tests;
