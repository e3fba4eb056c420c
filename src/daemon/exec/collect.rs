//! Commands whose output is kept and given at their end.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use super::{ChunkStream, Input};
use super::{Ended, ExecRequest, Handle, Live, by};
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::daemon::framing::{Abandoned, Audience};
use crate::daemon::shutdown::Shutdown;
use crate::engine::Chunk;
use crate::model::exec::Verdict;
use crate::model::exec::code::{NOT_EXECUTABLE, NOT_FOUND};
use crate::proto::errors::Kind;

/// Output that is kept of each stream by `exec.run`, in bytes. What is beyond is read and dropped.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// The system's word on arguments and environment that are together longer than it takes (`E2BIG`).
pub const TOO_LONG: &str = "argument list too long";

/// What ends the input of a program on a terminal, as terminals are set at first (`VEOF` of termios(3)).
const END_OF_FILE: &str = "\u{4}";

/// What a buffered command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub ended: Ended,
    /// The beginning of its output.
    pub stdout: Vec<u8>,
    /// The beginning of its errors.
    pub stderr: Vec<u8>,
    /// Whether more came than was kept.
    pub truncated: bool,
    /// How long it ran.
    pub took: Duration,
}

impl Driver {
    /// Runs a command to its end and keeps the beginning of its output. When nobody waits for that any more, it is ended.
    ///
    /// # Errors
    /// As for [`Driver::exec`], `command_not_found` or `command_not_executable` when it never started, and `shutting_down`
    /// with its id when the daemon stops before its end.
    ///
    /// # Cancel safety
    /// The command goes on when the caller is dropped: the request's audience says whether somebody waits.
    pub async fn exec_run(&self, request: ExecRequest, input: Option<String>) -> Result<Output, Failure> {
        let this = self.clone();
        self.submit(async move {
            let (audience, shutdown) = (request.audience.clone(), request.shutdown.clone());
            let input = input.map(|text| whole(text, request.tty.is_some()));
            let live = this.exec(request).await?;
            let handle = live.handle.copy();
            let output = collect(live, input, &audience, &shutdown).await?;
            if output.ended.never_started {
                let text = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
                return Err(never_started(&handle, output.ended.code, text));
            }
            Ok(output)
        })
        .await
    }
}

/// The refusal of a command that never started; `text` is what the engine said in place of its output.
pub(super) fn never_started(handle: &Handle, code: i32, text: &[u8]) -> Failure {
    let line = handle.start_refusal(code, text);
    let kind = match code {
        _ if line.contains(TOO_LONG) => Kind::Limit,
        NOT_EXECUTABLE => Kind::CommandNotExecutable,
        _ => Kind::CommandNotFound,
    };
    Failure::new(kind, line)
}

/// Why a command never started: a line of ours where the engine's text is one of those that are known, else the
/// engine's own.
pub fn start_refusal(command: &str, code: i32, text: &str) -> String {
    let text = text.trim();
    if text.contains("chdir to cwd") || text.contains("getcwd") && text.contains("no such file") {
        let dir = text.split('"').find(|part| part.starts_with('/')).unwrap_or("it");
        return format!("the working directory {dir} does not exist in the sandbox");
    }
    match code {
        _ if text.to_ascii_lowercase().contains(TOO_LONG) => {
            format!(
                "{command}: its arguments and environment are together longer than the sandbox takes: {TOO_LONG}"
            )
        }
        NOT_FOUND if text.is_empty() || text.contains("not found") || text.contains("no such file") => {
            format!("{command}: command not found in the sandbox")
        }
        NOT_EXECUTABLE if text.contains("permission denied") || text.contains("is a directory") => {
            format!("{command}: cannot be run in the sandbox: permission denied, or not a program")
        }
        _ if text.is_empty() => format!("{command}: cannot be run in the sandbox"),
        _ => text.to_owned(),
    }
}

/// What is kept of a command's output.
#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

impl Kept {
    fn take(&mut self, chunk: Chunk) {
        self.truncated |= match chunk {
            Chunk::Stdout(bytes) => keep(&mut self.stdout, &bytes),
            Chunk::Stderr(bytes) => keep(&mut self.stderr, &bytes),
        };
    }
}

async fn collect(
    live: Live,
    input: Option<String>,
    audience: &Audience,
    shutdown: &Shutdown,
) -> Result<Output, Failure> {
    let Live { id, mut io, handle, deadline, .. } = live;
    let mut kept = Kept::default();
    let feed = feed(io.input.take(), input.unwrap_or_default());
    let work = async {
        tokio::select! {
            ended = read(&handle, &mut io.output, &mut kept) => ended,
            never = feed => match never {},
        }
    };
    let seen = tokio::select! {
        biased;
        seen = by(deadline, work) => seen.ok_or(Verdict::TimedOut),
        why = audience.left() => Err(match why {
            Abandoned::Cancelled => Verdict::Cancelled,
            Abandoned::Gone | Abandoned::Stopping => Verdict::Abandoned,
        }),
        // A stop does not wait for commands.
        () = shutdown.wait() => return Err(Failure::goes_on(&id)),
    };
    let ended = match seen {
        Ok(Ok(ended)) => ended,
        Ok(Err(failure)) => {
            // Nobody hears of it any more.
            handle.finish(&mut io.output, Verdict::Abandoned, |_| {}).await;
            return Err(failure);
        }
        Err(verdict) => handle.finish(&mut io.output, verdict, |chunk| kept.take(chunk)).await,
    };
    let Kept { stdout, stderr, truncated } = kept;
    Ok(Output { id, ended, stdout, stderr, truncated, took: handle.started.elapsed() })
}

/// An input with what ends it. A pipe ends when it is closed; a terminal is never closed, and has a character for that.
fn whole(text: String, tty: bool) -> String {
    if !tty {
        return text;
    }
    // Within a line the first only hands over what stands there.
    let ends = if text.is_empty() || text.ends_with(['\n', '\r']) { 1 } else { 2 };
    text + &END_OF_FILE.repeat(ends)
}

/// Gives the command its input, and then nothing more.
pub(super) async fn feed(stdin: Option<Input>, text: String) -> std::convert::Infallible {
    if let Some(mut stdin) = stdin {
        // A command that does not read its input is no error.
        let _ = stdin.write_all(text.as_bytes()).await;
        let _ = stdin.shutdown().await;
    }
    std::future::pending().await
}

async fn read(handle: &Handle, output: &mut ChunkStream, kept: &mut Kept) -> Result<Ended, Failure> {
    while let Some(chunk) = output.next().await {
        kept.take(chunk?);
    }
    handle.wait().await
}

/// Keeps what fits and says whether something did not.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    bytes.len() > room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_words_become_a_line_that_names_the_command_or_the_directory() {
        let oci = |what: &str| format!("OCI runtime exec failed: exec failed: {what}: unknown");
        let not_found = oci("exec: \"nope\": executable file not found in $PATH");
        assert_eq!(start_refusal("nope", 127, &not_found), "nope: command not found in the sandbox");
        let no_dir = oci("chdir to cwd (\"/nowhere\") set in config.json failed: no such file or directory");
        assert_eq!(
            start_refusal("ls", 126, &no_dir),
            "the working directory /nowhere does not exist in the sandbox"
        );
        assert_eq!(start_refusal("ls", 126, "unable to find user x"), "unable to find user x");
        let long = start_refusal("ls", 126, &oci("exec /bin/ls: argument list too long"));
        assert!(long.starts_with("ls: its arguments") && long.ends_with(TOO_LONG), "{long}");
    }

    #[test]
    fn what_a_terminal_is_given_ends_with_the_character_for_that() {
        for (text, want) in [("", "\u{4}"), ("x\n", "x\n\u{4}"), ("x", "x\u{4}\u{4}")] {
            assert_eq!(
                (whole(text.to_owned(), true), whole(text.to_owned(), false)),
                (want.to_owned(), text.to_owned())
            );
        }
    }
}
