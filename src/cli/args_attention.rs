//! The grammar of what agents are doing.

use clap::Args;

use crate::config::parse_duration_ms;

/// What to wait for.
#[derive(Debug, Args)]
#[command(after_help = "\
What is so already is not waited for. attention is waiting or done; exit is the end
of what runs on the terminal `main`, or of the sandbox. The exit code is 0 when it is
so, 124 when the time is up, and 3 when the session is deleted meanwhile, unless its
exit or its deletion was waited for. abx goes on to wait when abxd is restarted.")]
pub(crate) struct WaitArgs {
    /// Until when
    #[arg(long = "for", value_name = "STATE", value_parser = [
        "working", "waiting", "idle", "done", "attention", "exit", "running", "paused", "stopped", "saved",
        "deleted",
    ])]
    pub(crate) until: String,
    /// Give up after this time (seconds, or 30m, 2h) and exit with 124
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// The session, by its name or its sandbox's
    pub(crate) name: String,
}

/// What to say.
#[derive(Debug, Args)]
#[command(after_help = "\
In the sandbox itself: abx notify [--state STATE] [TEXT], without a name.")]
pub(crate) struct NotifyArgs {
    /// What the agent is doing
    #[arg(long, value_name = "STATE", default_value = "waiting", value_parser = [
        "working", "waiting", "idle", "done",
    ])]
    pub(crate) state: String,
    /// The session, by its name or its sandbox's
    pub(crate) name: String,
    /// One line
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
}
