//! Commands whose output is kept and given at their end.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::{Ended, ExecRequest, Live, TIMED_OUT};
use crate::daemon::driver::Driver;
use crate::daemon::failure::Failure;
use crate::engine::Chunk;
use crate::proto::errors::Kind;

/// Output that is kept of each stream by `exec.run`, in bytes. What is beyond is read and dropped.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

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
    /// Runs a command to its end and keeps the beginning of its output.
    ///
    /// # Errors
    /// As for [`Driver::exec`], and `command_not_found` or `command_not_executable` when it never started.
    ///
    /// # Cancel safety
    /// The command goes on when the caller is dropped.
    pub async fn exec_run(
        &self,
        request: ExecRequest,
        input: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Output, Failure> {
        let this = self.clone();
        self.submit(async move {
            let live = this.exec(request).await?;
            let deadline = limit.map(|limit| Instant::now() + limit);
            let output = collect(live, input, deadline).await?;
            if output.ended.never_started {
                return Err(never_started(&output));
            }
            Ok(output)
        })
        .await
    }
}

fn never_started(output: &Output) -> Failure {
    let kind = if output.ended.code == 126 { Kind::CommandNotExecutable } else { Kind::CommandNotFound };
    Failure::new(kind, output.ended.reason.clone().unwrap_or_default())
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
        127 if text.is_empty() || text.contains("not found") || text.contains("no such file") => {
            format!("{command}: command not found in the sandbox")
        }
        126 if text.contains("permission denied") || text.contains("is a directory") => {
            format!("{command}: cannot be run in the sandbox: permission denied, or not a program")
        }
        _ if text.is_empty() => format!("{command}: cannot be run in the sandbox"),
        _ => text.to_owned(),
    }
}

async fn collect(live: Live, input: Option<String>, deadline: Option<Instant>) -> Result<Output, Failure> {
    let Live { id, mut io, handle } = live;
    let feed = io.input.take().map(|mut stdin| {
        let text = input.unwrap_or_default();
        tokio::spawn(async move {
            // A command that does not read its input is no error.
            let _ = stdin.write_all(text.as_bytes()).await;
            let _ = stdin.shutdown().await;
        })
    });
    let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
    let mut timed_out = false;
    loop {
        let next = match deadline.filter(|_| !timed_out) {
            Some(at) => tokio::select! {
                chunk = io.output.next() => chunk,
                () = tokio::time::sleep_until(at) => {
                    timed_out = true;
                    handle.end();
                    continue;
                }
            },
            None => io.output.next().await,
        };
        match next {
            Some(Ok(Chunk::Stdout(bytes))) => truncated |= keep(&mut stdout, &bytes),
            Some(Ok(Chunk::Stderr(bytes))) => truncated |= keep(&mut stderr, &bytes),
            Some(Err(error)) if !timed_out => return Err(error.into()),
            Some(Err(_)) | None => break,
        }
    }
    let mut ended = handle.wait(deadline.filter(|_| !timed_out)).await?;
    if timed_out || ended.code == TIMED_OUT && ended.reason.is_some() {
        ended = Ended { code: TIMED_OUT, reason: Some("its time ran out".to_owned()), never_started: false };
    }
    if ended.never_started {
        let text =
            String::from_utf8_lossy(if stdout.is_empty() { &stderr } else { &stdout }).trim().to_owned();
        ended.reason = Some(text).filter(|t| !t.is_empty()).or(ended.reason);
    }
    if let Some(feed) = feed {
        feed.abort();
    }
    Ok(Output { id, ended, stdout, stderr, truncated, took: handle.started.elapsed() })
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
            start_refusal("ls", 127, &no_dir),
            "the working directory /nowhere does not exist in the sandbox"
        );
        assert_eq!(start_refusal("ls", 126, "unable to find user x"), "unable to find user x");
    }
}
