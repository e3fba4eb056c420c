//! Where the engine is: flag or file, `DOCKER_HOST`, the chosen Docker context, then the known sockets.
//!
//! An address that someone chose is the only candidate: another engine never takes its place silently.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::EngineError;

/// Largest file of Docker's configuration that is read, in bytes: a real one has a few KiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Most contexts that are looked at: people have a handful.
const MAX_CONTEXTS: usize = 1000;

/// The port of an engine whose address names none.
const DEFAULT_PORT: u16 = 2375;

/// What abx can speak, for the error that names what it cannot.
const SUPPORTED: &str = "abx speaks unix:///path, tcp://host:port and http://host:port; \
                         forward the engine's socket (ssh -L) to reach another machine";

/// What the search for an engine goes by. The engine itself reads no environment.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The address as set, and where (a flag or a file).
    pub address: Option<(String, String)>,
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub docker_context: Option<String>,
    /// Docker's configuration directory.
    pub docker_config: Option<PathBuf>,
    /// The user's runtime directory.
    pub runtime_dir: Option<PathBuf>,
    /// The default socket behind which the sessions of the table are. While there are any, no other default socket
    /// takes its place: on another engine they would all look lost.
    pub remembered: Option<String>,
}

/// Where an address came from that nobody chose.
pub const DEFAULT_SOURCE: &str = "default sockets";

/// Where an address came from that nobody chose but the sessions are behind.
const REMEMBERED_SOURCE: &str = "the sessions there; set engine.address to use another";

/// An address that abx can connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `host:port`, without encryption.
    Tcp(String),
}

/// An address to try, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub address: Address,
    /// Where it came from, for people.
    pub source: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

/// Every address to try, in order; just one if someone chose it.
///
/// # Errors
/// `Unsupported` for a chosen address that abx cannot speak, `Unavailable` for a chosen context that cannot be read.
pub fn candidates(settings: &Settings) -> Result<Vec<Candidate>, EngineError> {
    if let Some((address, source)) = &settings.address {
        return parse(address, source).map(|one| vec![one]);
    }
    if let Some(host) = settings.docker_host.as_deref().filter(|host| !host.is_empty()) {
        return parse(host, "environment DOCKER_HOST").map(|one| vec![one]);
    }
    if let Some((name, source)) = chosen_context(settings)? {
        return context(settings, &name, &source).map(|one| vec![one]);
    }
    if let Some(address) = &settings.remembered {
        return parse(address, REMEMBERED_SOURCE).map(|one| vec![one]);
    }
    let sockets = default_sockets(settings).into_iter();
    Ok(sockets
        .map(|path| Candidate { address: Address::Unix(path), source: DEFAULT_SOURCE.to_owned() })
        .collect())
}

/// One line of `Unavailable`.
pub fn tried(address: &dyn fmt::Display, source: &str, why: &dyn fmt::Display) -> String {
    format!("{address} (from {source}): {why}")
}

fn parse(text: &str, source: &str) -> Result<Candidate, EngineError> {
    let text = text.trim();
    let unsupported = |why: String| EngineError::Unsupported {
        address: text.to_owned(),
        source_of: source.to_owned(),
        why: format!("{why}; {SUPPORTED}"),
    };
    let address = match text.split_once("://") {
        None if text.starts_with('/') => Address::Unix(PathBuf::from(text)),
        Some(("unix", path)) if path.starts_with('/') => Address::Unix(PathBuf::from(path)),
        Some(("unix", _)) => return Err(unsupported("a socket's path must be absolute".to_owned())),
        Some(("tcp" | "http", rest)) => Address::Tcp(host_and_port(rest).map_err(unsupported)?),
        Some((scheme, _)) => return Err(unsupported(format!("the scheme {scheme:?} is not known"))),
        None => return Err(unsupported("it has no scheme".to_owned())),
    };
    Ok(Candidate { address, source: source.to_owned() })
}

fn host_and_port(rest: &str) -> Result<String, String> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() || rest.contains(['/', '?', '#', '@']) || rest.contains(char::is_whitespace) {
        return Err(format!("{rest:?} is not a host and a port"));
    }
    let has_port = match rest.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((_, "")) => false,
            Some((_, port)) if port.starts_with(':') => true,
            _ => return Err(format!("{rest:?} is not a host and a port")),
        },
        None => rest.contains(':'),
    };
    if !has_port {
        return Ok(format!("{rest}:{DEFAULT_PORT}"));
    }
    match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(rest.to_owned()),
        _ => Err(format!("{rest:?} is not a host and a port")),
    }
}

/// The context that someone chose, and where; none for `default`, which is the search itself.
fn chosen_context(settings: &Settings) -> Result<Option<(String, String)>, EngineError> {
    if let Some(name) = settings.docker_context.as_deref().filter(|name| !name.is_empty()) {
        let source = "environment DOCKER_CONTEXT".to_owned();
        return Ok((name != "default").then(|| (name.to_owned(), source)));
    }
    let Some(dir) = &settings.docker_config else { return Ok(None) };
    let path = dir.join("config.json");
    let source = format!("the current context of {}", path.display());
    match read_json(&path) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => {
            let name = value["currentContext"].as_str().filter(|name| !name.is_empty() && *name != "default");
            Ok(name.map(|name| (name.to_owned(), source)))
        }
        // Guessing here could start sandboxes on an engine that the user did not choose.
        Err(why) => Err(EngineError::Unavailable { tried: vec![tried(&"Docker context", &source, &why)] }),
    }
}

fn context(settings: &Settings, name: &str, source: &str) -> Result<Candidate, EngineError> {
    let fail = |why: &str| EngineError::Unavailable {
        tried: vec![tried(&format_args!("Docker context {name:?}"), source, &why)],
    };
    let Some(dir) = &settings.docker_config else {
        return Err(fail("there is no Docker configuration directory"));
    };
    let dir = dir.join("contexts").join("meta");
    let entries = std::fs::read_dir(&dir);
    let entries = entries.map_err(|error| fail(&format!("cannot read {}: {error}", dir.display())))?;
    for entry in entries.flatten().take(MAX_CONTEXTS) {
        let Ok(Some(meta)) = read_json(&entry.path().join("meta.json")) else { continue };
        if meta["Name"].as_str() != Some(name) {
            continue;
        }
        let host = meta["Endpoints"]["docker"]["Host"].as_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| fail("it names no Docker host"))?;
        return parse(host, &format!("context {name:?}, {source}"));
    }
    Err(fail(&format!("no such context in {}", dir.display())))
}

/// Reads a JSON file; none if it is not there.
fn read_json(path: &Path) -> Result<Option<Value>, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("larger than {MAX_FILE_BYTES} bytes"));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| format!("not JSON: {error}"))
}

fn default_sockets(settings: &Settings) -> Vec<PathBuf> {
    let runtime = settings.runtime_dir.as_deref();
    let config = settings.docker_config.as_deref();
    let home = config.filter(|dir| dir.ends_with(".docker")).and_then(Path::parent);
    let mut all = vec![PathBuf::from("/var/run/docker.sock")];
    all.extend(runtime.map(|dir| dir.join("docker.sock")));
    all.extend(config.map(|dir| dir.join("run/docker.sock")));
    all.extend(config.map(|dir| dir.join("desktop/docker.sock")));
    all.extend(runtime.map(|dir| dir.join("podman/podman.sock")));
    all.push(PathBuf::from("/run/podman/podman.sock"));
    let below_home = [
        ".colima/default/docker.sock",
        ".orbstack/run/docker.sock",
        ".rd/docker.sock",
        "Library/Containers/com.docker.docker/Data/docker.raw.sock",
        ".local/share/containers/podman/machine/podman.sock",
    ];
    all.extend(home.into_iter().flat_map(|home| below_home.iter().map(move |path| home.join(path))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(settings: &Settings) -> Candidate {
        let all = candidates(settings).expect("an address");
        assert_eq!(all.len(), 1, "a chosen address must be the only one");
        all.into_iter().next().expect("one")
    }

    fn docker_dir(current: &str, contexts: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("config.json"), current).expect("write");
        for (at, (name, host)) in contexts.iter().enumerate() {
            let meta = dir.path().join(format!("contexts/meta/{at:064x}"));
            std::fs::create_dir_all(&meta).expect("create");
            let text = format!(r#"{{"Name":{name:?},"Endpoints":{{"docker":{{"Host":{host:?}}}}}}}"#);
            std::fs::write(meta.join("meta.json"), text).expect("write");
        }
        dir
    }

    #[test]
    fn a_setting_wins_over_the_environment_and_that_over_the_context() {
        let dir =
            docker_dir(r#"{"currentContext":"far"}"#, &[("far", "tcp://far:1"), ("near", "unix:///near")]);
        let mut settings = Settings { docker_config: Some(dir.path().to_owned()), ..Settings::default() };
        assert_eq!(one(&settings).address, Address::Tcp("far:1".to_owned()));
        settings.remembered = Some("unix:///before.sock".to_owned());
        settings.docker_context = Some("near".to_owned());
        assert_eq!(one(&settings).address, Address::Unix("/near".into()));
        settings.docker_host = Some("tcp://host:2".to_owned());
        let got = one(&settings);
        assert_eq!(
            (got.address, got.source.as_str()),
            (Address::Tcp("host:2".to_owned()), "environment DOCKER_HOST")
        );
        settings.address = Some(("/set.sock".to_owned(), "flag --engine".to_owned()));
        let got = one(&settings);
        assert_eq!((got.address, got.source.as_str()), (Address::Unix("/set.sock".into()), "flag --engine"));
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, want) in [
            ("unix:///a/b", "unix:///a/b"),
            ("/a/b", "unix:///a/b"),
            ("tcp://h", "tcp://h:2375"),
            ("http://h:80/", "tcp://h:80"),
            ("tcp://[::1]", "tcp://[::1]:2375"),
            ("tcp://[::1]:9", "tcp://[::1]:9"),
        ] {
            assert_eq!(parse(text, "test").expect(text).address.to_string(), want);
        }
    }

    #[test]
    fn what_abx_cannot_speak_is_refused_by_its_scheme_and_never_replaced() {
        for text in [
            "ssh://me@host",
            "https://h:2376",
            "npipe:////./pipe/x",
            "fd://",
            "unix://rel",
            "host:1",
            "tcp://",
            "",
        ] {
            let settings =
                Settings { address: Some((text.to_owned(), "flag".to_owned())), ..Settings::default() };
            let error = candidates(&settings).expect_err(text);
            assert!(matches!(&error, EngineError::Unsupported { .. }), "{text}: {error}");
            assert!(error.to_string().contains("unix:///path"), "{error}");
        }
        let error = parse("ssh://me@host", "x").expect_err("ssh").to_string();
        assert!(error.contains("\"ssh\""), "{error}");
    }

    #[test]
    fn a_context_that_is_not_there_or_torn_is_an_error_and_not_the_default_engine() {
        for (current, contexts) in [
            (r#"{"currentContext":"gone"}"#, &[("other", "unix:///x")][..]),
            (r#"{"currentContext":"#, &[][..]),
            (r#"{"currentContext":"empty"}"#, &[("empty", "")][..]),
        ] {
            let dir = docker_dir(current, contexts);
            let settings = Settings { docker_config: Some(dir.path().to_owned()), ..Settings::default() };
            let error = candidates(&settings).expect_err(current);
            assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");
        }
    }

    #[test]
    fn the_default_context_is_the_search_through_the_known_sockets() {
        let home = tempfile::tempdir().expect("temporary directory");
        let settings = Settings {
            docker_context: Some("default".to_owned()),
            docker_config: Some(home.path().join(".docker")),
            runtime_dir: Some("/run/user/7".into()),
            ..Settings::default()
        };
        let all: Vec<String> =
            candidates(&settings).expect("addresses").into_iter().map(|c| c.address.to_string()).collect();
        assert_eq!(
            all[..2],
            ["unix:///var/run/docker.sock".to_owned(), "unix:///run/user/7/docker.sock".to_owned()]
        );
        assert!(all.contains(&format!("unix://{}/.colima/default/docker.sock", home.path().display())));
        assert!(all.contains(&"unix:///run/user/7/podman/podman.sock".to_owned()));
    }

    #[test]
    fn no_other_default_socket_takes_the_place_of_the_one_that_sessions_are_behind() {
        let settings = Settings { remembered: Some("unix:///before.sock".to_owned()), ..Settings::default() };
        let got = one(&settings);
        assert_eq!(got.address, Address::Unix("/before.sock".into()));
        assert!(got.source.contains("engine.address"), "{}", got.source);
    }
}
