//! From the engine's words to abx's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::api::{
    ContainerConfig, ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, ContainerTopResponse, EventMessage, HostConfig, ImageInspect, MountPoint,
    PortSummaryTypeEnum, SystemInfo,
};
use super::create::KEEP_ALIVE;
use crate::engine::{GUEST_DIR, Hint, Image, Observed, RunState, labels};
use crate::model::exec::code;
use crate::model::session::{Excluded, Limits, Mount, Port};

/// Most programs that a snapshot's report names.
const MAX_PROCESSES: usize = 64;
/// Longest program name in a snapshot's report, in characters: a program chooses its own.
const MAX_PROCESS_CHARS: usize = 128;
/// Length of the names that engines give to volumes, in characters.
const ANONYMOUS_CHARS: usize = 64;
/// The code of a program that got KILL, as the kernel's want of memory gives it.
const KILLED: i64 = code::KILLED as i64;

pub(super) fn inspected(seen: ContainerInspectResponse) -> Observed {
    let state = seen.state.unwrap_or_default();
    let finished = finished(&state);
    let run_state = match state.status {
        // Podman's word for one that is about to run again as well.
        Some(ContainerStateStatusEnum::CREATED) if finished.is_none() => RunState::Created,
        Some(ContainerStateStatusEnum::PAUSED) => RunState::Paused,
        Some(ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::STOPPING) => RunState::Running,
        _ => RunState::Exited,
    };
    let exit_code = state.exit_code.filter(|_| run_state == RunState::Exited);
    let finished_at_ms = finished.filter(|_| run_state == RunState::Exited);
    let config = seen.config.unwrap_or_default();
    let env = environment(&config);
    let labels = ours(config.labels);
    let bound = seen.network_settings.and_then(|network| network.ports).unwrap_or_default();
    let mut ports = Vec::new();
    for (key, bindings) in &bound {
        let (container, protocol) = key.split_once('/').unwrap_or((key, "tcp"));
        let Ok(container) = container.parse() else { continue };
        let hosts =
            bindings.iter().flatten().filter_map(|binding| binding.host_port.as_deref()?.parse().ok());
        ports.extend(hosts.map(|host| port(&labels, container, host, protocol)));
    }
    sort(&mut ports);
    let config_of_host = seen.host_config.unwrap_or_default();
    let pid = state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    Observed {
        pid: pid.filter(|_| matches!(run_state, RunState::Running | RunState::Paused)),
        env,
        directory: config.working_dir.filter(|dir| !dir.is_empty()),
        limits: limits(&config_of_host),
        networked: config_of_host.network_mode.as_deref() != Some("none"),
        mounts: mounts(config_of_host, seen.mounts.unwrap_or_default()),
        id: seen.id.unwrap_or_default(),
        name: seen.name.unwrap_or_default().trim_start_matches('/').to_owned(),
        state: run_state,
        exit_code,
        finished_at_ms,
        // The engine keeps the flag of any process; the main program is gone for want of memory only if KILL ended it.
        oom_killed: state.oom_killed == Some(true) && exit_code == Some(KILLED),
        image_id: seen.image.unwrap_or_default(),
        labels,
        ports,
    }
}

/// What was asked for at its making; engines say 0 where nothing was.
fn limits(config: &HostConfig) -> Limits {
    let some = |number: Option<i64>| number.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    Limits {
        cpu_millis: some(config.nano_cpus).map(|nanos| nanos / 1_000_000).filter(|millis| *millis > 0),
        memory_bytes: some(config.memory),
        pids: some(config.pids_limit).and_then(|n| u32::try_from(n).ok()),
    }
}

/// Where engines look for programs in an image that does not say.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the engine gives each process: the container's own variables, and its host name.
fn environment(config: &ContainerConfig) -> Vec<String> {
    let mut env = config.env.clone().unwrap_or_default();
    let mut add = |name: &str, line: String| {
        if !env.iter().any(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))) {
            env.push(line);
        }
    };
    add("PATH", DEFAULT_PATH.to_owned());
    if let Some(name) = config.hostname.as_ref().filter(|name| !name.is_empty()) {
        add("HOSTNAME", format!("HOSTNAME={name}"));
    }
    env
}

/// The mounts that were asked for, without that of abx-init. Podman tells those of every kind as binds, and what they are beside it.
fn mounts(config: HostConfig, all: Vec<MountPoint>) -> Vec<Mount> {
    let mut all = asked_for(config, all);
    all.retain(|mount| mount.target != GUEST_DIR);
    all
}

fn asked_for(config: HostConfig, all: Vec<MountPoint>) -> Vec<Mount> {
    if let Some(asked) = config.mounts.filter(|asked| !asked.is_empty()) {
        let asked = asked.into_iter().filter_map(|mount| {
            let read_only = mount.read_only.unwrap_or(false);
            Some(Mount { source: mount.source?, target: mount.target?, read_only })
        });
        return asked.collect();
    }
    if config.binds.is_none_or(|binds| binds.is_empty()) {
        return Vec::new();
    }
    let named = all.into_iter().filter_map(|mount| {
        let source = if mount.typ.as_deref() == Some("volume") { mount.name } else { mount.source };
        let source = source.filter(|source| !is_anonymous(source))?;
        Some(Mount { source, target: mount.destination?, read_only: mount.rw == Some(false) })
    });
    named.collect()
}

/// Whether a volume's name is one that the engine chose: an image asked for the volume.
fn is_anonymous(name: &str) -> bool {
    name.len() == ANONYMOUS_CHARS && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What a list says. It does not say whether memory ran out: see [`is_doubtful`].
pub(super) fn listed(seen: ContainerSummary) -> Observed {
    let state = match seen.state {
        Some(ContainerSummaryStateEnum::CREATED) => RunState::Created,
        Some(ContainerSummaryStateEnum::PAUSED) => RunState::Paused,
        Some(ContainerSummaryStateEnum::RUNNING | ContainerSummaryStateEnum::STOPPING) => RunState::Running,
        _ => RunState::Exited,
    };
    let labels = ours(seen.labels);
    let mut ports: Vec<Port> = seen
        .ports
        .unwrap_or_default()
        .into_iter()
        .filter_map(|seen| {
            let protocol = if seen.typ == Some(PortSummaryTypeEnum::UDP) { "udp" } else { "tcp" };
            Some(port(&labels, seen.private_port, seen.public_port?, protocol))
        })
        .collect();
    sort(&mut ports);
    let exit_code = seen.status.as_deref().and_then(code_in_status).filter(|_| state == RunState::Exited);
    let name = seen.names.unwrap_or_default().into_iter().find(|name| name.matches('/').count() <= 1);
    Observed {
        id: seen.id.unwrap_or_default(),
        name: name.unwrap_or_default().trim_start_matches('/').to_owned(),
        state,
        exit_code,
        finished_at_ms: None,
        oom_killed: false,
        image_id: seen.image_id.unwrap_or_default(),
        labels,
        ports,
        mounts: Vec::new(),
        pid: None,
        env: Vec::new(),
        directory: None,
        limits: Limits::default(),
        networked: true,
    }
}

/// Whether only an inspect can tell why it ended.
pub(super) fn is_doubtful(listed: &Observed) -> bool {
    listed.state == RunState::Exited && listed.exit_code.is_none_or(|code| code == KILLED)
}

/// When a container's main program ended, where it does not run.
pub(super) fn ended_at_ms(state: Option<&ContainerState>) -> Option<i64> {
    state.filter(|state| state.running != Some(true)).and_then(finished)
}

fn finished(state: &ContainerState) -> Option<i64> {
    state.finished_at.as_deref().and_then(finish)
}

/// Engines give the first moment of the year 1 for what never ended.
fn finish(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond).filter(|ms| *ms > 0)
}

/// Code 3 in `Exited (3) 2 hours ago`.
fn code_in_status(status: &str) -> Option<i64> {
    status.split_once('(')?.1.split_once(')')?.0.parse().ok()
}

pub(super) fn image(seen: ImageInspect) -> Image {
    Image {
        id: seen.id.unwrap_or_default(),
        size_bytes: seen.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
        layers: seen.root_fs.and_then(|fs| fs.layers).unwrap_or_default(),
        labels: ours(seen.config.and_then(|config| config.labels)),
    }
}

/// What of an event matters: that this container should be looked at.
pub(super) fn hint(event: EventMessage) -> Option<Hint> {
    let id = event.actor?.id?;
    let action = event.action?;
    match action.as_str() {
        "oom" => Some(Hint::Oom(id)),
        "create" => Some(Hint::Made(id)),
        // `died` is podman's word.
        "die" | "died" | "stop" | "kill" | "pause" | "unpause" | "start" | "destroy" | "remove"
        | "rename" => Some(Hint::Sandbox(id)),
        _ => None,
    }
}

/// Mounts of every kind, and the programs that run beside what abx itself runs.
pub(super) fn excluded(
    seen: &ContainerInspectResponse,
    processes: Option<ContainerTopResponse>,
) -> Vec<Excluded> {
    let mut all = BTreeSet::new();
    let guest = |mount: &&MountPoint| mount.destination.as_deref() == Some(GUEST_DIR);
    for mount in seen.mounts.iter().flatten().filter(|mount| !guest(mount)) {
        let kind = match mount.typ.as_deref() {
            Some("volume") => "volume",
            Some("tmpfs") => "tmpfs",
            _ => "bind",
        };
        all.insert((kind, mount.destination.clone().unwrap_or_default()));
    }
    let tmpfs = seen.host_config.as_ref().and_then(|config| config.tmpfs.as_ref());
    all.extend(tmpfs.into_iter().flat_map(HashMap::keys).map(|target| ("tmpfs", target.clone())));
    let programs: BTreeSet<String> = processes.map(programs).unwrap_or_default();
    all.extend(programs.into_iter().take(MAX_PROCESSES).map(|name| ("process", name)));
    all.into_iter().map(|(kind, target)| Excluded::new(kind, target)).collect()
}

/// The programs' names alone: their arguments may hold secrets.
fn programs(top: ContainerTopResponse) -> BTreeSet<String> {
    let top = in_columns(top);
    let titles = top.titles.unwrap_or_default();
    let Some(column) = titles.iter().position(|title| title == "CMD" || title == "COMMAND") else {
        return BTreeSet::new();
    };
    let keep_alive = KEEP_ALIVE.join(" ");
    let commands =
        top.processes.unwrap_or_default().into_iter().filter_map(|row| row.into_iter().nth(column));
    commands
        .filter(|command| !command.ends_with(&keep_alive) && !command.starts_with(GUEST_DIR))
        .filter_map(|command| command.split_whitespace().next().map(str::to_owned))
        .map(|name| name.chars().take(MAX_PROCESS_CHARS).collect())
        .collect()
}

/// An older podman gives each line whole.
fn in_columns(top: ContainerTopResponse) -> ContainerTopResponse {
    let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let titles = match top.titles.as_deref() {
        Some([title]) if title.contains(char::is_whitespace) => words(title),
        _ => return top,
    };
    let lines = top.processes.iter().flatten().filter_map(|row| row.first());
    let rows = lines.map(|line| {
        let mut row = words(line);
        let command = row.split_off(row.len().min(titles.len() - 1)).join(" ");
        row.push(command);
        row
    });
    ContainerTopResponse { processes: Some(rows.collect()), titles: Some(titles) }
}

fn ours(labels: Option<HashMap<String, String>>) -> BTreeMap<String, String> {
    labels.unwrap_or_default().into_iter().filter(|(key, _)| key.starts_with(labels::PREFIX)).collect()
}

fn port(labels: &BTreeMap<String, String>, container: u16, host: u16, protocol: &str) -> Port {
    let fixed = labels::is_fixed(labels, container, protocol);
    Port { container, host: Some(host), fixed, protocol: protocol.to_owned() }
}

/// The engine gives them in no order; and twice where it listens on both families.
fn sort(ports: &mut Vec<Port>) {
    ports.sort_by(|a, b| (a.container, &a.protocol, a.host).cmp(&(b.container, &b.protocol, b.host)));
    ports.dedup();
}

/// What tells an engine from others: its id, and where it keeps what it has, since engines of one machine may share their
/// id (`/etc/docker/key.json`).
pub(super) fn identity(info: &SystemInfo) -> Option<String> {
    let id = info.id.as_deref().filter(|id| !id.is_empty())?;
    Some(format!("{id} {}", info.docker_root_dir.as_deref().unwrap_or_default()))
}

/// Whether a security option says that users in sandboxes are others outside: `name=rootless`, `name=userns`.
pub(super) fn maps_users(option: &str) -> bool {
    option.split(',').any(|part| matches!(part, "name=rootless" | "name=userns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_read_from_a_lists_prose() {
        assert_eq!(code_in_status("Exited (137) 3 days ago"), Some(137));
        assert_eq!(code_in_status("Up 3 hours (Paused)"), None);
    }

    #[test]
    fn an_end_is_told_of_what_ended_alone() {
        assert_eq!(finish("2026-02-01T10:00:00.123456789Z"), Some(1_769_940_000_123));
        assert_eq!(finish("2026-02-01T11:00:00.123+01:00"), Some(1_769_940_000_123));
        assert_eq!((finish("0001-01-01T00:00:00Z"), finish(""), finish("soon")), (None, None, None));
    }

    #[test]
    fn a_report_names_programs_without_arguments_and_without_our_own() {
        let row = |command: &str| vec!["1".to_owned(), command.to_owned()];
        let top = ContainerTopResponse {
            titles: Some(vec!["PID".to_owned(), "CMD".to_owned()]),
            processes: Some(vec![
                row("/sbin/docker-init -- sleep 2147483647"),
                row("sleep 2147483647"),
                row("/dev/.abx/abx-init init -- bash"),
                row("curl -H hunter2"),
                row("node a"),
                row("node b"),
            ]),
        };
        let got = excluded(&ContainerInspectResponse::default(), Some(top));
        let want = ["curl", "node"];
        let want = want.map(|name| Excluded::new("process", name));
        assert_eq!(got, want);
    }

    #[test]
    fn podmans_lines_are_taken_apart() {
        let top = ContainerTopResponse {
            titles: Some(vec!["PID   USER     COMMAND".to_owned()]),
            processes: Some(
                [
                    "1 root     /run/podman-init -- sleep 2147483647",
                    "8 root     curl -H hunter2",
                    "9 root",
                    "",
                ]
                .map(|line| vec![line.to_owned()])
                .into(),
            ),
        };
        assert_eq!(programs(top), BTreeSet::from(["curl".to_owned()]));
    }

    #[test]
    fn podmans_mounts_are_those_that_were_asked_for() {
        let point = |typ: &str, name: Option<&str>, source: &str, target: &str| MountPoint {
            typ: Some(typ.to_owned()),
            name: name.map(str::to_owned),
            source: Some(source.to_owned()),
            destination: Some(target.to_owned()),
            rw: Some(typ == "volume"),
            ..MountPoint::default()
        };
        let image = "0123456789abcdef".repeat(4);
        let all = vec![
            point("volume", Some("mine"), "/var/x/mine/_data", "/v"),
            point("volume", Some(&image), "/var/x/0123/_data", "/data"),
            point("bind", None, "/src", "/w"),
        ];
        let want = [("mine", "/v", false), ("/src", "/w", true)].map(|(source, target, read_only)| Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only,
        });
        let binds =
            HostConfig { binds: Some(vec!["as podman tells it".to_owned()]), ..HostConfig::default() };
        assert_eq!(mounts(binds, all.clone()), want);
        assert_eq!(mounts(HostConfig::default(), all), []);
    }

    #[test]
    fn memory_is_the_reason_only_if_the_main_program_was_killed() {
        let seen = |code| {
            inspected(ContainerInspectResponse {
                state: Some(ContainerState {
                    status: Some(ContainerStateStatusEnum::EXITED),
                    oom_killed: Some(true),
                    exit_code: Some(code),
                    ..ContainerState::default()
                }),
                ..ContainerInspectResponse::default()
            })
        };
        assert!(seen(137).oom_killed && !seen(143).oom_killed);
    }
}
