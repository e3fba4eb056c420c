//! `exec.*`.

use std::time::Duration;

use super::{Module, convert, later, now};
use crate::daemon::exec::{ExecRequest, Output};
use crate::daemon::failure::Failure;
use crate::daemon::framing::Audience;
use crate::daemon::guests::Kept;
use crate::daemon::text;
use crate::proto::execs::ExecLogsResult;
use crate::proto::execs::ExecResult;
use crate::proto::methods::{ExecKill, ExecList, ExecLogs, ExecRun, ExecStart, ExecWait};
use crate::proto::stream::Size;

/// The terminal of a buffered command, which nobody looks at: the size that terminals have had since the VT100.
const TERMINAL: Size = Size { cols: 80, rows: 24 };

pub(super) fn register(module: &mut Module) {
    later::<ExecRun, _, _>(module, |asked, app, extensions| async move {
        let request = ExecRequest {
            session: asked.session,
            cmd: asked.cmd,
            env: asked.env,
            cwd: asked.cwd,
            user: asked.user,
            tty: asked.tty.then_some(TERMINAL),
            stdin: asked.stdin.is_some(),
            timeout: asked.timeout.map(Duration::from_millis),
            resume: asked.resume,
            audience: extensions.get::<Audience>().cloned().unwrap_or_default(),
            shutdown: app.shutdown.clone(),
            ..ExecRequest::default()
        };
        Ok(result(app.driver.exec_run(request, asked.stdin).await?))
    });
    later::<ExecStart, _, _>(module, |asked, app, _| async move {
        let request = ExecRequest {
            session: asked.session,
            cmd: asked.cmd,
            env: asked.env,
            cwd: asked.cwd,
            user: asked.user,
            stdin: asked.stdin.is_some(),
            detached: true,
            key: asked.key,
            timeout: asked.timeout.map(Duration::from_millis),
            resume: asked.resume,
            ..ExecRequest::default()
        };
        Ok(convert::exec(&*app.driver.exec_start(request, asked.stdin).await?, &app.driver))
    });
    now::<ExecList, _>(module, |asked, app| {
        let execs = app.driver.execs(asked.session.as_deref())?;
        Ok(execs.iter().map(|exec| convert::exec(exec, &app.driver)).collect::<Vec<_>>())
    });
    later::<ExecKill, _, _>(module, |asked, app, _| async move {
        if asked.signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
            return Err(Failure::field("signal", "an integer from 1 to 64"));
        }
        Ok(convert::exec(&*app.driver.kill_exec(&asked.id, asked.signal).await?, &app.driver))
    });
    later::<ExecLogs, _, _>(module, |asked, app, _| async move {
        Ok(logs(app.driver.exec_output(&asked.id, (asked.stdout_from, asked.stderr_from)).await?))
    });
    later::<ExecWait, _, _>(module, |asked, app, _| async move {
        let limit = asked.timeout.map(Duration::from_millis);
        let waited = tokio::select! {
            biased;
            waited = app.driver.wait_exec(&asked.id, limit) => waited?,
            () = app.shutdown.wait() => {
                // What was asked for may be only the beginning of its id.
                let exec = app.driver.find_exec(&asked.id)?;
                return Err(Failure::goes_on(exec.id.as_str()));
            }
        };
        Ok(convert::exec(&waited, &app.driver))
    });
}

fn logs(mut kept: Kept) -> ExecLogsResult {
    if !kept.ended {
        text::drop_cut_character(&mut kept.stdout);
        text::drop_cut_character(&mut kept.stderr);
    }
    let next = (kept.from.0 + kept.stdout.len() as u64, kept.from.1 + kept.stderr.len() as u64);
    let (encoding, [stdout, stderr]) = text::encode([kept.stdout, kept.stderr]);
    ExecLogsResult {
        stdout,
        stderr,
        encoding,
        stdout_from: kept.from.0,
        stderr_from: kept.from.1,
        stdout_next: next.0,
        stderr_next: next.1,
        stdout_end: kept.written.0,
        stderr_end: kept.written.1,
        dropped_bytes: kept.dropped,
        ended: kept.ended,
    }
}

fn result(mut output: Output) -> ExecResult {
    if output.truncated {
        text::drop_cut_character(&mut output.stdout);
        text::drop_cut_character(&mut output.stderr);
    }
    let (encoding, [stdout, stderr]) = text::encode([output.stdout, output.stderr]);
    ExecResult {
        id: output.id,
        exit_code: output.ended.code,
        signal: output.ended.signal.map(i32::from),
        stdout,
        stderr,
        encoding,
        truncated: output.truncated,
        duration_ms: u64::try_from(output.took.as_millis()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::exec::Ended;
    use crate::proto::files::Encoding;

    fn output(stdout: &[u8], truncated: bool) -> Output {
        Output {
            id: "e".to_owned(),
            ended: Ended { code: 0, signal: None, reason: None, never_started: false },
            stdout: stdout.to_vec(),
            stderr: Vec::new(),
            truncated,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64_and_a_cut_character_is_dropped() {
        let got = result(output(b"\xff\x00", false));
        assert_eq!((got.encoding, got.stdout.as_str()), (Encoding::Base64, "/wA="));
        let got = result(output("aé".as_bytes().split_last().expect("two bytes").1, true));
        assert_eq!((got.encoding, got.stdout.as_str()), (Encoding::Utf8, "a"));
    }
}
