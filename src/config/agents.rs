//! Agents: which command each is, how it goes on with its last conversation, and which variables it takes credentials
//! from. Some are built in; a file may change them and add others.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{BadValue, Config, Setting, Source};

/// The part of an agent that a file sets. What it leaves out is built in, for those agents that are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// Program and arguments.
    pub command: Option<Vec<String>>,
    /// Arguments that are added where it has run before; none where it cannot go on.
    pub resume: Option<Vec<String>>,
    /// Names of the variables that are passed on from whoever attaches.
    pub credentials: Option<Vec<String>>,
}

/// How an agent is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Arguments with which it goes on with its last conversation; empty where it has none for that.
    pub resume: Vec<String>,
    /// Names of the variables that it takes credentials from.
    pub credentials: Vec<String>,
}

/// An agent that is built in.
struct Preset {
    name: &'static str,
    resume: &'static [&'static str],
    credentials: &'static [&'static str],
}

/// What each documents for its interactive use; its program has its name. Amp has no arguments for its last thread:
/// `amp threads continue` without a thread's id asks which.
const PRESETS: &[Preset] = &[
    Preset {
        name: "aider",
        resume: &["--restore-chat-history"],
        credentials: &[
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
            "OPENROUTER_API_KEY",
            "DEEPSEEK_API_KEY",
        ],
    },
    Preset { name: "amp", resume: &[], credentials: &["AMP_API_KEY"] },
    Preset {
        name: "claude",
        resume: &["--continue"],
        credentials: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
    },
    Preset {
        name: "codex",
        resume: &["resume", "--last"],
        credentials: &["OPENAI_API_KEY", "CODEX_API_KEY"],
    },
    Preset {
        name: "copilot",
        resume: &["--continue"],
        credentials: &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
    },
    Preset {
        name: "gemini",
        resume: &["--resume", "latest"],
        credentials: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    },
    Preset {
        name: "opencode",
        resume: &["--continue"],
        credentials: &[
            "OPENCODE_API_KEY",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "OPENROUTER_API_KEY",
        ],
    },
];

impl Preset {
    fn agent(&self) -> Agent {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Agent {
            command: vec![self.name.to_owned()],
            resume: owned(self.resume),
            credentials: owned(self.credentials),
        }
    }
}

fn built_in(name: &str) -> Option<Agent> {
    PRESETS.iter().find(|preset| preset.name == name).map(Preset::agent)
}

impl Config {
    /// How the agent of this name is run; none if nothing says so.
    pub fn agent(&self, name: &str) -> Option<Agent> {
        let preset = built_in(name);
        let Some(Setting { value: own, .. }) = self.agents.get(name).cloned() else { return preset };
        let preset = preset.unwrap_or_else(|| Agent {
            command: Vec::new(),
            resume: Vec::new(),
            credentials: Vec::new(),
        });
        let agent = Agent {
            command: own.command.unwrap_or(preset.command),
            resume: own.resume.unwrap_or(preset.resume),
            credentials: own.credentials.unwrap_or(preset.credentials),
        };
        Some(agent).filter(|agent| !agent.command.is_empty())
    }

    /// The settings of every agent, by their names in the file.
    pub(super) fn explain_agents(&self) -> Vec<(String, String, Source)> {
        let names: BTreeSet<&str> =
            PRESETS.iter().map(|preset| preset.name).chain(self.agents.keys().map(String::as_str)).collect();
        let mut rows = Vec::new();
        for name in names {
            let Some(agent) = self.agent(name) else { continue };
            let own = self.agents.get(name);
            let mut row = |key: &str, words: &[String], separator: &str, is_own: bool| {
                let file = own.filter(|_| is_own).map(|own| own.source.clone());
                let value = if words.is_empty() { "none".to_owned() } else { words.join(separator) };
                rows.push((format!("agents.{name}.{key}"), value, file.unwrap_or(Source::Default)));
            };
            let sets = |set: fn(&AgentSection) -> bool| own.is_some_and(|own| set(&own.value));
            row("command", &agent.command, " ", sets(|a| a.command.is_some()));
            row("resume", &agent.resume, " ", sets(|a| a.resume.is_some()));
            row("credentials", &agent.credentials, ", ", sets(|a| a.credentials.is_some()));
        }
        rows
    }
}

/// Checks what a file says of one agent.
///
/// # Errors
/// The first value that it cannot have.
pub(super) fn check(name: &str, section: &AgentSection) -> Result<(), BadValue> {
    let is_word = |word: &String| !word.contains('\0');
    let words = |words: &Option<Vec<String>>| words.iter().flatten().all(is_word);
    let command = match &section.command {
        Some(command) => {
            command.first().is_some_and(|program| !program.is_empty()) && words(&section.command)
        }
        None => built_in(name).is_some(),
    };
    let is_variable = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    let checks = [
        ("command", command, "a program and its arguments, as a list"),
        ("resume", words(&section.resume), "a list of arguments"),
        ("credentials", section.credentials.iter().flatten().all(is_variable), "a list of variables' names"),
    ];
    match checks.into_iter().find(|(_, good, _)| !good) {
        Some((key, _, rule)) => Err(BadValue::new(format!("agents.{name}.{key}"), rule)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigError, Flags, Source};

    fn load(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("config.toml");
        std::fs::write(&file, text).expect("write");
        Config::load(&file, &Flags::default())
    }

    #[test]
    fn the_usual_agents_are_built_in_and_all_but_amp_go_on_where_they_were() {
        let config = load("").expect("loads");
        for name in ["aider", "amp", "claude", "codex", "copilot", "gemini", "opencode"] {
            let agent = config.agent(name).expect("built in");
            assert_eq!(agent.command, [name]);
            assert_eq!(agent.resume.is_empty(), name == "amp", "{name}");
            assert!(!agent.credentials.is_empty(), "{name}");
        }
        assert_eq!(config.agent("codex").expect("built in").resume, ["resume", "--last"]);
        assert_eq!(config.agent("mine"), None);
    }

    #[test]
    fn a_file_changes_one_thing_of_an_agent_and_leaves_the_rest() {
        let config = load(
            "[agents.claude]\ncommand = [\"claude\", \"--verbose\"]\n\
             [agents.codex]\nresume = []\n\
             [agents.mine]\ncommand = [\"my-agent\"]\n",
        )
        .expect("loads");
        let claude = config.agent("claude").expect("there");
        assert_eq!((claude.command[1].as_str(), claude.resume[0].as_str()), ("--verbose", "--continue"));
        assert!(claude.credentials.contains(&"ANTHROPIC_API_KEY".to_owned()));
        assert!(config.agent("codex").expect("there").resume.is_empty());
        let mine = config.agent("mine").expect("there");
        assert!(mine.resume.is_empty() && mine.credentials.is_empty());
    }

    #[test]
    fn every_part_of_an_agent_is_explained_with_where_it_came_from() {
        let config = load("[agents.amp]\ncommand = [\"amp\", \"-q\"]\n[agents.mine]\ncommand = [\"m\"]\n")
            .expect("loads");
        let rows: Vec<String> = config
            .explain()
            .into_iter()
            .filter(|(name, ..)| name.starts_with("agents.amp.") || name.starts_with("agents.mine.c"))
            .map(|(name, value, source)| format!("{name} = {value} ({})", source == Source::Default))
            .collect();
        let want = [
            "agents.amp.command = amp -q (false)",
            "agents.amp.resume = none (true)",
            "agents.amp.credentials = AMP_API_KEY (true)",
            "agents.mine.command = m (false)",
            "agents.mine.credentials = none (true)",
        ];
        assert_eq!(rows, want);
    }

    #[test]
    fn an_agent_that_cannot_be_run_is_an_error_of_the_file() {
        for (text, key) in [
            ("[agents.mine]\nresume = [\"-c\"]\n", "agents.mine.command"),
            ("[agents.claude]\ncommand = []\n", "agents.claude.command"),
            ("[agents.claude]\ncommand = [\"\"]\n", "agents.claude.command"),
            ("[agents.claude]\nresume = [\"a\\u0000b\"]\n", "agents.claude.resume"),
            ("[agents.claude]\ncredentials = [\"A=b\"]\n", "agents.claude.credentials"),
        ] {
            let error = load(text).expect_err(text);
            let ConfigError::Value { source, .. } = &error else { panic!("{text}: {error:?}") };
            assert!(source.to_string().starts_with(&format!("{key} must be ")), "{source}");
        }
    }
}
