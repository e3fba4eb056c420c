//! The grammar of `abx daemon`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Run abxd in the foreground
    Run {
        /// Address of the engine, such as unix:///var/run/docker.sock
        #[arg(long, value_name = "ADDRESS")]
        engine: Option<String>,
        /// How much to log: a level, or directives such as abx=debug
        #[arg(long, value_name = "LEVEL")]
        log: Option<String>,
    },
    /// Start abxd if it does not run
    Start,
    /// Stop abxd; sandboxes keep running
    Stop,
    /// Have the abxd beside this abx go on in the running one's place, without a refused call
    Restart,
    /// Show version, process, places and engines
    Status,
    /// Show abxd's log
    Logs {
        /// Go on as the log grows
        #[arg(short, long)]
        follow: bool,
        /// Number of lines from the end
        #[arg(long, value_name = "N", default_value_t = 100)]
        tail: usize,
    },
    /// Have the system start abxd for this user when it is needed (systemd, launchd)
    Install {
        /// Print the files and the commands, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Undo `install`
    Uninstall,
}
