//! The grammar of commands that were started, and of terminals.

use clap::{Args, Subcommand};

use crate::config::parse_duration_ms;
use crate::proto::terminals::MAIN_TERMINAL;

/// What can be done with commands that were started.
#[derive(Debug, Subcommand)]
pub(crate) enum ExecsCommand {
    /// List commands, of one session or of all
    #[command(visible_alias = "ls")]
    List {
        /// The session
        name: Option<String>,
    },
    /// Print a command's output, as far as it is kept
    Logs {
        /// Go on as it grows, until the command ends; with --json, a document on each line for each part
        #[arg(short, long)]
        follow: bool,
        /// The command's id, or the beginning of it
        id: String,
    },
    /// End a command and all that it started
    Kill {
        /// The signal, by name or number [default: TERM, then KILL after 5s]
        #[arg(short, long, value_name = "S", value_parser = parse_signal)]
        signal: Option<i32>,
        /// The command's id, or the beginning of it
        id: String,
    },
    /// Wait for a command's end and give its code
    Wait {
        /// Give up after this time (seconds, or 30m, 2h) and exit with 124
        #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
        timeout: Option<u64>,
        /// The command's id, or the beginning of it
        id: String,
    },
}

/// What can be done with terminals without attaching to them.
#[derive(Debug, Subcommand)]
pub(crate) enum TerminalCommand {
    /// List terminals, of one session or of all
    #[command(visible_alias = "ls")]
    List {
        /// The session
        name: Option<String>,
    },
    /// Print what a terminal shows
    Peek {
        #[command(flatten)]
        which: Which,
        /// Lines of scrollback above the screen
        #[arg(long, value_name = "N", default_value_t = 0)]
        scrollback: u32,
    },
    /// End what runs on a terminal
    Kill(Which),
}

/// A terminal of a session.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The session
    pub(crate) name: String,
    /// The terminal
    #[arg(default_value = MAIN_TERMINAL)]
    pub(crate) terminal: String,
}

/// A signal as `kill` takes it: `TERM`, `SIGTERM` or `15`.
fn parse_signal(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse::<i32>() {
        return if (1..=64).contains(&number) { Ok(number) } else { Err("not a signal".to_owned()) };
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse::<nix::sys::signal::Signal>()
        .map(|signal| signal as i32)
        .map_err(|_| "not a signal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_taken_by_name_and_by_number() {
        for text in ["TERM", "term", "SIGTERM", "15"] {
            assert_eq!(parse_signal(text), Ok(15), "{text}");
        }
        for text in ["0", "65", "-1", "NOPE", ""] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
