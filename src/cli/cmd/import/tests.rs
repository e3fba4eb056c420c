//! The walk over a directory, and what is told about it.

use std::os::unix::fs::symlink;

use super::*;
use crate::cli::output::Output;
use crate::client::fake::{Fake, connector};

fn args(dir: &Path) -> ImportArgs {
    ImportArgs { from: "auto".to_owned(), rename: false, path: Some(dir.to_owned()) }
}

fn import(dir: &Path, answers: &[&str], json: bool) -> (u8, String, String, Vec<String>) {
    let fake = Fake::answers(answers);
    let (output, captured) = Output::captured(json, false);
    let context = Context::with(connector(&fake), output);
    let exit = run(&context, &args(dir)).unwrap_or_else(|failure| panic!("{failure:?}"));
    let dir = format!("{}/", dir.display());
    (exit, captured.out.text().replace(&dir, ""), captured.err.text().replace(&dir, ""), fake.requests())
}

#[test]
fn each_file_is_reported_and_the_sum_is_on_standard_output() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("write");
    write("a.json", r#"{"name":"a","exec_count":-1,"envdAccessToken":"s3cret"}"#);
    write("b.json", r#"{"name":"b"}"#);
    write("c.json", r#"{"name":"../c"}"#);
    write("d.json", "{");
    write("a.json.lock", "");
    write("notes.txt", "{");
    let answer = r#""result":[{"name":"a","outcome":"adopted","status":"running"},{"name":"b","outcome":"conflict","why":"a session of this name exists"},{"name":"../c","outcome":"refused","why":"a session name cannot contain '/'"}]"#;
    let (exit, out, err, requests) = import(dir.path(), &[answer], false);
    assert_eq!(exit, 1);
    assert_eq!(out, "0 imported, 1 adopted, 0 unchanged, 1 in conflict, 2 not imported.\n");
    let want = "a.json: note: exec_count is negative; 0 is used\n\
                a.json: adopted 'a' (running)\n\
                b.json: conflict 'b': a session of this name exists\n\
                c.json: not imported: a session name cannot contain '/'\n\
                d.json: not imported: it is cut off at line 1, column 1\n";
    assert_eq!(err, want);
    assert!(requests[0].contains(r#""op":"abx-"#), "its progress is asked for: {}", requests[0]);
    assert!(requests[0].contains("s3cret") && !err.contains("s3cret") && !out.contains("s3cret"));
}

#[test]
fn a_second_import_says_that_nothing_changed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("a.json"), r#"{"name":"a"}"#).expect("write");
    let answer = r#""result":[{"name":"a","outcome":"unchanged","status":"unknown"}]"#;
    let (exit, out, _, _) = import(dir.path(), &[answer], false);
    assert_eq!(exit, 0);
    assert_eq!(out, "0 imported, 0 adopted, 1 unchanged, 0 in conflict, 0 not imported. Nothing changed.\n");
}

#[test]
fn a_directory_that_holds_those_of_both_tools_is_looked_through() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (below, name) in [("agentkernel/sessions", "a"), ("agent-sandbox", "b"), ("more/deep/down", "c")] {
        let at = dir.path().join(below);
        fs::create_dir_all(&at).expect("made");
        fs::write(at.join("x.json"), format!("{{\"name\":\"{name}\"}}")).expect("written");
    }
    let answer = r#""result":[{"name":"b","outcome":"imported","status":"unknown"},{"name":"a","outcome":"imported","status":"lost"}]"#;
    let (exit, _, err, requests) = import(dir.path(), &[answer], false);
    assert_eq!(exit, 0, "{err}");
    let origin = |name: &str| {
        let request: serde_json::Value = serde_json::from_str(&requests[0]).expect("a request");
        let rows = request["params"]["rows"].as_array().expect("rows").clone();
        rows.iter().find(|row| row["row"]["name"] == name).map(|row| row["origin"].clone())
    };
    assert_eq!((origin("a"), origin("b")), (Some("agentkernel".into()), Some("agent-sandbox".into())));
    assert_eq!(origin("c"), None, "too deep");
}

#[test]
fn where_nothing_was_found_it_is_said_where_was_looked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(dir.path().join("old")).expect("made");
    let (exit, out, err, _) = import(dir.path(), &[], false);
    assert_eq!((exit, out.as_str()), (0, "No session files found.\n"));
    let dir = dir.path().display();
    assert_eq!(err, format!("looked for *.json in {dir}, old, old/sessions\n"));
}

#[test]
fn links_directories_pipes_and_huge_files_neither_hang_nor_are_followed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("dir.json")).expect("create");
    nix::unistd::mkfifo(&path("fifo.json"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    fs::write(path("huge.json"), vec![b' '; 2 << 20]).expect("write");
    fs::write(path("target.txt"), r#"{"name":"linked"}"#).expect("write");
    symlink(path("target.txt"), path("link.json")).expect("link");
    let (exit, _, err, requests) = import(dir.path(), &[], false);
    let want = "dir.json: not imported: it is a directory\n\
                fifo.json: not imported: it is not a regular file\n\
                huge.json: not imported: it is larger than 1048576 bytes\n\
                link.json: not imported: it is a link\n";
    assert_eq!((exit, err.as_str(), requests.len()), (1, want, 0));
}

#[test]
fn as_a_document_each_file_has_its_outcome() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("a.json"), "[]").expect("write");
    let (exit, out, _, _) = import(dir.path(), &[], true);
    assert_eq!(exit, 1);
    let want = "[{\"file\":\"a.json\",\"name\":null,\"outcome\":\"not imported\",\"status\":null,\
                \"why\":\"it holds a list, not a session\",\"notes\":[]}]\n";
    assert_eq!(out, want);
}

#[test]
fn no_source_byte_changes_and_every_sample_is_read() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/import/agent-sandbox");
    let before: Vec<(PathBuf, Vec<u8>)> =
        listing(&samples, |path| path.extension().is_some_and(|extension| extension == "json"))
            .expect("samples")
            .into_iter()
            .map(|path| (path.clone(), fs::read(&path).expect("a file")))
            .collect();
    assert_eq!(before.len(), 15);
    let rows = before.iter().filter(|(path, _)| read(path, None).1.is_some()).count();
    assert_eq!(rows, 9);
    for (path, bytes) in before {
        assert_eq!(fs::read(&path).expect("a file"), bytes, "{path:?}");
    }
}

#[test]
fn rows_are_sent_in_requests_that_a_message_can_carry() {
    let row = |size: usize| {
        let json = serde_json::json!({"name": "a", "filling": "x".repeat(size)});
        legacy::read(json.to_string().as_bytes(), None, Timestamp::UNIX_EPOCH).expect("a row").row
    };
    let rows: Vec<_> = (0..5).map(|at| (at, row(1_500_000))).collect();
    let sizes: Vec<usize> = batches(rows).iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 2, 1]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let fake = Fake::answers(&[]);
    let (output, _) = Output::captured(false, false);
    let context = Context::with(connector(&fake), output);
    let failure = run(&context, &args(Path::new("/nowhere/at/all"))).expect_err("no directory");
    assert_eq!(failure.exit, 1);
}
