//! `exec.*`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Module, later};
use crate::daemon::exec::{ExecRequest, Output};
use crate::proto::methods::{ExecResult, ExecRun};
use crate::proto::stream::Size;

/// The terminal of a buffered command, which nobody looks at: the size that terminals have had since the VT100.
const TERMINAL: Size = Size { cols: 80, rows: 24 };

pub(super) fn register(module: &mut Module) {
    later::<ExecRun, _, _>(module, |asked, app, _| async move {
        let request = ExecRequest {
            session: asked.session,
            cmd: asked.cmd,
            env: asked.env,
            cwd: asked.cwd,
            user: asked.user,
            tty: asked.tty.then_some(TERMINAL),
            stdin: asked.stdin.is_some(),
            attach: false,
            detach: false,
        };
        let limit = asked.timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
        Ok(result(app.driver.exec_run(request, asked.stdin, limit).await?))
    });
}

fn result(mut output: Output) -> ExecResult {
    if output.truncated {
        whole_characters(&mut output.stdout);
        whole_characters(&mut output.stderr);
    }
    let code = output.ended.code;
    let (encoding, stdout, stderr) =
        match (String::from_utf8(output.stdout), String::from_utf8(output.stderr)) {
            (Ok(stdout), Ok(stderr)) => ("utf-8", stdout, stderr),
            (stdout, stderr) => {
                let bytes = |text: Result<String, std::string::FromUtf8Error>| {
                    STANDARD
                        .encode(text.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes))
                };
                ("base64", bytes(stdout), bytes(stderr))
            }
        };
    ExecResult {
        id: output.id,
        exit_code: code,
        signal: (129..=192).contains(&code).then(|| code - 128),
        stdout,
        stderr,
        encoding: encoding.to_owned(),
        truncated: output.truncated,
        duration_ms: u64::try_from(output.took.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Drops a character that the cut went through.
fn whole_characters(bytes: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::exec::Ended;

    fn output(stdout: &[u8], truncated: bool) -> Output {
        Output {
            id: "e".to_owned(),
            ended: Ended { code: 0, reason: None, never_started: false },
            stdout: stdout.to_vec(),
            stderr: Vec::new(),
            truncated,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64_and_a_cut_character_is_dropped() {
        let got = result(output(b"\xff\x00", false));
        assert_eq!((got.encoding.as_str(), got.stdout.as_str()), ("base64", "/wA="));
        let got = result(output("aé".as_bytes().split_last().expect("two bytes").1, true));
        assert_eq!((got.encoding.as_str(), got.stdout.as_str()), ("utf-8", "a"));
    }
}
