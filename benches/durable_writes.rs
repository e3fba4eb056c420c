//! Durable writes per second of 64 callers, with group commit and with one change per transaction, side by side.
//!
//! `cargo bench --bench durable_writes` prints a row of a Markdown table. Both tables lie on the disk of the target
//! directory: a file system in memory would say nothing about syncs.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use abx::model::id::{SessionId, SessionName, Timestamp};
use abx::model::session::{Secret, Session, Spec, Status};
use abx::store::{Options, Store};

/// Callers that each wait for one answer before they ask again.
const CALLERS: usize = 64;

/// Time for one table in one round.
const SLICE: Duration = Duration::from_millis(700);

/// Rounds; in each both tables have their turn, so that a busy machine slows both.
const ROUNDS: usize = 7;

/// What the ratio must be.
const AT_LEAST: f64 = 10.0;

fn main() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let grouped = table(&runtime, &home.path().join("grouped.db"), Options::default());
    let single = table(&runtime, &home.path().join("single.db"), Options { batch: 1, ..Options::default() });
    let (mut ours, mut peer, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (with, without) = (rate(&runtime, &grouped), rate(&runtime, &single));
        ours.push(with);
        peer.push(without);
        ratios.push(with / without);
    }
    println!("| what | ours | peer | ratio | must be |");
    println!("| --- | --- | --- | --- | --- |");
    println!(
        "| durable writes, {CALLERS} callers: group commit against one change per transaction | {:.0}/s | {:.0}/s \
         | {:.1} | >= {AT_LEAST} |",
        median(&mut ours),
        median(&mut peer),
        median(&mut ratios),
    );
    runtime.block_on(async {
        grouped.close().await;
        single.close().await;
    });
}

/// Opens a table with one row per caller.
fn table(runtime: &tokio::runtime::Runtime, path: &Path, options: Options) -> Store {
    let store = Store::open_with(path, options).expect("open").store;
    for caller in 0..CALLERS {
        runtime.block_on(store.insert(session(caller))).expect("insert");
    }
    store
}

/// Lets all callers update their rows for one slice of time, and counts the answers per second.
fn rate(runtime: &tokio::runtime::Runtime, store: &Store) -> f64 {
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, id) = (store.clone(), id(caller));
            runtime.spawn(async move {
                let mut answers = 0u32;
                while begun.elapsed() < SLICE {
                    let used = |s: &mut Session| {
                        s.exec_count += 1;
                        s.last_active = s.last_active.plus_ms(1);
                    };
                    store.update(&id, used).await.expect("update");
                    answers += 1;
                }
                answers
            })
        })
        .collect();
    let answers = runtime.block_on(sum(callers));
    f64::from(answers) / begun.elapsed().as_secs_f64()
}

async fn sum(callers: Vec<tokio::task::JoinHandle<u32>>) -> u32 {
    let mut all = 0;
    for caller in callers {
        all += caller.await.expect("a caller");
    }
    all
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn id(caller: usize) -> SessionId {
    SessionId::new(format!("01920000-0000-7000-8000-{caller:012}"))
}

fn session(caller: usize) -> Session {
    let env = [("API_KEY", "k".repeat(40)), ("LANG", "C.UTF-8".to_owned())];
    let name = SessionName::parse(&format!("feature-{caller}")).expect("a good name");
    Session {
        sandbox_id: Some("5".repeat(64)),
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image: Some("debian:stable-slim".to_owned()),
        image_id: Some(format!("sha256:{}", "7".repeat(64))),
        status: Status::Running,
        spec: Spec { env: env.map(|(k, v)| (k.to_owned(), Secret::new(v))).into(), ..Spec::default() },
        metadata: BTreeMap::from([("colour".to_owned(), "green".to_owned())]),
        revision: 1,
        ..Session::new(id(caller), name, Timestamp(1_770_000_000_000))
    }
}
