//! The labels by which sandboxes and snapshots are found again, and from which rows can be rebuilt.
//!
//! A container carries every session label, empty where there is no value, so that none of an image's shines
//! through, and none that tells of the host's directories, for a snapshot's image inherits them. [`snapshot`] empties
//! [`SESSION_HOME`]: a container that someone runs from a snapshot by hand is not the session's. Values of the
//! environment never stand in a label.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{CommitSpec, CreateSpec, Image, Observed};
use crate::model::event::By;
use crate::model::id::{SANDBOX_PREFIX, SessionId, SessionName, SnapshotId, Timestamp, sandbox_name};
use crate::model::idle::IdleAction;
use crate::model::reconcile::OnBoot;
use crate::model::session::{
    Excluded, Limits, Network, Port, Profile, Runtime, Session, Snapshot, SnapshotState, Spec, Status,
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
/// Snapshots that stay when it is saved.
pub const SESSION_KEEP: &str = "dev.abx.session.keep";
/// What becomes of it after its engine went.
pub const SESSION_ON_BOOT: &str = "dev.abx.session.on_boot";
/// What is done when it has run out.
pub const SESSION_IDLE_ACTION: &str = "dev.abx.session.idle_action";
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

/// Stands between a sandbox's name and eight characters of a container's id, in the name of a container whose place
/// another one is taking.
pub const REPLACED: &str = "-replaced-";

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

/// Who asked for it.
pub const SNAPSHOT_CREATOR: &str = "dev.abx.snapshot.creator";
/// That client's process.
pub const SNAPSHOT_CREATOR_PID: &str = "dev.abx.snapshot.creator_pid";
/// The snapshot that the files came from.
pub const SNAPSHOT_PARENT: &str = "dev.abx.snapshot.parent";
/// Size of the image below its own layer, in bytes.
pub const SNAPSHOT_BASE_BYTES: &str = "dev.abx.snapshot.base_bytes";

/// When the container ended whose files it has, by the engine's clock and in milliseconds, where its session was saved to it:
/// as long as that is so, the container has not run since.
pub const SNAPSHOT_ENDED_AT: &str = "dev.abx.snapshot.ended_at";

/// JSON array of what it does not hold.
pub const SNAPSHOT_EXCLUDED: &str = "dev.abx.snapshot.excluded";

/// How many of its lowest layers are those of the image that the first sandbox was made from.
pub const SNAPSHOT_BASE_LAYERS: &str = "dev.abx.snapshot.base_layers";

/// Repository of images that lost their snapshot while a container still runs on them, or have none yet. The engine cannot
/// untag the image of a container without deleting it, and then nothing could be saved from that container any more.
pub const PARKED_REPOSITORY: &str = "abx-parked";

/// Repository of snapshots' tags.
pub const SNAPSHOT_REPOSITORY: &str = "abx-snapshot";

/// The prefix of every label of abx.
pub const PREFIX: &str = "dev.abx.";

/// The prefix of those that tell of a session.
const SESSION_PREFIX: &str = "dev.abx.session.";

/// The tag of a snapshot's image.
pub fn snapshot_reference(snapshot: &SnapshotId) -> String {
    format!("{SNAPSHOT_REPOSITORY}:{snapshot}")
}

/// The name under which an engine takes in the image that is to be a snapshot's. It is removed as any that waits where nobody
/// gives it another.
pub fn flat_reference(snapshot: &SnapshotId) -> String {
    format!("{PARKED_REPOSITORY}:{snapshot}-flat")
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
        (SESSION_KEEP, number(session.keep.map(u64::from))),
        (SESSION_ON_BOOT, session.on_boot.map(|word| word.as_str().to_owned()).unwrap_or_default()),
        (SESSION_IDLE_ACTION, session.idle_action.as_str().to_owned()),
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

/// Those of them that tell of the session alone, and not of what runs in the container.
pub fn of_session(spec: &CreateSpec) -> BTreeMap<String, String> {
    session(spec).into_iter().filter(|(key, _)| key.starts_with(SESSION_PREFIX)).collect()
}

/// The labels of a snapshot's image, which stands on this one, and is of a container that ended then. Labels of the
/// container that are not named here stay.
pub fn snapshot(
    spec: &CommitSpec,
    base: Option<&Image>,
    ended_at_ms: Option<i64>,
) -> BTreeMap<String, String> {
    let creator = spec.creator.as_ref();
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    [
        (SNAPSHOT_ID, spec.snapshot.to_string()),
        (SNAPSHOT_NAME, spec.name.clone()),
        (SNAPSHOT_SESSION, spec.session.to_string()),
        (SNAPSHOT_SESSION_NAME, spec.session_name.clone()),
        (SNAPSHOT_HOME, spec.home.clone()),
        (SNAPSHOT_NOTE, spec.note.clone().unwrap_or_default()),
        (SNAPSHOT_CREATOR, creator.map(|by| by.client.clone()).unwrap_or_default()),
        (SNAPSHOT_CREATOR_PID, number(creator.and_then(|by| by.pid).map(u64::from))),
        (SNAPSHOT_PARENT, spec.parent.clone().unwrap_or_default()),
        (SNAPSHOT_EXCLUDED, Value::Array(spec.excluded.iter().map(excluded_to_json).collect()).to_string()),
        (SNAPSHOT_ENDED_AT, ended_at_ms.filter(|_| spec.saves).map(|ms| ms.to_string()).unwrap_or_default()),
        (SNAPSHOT_BASE_BYTES, number(base.map(|image| image.size_bytes))),
        (SNAPSHOT_BASE_LAYERS, number(base.map(|image| base_layers(image) as u64))),
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
    let is_own = |name: &str| name == plain || name == cut;
    let replaced = seen.name.rsplit_once(REPLACED).map(|(own, _)| own).filter(|own| is_own(own));
    let own = replaced.unwrap_or(&seen.name);
    if !is_own(own) {
        let newer = own.strip_prefix(SANDBOX_PREFIX).and_then(|name| named_by(name, own, &session.id));
        session.name = newer.unwrap_or(session.name);
    }
    let mut mounts = seen.mounts.clone();
    session.spec.workspace = seen
        .labels
        .get(SESSION_WORKSPACE_TARGET)
        .and_then(|target| mounts.iter().position(|m| m.target == *target))
        .map(|at| mounts.remove(at));
    session.spec.mounts = mounts;
    own.clone_into(&mut session.sandbox);
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

/// The name of the session whose container has this one, which may end in characters of its id.
fn named_by(name: &str, sandbox: &str, id: &SessionId) -> Option<SessionName> {
    let without_id = name.rsplit_once('-').and_then(|(name, _)| SessionName::parse(name).ok());
    without_id
        .filter(|name| sandbox_name(name, id, true) == sandbox)
        .or_else(|| SessionName::parse(name).ok())
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
        creator: text(SNAPSHOT_CREATOR)
            .map(|client| By { client, pid: text(SNAPSHOT_CREATOR_PID).and_then(|pid| pid.parse().ok()) }),
        note: text(SNAPSHOT_NOTE),
        parent: text(SNAPSHOT_PARENT),
        size_bytes: image.size_bytes,
        own_bytes: own_bytes(image),
        excluded: excluded(image),
        state: SnapshotState::Ready,
    })
}

/// What a snapshot does not hold, as far as its image's labels tell.
pub fn excluded(image: &Image) -> Vec<Excluded> {
    let text = image.labels.get(SNAPSHOT_EXCLUDED);
    let list = text.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok()).unwrap_or_default();
    list.iter().filter_map(excluded_from_json).collect()
}

fn excluded_to_json(excluded: &Excluded) -> Value {
    json!({"kind": excluded.kind, "target": excluded.target, "mark": excluded.mark})
}

fn excluded_from_json(value: &Value) -> Option<Excluded> {
    let mark = value["mark"].as_str().map(str::to_owned);
    Some(Excluded { mark, ..Excluded::new(value["kind"].as_str()?, value["target"].as_str()?) })
}

/// What of a snapshot's image no other image below it has; none where its labels do not tell.
pub fn own_bytes(image: &Image) -> Option<u64> {
    let base: u64 = image.labels.get(SNAPSHOT_BASE_BYTES)?.parse().ok()?;
    Some(image.size_bytes.saturating_sub(base))
}

/// The snapshot that a container was made from, whatever image that has by now; none for one that was made from an image
/// of no snapshot's.
pub fn made_from(container: &Observed) -> Option<SnapshotId> {
    container.labels.get(SNAPSHOT_ID).map(SnapshotId::new)
}

/// When the container ended that was saved to a snapshot; none where none was.
pub fn ended_at(image: &Image) -> Option<i64> {
    image.labels.get(SNAPSHOT_ENDED_AT)?.parse().ok()
}

/// How many of an image's lowest layers are no sandbox's: those of the image that the first one was made from. All of one
/// that is no snapshot, or does not tell.
pub fn base_layers(image: &Image) -> usize {
    let all = image.layers.len();
    let said = image.labels.get(SNAPSHOT_BASE_LAYERS).filter(|_| image.labels.contains_key(SNAPSHOT_ID));
    said.and_then(|said| said.parse().ok()).map_or(all, |said: usize| said.min(all))
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
        agent: text(SESSION_AGENT).unwrap_or_default(),
        template: text(SESSION_TEMPLATE).unwrap_or_default(),
        image: text(SESSION_IMAGE),
        status: Status::Stopped,
        timeout_ms: number(SESSION_TIMEOUT_MS),
        idle_ms: number(SESSION_IDLE_MS),
        keep: number(SESSION_KEEP).and_then(|n| u32::try_from(n).ok()),
        on_boot: text(SESSION_ON_BOOT).and_then(|word| OnBoot::from_word(&word)),
        idle_action: text(SESSION_IDLE_ACTION)
            .and_then(|word| IdleAction::from_word(&word))
            .unwrap_or(IdleAction::Stop),
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
        ..Session::new(id, name, created_at)
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
pub(super) mod tests;
