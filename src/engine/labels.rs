//! The labels by which sandboxes and snapshots are found again, and from which rows can be rebuilt.
//!
//! A container carries every session label, empty where there is no value, so that none of an image's shines
//! through, and none that tells of the host's directories, for a snapshot's image inherits them. [`snapshot`] empties
//! [`SESSION_HOME`]: a container that someone runs from a snapshot by hand is not the session's. Values of the
//! environment never stand in a label.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{CommitSpec, CreateSpec, Image, Observed};
use crate::model::id::{SessionId, SessionName, SnapshotId, Timestamp, sandbox_name};
use crate::model::session::{
    EngineKind, Limits, Network, Port, Profile, Runtime, Session, Snapshot, SnapshotState, Spec, Status,
};

/// Session id.
pub const SESSION_ID: &str = "dev.abx.session.id";
/// Session name when the container was made.
pub const SESSION_NAME: &str = "dev.abx.session.name";
/// The home that owns the session.
pub const SESSION_HOME: &str = "dev.abx.session.home";
/// Agent.
pub const SESSION_AGENT: &str = "dev.abx.session.agent";
/// Template.
pub const SESSION_TEMPLATE: &str = "dev.abx.session.template";
/// The image as asked for.
pub const SESSION_IMAGE: &str = "dev.abx.session.image";
/// Milliseconds since 1970-01-01 UTC.
pub const SESSION_CREATED_AT: &str = "dev.abx.session.created_at";
/// Milliseconds.
pub const SESSION_TIMEOUT_MS: &str = "dev.abx.session.timeout_ms";
/// Milliseconds.
pub const SESSION_IDLE_MS: &str = "dev.abx.session.idle_ms";
/// JSON object of strings.
pub const SESSION_METADATA: &str = "dev.abx.session.metadata";
/// Where the workspace is in the sandbox.
pub const SESSION_WORKSPACE_TARGET: &str = "dev.abx.session.workspace_target";
/// JSON array of the ports asked for.
pub const SESSION_PORTS: &str = "dev.abx.session.ports";
/// JSON object of the limits.
pub const SESSION_LIMITS: &str = "dev.abx.session.limits";
/// Profile.
pub const SESSION_PROFILE: &str = "dev.abx.session.profile";
/// Network.
pub const SESSION_NETWORK: &str = "dev.abx.session.network";
/// User of commands.
pub const SESSION_USER: &str = "dev.abx.session.user";

/// What runs commands: a word of [`Runtime`], empty for the engine.
pub const RUNTIME: &str = "dev.abx.runtime";
/// The image's own user, where abx-init runs as another.
pub const RUNTIME_USER: &str = "dev.abx.runtime.user";

/// `bridge` where abx-init cannot reach abxd by itself, and is called through the engine; else empty.
pub const RUNTIME_LINK: &str = "dev.abx.runtime.link";
/// The word for that.
pub const BRIDGE: &str = "bridge";

/// Snapshot id.
pub const SNAPSHOT_ID: &str = "dev.abx.snapshot.id";
/// Snapshot name.
pub const SNAPSHOT_NAME: &str = "dev.abx.snapshot.name";
/// The session's id.
pub const SNAPSHOT_SESSION: &str = "dev.abx.snapshot.session";
/// The session's name when it was taken.
pub const SNAPSHOT_SESSION_NAME: &str = "dev.abx.snapshot.session_name";
/// The home that owns the snapshot.
pub const SNAPSHOT_HOME: &str = "dev.abx.snapshot.home";
/// The user's words.
pub const SNAPSHOT_NOTE: &str = "dev.abx.snapshot.note";

/// Repository of snapshots' tags.
pub const SNAPSHOT_REPOSITORY: &str = "abx-snapshot";

/// The prefix of every label of abx.
pub const PREFIX: &str = "dev.abx.";

/// The tag of a snapshot's image.
pub fn snapshot_reference(snapshot: &SnapshotId) -> String {
    format!("{SNAPSHOT_REPOSITORY}:{snapshot}")
}

/// The labels of a session's container.
pub fn session(spec: &CreateSpec) -> BTreeMap<String, String> {
    let session = &spec.session;
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let workspace = session.spec.workspace.as_ref();
    let ports: Vec<Value> = session.spec.ports.iter().map(port_to_json).collect();
    let limits = &session.spec.limits;
    let runtime = if spec.guest.is_some() { Runtime::Init.as_str() } else { "" };
    let limits =
        json!({"cpu_millis": limits.cpu_millis, "memory_bytes": limits.memory_bytes, "pids": limits.pids});
    [
        (SESSION_ID, session.id.to_string()),
        (SESSION_NAME, session.name.to_string()),
        (SESSION_HOME, spec.home.clone()),
        (SESSION_AGENT, session.agent.clone()),
        (SESSION_TEMPLATE, session.template.clone()),
        (SESSION_IMAGE, session.image.clone().unwrap_or_default()),
        (SESSION_CREATED_AT, session.created_at.0.to_string()),
        (SESSION_TIMEOUT_MS, number(session.timeout_ms)),
        (SESSION_IDLE_MS, number(session.idle_ms)),
        (SESSION_METADATA, json!(session.metadata).to_string()),
        (SESSION_WORKSPACE_TARGET, workspace.map(|w| w.target.clone()).unwrap_or_default()),
        (SESSION_PORTS, Value::Array(ports).to_string()),
        (SESSION_LIMITS, limits.to_string()),
        (SESSION_PROFILE, session.spec.profile.as_str().to_owned()),
        (SESSION_NETWORK, session.spec.network.as_str().to_owned()),
        (SESSION_USER, session.spec.user.clone().unwrap_or_default()),
        (RUNTIME, runtime.to_owned()),
        (RUNTIME_USER, String::new()),
        (RUNTIME_LINK, String::new()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// The labels of a snapshot's image. Labels of the container that are not named here stay.
pub fn snapshot(spec: &CommitSpec) -> BTreeMap<String, String> {
    [
        (SNAPSHOT_ID, spec.snapshot.to_string()),
        (SNAPSHOT_NAME, spec.name.clone()),
        (SNAPSHOT_SESSION, spec.session.to_string()),
        (SNAPSHOT_SESSION_NAME, spec.session_name.clone()),
        (SNAPSHOT_HOME, spec.home.clone()),
        (SNAPSHOT_NOTE, spec.note.clone().unwrap_or_default()),
        (SESSION_ID, spec.session.to_string()),
        (SESSION_NAME, spec.session_name.clone()),
        (SESSION_HOME, String::new()),
        // A container that someone runs from it by hand has no abx-init.
        (RUNTIME, String::new()),
        (RUNTIME_USER, String::new()),
        (RUNTIME_LINK, String::new()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Rebuilds the row of a container's session; none if it carries no session's labels. The environment is not there
/// (it stands in the table alone), and what changed since the container was made (name, metadata, times) is as it was
/// then; a container that was renamed since gives its session the newer name.
pub fn rebuild(seen: &Observed) -> Option<Session> {
    let mut session = from_labels(&seen.labels)?;
    let (plain, cut) =
        (sandbox_name(&session.name, &session.id, false), sandbox_name(&session.name, &session.id, true));
    if seen.name != plain && seen.name != cut {
        let newer = seen.name.strip_prefix("session-").and_then(|name| SessionName::parse(name).ok());
        session.name = newer.unwrap_or(session.name);
    }
    let mut mounts = seen.mounts.clone();
    session.spec.workspace = seen
        .labels
        .get(SESSION_WORKSPACE_TARGET)
        .and_then(|target| mounts.iter().position(|m| m.target == *target))
        .map(|at| mounts.remove(at));
    session.spec.mounts = mounts;
    session.sandbox.clone_from(&seen.name);
    session.sandbox_id = Some(seen.id.clone());
    session.image_id = Some(seen.image_id.clone());
    session.runtime = seen.runtime();
    if !seen.ports.is_empty() {
        session.spec.ports.clone_from(&seen.ports);
    }
    session.status = match seen.state {
        super::RunState::Running => Status::Running,
        super::RunState::Paused => Status::Paused,
        super::RunState::Created | super::RunState::Exited => Status::Stopped,
    };
    Some(session)
}

/// Rebuilds the row of a session of which only a snapshot is left: saved, without container and mounts; none if the
/// image carries no session's labels.
pub fn rebuild_from_snapshot(image: &Image) -> Option<Session> {
    let mut session = from_labels(&image.labels)?;
    session.image_id = Some(image.id.clone());
    session.status = Status::Saved;
    Some(session)
}

/// Rebuilds a snapshot's row; none if the image is no snapshot. When it was taken stands in its UUIDv7.
pub fn rebuild_snapshot(image: &Image) -> Option<Snapshot> {
    let text = |key: &str| image.labels.get(key).filter(|v| !v.is_empty()).cloned();
    let id = text(SNAPSHOT_ID)?;
    let created_at = uuid_time(&id).unwrap_or_default();
    Some(Snapshot {
        id: SnapshotId::new(id),
        name: text(SNAPSHOT_NAME)?,
        session: text(SNAPSHOT_SESSION).map(SessionId::new),
        session_name: text(SNAPSHOT_SESSION_NAME).unwrap_or_default(),
        image_id: image.id.clone(),
        created_at,
        note: text(SNAPSHOT_NOTE),
        parent: None,
        size_bytes: image.size_bytes,
        excluded: Vec::new(),
        state: SnapshotState::Ready,
    })
}

/// The first 48 bits of a UUIDv7: milliseconds since 1970-01-01 UTC.
fn uuid_time(id: &str) -> Option<Timestamp> {
    let digits: String = id.chars().filter(|c| *c != '-').take(12).collect();
    i64::from_str_radix(&digits, 16).ok().map(Timestamp)
}

fn from_labels(labels: &BTreeMap<String, String>) -> Option<Session> {
    let text = |key: &str| labels.get(key).filter(|v| !v.is_empty()).cloned();
    let number = |key: &str| text(key).and_then(|v| v.parse::<u64>().ok());
    let json = |key: &str| text(key).and_then(|v| serde_json::from_str::<Value>(&v).ok());
    let list = |key: &str| json(key).and_then(|v| v.as_array().cloned()).unwrap_or_default();
    let id = SessionId::new(text(SESSION_ID)?);
    let name = SessionName::parse(&text(SESSION_NAME)?).ok()?;
    let created_at = Timestamp(text(SESSION_CREATED_AT).and_then(|v| v.parse().ok()).unwrap_or(0));
    let metadata = match json(SESSION_METADATA) {
        Some(Value::Object(map)) => strings(map),
        _ => BTreeMap::new(),
    };
    let limits = json(SESSION_LIMITS).unwrap_or(Value::Null);
    Some(Session {
        sandbox: sandbox_name(&name, &id, false),
        id,
        name,
        sandbox_id: None,
        engine: EngineKind::Docker,
        agent: text(SESSION_AGENT).unwrap_or_default(),
        template: text(SESSION_TEMPLATE).unwrap_or_default(),
        image: text(SESSION_IMAGE),
        image_id: None,
        runtime: Runtime::Engine,
        status: Status::Stopped,
        operation: None,
        reason: None,
        created_at,
        last_active: created_at,
        last_connected: None,
        expires_at: None,
        timeout_ms: number(SESSION_TIMEOUT_MS),
        idle_ms: number(SESSION_IDLE_MS),
        exec_count: 0,
        oom_events: 0,
        snapshot: None,
        snapshots: 0,
        spec: Spec {
            workspace: None,
            mounts: Vec::new(),
            ports: list(SESSION_PORTS).iter().filter_map(port_from_json).collect(),
            limits: Limits {
                cpu_millis: limits["cpu_millis"].as_u64(),
                memory_bytes: limits["memory_bytes"].as_u64(),
                pids: limits["pids"].as_u64().and_then(|n| u32::try_from(n).ok()),
            },
            network: text(SESSION_NETWORK).and_then(|w| Network::from_word(&w)).unwrap_or(Network::Bridge),
            profile: text(SESSION_PROFILE).and_then(|w| Profile::from_word(&w)).unwrap_or(Profile::Moderate),
            user: text(SESSION_USER),
            env: BTreeMap::new(),
        },
        metadata,
        external: None,
        revision: 0,
    })
}

fn strings(map: Map<String, Value>) -> BTreeMap<String, String> {
    map.into_iter()
        .filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text)),
            _ => None,
        })
        .collect()
}

fn port_to_json(port: &Port) -> Value {
    json!({"container": port.container, "host": if port.fixed { port.host } else { None }, "protocol": port.protocol})
}

fn port_from_json(value: &Value) -> Option<Port> {
    let number = |key: &str| value[key].as_u64().and_then(|n| u16::try_from(n).ok());
    Some(Port {
        container: number("container")?,
        host: number("host"),
        fixed: number("host").is_some(),
        protocol: value["protocol"].as_str().unwrap_or("tcp").to_owned(),
    })
}

/// Whether the labels ask for a certain host port for this one, rather than for a free one.
pub fn is_fixed(labels: &BTreeMap<String, String>, container: u16, protocol: &str) -> bool {
    let value = labels.get(SESSION_PORTS).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let ports = value.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    ports
        .iter()
        .filter_map(port_from_json)
        .any(|p| p.fixed && p.container == container && p.protocol == protocol)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::engine::RunState;
    use crate::model::session::{Mount, Secret};

    const ID: &str = "01920000-0000-7000-8000-0000deadbeef";

    /// What a driver would ask for, with every field that has a label.
    pub(in crate::engine) fn create_spec(name: &str) -> CreateSpec {
        let name = SessionName::parse(name).expect("good");
        let id = SessionId::new(ID);
        let mount = |source: &str, target: &str, read_only| Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only,
        };
        let port = |container, host: Option<u16>| Port {
            container,
            host,
            fixed: host.is_some(),
            protocol: "tcp".to_owned(),
        };
        let session = Session {
            sandbox: sandbox_name(&name, &id, false),
            id,
            name,
            sandbox_id: None,
            engine: EngineKind::Docker,
            agent: "claude".to_owned(),
            template: "base".to_owned(),
            image: Some("base".to_owned()),
            image_id: None,
            runtime: Runtime::Engine,
            status: Status::Stopped,
            operation: None,
            reason: None,
            created_at: Timestamp(1_700_000_000_000),
            last_active: Timestamp(1_700_000_000_000),
            last_connected: None,
            expires_at: None,
            timeout_ms: Some(600_000),
            idle_ms: None,
            exec_count: 0,
            oom_events: 0,
            snapshot: None,
            snapshots: 0,
            spec: Spec {
                workspace: Some(mount("/home/me/we \"ird", "/work", false)),
                mounts: vec![mount("volume", "/v", true)],
                ports: vec![port(80, None), port(443, Some(8443))],
                limits: Limits { cpu_millis: Some(1500), memory_bytes: None, pids: Some(64) },
                network: Network::Bridge,
                profile: Profile::Restrictive,
                user: Some("dev".to_owned()),
                env: [("TOKEN".to_owned(), Secret::new("hunter2"))].into(),
            },
            metadata: [("k".to_owned(), "v,=\n".to_owned())].into(),
            external: None,
            revision: 0,
        };
        CreateSpec {
            sandbox: session.sandbox.clone(),
            image: "base".to_owned(),
            rights: crate::model::limits::rights(session.spec.profile),
            home: "home".to_owned(),
            guest: None,
            session,
        }
    }

    pub(in crate::engine) fn commit_spec(sandbox_id: &str) -> CommitSpec {
        CommitSpec {
            sandbox_id: sandbox_id.to_owned(),
            snapshot: SnapshotId::new("01920000-0000-7000-8000-00000000cafe"),
            name: "a-20260201".to_owned(),
            session: SessionId::new(ID),
            session_name: "a".to_owned(),
            home: "home".to_owned(),
            note: None,
        }
    }

    fn observed(spec: &CreateSpec, name: &str) -> Observed {
        Observed {
            id: "c1".to_owned(),
            name: name.to_owned(),
            state: RunState::Exited,
            exit_code: Some(0),
            finished_at_ms: None,
            oom_killed: false,
            image_id: "sha256:1".to_owned(),
            labels: session(spec),
            ports: Vec::new(),
            mounts: spec.session.spec.workspace.iter().chain(&spec.session.spec.mounts).cloned().collect(),
            pid: None,
            env: Vec::new(),
            directory: None,
        }
    }

    #[test]
    fn a_row_comes_back_from_the_labels_but_for_its_environment() {
        let spec = create_spec("a");
        let got = rebuild(&observed(&spec, "session-a")).expect("a session");
        let mut want = spec.session;
        want.sandbox_id = Some("c1".to_owned());
        want.image_id = Some("sha256:1".to_owned());
        want.spec.env.clear();
        assert_eq!(got, want);
    }

    #[test]
    fn a_renamed_container_gives_its_session_the_newer_name() {
        let spec = create_spec("a");
        let got = rebuild(&observed(&spec, "session-b")).expect("a session");
        assert_eq!((got.name.as_str(), got.sandbox.as_str()), ("b", "session-b"));
        let odd = create_spec("dev env");
        let got = rebuild(&observed(&odd, &odd.sandbox)).expect("a session");
        assert_eq!(got.name.as_str(), "dev env");
    }

    #[test]
    fn no_value_of_the_environment_stands_in_a_label() {
        assert!(!format!("{:?}", session(&create_spec("a"))).contains("hunter2"));
    }

    #[test]
    fn a_snapshots_image_rebuilds_both_rows_and_is_no_sandbox_of_the_home() {
        let spec = create_spec("a");
        let mut all = session(&spec);
        all.extend(snapshot(&commit_spec("c1")));
        assert!(!format!("{all:?}").contains("/home/me"));
        assert_eq!(all[SESSION_HOME], "");
        let image = Image { id: "sha256:2".to_owned(), size_bytes: 5, layers: 2, labels: all };
        let row = rebuild_snapshot(&image).expect("a snapshot");
        assert_eq!((row.name.as_str(), row.session_name.as_str()), ("a-20260201", "a"));
        assert_eq!(row.created_at, Timestamp(0x0192_0000_0000));
        let saved = rebuild_from_snapshot(&image).expect("a session");
        assert_eq!((saved.id, saved.status), (spec.session.id, Status::Saved));
    }

    #[test]
    fn labels_that_someone_bent_rebuild_what_can_be_read() {
        let mut seen = observed(&create_spec("a"), "session-a");
        for key in [SESSION_METADATA, SESSION_PORTS, SESSION_LIMITS, SESSION_CREATED_AT] {
            seen.labels.insert(key.to_owned(), "{[torn".to_owned());
        }
        assert!(rebuild(&seen).is_some());
        seen.labels.insert(SESSION_NAME.to_owned(), "../evil".to_owned());
        assert!(rebuild(&seen).is_none());
    }

    #[test]
    fn a_fixed_port_is_told_from_a_free_one() {
        let all = session(&create_spec("a"));
        assert!(is_fixed(&all, 443, "tcp"));
        assert!(!is_fixed(&all, 80, "tcp") && !is_fixed(&all, 443, "udp"));
    }
}
