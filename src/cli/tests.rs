//! Whole commands against a daemon of canned answers: exact text, exact exit codes.

use super::args::parse;
use super::context::Context;
use super::output::Output;
use super::output::tests::Captured;
use super::perform;
use crate::client::fake::{Fake, HELLO, Script, connector};
use crate::proto::types::{Session, Status};

/// Exit code, standard output, standard error.
pub(crate) fn abx(fake: &Fake, words: &[&str]) -> (u8, String, String) {
    let cli = parse(std::iter::once("abx").chain(words.iter().copied()).map(Into::into))
        .unwrap_or_else(|error| panic!("{error}"));
    let (output, Captured { out, err }) = Output::captured(cli.top.global.json, cli.top.global.quiet);
    let context = Context::with(connector(fake), output);
    let exit = perform(&context, cli.top.version, cli.command, super::cmd::mcp::hand_over).unwrap_or_else(
        |failure| {
            context.output.failure(&failure);
            failure.exit
        },
    );
    (exit, out.text(), err.text())
}

fn session(name: &str) -> String {
    let session: Session = super::table::tests::session(name);
    serde_json::to_string(&session).expect("JSON")
}

fn session_that_is(name: &str, status: Status) -> String {
    serde_json::to_string(&Session { status, ..super::table::tests::session(name) }).expect("JSON")
}

fn result(value: &str) -> String {
    format!("\"result\":{value}")
}

fn error(code: i32, kind: &str, message: &str) -> String {
    format!("\"error\":{{\"code\":{code},\"message\":\"{message}\",\"data\":{{\"kind\":\"{kind}\"}}}}")
}

#[test]
fn start_prints_the_block_that_the_older_command_line_printed() {
    let fake = Fake::answers(&[&result(&session("feature-x"))]);
    let (exit, out, err) =
        abx(&fake, &["session", "start", "--name", "feature-x", "--agent", "claude", "-B", "docker"]);
    let want = "Session 'feature-x' started.\n\
                \u{20} Sandbox: session-feature-x\n\
                Attach with: abx attach session-feature-x\n";
    assert_eq!((exit, out.as_str(), err.as_str()), (0, want, ""));
    let request: serde_json::Value = serde_json::from_str(&fake.requests()[0]).expect("JSON");
    assert_eq!(request["method"], "session.start");
    assert_eq!(request["params"]["agent"], "claude");
    assert_eq!(request["params"]["engine"], "docker");
}

#[test]
fn an_environment_value_goes_into_the_request_and_nowhere_else() {
    let fake = Fake::answers(&[&error(13, "engine_error", "the engine refused")]);
    let (exit, out, err) = abx(&fake, &["start", "x", "-e", "KEY=a && b > c <d>"]);
    assert_eq!((exit, out.as_str(), err.as_str()), (1, "", "Error: the engine refused\n"));
    let request: serde_json::Value = serde_json::from_str(&fake.requests()[0]).expect("JSON");
    assert_eq!(request["params"]["env"]["KEY"], "a && b > c <d>");
}

#[test]
fn quiet_prints_names_and_json_the_document_as_it_came() {
    let document = format!("[{},{{\"of\":\"tomorrow\"}}]", session("a"));
    let list = result(&document);
    let (exit, out, _) = abx(&Fake::answers(&[&list]), &["ls", "--json"]);
    assert_eq!((exit, out), (0, format!("{document}\n")));
    let names = result(&format!("[{},{}]", session("a"), session("b\\u001b")));
    let names = names.replace("b\\\\u001b", "b\\u001b");
    let (_, out, _) = abx(&Fake::answers(&[&names]), &["-q", "ls"]);
    assert_eq!(out, "a\nb\\u{1b}\n");
    let (_, out, _) = abx(&Fake::answers(&["\"result\":[]"]), &["-q", "ls"]);
    assert_eq!(out, "");
    let (_, out, _) = abx(&Fake::answers(&["\"result\":[]"]), &["ls"]);
    assert_eq!(out, "No sessions found.\n");
}

#[test]
fn every_verb_says_what_it_did() {
    let block = "Session 'x' started.\n  Sandbox: session-x\nAttach with: abx attach session-x\n";
    for (words, want) in [
        (&["resume", "x"][..], "Session 'x' resumed.\nAttach with: abx attach session-x\n"),
        (&["connect", "x"], "Session 'x' connected.\n"),
        (&["start", "x", "--reuse"], block),
        (&["pause", "x"], "Session 'x' paused.\n"),
        (&["unpause", "x"], "Session 'x' unpaused.\n"),
        (&["rename", "old", "x"], "Session 'old' renamed to 'x'.\n"),
        (&["fork", "old", "x"], block),
        (&["update", "x", "--timeout", "2h"], "Session 'x' updated.\n"),
    ] {
        let fake = Fake::answers(&[&result(&session("x"))]);
        assert_eq!(abx(&fake, words), (0, want.to_owned(), String::new()), "{words:?}");
    }
}

#[test]
fn start_with_reuse_says_when_the_session_was_there_already() {
    let mut there: Session = super::table::tests::session("x");
    there.last_connected = Some("2026-02-01T09:00:00.000Z".to_owned());
    let there = serde_json::to_string(&there).expect("JSON");
    let want = "Session 'x' connected.\n  Sandbox: session-x\nAttach with: abx attach session-x\n";
    let (exit, out, _) = abx(&Fake::answers(&[&result(&there)]), &["start", "x", "--reuse"]);
    assert_eq!((exit, out.as_str()), (0, want));
}

#[test]
fn stop_says_what_the_session_is_where_it_was_not_stopped_by_it() {
    for (status, want) in [
        (Status::Stopped, "Session 'x' stopped.\n"),
        (Status::Saved, "Session 'x' is saved.\n"),
        (Status::Lost, "Session 'x' is lost.\n"),
    ] {
        let fake = Fake::answers(&[&result(&session_that_is("x", status))]);
        assert_eq!(abx(&fake, &["stop", "x"]), (0, want.to_owned(), String::new()));
    }
}

#[test]
fn save_names_the_snapshot_and_what_it_does_not_hold() {
    let saved = format!(
        r#"{{"session":{},"snapshot":{{"name":"feature-x-20260201","session":"feature-x","image_id":"sha256:1","created_at":"2026-02-01T09:00:00.000Z","note":null,"parent":null,"size_bytes":1,"excluded":[{{"kind":"bind","target":"/workspace"}},{{"kind":"tmpfs","target":"/tmp"}}]}}}}"#,
        session("feature-x")
    );
    let (exit, out, err) = abx(&Fake::answers(&[&result(&saved)]), &["save", "feature-x"]);
    assert_eq!(exit, 0);
    assert_eq!(out, "Session 'feature-x' saved (snapshot: feature-x-20260201)\n");
    assert_eq!(err, "Not in the snapshot: bind /workspace, tmpfs /tmp\n");
}

#[test]
fn delete_says_what_went_with_the_session() {
    let fake = Fake::answers(&[r#""result":{"deleted":"x","snapshots":["a","b"]}"#]);
    let want = (0, "Session 'x' deleted.\n".to_owned(), "Snapshots deleted: a, b\n".to_owned());
    assert_eq!(abx(&fake, &["rm", "x", "-y"]), want);
}

#[test]
fn several_names_go_on_after_a_failure_and_give_its_code() {
    let missing = error(1, "session_not_found", "there is no session 'b'");
    let busy = error(6, "busy", "session 'c' is busy");
    let stopped = result(&session("a"));
    // Each call has its own connection, so each sees the first answer: one fake per name is not needed for codes.
    let fake = Fake::answers(&[&missing]);
    let (exit, out, err) = abx(&fake, &["stop", "b", "c"]);
    assert_eq!((exit, out.as_str()), (3, ""));
    assert_eq!(err, "Error: there is no session 'b'\nHint: abx list\n".repeat(2));
    assert_eq!(fake.requests().len(), 2);
    assert_eq!(abx(&Fake::answers(&[&busy]), &["stop", "c"]).0, 4);
    let (exit, out, _) = abx(&Fake::answers(&[&stopped]), &["stop", "a", "a", "--json"]);
    assert_eq!((exit, out), (0, format!("[{0},{0}]\n", session("a"))));
    let (exit, out, err) = abx(&Fake::answers(&[&missing]), &["stop", "b", "b", "--json"]);
    let one =
        r#"{"error":{"code":1,"message":"there is no session 'b'","data":{"kind":"session_not_found"}}}"#;
    assert_eq!((exit, out.as_str(), err.as_str()), (3, format!("[{one},{one}]\n").as_str(), ""));
}

#[test]
fn an_error_is_a_document_under_json_and_lines_without() {
    let missing = error(1, "session_not_found", "there is no session 'x'");
    let (exit, out, err) = abx(&Fake::answers(&[&missing]), &["get", "x", "--json"]);
    let want =
        "{\"code\":1,\"message\":\"there is no session 'x'\",\"data\":{\"kind\":\"session_not_found\"}}\n";
    assert_eq!((exit, out.as_str(), err.as_str()), (3, want, ""));
    let (exit, out, err) = abx(&Fake::answers(&[&missing]), &["get", "x"]);
    assert_eq!((exit, out.as_str()), (3, ""));
    assert_eq!(err, "Error: there is no session 'x'\nHint: abx list\n");
}

#[test]
fn a_daemon_that_goes_away_is_exit_six_with_what_that_means() {
    let (exit, out, err) = abx(&Fake::lines(&[]), &["stop", "x"]);
    assert_eq!((exit, out.as_str()), (6, ""));
    let want = "Error: abxd went away before it answered; the operation may still be running\n\
                Hint: abx daemon status\n";
    assert_eq!(err, want);
}

#[test]
fn another_version_is_one_line_and_another_protocol_the_end() {
    let script = |hello: String| Script {
        hello: Some(hello),
        answers: vec![b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":[]}\n".to_vec()],
        raw: Vec::new(),
    };
    let fake = Fake::start(script(HELLO.replace("VERSION", "9.9.9")));
    let (exit, out, err) = abx(&fake, &["ls"]);
    let ours = crate::proto::version::VERSION;
    let want = format!("abx is {ours}, the running abxd 9.9.9: to use one version, run abx daemon restart\n");
    assert_eq!((exit, out.as_str(), err), (0, "No sessions found.\n", want));
    let fake =
        Fake::start(script(HELLO.replace("VERSION", "9.9.9").replace("\"protocol\":1", "\"protocol\":2")));
    let (exit, _, err) = abx(&fake, &["ls"]);
    let want = format!(
        "Error: this abx ({ours}) speaks protocol 1, the running abxd (9.9.9) protocol 2\n\
         Hint: abx daemon restart\n"
    );
    assert_eq!((exit, err), (6, want));
    let (exit, out, _) = abx(&fake, &["--version"]);
    let want = format!("abx {ours}\nabxd 9.9.9 (protocol 2, abx speaks 1: run abx daemon restart)\n");
    assert_eq!((exit, out), (0, want));
}

#[test]
fn a_notice_of_the_daemon_is_said_once_by_whichever_command_hears_it() {
    let notice = "12 sessions of agentkernel found; to take them over, run abx import";
    let hello = HELLO.replace("\"notice\":null", &format!("\"notice\":\"{notice}\\u0007\""));
    let answers = vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,{}}}\n", result(&session("a"))).into_bytes()];
    let said = format!("{notice}\\u{{7}}\n");
    for words in [
        &["stop", "a", "a"][..],
        &["get", "a", "--json"],
        &["--version"],
        &["--version", "--json"],
        &["daemon", "start"],
        &["daemon", "start", "--json"],
        &["daemon", "status"],
        &["doctor"],
    ] {
        let script = Script { hello: Some(hello.clone()), answers: answers.clone(), raw: Vec::new() };
        let (_, out, err) = abx(&Fake::start(script), words);
        assert_eq!(err.matches(&said).count(), 1, "{words:?}: {err}");
        assert!(!out.contains(notice), "{words:?}: {out}");
    }
    // Another protocol keeps nobody from hearing it.
    let hello = hello.replace("\"protocol\":1", "\"protocol\":2");
    let script = Script { hello: Some(hello), answers, raw: Vec::new() };
    let (exit, _, err) = abx(&Fake::start(script), &["ls"]);
    assert!(exit == 6 && err.starts_with(&said), "{err}");
}

#[test]
fn exec_and_attach_fail_with_125_whatever_the_reason() {
    let refused = |kind: &str, code: i32| {
        Fake::raw(
            format!("{{\"error\":{{\"code\":{code},\"message\":\"m\",\"data\":{{\"kind\":\"{kind}\"}}}}}}\n")
                .as_bytes(),
        )
    };
    assert_eq!(abx(&refused("session_not_found", 1), &["exec", "x", "--", "true"]).0, 125);
    assert_eq!(abx(&refused("command_not_found", 15), &["exec", "x", "--", "true"]).0, 127);
    assert_eq!(abx(&refused("command_not_executable", 16), &["exec", "x", "--", "true"]).0, 126);
    assert_eq!(abx(&Fake::raw(b""), &["exec", "x", "--", "true"]).0, 125);
}

#[test]
fn exec_detached_prints_the_execs_id() {
    let fake = Fake::raw(b"{\"exec\":\"e-1\",\"version\":\"0.1.0\",\"protocol\":1}\n");
    assert_eq!(abx(&fake, &["exec", "-d", "x", "--", "sleep", "9"]).1, "e-1\n");
    assert_eq!(abx(&fake, &["exec", "-d", "--json", "x", "--", "sleep", "9"]).1, "{\"id\":\"e-1\"}\n");
    let open: serde_json::Value = serde_json::from_str(&fake.requests()[0]).expect("JSON");
    assert_eq!((open["detach"].as_bool(), open["session"].as_str()), (Some(true), Some("x")));
}

#[test]
fn exec_as_a_document_gives_the_result_and_the_commands_code() {
    let document = r#"{"id":"e","exit_code":7,"signal":null,"stdout":"o","stderr":"","encoding":"utf-8","truncated":false,"duration_ms":1}"#;
    let (exit, out, _) = abx(&Fake::answers(&[&result(document)]), &["exec", "--json", "x", "--", "c"]);
    assert_eq!((exit, out), (7, format!("{document}\n")));
}

#[test]
fn a_subscription_is_not_begun_on_a_connection_that_closes() {
    let fake = Fake::answers(&["\"result\":1"]);
    for (method, hint) in [
        ("event.subscribe", "abx events --follow, or abx rpc --stdio"),
        ("terminal.open", "abx attach NAME, or abx rpc --stdio"),
    ] {
        let (exit, out, err) = abx(&fake, &["rpc", method, r#"{"session":"a"}"#]);
        let want = format!(
            "Error: {method} tells on its connection, which this command closes after the answer\nHint: {hint}\n"
        );
        assert_eq!((exit, out.as_str(), err), (2, "", want));
    }
    assert!(fake.requests().is_empty());
}

#[test]
fn rpc_prints_the_result_or_the_methods() {
    let fake = Fake::answers(&["\"result\":{\"b\":1,\"a\":2}"]);
    assert_eq!(abx(&fake, &["rpc", "x.y", "{\"n\": 1}"]), (0, "{\"b\":1,\"a\":2}\n".into(), String::new()));
    assert!(fake.requests()[0].contains("\"params\":{\"n\": 1}"));
    let document =
        r#""result":{"methods":[{"name":"a.b","summary":"Does."},{"name":"long.name","summary":"Too."}]}"#;
    assert_eq!(abx(&Fake::answers(&[document]), &["rpc"]).1, "a.b        Does.\nlong.name  Too.\n");
    assert_eq!(abx(&Fake::answers(&[]), &["rpc", "x.y", "{"]).0, 2);
}

#[test]
fn stopping_what_does_not_run_is_no_failure_and_starts_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = crate::paths::Home::find(Some(&dir.path().join("h")), None).expect("a home");
    let (output, captured) = Output::captured(false, false);
    let context = Context::with(crate::client::Connector::new(home.clone(), true), output);
    let cli = parse(["abx", "daemon", "stop"].map(Into::into)).expect("parses");
    assert_eq!(perform(&context, false, cli.command, super::cmd::mcp::hand_over).expect("no failure"), 0);
    assert_eq!(captured.out.text(), "abxd is not running.\n");
    assert!(!home.root().exists());
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (exit, out, _) = abx(&Fake::answers(&[]), &["completions", shell]);
        assert!(exit == 0 && out.contains("snapshot") && out.contains("keep-running"), "{shell}");
    }
}

#[test]
fn a_start_warns_of_a_clock_that_is_off_and_still_succeeds() {
    let info = |skew_ms: i64| {
        let engine = format!(
            r#"{{"name":"docker","address":null,"source":null,"version":null,"api_version":null,"health":"ok","problem":null,"clock_skew_ms":{skew_ms}}}"#
        );
        let rest =
            r#""version":"1","protocol":1,"pid":4,"home":"/h","socket":"/s","started_at":"","sessions":1"#;
        result(&format!(r#"{{{rest},"engines":[{engine}],"settings":[],"notices":[]}}"#))
    };
    let warning = "Warning: the clock of docker is 3600 s off ours\n\
                   Hint: set the engine's clock; restart its machine if it slept\n";
    for (skew_ms, said) in [(3_600_000, warning), (-4_000, "")] {
        let fake = Fake::answers(&[&result(&session("a")), &info(skew_ms)]);
        let (exit, out, err) = abx(&fake, &["start", "a"]);
        assert_eq!((exit, err.as_str()), (0, said));
        assert!(out.starts_with("Session 'a' started."), "{out}");
    }
}

#[test]
fn a_status_without_a_daemon_says_how_to_start_one() {
    let fake = Fake::answers(&[]);
    std::fs::remove_file(fake.home().socket()).expect("it goes away");
    let (exit, _, err) = abx(&fake, &["daemon", "status"]);
    assert_eq!(exit, 6);
    assert!(err.ends_with("Hint: abx daemon start\n"), "{err}");
}

#[test]
fn doctor_says_to_restart_a_daemon_that_hangs() {
    let fake = Fake::start(Script::default());
    let (exit, out, _) = abx(&fake, &["doctor"]);
    assert_eq!(exit, 1);
    let daemon = out.split_once("FAILED   daemon").expect("its line").1;
    let fix = daemon.split_once("fix: ").expect("what to do").1.lines().next();
    assert_eq!(fix, Some("abx daemon restart"), "{out}");
}

#[test]
fn a_command_is_asked_for_without_a_key_where_the_table_cannot_take_one() {
    let fake = Fake::raw(format!("{{{}}}\n", error(19, "store_full", "the disk is full")).as_bytes());
    let (exit, _, err) = abx(&fake, &["exec", "x", "--", "true"]);
    let has_key = |request: &String| {
        let open: serde_json::Value = serde_json::from_str(request).expect("JSON");
        open["key"].is_string()
    };
    assert_eq!(fake.requests().iter().map(has_key).collect::<Vec<_>>(), [true, false]);
    assert!(exit == 125 && err.contains("\nRequest: abx-"), "{exit} {err}");
}
