//! Templates: named sets of defaults for sandboxes, each on what `base` says.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{BASE, Config, MASK};

/// A named set of defaults for sandboxes. Absent values come from the template `base`, then from what is built in.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    /// The image.
    pub image: Option<String>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Memory, such as `2g`.
    pub memory: Option<String>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// `bridge` or `none`.
    pub network: Option<String>,
    /// User name or id.
    pub user: Option<String>,
    /// `permissive`, `moderate` or `restrictive`.
    pub profile: Option<String>,
    /// Timeout, such as `2h`.
    pub timeout: Option<String>,
    /// Idle time, such as `30m`.
    pub idle: Option<String>,
    /// What is done then: `stop`, `pause` or `save`.
    pub idle_action: Option<String>,
    /// What becomes of it after its engine went: `resume` or `stopped`.
    pub on_boot: Option<String>,
    /// Snapshots that stay after a save; 0 for all.
    pub keep: Option<u32>,
    /// What an attach opens: `shell` or `agent`.
    pub attach: Option<String>,
}

impl Config {
    /// The template of this name with what it takes from `base`; none if there is none.
    pub fn template(&self, name: &str) -> Option<Template> {
        let own = self.templates.get(name)?.value.clone();
        let base = self.templates.get(BASE).map(|base| base.value.clone()).unwrap_or_default();
        let mut env = base.env;
        env.extend(own.env);
        Some(Template {
            image: own.image.or(base.image),
            cpus: own.cpus.or(base.cpus),
            memory: own.memory.or(base.memory),
            pids: own.pids.or(base.pids),
            env,
            network: own.network.or(base.network),
            user: own.user.or(base.user),
            profile: own.profile.or(base.profile),
            timeout: own.timeout.or(base.timeout),
            idle: own.idle.or(base.idle),
            idle_action: own.idle_action.or(base.idle_action),
            on_boot: own.on_boot.or(base.on_boot),
            keep: own.keep.or(base.keep),
            attach: own.attach.or(base.attach),
        })
    }

    /// Whether an attach to a session of some template opens its agent.
    pub fn attaches_agents(&self) -> bool {
        self.templates.values().any(|template| template.value.attaches_agent())
    }
}

impl Template {
    /// Whether an attach opens the agent, and not a shell.
    pub fn attaches_agent(&self) -> bool {
        self.attach.as_deref() == Some("agent")
    }

    /// What it sets, by name.
    pub(super) fn explain(&self) -> Vec<(String, String)> {
        let fields = [
            ("image", self.image.clone()),
            ("cpus", self.cpus.map(|n| n.to_string())),
            ("memory", self.memory.clone()),
            ("pids", self.pids.map(|n| n.to_string())),
            ("network", self.network.clone()),
            ("user", self.user.clone()),
            ("profile", self.profile.clone()),
            ("timeout", self.timeout.clone()),
            ("idle", self.idle.clone()),
            ("idle_action", self.idle_action.clone()),
            ("on_boot", self.on_boot.clone()),
            ("keep", self.keep.map(|n| n.to_string())),
            ("attach", self.attach.clone()),
        ];
        let set = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        set.chain(self.env.keys().map(|key| (format!("env.{key}"), MASK.to_owned()))).collect()
    }
}
