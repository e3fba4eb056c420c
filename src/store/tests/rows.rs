//! What goes in comes out: after each change, and after the table was opened again.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::model::attention::{Attention, Noted, Source};
use crate::model::event::By;
use crate::model::session::{
    Excluded, External, Limits, Mount, Network, Operation, Port, Profile, Reason, Runtime, Secret,
};

/// A row in which every field has a value of its own.
fn full() -> Session {
    let mount =
        |n: u8, read_only| Mount { source: format!("/src/{n}"), target: format!("/dst/{n}"), read_only };
    let port = |container, host, fixed| Port { container, host, fixed, protocol: "tcp".to_owned() };
    Session {
        sandbox_id: Some("c0ffee".to_owned()),
        image_id: Some("sha256:1".to_owned()),
        runtime: Runtime::Engine,
        status: Status::Stopped,
        operation: Some(Operation::Resume),
        reason: Some(Reason::OomKilled),
        last_active: Timestamp(-5),
        last_connected: Some(Timestamp(3)),
        expires_at: Some(Timestamp(i64::MAX)),
        timeout_ms: Some(4),
        idle_ms: Some(5),
        exec_count: 6,
        oom_events: 7,
        attention: Some(Noted {
            state: Attention::Waiting,
            source: Source::Osc777,
            note: Some("which?".to_owned()),
            exec: Some(ExecId::new("e")),
            at: Timestamp(8),
        }),
        spec: Spec {
            workspace: Some(mount(0, true)),
            mounts: vec![mount(2, false), mount(1, true)],
            ports: vec![port(8080, Some(18080), true), port(53, None, false)],
            limits: Limits { cpu_millis: Some(1500), memory_bytes: Some(8), pids: Some(u32::MAX) },
            network: Network::None,
            profile: Profile::Restrictive,
            user: Some("dev".to_owned()),
            env: BTreeMap::from([("KEY".to_owned(), Secret::new("a=b\n\0c"))]),
        },
        metadata: BTreeMap::from([(String::new(), "ключ".to_owned()), ("b".to_owned(), String::new())]),
        external: Some(External {
            origin: "store".to_owned(),
            status: Some("active".to_owned()),
            extra: Secret::new("{\"x\":1}"),
        }),
        ..session(1)
    }
}

#[tokio::test]
async fn every_field_comes_back() {
    let place = Place::new();
    let store = place.open();
    let row = store.insert(full()).await.expect("insert");
    assert_eq!(*row, full());
    let snapshot = Snapshot {
        creator: Some(By { client: "zed".to_owned(), pid: Some(7) }),
        own_bytes: Some(12),
        note: Some("before".to_owned()),
        parent: Some("older".to_owned()),
        state: SnapshotState::Deleting,
        excluded: ["bind", "process"]
            .map(|kind| Excluded { mark: Some(format!("a {kind}")), ..Excluded::new(kind, "/w") })
            .into(),
        ..snapshot(1, 1)
    };
    let put = snapshot.clone();
    store.write(move |tx| tx.put_snapshot(&put)).await.expect("put");
    store.write(|tx| tx.set_meta("seq", "41").and_then(|()| tx.set_meta("seq", "42"))).await.expect("meta");
    store.close().await;
    let store = place.open();
    assert_eq!(store.sessions(), [Arc::new(full())]);
    assert_eq!(store.snapshots(None), [Arc::new(snapshot)]);
    let meta = store.write(|tx| Ok((tx.meta("seq"), tx.meta("other")))).await.expect("meta");
    assert_eq!(meta, (Some("42".to_owned()), None));
}

#[tokio::test]
async fn numbers_beyond_the_tables_become_its_largest() {
    let place = Place::new();
    let store = place.open();
    let row = Session { exec_count: u64::MAX, timeout_ms: Some(1 << 63), ..session(1) };
    let row = store.insert(row).await.expect("insert");
    assert_eq!((row.exec_count, row.timeout_ms), (i64::MAX as u64, Some(i64::MAX as u64)));
    let huge = Snapshot { size_bytes: u64::MAX, ..snapshot(1, 1) };
    store.write(move |tx| tx.put_snapshot(&huge)).await.expect("put");
    store.close().await;
    let again = place.open();
    assert_eq!(contents(&again), contents(&store));
    assert_eq!(again.snapshot("snap-1").expect("there").size_bytes, i64::MAX as u64);
}

#[tokio::test]
async fn a_session_is_found_by_name_then_by_sandbox() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let tricky = Session { name: SessionName::parse("session-s1").expect("good"), ..session(2) };
    assert_eq!(store.session("session-s1").expect("by sandbox").id, id(1));
    store.insert(tricky).await.expect("insert");
    assert_eq!(store.session("session-s1").expect("by name").id, id(2));
    let inside = store.write(|tx| Ok(tx.session_named("session-s1"))).await.expect("read");
    assert_eq!(inside.expect("by name").id, id(2));
    assert_eq!(store.session_by_id(&id(1)).expect("by id").sandbox, "session-s1");
    assert_eq!(store.session("s3"), None);
    assert_eq!(store.count(), 2);
}

#[tokio::test]
async fn taken_names_are_refused_by_name() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.insert(session(2)).await.expect("insert");
    let taken = |error: StoreError| match error {
        StoreError::Exists { name } => name,
        other => panic!("{other}"),
    };
    let same_name = Session { name: session(1).name, ..session(3) };
    assert_eq!(taken(store.insert(same_name).await.expect_err("name")), "s1");
    let same_sandbox = Session { sandbox: "session-s1".to_owned(), ..session(3) };
    assert_eq!(taken(store.insert(same_sandbox).await.expect_err("sandbox")), "session-s1");
    let same_id = Session { id: id(1), ..session(3) };
    assert_eq!(taken(store.insert(same_id).await.expect_err("id")), id(1).as_str());
    let renamed = store.update(&id(2), |s| s.name = session(1).name).await;
    assert_eq!(taken(renamed.expect_err("rename")), "s1");
    assert_eq!(store.session("s2").expect("unchanged").revision, 1);
}

#[tokio::test]
async fn a_freed_name_can_be_taken_in_the_same_change() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.insert(session(2)).await.expect("insert");
    store
        .write(|tx| {
            let (mut one, mut two) = (session(1), session(2));
            one.name = SessionName::parse("aside").expect("good");
            tx.put_session(&one)?;
            two.name = session(1).name;
            tx.put_session(&two)?;
            one.name = session(2).name;
            tx.put_session(&one)
        })
        .await
        .expect("swap");
    assert_eq!(store.session("s1").expect("there").id, id(2));
    assert_eq!(store.session("s2").expect("there").id, id(1));
    assert_eq!(store.session("aside"), None);
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
}

#[tokio::test]
async fn the_store_owns_revision_id_and_what_follows_from_snapshots() {
    let place = Place::new();
    let store = place.open();
    let boast = Session { revision: 99, snapshots: 7, snapshot: Some("none".to_owned()), ..session(1) };
    let row = store.insert(boast.clone()).await.expect("insert");
    assert_eq!((row.revision, row.snapshots, &row.snapshot), (1, 0, &None));
    let row = store.update(&id(1), move |s| *s = Session { id: id(8), exec_count: 3, ..boast }).await;
    let row = row.expect("update");
    assert_eq!((&row.id, row.revision, row.snapshots, row.exec_count), (&id(1), 2, 0, 3));
    assert!(matches!(store.update(&id(8), |_| {}).await, Err(StoreError::Gone { .. })));
}

#[tokio::test]
async fn snapshots_show_in_their_session() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let state = |store: &Store| {
        let row = store.session("s1").expect("there");
        (row.snapshot.clone(), row.snapshots, row.revision)
    };
    let creating = Snapshot { state: SnapshotState::Creating, image_id: String::new(), ..snapshot(2, 1) };
    store.write(move |tx| tx.put_snapshot(&creating)).await.expect("creating");
    assert_eq!(state(&store), (None, 0, 1), "one that is being made does not count");
    store.write(|tx| tx.put_snapshot(&snapshot(2, 1))).await.expect("ready");
    assert_eq!(state(&store), (Some("snap-2".to_owned()), 1, 2));
    store.write(|tx| tx.put_snapshot(&snapshot(1, 1))).await.expect("an older one");
    assert_eq!(state(&store), (Some("snap-2".to_owned()), 2, 3), "the newest, not the last put");
    let noted = Snapshot { note: Some("x".to_owned()), ..snapshot(1, 1) };
    store.write(move |tx| tx.put_snapshot(&noted)).await.expect("a note");
    assert_eq!(state(&store).2, 3, "a note changes nothing in the session");
    let deleting = Snapshot { state: SnapshotState::Deleting, ..snapshot(2, 1) };
    store.write(move |tx| tx.put_snapshot(&deleting)).await.expect("deleting");
    assert_eq!(state(&store), (Some("snap-1".to_owned()), 1, 4));
    let names: Vec<_> = store.snapshots(Some(&id(1))).iter().map(|s| s.name.clone()).collect();
    assert_eq!(names, ["snap-2", "snap-1"], "newest first, in any state");
    store.write(|tx| tx.delete_snapshot(&snapshot(1, 1).id)).await.expect("delete");
    assert_eq!(state(&store), (None, 0, 5));
    assert!(matches!(
        store.write(|tx| tx.delete_snapshot(&snapshot(1, 1).id)).await,
        Err(StoreError::Gone { .. })
    ));
}

#[tokio::test]
async fn a_snapshots_name_is_taken_in_any_state() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let creating = Snapshot { state: SnapshotState::Creating, ..snapshot(1, 1) };
    store.write(move |tx| tx.put_snapshot(&creating)).await.expect("put");
    let other = Snapshot { name: "snap-1".to_owned(), ..snapshot(2, 1) };
    let error = store.write(move |tx| tx.put_snapshot(&other)).await.expect_err("taken");
    assert!(matches!(error, StoreError::SnapshotExists { name } if name == "snap-1"));
    let nowhere = store.write(|tx| tx.put_snapshot(&snapshot(3, 9))).await;
    assert!(matches!(nowhere, Err(StoreError::Gone { .. })), "a snapshot of no session");
}

#[tokio::test]
async fn the_newest_comes_first_and_the_higher_id_before_its_twin() {
    let place = Place::new();
    let store = place.open();
    for n in [2, 4, 1, 3] {
        let at = if n == 4 { 0 } else { 1_000_000 };
        store.insert(Session { created_at: Timestamp(at), ..session(n) }).await.expect("insert");
    }
    let order = |store: &Store| store.sessions().iter().map(|s| s.name.to_string()).collect::<Vec<_>>();
    assert_eq!(order(&store), ["s3", "s2", "s1", "s4"]);
    store.update(&id(4), |s| s.created_at = Timestamp(i64::MAX)).await.expect("update");
    assert_eq!(order(&store), ["s4", "s3", "s2", "s1"]);
    store.close().await;
    assert_eq!(order(&place.open()), ["s4", "s3", "s2", "s1"]);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,12}", Just("\0'\";--\u{feff}".to_owned())]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..9u64]
}

fn mount() -> impl Strategy<Value = Mount> {
    (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| Mount {
        source,
        target,
        read_only,
    })
}

fn port() -> impl Strategy<Value = Port> {
    (any::<u16>(), option::of(any::<u16>()), any::<bool>(), text())
        .prop_map(|(container, host, fixed, protocol)| Port { container, host, fixed, protocol })
}

fn spec() -> impl Strategy<Value = Spec> {
    let limits = (option::of(number()), option::of(number()), option::of(any::<u32>()))
        .prop_map(|(cpu_millis, memory_bytes, pids)| Limits { cpu_millis, memory_bytes, pids });
    let env = btree_map(text(), text().prop_map(Secret::new), 0..4);
    let words = (select(Network::ALL), select(Profile::ALL), option::of(text()));
    (option::of(mount()), vec(mount(), 0..3), vec(port(), 0..3), limits, words, env).prop_map(
        |(workspace, mounts, ports, limits, (network, profile, user), env)| Spec {
            workspace,
            mounts,
            ports,
            limits,
            network,
            profile,
            user,
            env,
        },
    )
}

/// Any session that has the id, name and sandbox of [`session`]`(1)`.
fn any_session() -> impl Strategy<Value = Session> {
    let at = || any::<i64>().prop_map(Timestamp);
    let external = (text(), option::of(text()), text().prop_map(Secret::new))
        .prop_map(|(origin, status, extra)| External { origin, status, extra });
    let words = (
        select(EngineKind::ALL),
        select(Status::ALL),
        option::of(select(Operation::ALL)),
        option::of(select(Reason::ALL)),
    );
    let times = (at(), at(), option::of(at()), option::of(at()), option::of(number()), option::of(number()));
    let texts = (option::of(text()), text(), text(), option::of(text()), option::of(text()));
    let rest = (number(), number(), spec(), btree_map(text(), text(), 0..4), option::of(external));
    (words, times, texts, rest).prop_map(|(words, times, texts, rest)| Session {
        engine: words.0,
        status: words.1,
        operation: words.2,
        reason: words.3,
        created_at: times.0,
        last_active: times.1,
        last_connected: times.2,
        expires_at: times.3,
        timeout_ms: times.4,
        idle_ms: times.5,
        sandbox_id: texts.0,
        agent: texts.1,
        template: texts.2,
        image: texts.3,
        image_id: texts.4,
        exec_count: rest.0,
        oom_events: rest.1,
        spec: rest.2,
        metadata: rest.3,
        external: rest.4,
        ..session(1)
    })
}

/// One step of a random history. Numbers name rows that may or may not be there.
#[derive(Debug, Clone)]
enum Step {
    Insert(usize, usize),
    Rename(usize, usize),
    Delete(usize),
    PutSnapshot(usize, usize, SnapshotState, Option<usize>),
    DeleteSnapshot(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let state = select(vec![SnapshotState::Creating, SnapshotState::Ready, SnapshotState::Deleting]);
    let few = || 0..4usize;
    prop_oneof![
        (few(), few()).prop_map(|(n, name)| Step::Insert(n, name)),
        (few(), few()).prop_map(|(n, name)| Step::Rename(n, name)),
        few().prop_map(Step::Delete),
        (few(), few(), state, option::of(few()))
            .prop_map(|(n, name, s, of)| Step::PutSnapshot(n, name, s, of)),
        few().prop_map(Step::DeleteSnapshot),
    ]
}

fn take(tx: &mut Tx<'_>, step: &Step) -> Result<(), StoreError> {
    let name = |n: &usize| SessionName::parse(&format!("s{n}")).expect("good");
    match step {
        Step::Insert(n, m) => {
            tx.insert_session(&Session { name: name(m), sandbox: format!("b{m}"), ..session(*n) })
        }
        Step::Rename(n, m) => tx.put_session(&Session { name: name(m), ..session(*n) }),
        Step::Delete(n) => tx.delete_session(&id(*n)),
        Step::PutSnapshot(n, m, state, of) => tx.put_snapshot(&Snapshot {
            name: format!("snap-{m}"),
            state: *state,
            session: of.map(id),
            ..snapshot(*n, 0)
        }),
        Step::DeleteSnapshot(n) => tx.delete_snapshot(&snapshot(*n, 0).id),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_row_and_any_change_of_it_come_back(first in any_session(), second in any_session()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let place = Place::new();
            let store = place.open();
            let row = store.insert(first.clone()).await.expect("insert");
            prop_assert_eq!(&*row, &super::super::rows::fitting(first));
            store.close().await;
            let store = place.open();
            prop_assert_eq!(store.sessions(), [row]);
            let want = Session { revision: 2, ..super::super::rows::fitting(second.clone()) };
            let row = store.update(&id(1), move |s| *s = second).await.expect("update");
            prop_assert_eq!(&*row, &want);
            store.close().await;
            prop_assert_eq!(place.open().sessions(), [row]);
            Ok(())
        })?;
    }

    /// Steps come in changes of several, and a change whose last step is refused is taken back whole.
    #[test]
    fn the_view_is_what_the_table_holds_after_any_history(changes in vec(vec(step(), 1..5), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let place = Place::new();
            let store = place.open();
            for steps in changes {
                let before = contents(&store);
                let done = store.write(move |tx| {
                    let results: Vec<_> = steps.iter().map(|step| take(tx, step)).collect();
                    results.into_iter().next_back().unwrap_or(Ok(()))
                }).await;
                if done.is_err() {
                    prop_assert_eq!(contents(&store), before);
                }
            }
            for session in store.sessions() {
                let ready: Vec<_> = store.snapshots(Some(&session.id)).into_iter()
                    .filter(|s| s.state == SnapshotState::Ready).collect();
                prop_assert_eq!(session.snapshots, ready.len() as u64);
                prop_assert_eq!(&session.snapshot, &ready.first().map(|s| s.name.clone()));
            }
            store.close().await;
            prop_assert_eq!(contents(&place.open()), contents(&store));
            Ok(())
        })?;
    }
}
