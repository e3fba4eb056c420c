//! Commands in a sandbox.
//!
//! The engine answers the start of a command before it starts it; what it could not start, it tells as the command's
//! own output, with code 126 for every reason. [`start_failure`] knows those texts, and what it finds in the first bytes
//! of an output is kept, so that `exec_state` can tell "not found" from "not executable".

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;

use super::api::{self, ExecConfig, ResizeExecOptionsBuilder};
use super::link::{About, Api, Client, Link, ORDINARY, refused, within};
use crate::engine::hijack::{self, Refusal};
use crate::engine::{Chunk, EXEC_MARK, EngineError, ExecIo, ExecSpec, ExecState, WindowSize};

/// The first API that takes a terminal's size before the program starts.
const CONSOLE_SIZE_API: Api = Api { major: 1, minor: 42 };

/// Sets a terminal's size, then becomes the command: `$0` makes the shell's own errors recognisable. For engines that
/// cannot set the size before the start.
const SIZED: &str = r#"stty cols "$1" rows "$2" 2>/dev/null; shift 2; exec "$@""#;

/// `$0` of [`SIZED`].
const WRAPPER: &str = "abx";

/// Bytes of output in which a start's failure is looked for: the engine's texts are one line.
const MAX_FAILURE_BYTES: usize = 2048;

/// Commands that are remembered after their start; the oldest are forgotten, and lose only the finer code.
const MAX_REMEMBERED: usize = 4096;

/// Sends signal `$2` to all processes whose environment has the line `$1`, and prints how many there were. They are
/// looked for first and signalled together, parents before children (patterns by length sort as numbers do): else a
/// shell would see its child end first and give a code of its own. KILL goes round until nothing is left, so that no
/// child of a dying parent slips through. Processes of other users cannot be read, zombies have no environment, and this
/// shell is not marked. Not `grep` on the file itself: the one of busybox sees only what is before the first zero.
const SIGNAL: &str = r#"total=0 round=0 n='[0-9]'
marked() { tr '\0' '\n' <"$1" | grep -qxF "$2"; }
while :; do
  found=0 pids=
  for d in /proc/$n /proc/$n$n /proc/$n$n$n /proc/$n$n$n$n /proc/$n$n$n$n$n /proc/$n$n$n$n$n$n /proc/$n$n$n$n$n$n$n; do
    p=${d#/proc/}
    [ "$p" != "$$" ] && marked "$d/environ" "$1" && pids="$pids $p" found=$((found + 1))
  done 2>/dev/null
  [ "$found" -gt 0 ] && kill -"$2" $pids 2>/dev/null
  total=$((total + found)) round=$((round + 1))
  [ "$2" = 9 ] && [ "$found" -gt 0 ] && [ "$round" -lt 50 ] || break
done
echo "$total""#;

/// How often a signal is tried on a command that was started but whose process is not there yet.
const SIGNAL_TRIES: u32 = 50;
/// Between two tries.
const SIGNAL_PAUSE: Duration = Duration::from_millis(100);
/// Output of the signalling command that is read, in bytes.
const MAX_SIGNAL_OUTPUT_BYTES: usize = 4096;

/// Recognises the text that an engine (or the wrapper that sets a terminal's size) gives instead of a command's output
/// when it cannot start it. Gives the code that a shell would: 127 for a program that is not there, 126 for one
/// that cannot be run (or not as that user, or not in that directory). A command can print the same text: only together with
/// [`ExecState::NotStarted`] is it a failed start.
pub fn start_failure(text: &str) -> Option<i32> {
    let engine = [
        "OCI runtime",
        "runtime exec failed",
        "exec failed",
        "crun:",
        "unable to start container process",
        "unable to find user",
        "unable to find group",
    ]
    .iter()
    .any(|mark| text.contains(mark));
    let shell = text.starts_with("abx: ");
    if !engine && !shell {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let not_there = ["not found", "no such file or directory"].iter().any(|words| lower.contains(words));
    let directory = ["chdir", "getcwd"].iter().any(|words| lower.contains(words));
    Some(if not_there && !directory { 127 } else { 126 })
}

/// What is remembered of commands.
#[derive(Default)]
pub(super) struct Execs {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    by_engine_id: HashMap<String, Exec>,
    by_exec_id: HashMap<String, String>,
    order: VecDeque<String>,
}

struct Exec {
    exec_id: String,
    wrapped: bool,
    /// The code of a failed start, as its output tells it.
    failure: Option<i32>,
    /// Whether the engine refused the start, and so keeps no code of it.
    refused: bool,
}

impl Execs {
    fn remember(&self, engine_id: &str, exec_id: &str, wrapped: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.order.len() >= MAX_REMEMBERED
            && let Some(oldest) = known.order.pop_front()
            && let Some(exec) = known.by_engine_id.remove(&oldest)
        {
            known.by_exec_id.remove(&exec.exec_id);
        }
        let exec = Exec { exec_id: exec_id.to_owned(), wrapped, failure: None, refused: false };
        known.by_engine_id.insert(engine_id.to_owned(), exec);
        known.by_exec_id.insert(exec_id.to_owned(), engine_id.to_owned());
        known.order.push_back(engine_id.to_owned());
    }

    fn engine_id(&self, exec_id: &str) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).by_exec_id.get(exec_id).cloned()
    }

    /// Whether the size was set by the wrapper, and the code of a failed start.
    fn failure(&self, engine_id: &str) -> (bool, Option<i32>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_engine_id.get(engine_id).map_or((false, None), |exec| (exec.wrapped, exec.failure))
    }

    /// The code of a start that the engine refused.
    fn refusal(&self, engine_id: &str) -> Option<i32> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_engine_id.get(engine_id).filter(|exec| exec.refused).and_then(|exec| exec.failure)
    }

    /// Podman refuses some starts where Docker tells the same as the command's output: told alike from here on.
    fn refuse(&self, engine_id: &str, code: i32, text: String) -> hijack::Output {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exec) = known.by_engine_id.get_mut(engine_id) {
            exec.failure = Some(code);
            exec.refused = true;
        }
        stream::iter([Ok(Chunk::Stdout(text.into()))]).boxed()
    }

    /// The output, with an eye on its first bytes.
    fn watch(&self, engine_id: String, output: hijack::Output) -> hijack::Output {
        let known = Arc::clone(&self.known);
        let mut head = Some(Vec::new());
        let watched = output.inspect(move |item| {
            let (Some(seen), Ok(Chunk::Stdout(bytes) | Chunk::Stderr(bytes))) = (head.as_mut(), item) else {
                return;
            };
            let room = MAX_FAILURE_BYTES.saturating_sub(seen.len()).min(bytes.len());
            seen.extend_from_slice(&bytes[..room]);
            if let Some(code) = start_failure(&String::from_utf8_lossy(seen)) {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(exec) = known.by_engine_id.get_mut(&engine_id) {
                    exec.failure = Some(code);
                }
            }
            if seen.len() >= MAX_FAILURE_BYTES {
                head = None;
            }
        });
        watched.boxed()
    }
}

pub(super) async fn exec(
    link: &Link,
    execs: &Execs,
    sandbox_id: &str,
    spec: &ExecSpec,
) -> Result<ExecIo, EngineError> {
    let client = link.client().await?;
    let sized = client.api >= CONSOLE_SIZE_API;
    let wrap = match spec.tty {
        Some(_) if !sized => has_shell(link, sandbox_id).await?,
        _ => false,
    };
    let config = config(spec, sized, wrap);
    let about = About::Sandbox(sandbox_id);
    let made =
        link.call("exec", ORDINARY, about, |client| async move {
            client.docker.create_exec(sandbox_id, config).await
        })
        .await?;
    execs.remember(&made.id, &spec.exec_id, wrap);
    let mut body = json!({"Detach": false, "Tty": spec.tty.is_some()});
    if let (Some(size), true) = (spec.tty, sized) {
        body["ConsoleSize"] = json!([size.rows, size.cols]);
    }
    let path = client.path(&format!("/exec/{}/start", made.id));
    let address = &client.candidate.address;
    let started = hijack::start_exec(address, &path, body.to_string(), spec.tty.is_some(), spec.stdin).await;
    let (input, output) = match started {
        Ok(started) => started,
        Err(refusal) => match refusal.start_failure() {
            Some((code, text)) => {
                let input = spec.stdin.then(|| Box::pin(tokio::io::sink()) as hijack::Input);
                return Ok(ExecIo { output: execs.refuse(&made.id, code, text), engine_id: made.id, input });
            }
            None => return Err(explain(link, &client, "exec", about, refusal)),
        },
    };
    if let (Some(size), false) = (spec.tty, sized) {
        // For images without shell or `stty`: the program may have seen no size for a moment. One that has ended already
        // has none, and that is no failure.
        let _ = resize(link, &made.id, size).await;
    }
    Ok(ExecIo { output: execs.watch(made.id.clone(), output), engine_id: made.id, input })
}

impl Refusal {
    /// The code and text of a start that failed for want of the program, its directory or its user.
    fn start_failure(&self) -> Option<(i32, String)> {
        match self {
            Self::Status(500, text) => start_failure(text).map(|code| (code, text.clone())),
            _ => None,
        }
    }
}

fn explain(
    link: &Link,
    client: &Arc<Client>,
    call: &'static str,
    about: About<'_>,
    refusal: Refusal,
) -> EngineError {
    match refusal {
        Refusal::Transport(why) => link.broken(client, &why),
        Refusal::Late(after) => EngineError::Timeout { call, after },
        Refusal::Status(status, text) => refused(call, about, status, text),
    }
}

/// The engine has keys of its own for leaving a terminal (ctrl-p, ctrl-q), keeps the first of them back until the next
/// one comes, and cannot be told to have none. These are those that nobody types: one key that abx itself asks to be
/// typed twice, many times over.
const NO_DETACH: &str = "ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-],ctrl-]";

/// The line of the environment by which an exec's processes are found.
fn mark(exec_id: &str) -> String {
    format!("{EXEC_MARK}={exec_id}")
}

fn config(spec: &ExecSpec, sized: bool, wrap: bool) -> ExecConfig {
    let mut argv = spec.argv.clone();
    if let (Some(size), true) = (spec.tty, wrap) {
        let (cols, rows) = (size.cols.to_string(), size.rows.to_string());
        let wrapper = ["/bin/sh", "-c", SIZED, WRAPPER, &cols, &rows];
        argv = wrapper.iter().map(|&word| word.to_owned()).chain(argv).collect();
    }
    let mut env: Vec<String> = spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    env.push(mark(&spec.exec_id));
    ExecConfig {
        attach_stdin: Some(spec.stdin),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        detach_keys: Some(NO_DETACH.to_owned()),
        console_size: spec.tty.filter(|_| sized).map(|s| vec![s.rows.into(), s.cols.into()]),
        tty: Some(spec.tty.is_some()),
        env: Some(env),
        cmd: Some(argv),
        user: spec.user.clone(),
        working_dir: spec.cwd.clone(),
        ..ExecConfig::default()
    }
}

/// Whether the sandbox has a shell that can set a terminal's size.
async fn has_shell(link: &Link, sandbox_id: &str) -> Result<bool, EngineError> {
    let options = api::ContainerArchiveInfoOptionsBuilder::new().path("/bin/sh").build();
    link.call("exec", ORDINARY, About::Sandbox(sandbox_id), |client| async move {
        match client.docker.get_container_archive_info(sandbox_id, Some(options)).await {
            Ok(_) => Ok(true),
            // Not there, or the engine cannot say: then without.
            Err(api::Error::DockerResponseServerError { .. } | api::Error::HttpHeaderNotFoundError(_)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    })
    .await
}

pub(super) async fn resize(link: &Link, engine_id: &str, size: WindowSize) -> Result<(), EngineError> {
    let options = ResizeExecOptionsBuilder::new().w(size.cols.into()).h(size.rows.into()).build();
    link.call("exec_resize", ORDINARY, About::Nothing, |client: Arc<Client>| async move {
        client.docker.resize_exec(engine_id, options).await
    })
    .await
}

pub(super) async fn state(link: &Link, execs: &Execs, engine_id: &str) -> Result<ExecState, EngineError> {
    if let Some(code) = execs.refusal(engine_id) {
        return Ok(ExecState::NotStarted(code));
    }
    let seen = link
        .call("exec_state", ORDINARY, About::Nothing, |client| async move {
            client.docker.inspect_exec(engine_id).await
        })
        .await?;
    if seen.running == Some(true) {
        return Ok(if seen.pid.unwrap_or(0) == 0 { ExecState::Starting } else { ExecState::Running });
    }
    // Neither running nor ended: created, and its start is under way.
    let Some(code) = seen.exit_code else { return Ok(ExecState::Starting) };
    let code = i32::try_from(code).unwrap_or(255);
    let (wrapped, failure) = execs.failure(engine_id);
    // Podman keeps the number of no process that ended: there the code must agree with the text.
    let podman = link.client().await?.podman.is_some();
    let no_process = !podman && seen.pid.unwrap_or(0) == 0;
    Ok(match failure {
        // Podman says 127 of a directory too.
        Some(failure)
            if no_process || (wrapped && failure == code) || (podman && (failure..=127).contains(&code)) =>
        {
            ExecState::NotStarted(failure)
        }
        None if no_process && matches!(code, 126 | 127) => ExecState::NotStarted(code),
        _ => ExecState::Exited(code),
    })
}

pub(super) async fn signal(
    link: &Link,
    execs: &Execs,
    sandbox_id: &str,
    exec_id: &str,
    user: Option<&str>,
    signal: i32,
) -> Result<(), EngineError> {
    for _ in 0..SIGNAL_TRIES {
        if signal_once(link, execs, sandbox_id, exec_id, user, signal).await? > 0 {
            return Ok(());
        }
        // Nothing was found: it has ended, or its process is not there yet.
        let Some(engine_id) = execs.engine_id(exec_id) else { return Ok(()) };
        if matches!(state(link, execs, &engine_id).await?, ExecState::Exited(_) | ExecState::NotStarted(_)) {
            return Ok(());
        }
        tokio::time::sleep(SIGNAL_PAUSE).await;
    }
    Err(EngineError::Failed {
        call: "exec_signal",
        text: "the command runs, but none of its processes can be seen by its user".to_owned(),
    })
}

/// Gives how many processes got the signal.
async fn signal_once(
    link: &Link,
    execs: &Execs,
    sandbox_id: &str,
    exec_id: &str,
    user: Option<&str>,
    signal: i32,
) -> Result<u64, EngineError> {
    let number = signal.to_string();
    let argv = ["/bin/sh", "-c", SIGNAL, "abx-signal", &mark(exec_id), &number];
    let config = ExecConfig {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(argv.iter().map(|&word| word.to_owned()).collect()),
        user: user.map(str::to_owned),
        working_dir: Some("/".to_owned()),
        ..ExecConfig::default()
    };
    let about = About::Sandbox(sandbox_id);
    let made = link
        .call("exec_signal", ORDINARY, about, |client| async move {
            client.docker.create_exec(sandbox_id, config).await
        })
        .await?;
    let client = link.client().await?;
    let path = client.path(&format!("/exec/{}/start", made.id));
    let body = json!({"Detach": false, "Tty": false}).to_string();
    let run = async {
        let started = hijack::start_exec(&client.candidate.address, &path, body, false, false).await;
        let (_, mut output) =
            started.map_err(|refusal| explain(link, &client, "exec_signal", about, refusal))?;
        let mut text = Vec::new();
        while let Some(chunk) = output.next().await {
            // The count is on the one, and on the other what does not concern us.
            let Chunk::Stdout(bytes) = chunk? else { continue };
            let room = MAX_SIGNAL_OUTPUT_BYTES.saturating_sub(text.len()).min(bytes.len());
            text.extend_from_slice(&bytes[..room]);
        }
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let text = within("exec_signal", ORDINARY, run).await??;
    match text.parse() {
        Ok(count) => Ok(count),
        // The sandbox went away under it, or has no shell.
        Err(_) => match state(link, execs, &made.id).await? {
            ExecState::NotStarted(_) => Err(EngineError::Failed { call: "exec_signal", text }),
            ExecState::Starting | ExecState::Running | ExecState::Exited(_) => Ok(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_a_failed_start_give_the_code_that_a_shell_would() {
        for (text, want) in [
            (
                "OCI runtime exec failed: exec failed: unable to start container process: exec: \"x\": executable file not found in $PATH: unknown",
                Some(127),
            ),
            (
                "OCI runtime exec failed: exec failed: exec: \"/x\": stat /x: no such file or directory",
                Some(127),
            ),
            ("OCI runtime exec failed: exec failed: exec: \"/etc\": permission denied: unknown", Some(126)),
            ("OCI runtime exec failed: exec failed: exec: \"/tmp\": is a directory: unknown", Some(126)),
            ("crun: executable file `x` not found in $PATH: No such file or directory", Some(127)),
            ("abx: 1: exec: nosuch: not found", Some(127)),
            ("abx: exec: line 0: /etc/passwd: Permission denied", Some(126)),
            (
                "OCI runtime exec failed: exec failed: chdir to cwd (\"/x\") set in config.json failed: no such file or directory",
                Some(126),
            ),
            ("unable to find user x: no matching entries in passwd file", Some(126)),
            ("sh: nosuch: not found", None),
            ("hello", None),
        ] {
            assert_eq!(start_failure(text), want, "{text}");
        }
    }
}
