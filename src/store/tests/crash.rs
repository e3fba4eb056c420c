//! What a kill or a loss of power leaves: every answered change, and nothing half-done.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

#[tokio::test]
async fn an_answered_change_is_in_the_files_at_that_instant() {
    let place = Place::new();
    let store = place.open();
    for n in 0..5 {
        store.insert(session(n)).await.expect("insert");
        let copy = Place::new();
        copy_as_is(&place.path(), &copy.path());
        assert_eq!(contents(&copy.open()), contents(&store));
    }
}

/// Names the table to the process that is to be killed: this very test, run once more.
const CHILD: &str = "ABX_TEST_STORE_CHILD";

/// Writes until it is killed.
fn write_for_ever(path: &Path) {
    let store = Store::open(path).expect("open").store;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let store = store.clone();
            runtime.spawn(async move {
                for n in (caller..).step_by(8) {
                    // Two rows in one change: a kill must not part them.
                    store
                        .write(move |tx| {
                            tx.insert_session(&session(n))?;
                            tx.put_snapshot(&snapshot(n, n))
                        })
                        .await
                        .expect("write");
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "\nkept {n}").and_then(|()| out.flush()).expect("tell");
                }
            })
        })
        .collect();
    for caller in callers {
        runtime.block_on(caller).expect("a caller");
    }
}

#[test]
fn a_kill_amid_writes_loses_no_answered_change() {
    if let Some(path) = crate::paths::variable(CHILD) {
        return write_for_ever(Path::new(&path));
    }
    let program = std::env::current_exe().expect("this program");
    for answers in [1, 40, 333] {
        let place = Place::new();
        let mut child = Command::new(&program)
            .args([
                "--exact",
                "store::tests::crash::a_kill_amid_writes_loses_no_answered_change",
                "--nocapture",
            ])
            .env(CHILD, place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start it");
        let mut kept = Vec::new();
        // What was told before the kill and is still in the pipe counts as well.
        for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
            let line = line.expect("a line");
            kept.extend(line.strip_prefix("kept ").map(|n| n.parse::<usize>().expect("a number")));
            if kept.len() == answers {
                child.kill().expect("kill it");
            }
        }
        child.wait().expect("it is gone");
        assert!(kept.len() >= answers, "it was not killed early: {}", kept.len());
        let store = place.open();
        for n in kept {
            assert!(store.session(&format!("s{n}")).is_some(), "answered change {n} is gone");
        }
        for session in store.sessions() {
            assert_eq!(session.snapshots, 1, "{} came without its snapshot", session.name);
        }
    }
}
