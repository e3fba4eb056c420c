//! The command line's grammar, and nothing that acts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::args_attention::{NotifyArgs, WaitArgs};
pub(crate) use super::args_daemon::DaemonCommand;
use super::args_events::{EventsArgs, HistoryArgs};
use super::args_exec::{ExecsCommand, TerminalCommand};
use super::args_session::{ListArgs, SessionCommand, SnapshotCommand};
use crate::config::parse_duration_ms;
use crate::proto::terminals::MAIN_TERMINAL;

/// Named, persistent sandboxes for coding agents.
#[derive(Debug, Parser)]
#[command(
    name = "abx",
    disable_version_flag = true,
    subcommand_required = false,
    max_term_width = 100,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) top: Top,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What stands before a verb.
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) global: Global,
    /// Print the version of abx, and of the abxd that runs, if one does
    #[arg(short = 'V', long)]
    pub(crate) version: bool,
}

const AFTER_HELP: &str = "\
Every session verb also works without the word `session`: `abx start N`, `abx ls`.

A first session:
  abx start feature-x -w .       create a sandbox that works on this directory
  abx attach feature-x           open a shell in it
  abx exec feature-x -- make     run a command in it
  abx cp feature-x:out.log .     copy a file out of it
  abx save feature-x             keep its files as a snapshot
  abx resume feature-x           bring it back, today or next week

Exit codes:
  0 done, 1 failed or refused, 2 wrong usage, 3 no such session or snapshot,
  4 conflict (exists, busy, wrong state), 5 engine unreachable, 6 daemon
  unreachable. `exec` and `attach` give the command's own code; 124 its
  --timeout ran out, 125 abx, abxd or the engine failed, 126 the command
  cannot run, 127 it was not found, 128+n signal n ended it.

Files, in ~/.abx or ABX_HOME: daemon.sock, sessions.db, config.toml, log/abxd.log";

const RPC_HELP: &str = "\
With --stdio any framing may be spoken. The end of the input closes that side alone:
what was asked is still answered. Exit code 6: abxd went away.";

/// The heading of [`Global`]'s options in every help.
const GLOBAL: &str = "Options of every command";

/// Options that every command understands, before and after its name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// Print one JSON document on standard output: the result, or the error object
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print names only
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Fail if abxd does not run, rather than start it
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_autostart: bool,
    /// Socket of abxd [default: ABX_SOCKET, else daemon.sock in the home]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Home of abx [default: ABX_HOME, else ~/.abx]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Say more on standard error (short: -v, but for `start`, where -v is a volume)
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start, list, stop, save, resume and delete sessions
    #[command(subcommand)]
    Session(SessionCommand),
    #[command(flatten)]
    Direct(SessionCommand),
    /// List and delete snapshots
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Run a command in a session, or look after those that were started
    Exec(ExecArgs),
    /// Open a terminal in a session
    Attach(AttachArgs),
    /// List terminals, show what they show, end them
    #[command(subcommand)]
    Terminal(TerminalCommand),
    /// Copy files between this machine and a session, or between two sessions
    Cp(CpArgs),
    /// Wait until a session or its agent is as wanted
    Wait(WaitArgs),
    /// Say what a session's agent is doing
    Notify(NotifyArgs),
    /// Show what has happened, and what happens
    Events(EventsArgs),
    /// Show what was done with a session: when, by whom, and how it ended
    History(HistoryArgs),
    /// Take over an exported table, or the sessions of agentkernel and of the Agent Sandbox SDK
    Import(ImportArgs),
    /// Write the whole session table as one document
    Export(ExportArgs),
    /// Make a container that abx did not make a session
    Adopt(AdoptArgs),
    /// Run, start, stop and look at abxd
    #[command(subcommand)]
    Daemon(DaemonCommand),
    /// Check everything that abx needs, and say how to mend what is wrong
    Doctor(DoctorArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Serve the Model Context Protocol on standard input and output
    Mcp(McpArgs),
    /// Call a method of abxd and print its result; without a method, list them
    #[command(after_help = RPC_HELP)]
    Rpc {
        /// Be a connection to abxd: what comes on standard input goes to its socket as it is, and back
        #[arg(long, conflicts_with = "method")]
        stdio: bool,
        /// The method, such as session.list
        method: Option<String>,
        /// Its parameters as a JSON object, or - to read them from standard input
        params: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
For agents on this machine. To have claude start it: claude mcp add abx -- abx mcp
Whoever uses these tools may do with all sessions what their user may. It reaches
files of this machine only where --allow-dir names them.")]
pub(crate) struct McpArgs {
    /// Let new sessions work on this directory of the host, and on those in it (may be repeated)
    #[arg(long = "allow-dir", value_name = "DIR")]
    pub(crate) allow_dirs: Vec<PathBuf>,
    /// Offer only the tools that change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ExecArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ExecsCommand>,
    #[command(flatten)]
    pub(crate) run: Option<RunArgs>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without -i the command has no input. Ctrl-C is passed on to the command; a
second one ends abx. The session's environment applies; -e adds to it for this
command only. Options of abx stand before NAME. In a session that is named like
one of the commands above: abx exec NAME -- CMD.")]
pub(crate) struct RunArgs {
    /// Pass standard input on to the command
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Run it on a terminal of this terminal's size
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Set a variable for this command (K=V), or pass on this shell's (K)
    #[arg(short, long, value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// Directory in the sandbox to run it in [default: the workspace, else the image's]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User to run it as: a name or an id, optionally with :GROUP
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Do not wait for its end; print its id
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub(crate) detach: bool,
    /// Kill it after this time (seconds, or 30m, 2h) and exit with 124
    #[arg(long, value_name = "D", value_parser = parse_duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Fail if the session does not run, rather than resume it
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// The session, by its name or its sandbox's
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) cmd: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Leave with the detach keys; what runs in the sandbox goes on, and the next attach
comes back to it. Any number may be attached to one terminal: all see it, all
that are not --read-only type, and its size follows who typed last.")]
pub(crate) struct AttachArgs {
    /// The session, by its name or its sandbox's
    pub(crate) name: String,
    /// The terminal: come back to it, or open it if it is not there
    #[arg(long, value_name = "T", default_value = MAIN_TERMINAL)]
    pub(crate) terminal: String,
    /// Open the session's agent there, in place of a shell. Where it has run before, it goes on with its
    /// last conversation
    #[arg(long, conflicts_with = "cmd")]
    pub(crate) agent: bool,
    /// As --agent, but begin a new conversation
    #[arg(long, conflicts_with = "cmd")]
    pub(crate) fresh: bool,
    /// Watch only: neither keys nor this terminal's size count
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Lines of what scrolled away to show above the screen
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) scrollback: u32,
    /// Keys that leave: characters and ctrl-X, separated by commas; none switches them off. The first
    /// one typed twice is sent once
    #[arg(long, value_name = "K", default_value = super::detach::DEFAULT)]
    pub(crate) detach_keys: super::detach::Keys,
    /// Fail if the session does not run, rather than resume it
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// The command to open the terminal with, and its arguments [default: the session's shell]
    #[arg(last = true, value_name = "CMD")]
    pub(crate) cmd: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A path in a session is NAME:PATH; a relative one counts from the workspace, else
from the image's working directory. A local path with a colon begins with / or .
and - is a tar stream on standard input or output.

Into a directory that exists, SRC goes under its own name; else DST is its new
name. SRC/. is the content of a directory alone. A session that is stopped or
saved is resumed first. Files that go in belong to the user that commands run as.
Symbolic links stay links. Between this machine and a session devices and pipes
are left out.")]
pub(crate) struct CpArgs {
    /// Keep the numbers of user and group of what goes in
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// If SRC is a symbolic link, copy what it leads to
    #[arg(short = 'L', long)]
    pub(crate) follow_link: bool,
    /// Leave a session that does not run as it is, and copy from or to its container
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// What to copy: NAME:PATH, a local path, or -
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Where to: NAME:PATH, a local path, or -
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A table is read from FILE, or from - for standard input. A session that is there
already stays as it is; one that has no container on this engine is saved where
its snapshots are here, else lost.

Else reads both tools' usual directories, or DIR. Each file is reported; none is
changed. A session whose name is taken already is reported as a conflict. The
import may be repeated.")]
pub(crate) struct ImportArgs {
    /// Which tool wrote the files
    #[arg(long, default_value = "auto", value_parser = ["auto", "agent-sandbox", "agentkernel"])]
    pub(crate) from: String,
    /// Give a session of a table whose name is taken another: NAME-2, and so on
    #[arg(long)]
    pub(crate) rename: bool,
    /// A table that was exported, or a directory of session files [default: where the tools keep them]
    #[arg(value_name = "FILE|DIR")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The document is JSON: sessions and snapshots with all that the table has of them.
Their files stay with the engine. abx import FILE takes it over.")]
pub(crate) struct ExportArgs {
    /// With the values of environments; the file is for you alone either way
    #[arg(long)]
    pub(crate) with_secrets: bool,
    /// Where to write it, or - for standard output
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The container goes on as it is, running or stopped, and every verb works on it:
delete removes it. Its commands are run by the engine; what it mounts, its ports
and its limits are read from it.")]
pub(crate) struct AdoptArgs {
    /// The session's name
    pub(crate) name: String,
    /// The container, by its name or its full id
    pub(crate) container: String,
    /// The agent that works in it [default: claude, or what its labels say]
    #[arg(long)]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 1: something is wrong. --fix takes the rights of others away, removes a
left-over socket, and makes containers of abx that lost their rows sessions again.
It removes nothing that you made.")]
pub(crate) struct DoctorArgs {
    /// Print a report that can be shown to others: without paths of homes, user names and passwords
    #[arg(long, conflicts_with = "fix")]
    pub(crate) report: bool,
    /// Mend what can be mended, and check again
    #[arg(long)]
    pub(crate) fix: bool,
    /// Do not ask
    #[arg(short, long, requires = "fix")]
    pub(crate) yes: bool,
}

/// The grammar, with `-v` on each command that does not use it for something else.
pub(crate) fn command() -> clap::Command {
    add_verbose(Cli::command())
}

/// Parses a command line.
///
/// # Errors
/// Clap's own, which are also how help comes out.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    // Whatever the verb alone does not take, the whole grammar explains.
    let narrow = verb_alone(&args).and_then(|grammar| grammar.try_get_matches_from(&args).ok());
    let matches = match narrow {
        Some(matches) => matches,
        None if is_session_named_like_a_command(&args) => {
            let run = |_| RunArgs::augment_args(clap::Command::new("exec"));
            add_verbose(Cli::command().mut_subcommand("exec", run)).try_get_matches_from(args)?
        }
        None => command().try_get_matches_from(args)?,
    };
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.top.global.verbose |= short_verbose(&matches);
    Ok(cli)
}

/// Whether this is `exec NAME -- CMD`, with a name that `exec` has a command of.
fn is_session_named_like_a_command(args: &[OsString]) -> bool {
    let words = ExecsCommand::augment_subcommands(clap::Command::new("exec"));
    args.iter().position(|word| word == "exec").is_some_and(|exec| {
        args[exec..].windows(2).any(|pair| {
            pair[1] == "--" && pair[0].to_str().is_some_and(|word| words.find_subcommand(word).is_some())
        })
    })
}

/// The grammar of one verb, where the command line begins with one: building all of them takes longer than the rest of
/// `abx ls`.
fn verb_alone(args: &[OsString]) -> Option<clap::Command> {
    let verb = match args.get(1)?.to_str()? {
        // Those that are asked for all day, and by prompts and scripts that wait for them.
        "list" | "ls" => ListArgs::augment_args(clap::Command::new("list").alias("ls")),
        "exec" if is_session_named_like_a_command(args) => RunArgs::augment_args(clap::Command::new("exec")),
        "exec" => ExecArgs::augment_args(clap::Command::new("exec")),
        "attach" => AttachArgs::augment_args(clap::Command::new("attach")),
        verb => {
            let verbs = SessionCommand::augment_subcommands(clap::Command::new("abx"));
            verbs.find_subcommand(verb)?.clone()
        }
    };
    let top = Top::augment_args(clap::Command::new("abx").subcommand_required(true));
    Some(add_verbose(top.subcommand(verb)))
}

/// Whether a command line that does not parse asked for JSON.
pub(crate) fn wants_json(args: &[OsString]) -> bool {
    args.iter().take_while(|a| *a != "--").any(|a| a == "--json")
}

const SHORT_VERBOSE: &str = "short-verbose";

fn add_verbose(command: clap::Command) -> clap::Command {
    let taken = command.get_arguments().any(|a| a.get_short() == Some('v'));
    let command = command.mut_subcommands(add_verbose);
    if taken {
        return command;
    }
    command.arg(Arg::new(SHORT_VERBOSE).short('v').hide(true).action(ArgAction::SetTrue))
}

fn short_verbose(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>(SHORT_VERBOSE).ok().flatten().copied().unwrap_or_default();
    here || matches.subcommand().is_some_and(|(_, below)| short_verbose(below))
}

#[cfg(test)]
mod tests;
