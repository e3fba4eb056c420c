//! The grammar of the session and snapshot verbs.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::start_args::{parse_cpus, parse_pair, parse_port};
use crate::config::{parse_duration_ms, parse_size_bytes};
use crate::proto::types::Port;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Create a session and its sandbox, and run it
    Start(Box<StartArgs>),
    /// List sessions, newest first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show everything about a session
    Get {
        /// The session
        name: String,
    },
    /// Stop sessions; containers and all their files stay
    Stop {
        /// The sessions
        #[arg(required = true)]
        name: Vec<String>,
        /// Time between TERM and KILL (seconds, or 30s, 1m) [default: 10s]
        #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
        grace: Option<u64>,
    },
    /// Stop a session and take a snapshot of its files
    Save(SaveArgs),
    /// Bring a session back: the same container, or one made from a snapshot
    Resume {
        /// The session
        name: String,
        /// Go back to this snapshot; what it replaces is saved first
        #[arg(long, value_name = "S")]
        snapshot: Option<String>,
        /// Do not save what it replaces: what no snapshot holds is lost
        #[arg(long, requires = "snapshot")]
        discard: bool,
        /// Do not ask before that
        #[arg(short, long, requires = "discard")]
        yes: bool,
    },
    /// Delete sessions, their containers and their snapshots
    #[command(visible_alias = "rm")]
    Delete {
        /// The sessions
        #[arg(required = true)]
        name: Vec<String>,
        /// Leave the snapshots
        #[arg(long)]
        keep_snapshots: bool,
        /// Forget sessions that are on another engine than the one that abx uses; what is there stays there
        #[arg(long, conflicts_with = "keep_snapshots")]
        forget: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Resume a session if it does not run, and note that it is used
    Connect {
        /// The session
        name: String,
        /// Fail if the session does not run, rather than resume it
        #[arg(long)]
        no_resume: bool,
    },
    /// Freeze a session; its memory is kept
    Pause {
        /// The session
        name: String,
    },
    /// Thaw a paused session
    Unpause {
        /// The session
        name: String,
    },
    /// Give a session another name
    Rename {
        /// The session
        name: String,
        /// Its new name
        new: String,
    },
    /// Start a new session from a snapshot of this one, taken now if none is named
    Fork {
        /// The session to fork
        name: String,
        /// The new session's name
        new: String,
        /// From this snapshot
        #[arg(long, value_name = "S")]
        snapshot: Option<String>,
    },
    /// Change a session's timeout, idle time, kept snapshots or metadata
    Update(UpdateArgs),
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("the-name").required(true).args(["name", "named"]),
    after_help = "\
Durations are seconds, or 90s, 30m, 2h, 3d; 0 is never. Values of -e and
--env-file are given to each command of the session, never to the container's
configuration; they are masked wherever abx shows them.

Examples:
  abx start feature-x --agent claude -w .
  abx start web -w ~/src/web:/workspace -p 8080:80 -e API_KEY --memory 2g --idle 2h"
)]
pub(crate) struct StartArgs {
    /// The session's name: any printable Unicode without /, up to 128 bytes
    pub(crate) name: Option<String>,
    /// The session's name, as the older command line had it
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) named: Option<String>,
    /// Agent's label [default: claude]
    #[arg(short, long)]
    pub(crate) agent: Option<String>,
    /// Template of the configuration [default: base]
    #[arg(short, long)]
    pub(crate) template: Option<String>,
    /// Image, pulled if the engine does not have it [default: the template's]
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Engine that runs the sandbox
    #[arg(short = 'B', long, alias = "backend", value_parser = ["docker"])]
    pub(crate) engine: Option<String>,
    /// Stop this long after start and after each resume
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Stop after this long without use
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) idle: Option<u64>,
    /// Keep this many snapshots: each save deletes the oldest beyond them that have no note; 0 keeps all
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,
    /// What to do then [default: the template's, else stop]
    #[arg(long, value_name = "A", value_parser = ["stop", "pause", "save"])]
    pub(crate) idle_action: Option<String>,
    /// What becomes of it when the engine or the machine went down: come back, or stay stopped
    #[arg(long, value_name = "W", value_parser = ["resume", "stopped"])]
    pub(crate) on_boot: Option<String>,
    /// Set a variable for the session's commands (K=V), or pass on this shell's (K)
    #[arg(short, long, value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// Read variables from a file of K=V lines; lines with # are comments
    #[arg(long, value_name = "F")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Label the session
    #[arg(long, value_name = "K=V", value_parser = parse_pair)]
    pub(crate) meta: Vec<(String, String)>,
    /// Directory to work on, in the sandbox at /workspace or TARGET
    #[arg(short, long, value_name = "DIR[:TARGET][:ro]")]
    pub(crate) workspace: Option<String>,
    /// Mount a directory of the host, or a volume of the engine
    #[arg(short, long, value_name = "SRC:DST[:ro]")]
    pub(crate) volume: Vec<String>,
    /// Forward a port of the host's loopback; without HOST a free one
    #[arg(short = 'p', long = "publish", value_name = "[HOST:]CONT[/udp]", value_parser = parse_port)]
    pub(crate) ports: Vec<Port>,
    /// CPUs; fractions are allowed
    #[arg(long, value_name = "N", value_parser = parse_cpus)]
    pub(crate) cpus: Option<f64>,
    /// Memory, such as 512m or 2g
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes)]
    pub(crate) memory: Option<u64>,
    /// Number of processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: Option<u32>,
    /// Network of the sandbox
    #[arg(long, value_parser = ["bridge", "none"])]
    pub(crate) network: Option<String>,
    /// How much the sandbox may do [default: moderate]
    #[arg(long, value_parser = ["permissive", "moderate", "restrictive"])]
    pub(crate) profile: Option<String>,
    /// If the session exists already, connect to it
    #[arg(long)]
    pub(crate) reuse: bool,
    /// Open a terminal in it once it runs
    #[arg(long)]
    pub(crate) attach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only sessions in this state; may be given several times
    #[arg(long, value_name = "S", value_parser = [
        "starting", "running", "paused", "stopped", "saved", "lost", "unknown",
    ])]
    pub(crate) status: Vec<String>,
    /// Only sessions of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// How much to show: wide tells what each agent is doing, too
    #[arg(short, long, value_name = "FORMAT", value_parser = ["wide"])]
    pub(crate) output: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    /// The session
    pub(crate) name: String,
    /// Name of the snapshot [default: NAME-YYYYMMDD]
    #[arg(long, value_name = "S")]
    pub(crate) snapshot: Option<String>,
    /// Words to remember it by
    #[arg(long, value_name = "T")]
    pub(crate) note: Option<String>,
    /// Take it under a pause and leave the session as it is
    #[arg(long)]
    pub(crate) keep_running: bool,
    /// Give it up when the engine takes longer [default: the setting save_timeout, 30m]
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) timeout: Option<u64>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["timeout", "idle", "idle_action", "on_boot", "keep", "meta"]))]
pub(crate) struct UpdateArgs {
    /// The session
    pub(crate) name: String,
    /// Stop this long from now, if it runs, and after each resume; 0 is never
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Stop after this long without use; 0 is never
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) idle: Option<u64>,
    /// Keep this many snapshots from the next save on; 0 keeps all
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,
    /// What to do then
    #[arg(long, value_name = "A", value_parser = ["stop", "pause", "save"])]
    pub(crate) idle_action: Option<String>,
    /// What becomes of it when the engine or the machine went down
    #[arg(long, value_name = "W", value_parser = ["resume", "stopped"])]
    pub(crate) on_boot: Option<String>,
    /// Set a label; K alone removes it
    #[arg(long, value_name = "K=V")]
    pub(crate) meta: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).multiple(true).args(["keep", "older"]),
    after_help = "\
With both, what goes is older and beyond the newest N. What a session's
container came from stays, and so does all that is left of a session."
)]
pub(crate) struct PruneArgs {
    /// The sessions [default: all]
    pub(crate) name: Vec<String>,
    /// Leave the newest N of each session
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,
    /// Only those taken longer ago than this
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) older: Option<u64>,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// List snapshots, newest first: of one session, or all
    #[command(visible_alias = "ls")]
    List {
        /// The session
        name: Option<String>,
        /// How much to show: wide tells what each does not hold, too
        #[arg(short, long, value_name = "FORMAT", value_parser = ["wide"])]
        output: Option<String>,
    },
    /// Delete snapshots
    #[command(visible_alias = "rm")]
    Delete {
        /// The snapshots
        #[arg(required = true)]
        snapshot: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Tell in what a snapshot differs from another, or from its session as it is now
    Diff {
        /// The earlier state
        from: String,
        /// The later state [default: the session as it is now]
        to: Option<String>,
    },
    /// Write a snapshot to a file that another machine can import
    Export {
        /// The snapshot
        snapshot: String,
        /// The file, which must not be there yet; - for the standard output
        file: PathBuf,
    },
    /// Take a snapshot over from a file
    Import {
        /// The file; - for the standard input
        file: PathBuf,
        /// Make a saved session of this name, for `abx resume`
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
    },
    /// Delete older snapshots: of some sessions, or all
    Prune(PruneArgs),
}
