//! One call of a tool: arguments in, a bounded document out. Blocking, like the client that it is made with.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::bound;
use super::leave::Leaving;
use super::part::{self, Kept, Streams};
use super::tools::{READ_BYTES, RUN_TIMEOUT_MS, Shape, Tool, WAIT_TIMEOUTS_MS};
use crate::cli::context::operation_id;
use crate::cli::failure::Failure;
use crate::client::{CallError, Connector, Frame, Meanwhile, Progress};
use crate::proto::execs::ExecRunParams;
use crate::proto::methods::{ExecRun, Method};
use crate::proto::stream::{Exit, Open};

/// What every call needs.
#[derive(Clone)]
pub(super) struct Caller {
    /// How to reach the daemon.
    pub(super) connector: Connector,
    /// Directories of this machine that a session may work on, links resolved.
    pub(super) allowed: Vec<PathBuf>,
}

/// Who hears of progress.
pub(super) type Hear = Box<dyn FnMut(Progress) + Send>;

impl Caller {
    /// Params that a tool has only where a directory is allowed.
    pub(super) fn hidden(&self) -> &'static [&'static str] {
        if self.allowed.is_empty() { &["workspace"] } else { &[] }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// What is wrong with the arguments, the daemon's own, or why there is no answer.
    pub(super) fn perform(
        &self,
        tool: &Tool,
        mut arguments: Map<String, Value>,
        leaving: &Leaving,
        hear: Hear,
    ) -> Result<Map<String, Value>, Failure> {
        self.check(tool, &mut arguments)?;
        let offset = arguments.get("offset").and_then(Value::as_u64).unwrap_or_default();
        let mut result = if tool.shape == Shape::Run {
            self.run(arguments, leaving)?
        } else {
            shape(tool, self.call(tool, &arguments, leaving, hear)?)
        };
        match tool.shape {
            Shape::Logs => part::cut_logs(&mut result),
            Shape::Part => part::cut_file(&mut result, offset),
            Shape::Whole | Shape::List { .. } | Shape::Run => {}
        }
        bound::fit(&mut result);
        Ok(result)
    }

    /// Refuses what the tool does not have: a model that is told so corrects itself, and nothing reaches the daemon that
    /// the tool's schema does not show.
    fn check(&self, tool: &Tool, arguments: &mut Map<String, Value>) -> Result<(), Failure> {
        let known = |name: &str| tool.params.contains(&name) && !self.hidden().contains(&name);
        if let Some(name) = arguments.keys().find(|name| !known(name)) {
            let failure = Failure::usage(format!("{} has no argument {name:?}", tool.name));
            return Err(if tool.params.contains(&name.as_str()) {
                failure.with_hint("the user allows it a directory with: abx mcp --allow-dir DIR")
            } else {
                failure.with_hint(format!("its arguments are: {}", tool.params.join(", ")))
            });
        }
        // A null is an argument that is not there.
        arguments.retain(|_, value| !value.is_null());
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64);
        match tool.name {
            "file_read" => {
                let limit = number("limit").unwrap_or(READ_BYTES).min(READ_BYTES);
                arguments.insert("limit".to_owned(), json!(limit));
            }
            "exec_wait" => {
                let (usual, most) = WAIT_TIMEOUTS_MS;
                let timeout = number("timeout").unwrap_or(usual).min(most);
                arguments.insert("timeout".to_owned(), json!(timeout));
            }
            "session_start" => self.check_workspace(arguments)?,
            _ => {}
        }
        Ok(())
    }

    /// Whoever may only use these tools must not come to read and write any directory of this machine by them.
    fn check_workspace(&self, arguments: &mut Map<String, Value>) -> Result<(), Failure> {
        let Some(source) = arguments.get_mut("workspace").and_then(|workspace| workspace.get_mut("source"))
        else {
            return Ok(());
        };
        let wanted = PathBuf::from(source.as_str().unwrap_or_default());
        let refused = |why: String| Failure::usage(format!("workspace {}: {why}", wanted.display()));
        if !wanted.is_absolute() {
            return Err(refused("not an absolute path".to_owned()));
        }
        let real = fs::canonicalize(&wanted).map_err(|error| refused(error.to_string()))?;
        if !self.allowed.iter().any(|dir| real.starts_with(dir)) {
            let dirs: Vec<String> = self.allowed.iter().map(|dir| dir.display().to_string()).collect();
            return Err(refused("not in a directory that is allowed".to_owned())
                .with_hint(format!("allowed is what is in {}", dirs.join(", "))));
        }
        // What was looked at is what is mounted, whatever becomes of the links meanwhile.
        *source = json!(real.to_str().ok_or_else(|| refused("not UTF-8".to_owned()))?);
        Ok(())
    }

    fn call(
        &self,
        tool: &Tool,
        arguments: &Map<String, Value>,
        leaving: &Leaving,
        mut hear: Hear,
    ) -> Result<Value, Failure> {
        let mut params = arguments.clone();
        if let (Some(op), true) = (operation_id(), takes_op(tool)) {
            params.insert("op".to_owned(), json!(op));
        }
        let unwritten = |source| CallError::Encode { method: tool.method.to_owned(), source };
        let params = to_raw_value(&params).map_err(unwritten)?;
        let mut client = self.connector.connect()?;
        let hang_up = client.hang_up().map_err(|source| CallError::Gone { source })?;
        leaving.by(Box::new(move || hang_up.now()));
        let result = client.call_raw_watched(tool.method, &params, &mut |meanwhile| {
            if let Meanwhile::Progress(progress) = meanwhile {
                hear(progress);
            }
        })?;
        let garbled = |source| CallError::Garbled { method: tool.method.to_owned(), source };
        Ok(serde_json::from_str(result.get()).map_err(garbled)?)
    }

    /// Runs a command on a stream of its own: whoever leaves ends it, and its output may be of any length.
    fn run(&self, arguments: Map<String, Value>, leaving: &Leaving) -> Result<Map<String, Value>, Failure> {
        let params = run_params(arguments)?;
        let (begun, input) = (Instant::now(), params.stdin);
        let open = Open {
            session: params.session,
            cmd: params.cmd,
            env: params.env,
            cwd: params.cwd,
            user: params.user,
            stdin: input.is_some(),
            timeout_ms: Some(params.timeout.unwrap_or(RUN_TIMEOUT_MS)),
            resume: params.resume,
            ..Open::default()
        };
        let mut stream = self.connector.open(&open)?;
        let sender = stream.sender();
        let leaves = sender.clone();
        leaving.by(Box::new(move || leaves.hang_up()));
        if let Some(text) = input {
            // A command that does not read its input writes output all the same.
            std::thread::spawn(move || sender.input(text.as_bytes()).and_then(|()| sender.end_input()));
        }
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let Exit { exit_code, reason } = loop {
            match stream.next_frame()? {
                Frame::Stdout(bytes) => stdout.push(bytes),
                Frame::Stderr(bytes) => stderr.push(bytes),
                Frame::Exit(exit) => break exit,
                Frame::Error(error) => return Err(Failure::from_wire(error, None)),
            }
        };
        let bytes = (stdout.total, stderr.total);
        let Streams { encoding, texts: [stdout, stderr], truncated } = part::write([stdout, stderr]);
        let document = json!({
            "id": stream.opened().exec,
            "exit_code": exit_code,
            "reason": reason,
            "stdout_bytes": bytes.0,
            "stderr_bytes": bytes.1,
            "stdout": stdout,
            "stderr": stderr,
            "encoding": encoding,
            "truncated": truncated,
            "duration_ms": u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        Ok(into_map(ExecRun::NAME, document))
    }
}

/// Understands the arguments of `exec_run`. What is wrong is named, and its value, which may be a secret, is not.
fn run_params(arguments: Map<String, Value>) -> Result<ExecRunParams, Failure> {
    let parse = |arguments: Map<String, Value>| serde_json::from_value(Value::Object(arguments)).ok();
    let wrong = arguments.iter().find(|(name, value)| {
        let mut alone = Map::from_iter([("session".to_owned(), json!("")), ("cmd".to_owned(), json!([]))]);
        alone.insert((*name).clone(), (*value).clone());
        parse(alone).is_none_or(|_: ExecRunParams| false)
    });
    if let Some((name, _)) = wrong {
        return Err(Failure::usage(format!("exec_run: {name} is not what the tool's schema says")));
    }
    let params: Option<ExecRunParams> = parse(arguments);
    params
        .filter(|params| !params.cmd.is_empty())
        .ok_or_else(|| Failure::usage("exec_run: session and cmd are needed, and cmd may not be empty"))
}

/// Whether the tool's method tells of its progress.
fn takes_op(tool: &Tool) -> bool {
    matches!(tool.name, "session_start" | "session_save" | "session_resume" | "session_fork")
}

/// Makes a tool's result of a method's.
fn shape(tool: &Tool, result: Value) -> Map<String, Value> {
    let Shape::List { field, keep, turn } = tool.shape else { return into_map(tool.method, result) };
    let Value::Array(mut list) = result else { return into_map(tool.method, result) };
    if turn {
        list.reverse();
    }
    for entry in list.iter_mut().filter_map(Value::as_object_mut) {
        entry.retain(|name, value| !value.is_null() && (keep.is_empty() || keep.contains(&name.as_str())));
    }
    Map::from_iter([(field.to_owned(), Value::Array(list))])
}

/// A result of MCP is an object.
fn into_map(method: &str, value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => Map::from_iter([(method.to_owned(), other)]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::TOOLS;
    use super::*;
    use crate::client::fake::{Fake, connector};
    use crate::proto::stream::{FrameKind, header};

    fn perform(fake: &Fake, tool: &str, arguments: Value) -> Map<String, Value> {
        let tool = TOOLS.iter().find(|known| known.name == tool).expect("a tool");
        let Value::Object(arguments) = arguments else { panic!("no arguments") };
        let caller = Caller { connector: connector(fake), allowed: Vec::new() };
        let (_waiting, leaving) = Leaving::new();
        caller.perform(tool, arguments, &leaving, Box::new(drop)).expect("a result")
    }

    #[test]
    fn output_that_is_no_text_is_told_from_text() {
        let frame = |kind, bytes: &[u8]| [&header(kind, bytes.len())[..], bytes].concat();
        for (bytes, want) in [(&b"a\xffb"[..], ("base64", "Yf9i")), (b"ab", ("utf-8", "ab"))] {
            let opened = b"{\"exec\":\"e1\",\"version\":\"9.9.9\",\"protocol\":1}\n".to_vec();
            let exit = frame(FrameKind::Exit, b"{\"exit_code\":0}");
            let fake = Fake::raw(&[opened, frame(FrameKind::Stdout, bytes), exit].concat());
            let result = perform(&fake, "exec_run", json!({"session": "s", "cmd": ["x"]}));
            assert_eq!((&result["encoding"], &result["stdout"]), (&json!(want.0), &json!(want.1)));
            assert_eq!(result["stdout_bytes"], json!(bytes.len()));
        }
    }

    #[test]
    fn a_part_of_a_file_says_where_the_next_one_begins() {
        let content = json!({"content": "\0".repeat(20_000), "encoding": "utf-8", "size_bytes": 30_000, "truncated": false});
        let fake = Fake::answers(&[&format!("\"result\":{content}")]);
        let part = perform(&fake, "file_read", json!({"session": "s", "path": "/f", "offset": 10_000}));
        let came = part["content"].as_str().expect("text").len();
        assert!(came > 0 && came < 20_000 && part["truncated"] == true, "{came}");
        assert_eq!(part["offset_next"], json!(10_000 + came));
    }
}
