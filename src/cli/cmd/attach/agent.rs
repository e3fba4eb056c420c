//! What an attach has to know of the session's agent before it opens it: whether to, and which of the user's variables
//! it takes credentials from. The daemon knows the command.

use std::collections::BTreeMap;

use crate::cli::args::AttachArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::clean;
use crate::config::{Config, Flags};
use crate::paths;
use crate::proto::methods::SessionGet;
use crate::proto::sessions::NameParams;
use crate::proto::stream::{AgentStart, Exit};
use crate::proto::terminals::MAIN_TERMINAL;

/// The code of a program that is not there.
const NOT_FOUND: i32 = 127;

/// The agent of a session.
pub(super) struct Agent {
    /// How to open it.
    pub(super) start: AgentStart,
    /// Its label.
    label: String,
    /// Names of the variables with its credentials.
    credentials: Vec<String>,
}

impl Agent {
    /// The agent, where this attach opens it: because the user says so, or because the session's template does and the
    /// user names neither a command nor another terminal.
    ///
    /// # Errors
    /// When the settings cannot be read, or the session cannot be asked for.
    pub(super) fn wanted(context: &Context, args: &AttachArgs) -> Result<Option<Self>, Failure> {
        let asked = args.agent || args.fresh;
        if !args.cmd.is_empty() || !asked && args.terminal != MAIN_TERMINAL {
            return Ok(None);
        }
        let file = context.connector.home().config();
        let config = match Config::load(&file, &Flags::default()) {
            Ok(config) => config,
            Err(error) if asked => {
                let hint = format!("mend {}", clean(&file.display().to_string()));
                return Err(Failure::local("the settings cannot be used", &error).with_hint(hint));
            }
            // The daemon runs with what was there before; a shell needs nothing of it.
            Err(_) => return Ok(None),
        };
        // A session is asked for only where that may change what is opened.
        if !asked && !config.attaches_agents() {
            return Ok(None);
        }
        let session = context.connect()?.call::<SessionGet>(&NameParams { name: args.name.clone() })?;
        let usual = config.template(&session.template).is_some_and(|template| template.attaches_agent());
        let start = match (args.fresh, args.agent) {
            (true, _) => AgentStart::Fresh,
            (false, true) => AgentStart::Resume,
            (false, false) if usual => AgentStart::Usual,
            (false, false) => return Ok(None),
        };
        let credentials = config.agent(&session.agent).map(|agent| agent.credentials).unwrap_or_default();
        Ok(Some(Self { start, label: session.agent, credentials }))
    }

    /// Adds its credentials, as far as the user's environment has them.
    pub(super) fn add_credentials(&self, env: &mut BTreeMap<String, String>) {
        let set = |name: &String| Some((name.clone(), paths::variable(name).filter(|v| !v.is_empty())?));
        env.extend(self.credentials.iter().filter_map(set));
    }

    /// What to do where it is not there.
    pub(super) fn hint(&self, exit: &Exit) -> Option<String> {
        let label = clean(&self.label);
        (exit.exit_code == NOT_FOUND).then(|| {
            format!(
                "Hint: start sessions from an image that has {label} (--image), or install it in this one"
            )
        })
    }
}
