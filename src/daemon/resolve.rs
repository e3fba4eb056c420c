//! From what a user asked for to the row that is started: template, profile and defaults filled in.

use std::collections::{BTreeMap, BTreeSet};

use super::clock;
use super::failure::Failure;
use super::mounts::{self, Guarded};
use super::text::shown;
use crate::config::{BASE_IMAGE, Config, Template, parse_duration_ms, parse_size_bytes};
use crate::model::id::{SessionId, SessionName};
use crate::model::idle::IdleAction;
use crate::model::limits;
use crate::model::reconcile::OnBoot;
use crate::model::session::{Limits, Mount, Network, Operation, Port, Profile, Secret, Session, Spec};
use crate::proto::errors::Kind;
use crate::proto::sessions::StartParams;
use crate::proto::types;

/// Longest label, metadata or environment value, in bytes: what fits a single environment string on Linux
/// (`MAX_ARG_STRLEN`).
const MAX_VALUE_BYTES: usize = 128 * 1024;

/// Most entries of metadata, environment, mounts or ports in one session.
const MAX_ENTRIES: usize = 1_000;

/// What a port may be of.
const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

/// The agent where the user names none.
const DEFAULT_AGENT: &str = "claude";

/// Where a start happens.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Settings.
    pub config: &'a Config,
    /// What is never mounted.
    pub guarded: &'a Guarded<'a>,
}

/// Makes the row for a start. Nothing is created; mount sources are looked at.
///
/// # Errors
/// The first thing in `params` that cannot be used, by name.
pub fn session(params: &StartParams, place: Place<'_>) -> Result<Session, Failure> {
    let name = SessionName::parse(&params.name)?;
    let template_name = params.template.as_deref().unwrap_or("base");
    let template = &find_template(place.config, template_name)?;
    check_engine(params.engine.as_deref())?;
    let agent = params.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    check_label("agent", agent)?;
    let image = params.image.as_deref().or(template.image.as_deref()).unwrap_or(BASE_IMAGE);
    check_image(image)?;
    check_entries(params)?;

    let id = SessionId::new(uuid::Uuid::now_v7().to_string());
    Ok(Session {
        spec: spec(params, template, place)?,
        timeout_ms: chosen_duration("timeout", params.timeout_ms, template.timeout.as_deref())?,
        idle_ms: chosen_duration("idle", params.idle_ms, template.idle.as_deref())?,
        keep: params.keep.or(template.keep).filter(|n| *n > 0),
        idle_action: word(
            "idle_action",
            params.idle_action.as_ref().map(types::IdleAction::as_str),
            template.idle_action.as_deref(),
            IdleAction::from_word,
            IdleAction::ALL.iter().map(|action| action.as_str()),
        )?
        .unwrap_or(IdleAction::Stop),
        on_boot: word(
            "on_boot",
            params.on_boot.as_ref().map(types::OnBoot::as_str),
            template.on_boot.as_deref(),
            OnBoot::from_word,
            OnBoot::ALL.iter().map(|word| word.as_str()),
        )?,
        agent: agent.to_owned(),
        template: template_name.to_owned(),
        image: Some(image.to_owned()),
        operation: Some(Operation::Start),
        metadata: params.metadata.clone(),
        ..Session::new(id, name, clock::now())
    })
}

fn spec(params: &StartParams, template: &Template, place: Place<'_>) -> Result<Spec, Failure> {
    let resolve = |field: &str, mount: &types::Mount| mounts::resolve(field, mount, place.guarded);
    let workspace = params.workspace.as_ref().map(|mount| resolve("workspace", mount)).transpose()?;
    let others = params.mounts.iter().enumerate().map(|(at, mount)| resolve(&format!("mounts[{at}]"), mount));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    check_targets(workspace.as_ref(), &others)?;
    let profile = word(
        "profile",
        params.profile.as_ref().map(types::Profile::as_str),
        template.profile.as_deref(),
        Profile::from_word,
        Profile::ALL.iter().map(|profile| profile.as_str()),
    )?
    .unwrap_or(Profile::Moderate);
    let network = word(
        "network",
        params.network.as_ref().map(types::Network::as_str),
        template.network.as_deref(),
        Network::from_word,
        Network::ALL.iter().map(|network| network.as_str()),
    )?
    .unwrap_or(limits::rights(profile).network);
    let mut env: BTreeMap<String, Secret> =
        template.env.iter().map(|(k, v)| (k.clone(), Secret::new(v))).collect();
    env.extend(params.env.iter().map(|(k, v)| (k.clone(), Secret::new(v))));
    check_env(env.iter().map(|(k, v)| (k.as_str(), v.reveal())))?;
    Ok(Spec {
        workspace,
        mounts: others,
        ports: ports(&params.ports, network)?,
        limits: effective_limits(&params.limits, template, profile)?,
        network,
        profile,
        user: template.user.clone(),
        env,
    })
}

fn find_template(config: &Config, name: &str) -> Result<Template, Failure> {
    config.template(name).ok_or_else(|| {
        Failure::word("template", config.templates.keys().map(String::as_str))
            .hint("add [templates.NAME] to config.toml, then: abx daemon restart")
    })
}

fn check_engine(engine: Option<&str>) -> Result<(), Failure> {
    match engine {
        None | Some("docker") => Ok(()),
        Some(_) => Err(Failure::word("engine", ["docker"].into_iter())),
    }
}

fn check_label(what: &str, value: &str) -> Result<(), Failure> {
    if value.is_empty() || value.len() > 128 || value.chars().any(char::is_control) {
        return Err(Failure::field(what, "1 to 128 bytes of printable text"));
    }
    Ok(())
}

/// An engine's reference has no white space; whatever else is wrong with it, the engine says better.
fn check_image(image: &str) -> Result<(), Failure> {
    if image.is_empty() || image.len() > 1024 || image.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Failure::field("image", "the name of an image, of 1 to 1024 bytes without white space"));
    }
    Ok(())
}

fn check_entries(params: &StartParams) -> Result<(), Failure> {
    let counts = [params.env.len(), params.metadata.len(), params.mounts.len(), params.ports.len()];
    if counts.iter().any(|n| *n > MAX_ENTRIES) {
        return Err(Failure::new(
            Kind::Limit,
            format!("at most {MAX_ENTRIES} variables, labels, mounts or ports"),
        ));
    }
    check_metadata(params.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

/// Checks labels of the user.
///
/// # Errors
/// When a key is empty or a side is too long.
pub fn check_metadata<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), Failure> {
    for (key, value) in entries {
        if key.is_empty()
            || key.len() > 1024
            || value.len() > MAX_VALUE_BYTES
            || key.contains('\0')
            || value.contains('\0')
        {
            let expected =
                format!("keys of 1 to 1024 bytes and values of at most {MAX_VALUE_BYTES}, without NUL");
            return Err(Failure::field("metadata", expected));
        }
    }
    Ok(())
}

/// Checks variables. Their values never appear in the message.
///
/// # Errors
/// When a name cannot be one, or a value is too long for the kernel.
pub fn check_env<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), Failure> {
    for (key, value) in entries {
        if key.is_empty() || key.contains(['=', '\0']) {
            return Err(Failure::field("env", "names of variables: not empty, without '=' and NUL"));
        }
        if value.contains('\0') || key.len() + value.len() >= MAX_VALUE_BYTES {
            let expected = format!("fewer than {MAX_VALUE_BYTES} bytes, name included, without NUL");
            return Err(Failure::field(&format!("env.{}", shown(key)), expected));
        }
    }
    Ok(())
}

fn check_targets(workspace: Option<&Mount>, others: &[Mount]) -> Result<(), Failure> {
    let target = |mount: &'_ Mount| mount.target.trim_end_matches('/').to_owned();
    let mut seen: BTreeSet<String> = workspace.map(target).into_iter().collect();
    match others.iter().position(|mount| !seen.insert(target(mount))) {
        Some(at) => Err(Failure::field(&format!("mounts[{at}].target"), "one that no other mount has")),
        None => Ok(()),
    }
}

fn word<'a, T>(
    field: &str,
    asked: Option<&str>,
    template: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
    words: impl Iterator<Item = &'a str>,
) -> Result<Option<T>, Failure> {
    let Some(text) = asked.or(template) else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| Failure::word(field, words))
}

fn ports(asked: &[types::Port], network: Network) -> Result<Vec<Port>, Failure> {
    if network == Network::None && !asked.is_empty() {
        return Err(
            Failure::params("ports cannot be forwarded without a network").hint("add --network bridge")
        );
    }
    let mut ports: Vec<Port> = Vec::new();
    for (at, port) in asked.iter().enumerate() {
        let field = |name: &str| format!("ports[{at}].{name}");
        if port.container == 0 {
            return Err(Failure::field(&field("container"), "a port from 1 to 65535"));
        }
        if !PROTOCOLS.contains(&port.protocol.as_str()) {
            return Err(Failure::word(&field("protocol"), PROTOCOLS.into_iter()));
        }
        if ports.iter().any(|p| p.container == port.container && p.protocol == port.protocol) {
            return Err(Failure::field(&field("container"), "one that is not forwarded already"));
        }
        let host = port.host.filter(|h| *h != 0);
        ports.push(Port {
            container: port.container,
            host,
            fixed: host.is_some(),
            protocol: port.protocol.clone(),
        });
    }
    Ok(ports)
}

fn effective_limits(asked: &types::Limits, template: &Template, profile: Profile) -> Result<Limits, Failure> {
    let user = Limits { cpu_millis: millis(asked.cpus)?, memory_bytes: asked.memory_bytes, pids: asked.pids };
    let memory = template.memory.as_deref().map(parse_size_bytes).transpose().map_err(Failure::params)?;
    let template = Limits { cpu_millis: millis(template.cpus)?, memory_bytes: memory, pids: template.pids };
    let limits = limits::effective(&user, &template, profile);
    if limits.pids == Some(0) {
        return Err(Failure::field("limits.pids", "at least one process, or none for no limit of your own"));
    }
    // The engine's own minimum.
    if limits.memory_bytes.is_some_and(|m| m < 6 << 20) {
        return Err(Failure::field("limits.memory_bytes", "at least 6m, which is 6291456"));
    }
    Ok(limits)
}

/// CPUs in thousandths.
///
/// # Errors
/// When no sandbox can have so many.
pub fn millis(cpus: Option<f64>) -> Result<Option<u64>, Failure> {
    let Some(cpus) = cpus else { return Ok(None) };
    if !(0.01..=1024.0).contains(&cpus) {
        return Err(Failure::field("limits.cpus", "a number of CPUs from 0.01 to 1024"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie in 0.01..=1024"
    )]
    Ok(Some((cpus * 1000.0).round() as u64))
}

fn chosen_duration(what: &str, asked: Option<u64>, template: Option<&str>) -> Result<Option<u64>, Failure> {
    let template =
        template.map(parse_duration_ms).transpose().map_err(|e| Failure::params(format!("{what}: {e}")))?;
    Ok(asked.or(template).filter(|ms| *ms > 0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Flags;

    fn resolve(params: &StartParams) -> Result<Session, Failure> {
        let config =
            Config::load(Path::new("/nonexistent/config.toml"), &Flags::default()).expect("defaults");
        let none = Path::new("/nonexistent");
        let guarded = Guarded { home: none, socket: none, engine_socket: None };
        session(params, Place { config: &config, guarded: &guarded })
    }

    fn named(name: &str) -> StartParams {
        StartParams { name: name.to_owned(), ..StartParams::default() }
    }

    #[test]
    fn a_name_alone_gives_the_documented_defaults() {
        let session = resolve(&named("feature-x")).expect("starts");
        assert_eq!((session.agent.as_str(), session.template.as_str()), ("claude", "base"));
        assert_eq!(session.image.as_deref(), Some(BASE_IMAGE));
        assert_eq!(session.sandbox, "session-feature-x");
        assert_eq!(session.spec.profile, Profile::Moderate);
        assert_eq!(session.spec.limits.pids, Some(4096));
        assert_eq!((session.timeout_ms, session.idle_ms), (None, None));
    }

    #[test]
    fn what_a_template_leaves_out_comes_from_base_and_then_from_what_is_built_in() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("config.toml");
        let text = "[templates.base]\nuser = \"1000\"\nidle = \"2h\"\n[templates.py]\nmemory = \"4g\"\nidle = \"1h\"\n";
        std::fs::write(&file, text).expect("write");
        let config = Config::load(&file, &Flags::default()).expect("loads");
        let none = Path::new("/nonexistent");
        let guarded = Guarded { home: none, socket: none, engine_socket: None };
        let place = Place { config: &config, guarded: &guarded };
        let params = StartParams { template: Some("py".into()), ..named("a") };
        let started = session(&params, place).expect("starts");
        assert_eq!(started.image.as_deref(), Some(BASE_IMAGE));
        assert_eq!(started.spec.user.as_deref(), Some("1000"));
        assert_eq!((started.idle_ms, started.spec.limits.memory_bytes), (Some(3_600_000), Some(4 << 30)));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let port = |container| types::Port { container, host: None, protocol: "tcp".to_owned() };
        let cases: Vec<(StartParams, Kind, &str)> = vec![
            (named("a/b"), Kind::InvalidName, "'/'"),
            (StartParams { template: Some("x".into()), ..named("a") }, Kind::InvalidParams, "template"),
            (StartParams { engine: Some("native".into()), ..named("a") }, Kind::InvalidParams, "engine"),
            (
                StartParams {
                    limits: types::Limits { pids: Some(0), ..types::Limits::default() },
                    ..named("a")
                },
                Kind::InvalidParams,
                "process",
            ),
            (StartParams { image: Some("a b".into()), ..named("a") }, Kind::InvalidParams, "image"),
            (StartParams { ports: vec![port(0)], ..named("a") }, Kind::InvalidParams, "port"),
            (StartParams { ports: vec![port(80), port(80)], ..named("a") }, Kind::InvalidParams, "ports[1]"),
            (
                StartParams { profile: Some(types::Profile::Other("x".into())), ..named("a") },
                Kind::InvalidParams,
                "profile",
            ),
            (
                StartParams { env: [("A=B".to_owned(), "secret".to_owned())].into(), ..named("a") },
                Kind::InvalidParams,
                "variable",
            ),
        ];
        for (params, kind, word) in cases {
            let failure = resolve(&params).expect_err(word);
            assert_eq!(failure.kind, kind, "{word}");
            assert!(failure.message.contains(word), "{}", failure.message);
            assert!(!failure.message.contains("secret"));
        }
    }

    #[test]
    fn a_field_is_named_with_what_it_should_be_and_without_its_value() {
        let start = |text: &str| -> StartParams { serde_json::from_str(text).expect("params") };
        for (text, want) in [
            (r#""profile":"secret""#, "profile: expected one of permissive, moderate, restrictive"),
            (r#""network":"secret""#, "network: expected one of bridge, none"),
            (r#""template":"secret""#, "template: expected one of base"),
            (r#""engine":"secret""#, "engine: expected one of docker"),
            (r#""image":"secret 1""#, "image: expected the name of an image"),
            (r#""env":{"secret=1":""}"#, "env: expected names of variables"),
            (r#""limits":{"cpus":7777}"#, "limits.cpus: expected a number of CPUs from 0.01 to 1024"),
            (
                r#""workspace":{"source":"/","target":"secret"}"#,
                "workspace.target: expected an absolute path",
            ),
            (
                r#""mounts":[{"source":"/secret\u0000","target":"/"}]"#,
                "mounts[0].target: expected an absolute path",
            ),
            (
                r#""mounts":[{"source":"secret 1","target":"/a"}]"#,
                "mounts[0].source: expected an absolute path",
            ),
            (
                r#""mounts":[{"source":"aa","target":"/secret"},{"source":"bb","target":"/secret/"}]"#,
                "mounts[1].target: expected one that no other mount has",
            ),
            (
                r#""ports":[{"container":80,"protocol":"secret"}]"#,
                "ports[0].protocol: expected one of tcp, udp",
            ),
        ] {
            let failure = resolve(&start(&format!(r#"{{"name":"a",{text}}}"#))).expect_err(text);
            assert!(failure.message.starts_with(want), "{text}: {}", failure.message);
            let said = format!("{failure:?}");
            assert!(!said.contains("secret") && !said.contains("7777"), "{text}: {said}");
        }
    }

    #[test]
    fn a_restrictive_sandbox_has_no_network_unless_asked_for() {
        let params = StartParams { profile: Some(types::Profile::Restrictive), ..named("a") };
        assert_eq!(resolve(&params).expect("starts").spec.network, Network::None);
        let params = StartParams { network: Some(types::Network::Bridge), ..params };
        assert_eq!(resolve(&params).expect("starts").spec.network, Network::Bridge);
    }
}
