//! `abx exec logs`: what is kept of a command's output, and what comes after it.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cli::context::{Context, understand};
use crate::cli::failure::{Failure, chain};
use crate::cli::output::{end_by_broken_pipe, raw_stderr, raw_stdout};
use crate::proto::execs::{ExecLogsParams, ExecLogsResult, ExecWaitParams};
use crate::proto::files::Encoding;
use crate::proto::methods::{ExecLogs, ExecWait, Method};

/// How long one question for more output waits for the command's end, in milliseconds: output shows that much later.
const FOLLOW_MS: u64 = 250;

/// Prints the output, each stream to ours: what is there when it is asked for, and with `follow` what comes until the
/// command's end.
pub(super) fn run(context: &Context, id: String, follow: bool) -> Result<u8, Failure> {
    let mut client = context.connect()?;
    let mut params = ExecLogsParams { id, ..ExecLogsParams::default() };
    let mut goal = None;
    let mut all: Option<ExecLogsResult> = None;
    loop {
        let raw = context.call_through::<ExecLogs>(&mut client, || params.clone())?;
        let output = understand::<ExecLogs>(&raw)?;
        let missing = output.stdout_from.saturating_sub(params.stdout_from)
            + output.stderr_from.saturating_sub(params.stderr_from);
        if missing > 0 {
            context.output.note(&format!("abx: {missing} bytes dropped: they are no longer kept"));
        }
        let goal = *goal.get_or_insert((output.stdout_end, output.stderr_end));
        let came = missing > 0 || !output.stdout.is_empty() || !output.stderr.is_empty();
        (params.stdout_from, params.stderr_from) = (output.stdout_next, output.stderr_next);
        let ended = output.ended;
        match (context.output.json, follow) {
            (true, true) if came || ended => context.output.data(raw.get()),
            (true, true) => {}
            (true, false) => all = Some(joined(all, output)?),
            (false, _) => print(&output)?,
        }
        let there = params.stdout_from >= goal.0 && params.stderr_from >= goal.1;
        if ended || !follow && (there || !came) {
            break;
        }
        if follow && !came {
            let wait = ExecWaitParams { id: params.id.clone(), timeout: Some(FOLLOW_MS) };
            let raw = context.call_through::<ExecWait>(&mut client, || wait.clone())?;
            // What the id begins with may soon be another's beginning, too.
            params.id = understand::<ExecWait>(&raw)?.id;
        }
    }
    if let Some(all) = all {
        let document = serde_json::to_string(&all).map_err(|error| unreadable(&error))?;
        context.output.data(&document);
    }
    Ok(0)
}

fn print(output: &ExecLogsResult) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            end_by_broken_pipe();
        }
        Failure::local("failed to write output", &error)
    };
    let (stdout, stderr) = (bytes(output, &output.stdout)?, bytes(output, &output.stderr)?);
    raw_stderr().and_then(|mut err| err.write_all(&stderr)).map_err(failed)?;
    raw_stdout().and_then(|mut out| out.write_all(&stdout)).map_err(failed)
}

/// Two answers in a row as one: it begins where the first did, and says of the command what the last said.
fn joined(first: Option<ExecLogsResult>, next: ExecLogsResult) -> Result<ExecLogsResult, Failure> {
    let Some(first) = first else { return Ok(next) };
    let both =
        |one: &str, other: &str| Ok::<_, Failure>([bytes(&first, one)?, bytes(&next, other)?].concat());
    let parts: [Vec<u8>; 2] = [both(&first.stdout, &next.stdout)?, both(&first.stderr, &next.stderr)?];
    let is_text = parts.iter().all(|part| std::str::from_utf8(part).is_ok());
    let [stdout, stderr] =
        parts.map(
            |part| {
                if is_text { String::from_utf8(part).unwrap_or_default() } else { STANDARD.encode(part) }
            },
        );
    let encoding = if is_text { Encoding::Utf8 } else { Encoding::Base64 };
    let (stdout_from, stderr_from) = (first.stdout_from, first.stderr_from);
    Ok(ExecLogsResult { stdout, stderr, encoding, stdout_from, stderr_from, ..next })
}

fn bytes(output: &ExecLogsResult, text: &str) -> Result<Vec<u8>, Failure> {
    match output.encoding {
        Encoding::Utf8 => Ok(text.as_bytes().to_vec()),
        Encoding::Base64 => STANDARD.decode(text).map_err(|error| unreadable(&error)),
    }
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure::daemon(format!("failed to read the result of {}", ExecLogs::NAME), chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::abx;
    use crate::client::fake::Fake;
    use crate::proto::execs::ExecInfo;

    fn answer(stdout: &str, (from, next, end): (u64, u64, u64), ended: bool) -> String {
        let result = ExecLogsResult {
            stdout: stdout.to_owned(),
            stdout_from: from,
            stdout_next: next,
            stdout_end: end,
            ended,
            ..ExecLogsResult::default()
        };
        told(&result)
    }

    fn told(result: &ExecLogsResult) -> String {
        format!("\"result\":{}", serde_json::to_string(result).expect("encodes"))
    }

    #[test]
    fn what_was_there_when_it_was_asked_for_is_one_document_though_the_command_writes_on() {
        let answers = [answer("ab", (0, 2, 4), false), answer("cd", (2, 4, 9), false)];
        let fake = Fake::answers(&[&answers[0], &answers[1]]);
        let (exit, out, err) = abx(&fake, &["--json", "exec", "logs", "e1"]);
        let document: serde_json::Value = serde_json::from_str(&out).expect("one document");
        assert_eq!((exit, &document["stdout"], err.as_str()), (0, &"abcd".into(), ""));
        assert_eq!((&document["stdout_from"], &document["stdout_next"]), (&0.into(), &4.into()));
    }

    #[test]
    fn followed_output_is_one_document_a_line_and_none_where_nothing_came() {
        let answers =
            [answer("ab", (0, 2, 2), false), answer("", (2, 2, 2), false), answer("c", (2, 3, 3), true)];
        let whole = ExecInfo { id: "e1-whole".to_owned(), ..ExecInfo::default() };
        let waited = serde_json::to_string(&whole).expect("encodes");
        let fake = Fake::answers(&[&answers[0], &answers[1], &format!("\"result\":{waited}"), &answers[2]]);
        let (exit, out, _) = abx(&fake, &["--json", "exec", "logs", "-f", "e1"]);
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
        let texts: Vec<_> = lines.iter().map(|line| line["stdout"].as_str().expect("text")).collect();
        assert_eq!((exit, texts), (0, vec!["ab", "c"]));
        let last = fake.requests().pop().expect("a request");
        assert!(last.contains("exec.logs") && last.contains("\"e1-whole\""), "{last}");
    }

    #[test]
    fn bytes_that_are_no_longer_kept_are_told_wherever_they_are_missing() {
        let answers = [answer("ab", (3, 5, 9), false), answer("c", (8, 9, 9), true)];
        let (exit, _, err) =
            abx(&Fake::answers(&[&answers[0], &answers[1]]), &["--json", "exec", "logs", "e1"]);
        let line = |bytes| format!("abx: {bytes} bytes dropped: they are no longer kept\n");
        assert_eq!((exit, err), (0, [line(3), line(3)].concat()));
    }

    #[test]
    fn an_answer_that_is_not_base64_is_an_error() {
        let result = ExecLogsResult {
            encoding: Encoding::Base64,
            stdout: "no!".to_owned(),
            ended: true,
            ..ExecLogsResult::default()
        };
        let (exit, _, err) = abx(&Fake::answers(&[&told(&result)]), &["exec", "logs", "e1"]);
        assert_ne!(exit, 0);
        assert!(err.contains("exec.logs"), "{err}");
    }
}
