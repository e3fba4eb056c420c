//! Commands: kept over a restart, found by their callers' keys, forgotten in order.

use super::super::execs::KEPT_PER_SESSION;
use super::*;
use crate::model::exec::{End, Verdict};

pub(super) fn exec(n: usize, of: usize) -> Exec {
    Exec {
        id: ExecId::new(format!("01930000-0000-7000-8000-{n:012}")),
        session: id(of),
        key: None,
        argv: vec!["sh".to_owned(), String::new(), "-c\nключ".to_owned()],
        terminal: None,
        tty: false,
        detached: true,
        started_at: Timestamp(i64::try_from(n).expect("small")),
        deadline: None,
        verdict: None,
        ended: None,
    }
}

fn end(code: i32) -> End {
    End { at: Timestamp(9), code, signal: Some(9), reason: Some("its time ran out".to_owned()) }
}

async fn put(store: &Store, exec: Exec) -> Result<(), StoreError> {
    store.write(move |tx| tx.put_exec(&exec)).await
}

fn ids(store: &Store, of: usize) -> Vec<ExecId> {
    store.execs(&id(of)).iter().map(|exec| exec.id.clone()).collect()
}

#[tokio::test]
async fn every_field_of_a_command_comes_back_after_a_restart() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let rows = [
        exec(1, 1),
        Exec { key: Some("k".to_owned()), terminal: Some("main".to_owned()), tty: true, ..exec(2, 1) },
        Exec { ended: Some(end(137)), detached: false, ..exec(3, 1) },
        Exec { deadline: Some(Timestamp(77)), verdict: Some(Verdict::TimedOut), ..exec(4, 1) },
    ];
    for row in rows.clone() {
        put(&store, row).await.expect("put");
    }
    store.close().await;
    let store = place.open();
    let back: Vec<Exec> = store.execs(&id(1)).iter().map(|exec| Exec::clone(exec)).collect();
    assert_eq!(back, rows);
}

#[tokio::test]
async fn a_key_names_one_command_of_its_session_and_is_free_in_others() {
    let place = Place::new();
    let store = place.open();
    for n in [1, 2] {
        store.insert(session(n)).await.expect("insert");
    }
    let keyed = |n, of| Exec { key: Some("build".to_owned()), ..exec(n, of) };
    put(&store, keyed(1, 1)).await.expect("the first");
    let taken = put(&store, keyed(2, 1)).await.expect_err("taken");
    assert!(matches!(taken, StoreError::KeyTaken { key } if key == "build"));
    put(&store, keyed(3, 2)).await.expect("another session's");
    assert_eq!(store.exec_keyed(&id(1), "build").expect("found").id, exec(1, 1).id);
}

#[tokio::test]
async fn the_oldest_that_have_ended_are_forgotten_and_those_that_run_never() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    put(&store, exec(0, 1)).await.expect("one that runs");
    for n in 1..=KEPT_PER_SESSION + 2 {
        put(&store, Exec { ended: Some(end(0)), ..exec(n, 1) }).await.expect("put");
    }
    let kept = ids(&store, 1);
    assert_eq!(kept.len(), KEPT_PER_SESSION + 1);
    assert_eq!((&kept[0], &kept[1]), (&exec(0, 1).id, &exec(3, 1).id));
    store.close().await;
    assert_eq!(ids(&place.open(), 1), kept);
}

#[tokio::test]
async fn commands_end_with_their_sandbox_and_go_with_their_session() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    put(&store, Exec { ended: Some(end(3)), ..exec(1, 1) }).await.expect("one that has ended");
    put(&store, exec(2, 1)).await.expect("one that runs");
    store.update(&id(1), |s| s.status = Status::Stopped).await.expect("stopped");
    let codes: Vec<i32> =
        store.execs(&id(1)).iter().map(|exec| exec.ended.as_ref().expect("ended").code).collect();
    assert_eq!(codes, [3, 137]);
    store.write(|tx| tx.delete_session(&id(1))).await.expect("deleted");
    assert_eq!((ids(&store, 1), store.exec(&exec(1, 1).id)), (Vec::new(), None));
    store.insert(session(1)).await.expect("the same id again");
    store.close().await;
    assert_eq!(ids(&place.open(), 1), Vec::new());
}

#[tokio::test]
async fn whatever_ends_a_command_or_drops_its_row_wakes_those_who_wait_for_it() {
    type Way = fn(&mut Tx<'_>) -> Result<(), StoreError>;
    let ways: [(&str, Way); 4] = [
        ("its end", |tx| tx.settle_exec(&exec(1, 1).id, None, Some(end(3))).map(drop)),
        ("its sandbox's end", |tx| tx.change_session(&id(1), |s| s.status = Status::Stopped)),
        ("taken back", |tx| tx.delete_exec(&exec(1, 1).id)),
        ("its session's end", |tx| tx.delete_session(&id(1))),
    ];
    for (name, way) in ways {
        let place = Place::new();
        let store = place.open();
        store.insert(session(1)).await.expect("insert");
        put(&store, exec(1, 1)).await.expect("one that runs");
        let row = store.exec(&exec(1, 1).id).expect("its row");
        let mut waiting = std::pin::pin!(store.ended(&row));
        assert!(futures_util::poll!(&mut waiting).is_pending(), "{name}");
        store.write(way).await.expect("changed");
        let seen = tokio::time::timeout(Duration::from_secs(30), waiting).await.expect(name);
        assert_eq!(seen.ended, store.exec(&row.id).and_then(|row| row.ended.clone()), "{name}");
    }
}

#[tokio::test]
async fn a_change_that_fails_leaves_no_command_behind() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let refused: Result<(), StoreError> = store
        .write(|tx| {
            tx.put_exec(&exec(1, 1))?;
            Err(StoreError::Closed)
        })
        .await;
    assert!(matches!(refused, Err(StoreError::Closed)));
    assert_eq!(ids(&store, 1), Vec::new());
    assert!(matches!(put(&store, exec(2, 7)).await, Err(StoreError::Gone { .. })), "no such session");
}
