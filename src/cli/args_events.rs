//! The grammar of what has happened.

use clap::Args;

use crate::proto::events::KINDS;

/// Which events.
#[derive(Debug, Args)]
#[command(after_help = about_events())]
pub(crate) struct EventsArgs {
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin after this event [default: the last 100; with --follow, what happens from now on]
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
    /// Only of this kind, or of all that begin with it when it ends in a dot (may be repeated)
    #[arg(long = "kind", value_name = "KIND", value_parser = kind)]
    pub(crate) kinds: Vec<String>,
    /// Only of this session
    #[arg(value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// Longest line of the list of kinds, in characters.
const HELP_COLUMNS: usize = 80;

fn about_events() -> String {
    let mut lines = vec!["Kinds:".to_owned()];
    for (at, kind) in KINDS.iter().enumerate() {
        let word = if at + 1 == KINDS.len() { format!(" {kind}") } else { format!(" {kind},") };
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= HELP_COLUMNS => line.push_str(&word),
            _ => lines.push(word),
        }
    }
    format!(
        "{}\n\nThe last 10,000 events are kept, and none of kind progress: it comes with --follow. With\n\
         --json and --follow each event is a document on a line of its own. --follow goes on\n\
         when abxd is restarted.",
        lines.join("\n")
    )
}

/// Reads a kind, or the beginning of some.
fn kind(text: &str) -> Result<String, String> {
    let is_some = KINDS.iter().any(|kind| *kind == text || (text.ends_with('.') && kind.starts_with(text)));
    if is_some { Ok(text.to_owned()) } else { Err(format!("expected one of {}", KINDS.join(", "))) }
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
