//! From a session to the engine's words for a container.

use std::collections::HashMap;

use super::api::{
    ContainerCreateBody, HostConfig, Mount as ApiMount, MountType, PortBinding, RestartPolicy,
    RestartPolicyNameEnum,
};
use super::guest::Guest;
use crate::engine::{CreateSpec, labels};
use crate::model::session::{Mount, Network, Port};

/// The main program of every sandbox: it only keeps it alive. `sleep infinity` is not known to every `sleep`; this is
/// 68 years.
pub(super) const KEEP_ALIVE: [&str; 2] = ["sleep", "2147483647"];

/// Longest host name, in bytes (a label of DNS).
const MAX_HOSTNAME_BYTES: usize = 63;

/// The body of a create. `cpus` is how many the engine's machine has.
pub(super) fn body(spec: &CreateSpec, cpus: Option<u64>, guest: Option<&Guest>) -> ContainerCreateBody {
    let session = &spec.session.spec;
    let keep_alive = || KEEP_ALIVE.iter().map(|&word| word.to_owned()).collect();
    let mut labels = labels::session(spec);
    if let Some(guest) = guest {
        labels.insert(labels::RUNTIME_LINK.to_owned(), guest.link().to_owned());
    }
    if let Some(user) = guest.and_then(Guest::runs_as_root) {
        labels.insert(labels::RUNTIME_USER.to_owned(), user.to_owned());
    }
    ContainerCreateBody {
        hostname: Some(hostname(&spec.sandbox)),
        image: Some(spec.image.clone()),
        entrypoint: Some(guest.map_or_else(keep_alive, Guest::command)),
        cmd: Some(Vec::new()),
        working_dir: session.workspace.as_ref().map(|workspace| workspace.target.clone()),
        user: guest.and_then(Guest::runs_as_root).map(|_| "0".to_owned()),
        stop_signal: guest.and_then(Guest::stop_signal).map(str::to_owned),
        labels: Some(labels.into_iter().collect()),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        open_stdin: Some(false),
        tty: Some(false),
        exposed_ports: Some(session.ports.iter().map(port_key).collect()),
        host_config: Some(host_config(spec, cpus, guest)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(spec: &CreateSpec, cpus: Option<u64>, guest: Option<&Guest>) -> HostConfig {
    let session = &spec.session.spec;
    let limits = &session.limits;
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    // Engines refuse a limit above what their machine has, where it would be none.
    let cpu_millis = limits.cpu_millis.filter(|millis| cpus.is_none_or(|cpus| *millis <= cpus * 1000));
    let security = spec.rights.no_new_privileges.then(|| vec!["no-new-privileges".to_owned()]);
    HostConfig {
        init: Some(guest.is_none()),
        network_mode: Some(network(session.network).to_owned()),
        nano_cpus: cpu_millis.map(|millis| signed(millis.saturating_mul(1_000_000))),
        memory: limits.memory_bytes.map(signed),
        pids_limit: limits.pids.map(i64::from),
        security_opt: security,
        cap_drop: Some(spec.rights.cap_drop.iter().map(|&name| name.to_owned()).collect()),
        mounts: Some(
            session
                .workspace
                .iter()
                .chain(&session.mounts)
                .map(mount)
                .chain(guest.map(Guest::mount))
                .collect(),
        ),
        port_bindings: Some(port_bindings(&session.ports)),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        ..HostConfig::default()
    }
}

fn network(network: Network) -> &'static str {
    match network {
        Network::Bridge => "bridge",
        Network::None => "none",
    }
}

/// By fields, never as `source:target` text: a path may hold a colon.
fn mount(mount: &Mount) -> ApiMount {
    ApiMount {
        source: Some(mount.source.clone()),
        target: Some(mount.target.clone()),
        typ: Some(if mount.is_volume() { MountType::VOLUME } else { MountType::BIND }),
        read_only: Some(mount.read_only),
        ..ApiMount::default()
    }
}

fn port_key(port: &Port) -> String {
    format!("{}/{}", port.container, port.protocol)
}

fn port_bindings(ports: &[Port]) -> HashMap<String, Option<Vec<PortBinding>>> {
    let mut bindings: HashMap<String, Option<Vec<PortBinding>>> = HashMap::new();
    for port in ports {
        // An empty one lets the engine choose. A free port that was chosen before is not asked for again: someone
        // else may have it by now.
        let host_port = port.host.filter(|_| port.fixed).map(|host| host.to_string()).unwrap_or_default();
        let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some(host_port) };
        bindings.entry(port_key(port)).or_default().get_or_insert_default().push(binding);
    }
    bindings
}

/// The sandbox's name as a host name.
fn hostname(sandbox: &str) -> String {
    let clean: String = sandbox
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_HOSTNAME_BYTES)
        .collect();
    clean.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::labels::tests::create_spec;

    #[test]
    fn host_names_are_valid_for_any_sandbox() {
        assert_eq!(hostname("session-a.b_c"), "session-a-b-c");
        let long = format!("session-{}-deadbeef", "x".repeat(54));
        assert_eq!(hostname(&long), format!("session-{}", "x".repeat(54)), "no dash where it is cut");
        assert!(hostname(&"x".repeat(200)).len() <= MAX_HOSTNAME_BYTES);
    }

    #[test]
    fn a_cpu_limit_above_the_machine_is_no_limit() {
        let nano = |cpus| body(&create_spec("a"), cpus, None).host_config.expect("a config").nano_cpus;
        assert_eq!(nano(Some(2)), Some(1_500_000_000));
        assert_eq!(nano(Some(1)), None);
    }

    #[test]
    fn ports_are_on_loopback_and_only_fixed_ones_are_asked_for() {
        let mut spec = create_spec("a");
        spec.session.spec.ports[0].host = Some(50_000);
        let bindings = body(&spec, None, None).host_config.expect("a config").port_bindings.expect("ports");
        let of = |key: &str| bindings[key].as_ref().expect("bound")[0].clone();
        assert_eq!(of("80/tcp").host_port.as_deref(), Some(""));
        assert_eq!(of("443/tcp").host_port.as_deref(), Some("8443"));
        assert_eq!(of("443/tcp").host_ip.as_deref(), Some("127.0.0.1"));
    }

    #[test]
    fn a_value_of_the_environment_is_nowhere_in_the_request() {
        assert!(!format!("{:?}", body(&create_spec("a"), None, None)).contains("hunter2"));
    }
}
