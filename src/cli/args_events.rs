//! The grammar of what has happened.

use clap::Args;

/// Which events.
#[derive(Debug, Args)]
#[command(after_help = "\
The last 10,000 events are kept. With --json and --follow each event is a document
on a line of its own. --follow goes on when abxd is restarted.")]
pub(crate) struct EventsArgs {
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin after this event [default: the last 100; with --follow, what happens from now on]
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
    /// Only of this kind, or of all that begin with it when it ends in a dot (may be repeated)
    #[arg(long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// Only of this session
    #[arg(value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// Whose history.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The last so many lines
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// The session; also one that is gone, as long as its events are kept
    pub(crate) name: String,
}
