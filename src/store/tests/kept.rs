//! Snapshots that stay when their session is deleted.

use super::*;

#[tokio::test]
async fn kept_snapshots_have_the_name_that_their_session_had_last() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let renamed = SessionName::parse("renamed").expect("a name");
    let renamed = Session { name: renamed, ..session(1) };
    store
        .write(move |tx| {
            tx.put_snapshot(&snapshot(1, 1))?;
            tx.put_session(&renamed)?;
            tx.delete_session(&id(1))
        })
        .await
        .expect("delete");
    let name = |store: &Store| store.snapshot("snap-1").expect("kept").session_name.clone();
    assert_eq!(name(&store), "renamed");
    store.close().await;
    assert_eq!(name(&place.open()), "renamed", "after a restart too");
}

#[tokio::test]
async fn kept_snapshots_outlive_their_session() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.insert(session(2)).await.expect("insert");
    store
        .write(|tx| {
            tx.put_snapshot(&snapshot(1, 1))?;
            tx.put_snapshot(&snapshot(2, 2))?;
            tx.delete_session(&id(1))
        })
        .await
        .expect("delete");
    let orphan = store.snapshot("snap-1").expect("kept");
    assert_eq!((&orphan.session, orphan.session_name.as_str()), (&None, "s1"));
    assert_eq!(store.snapshots(Some(&id(1))), []);
    assert_eq!(store.session("s1"), None);
    assert!(matches!(store.write(|tx| tx.delete_session(&id(1))).await, Err(StoreError::Gone { .. })));
    store.insert(session(1)).await.expect("the name is free");
    let adopted = Snapshot { session: Some(id(2)), ..snapshot(1, 1) };
    store.write(move |tx| tx.put_snapshot(&adopted)).await.expect("adopt");
    assert_eq!(store.session("s2").expect("there").snapshots, 2);
    let moved = Snapshot { session: Some(id(1)), ..snapshot(1, 1) };
    store.write(move |tx| tx.put_snapshot(&moved)).await.expect("move");
    assert_eq!(store.session("s2").expect("there").snapshots, 1);
    assert_eq!(store.session("s1").expect("there").snapshot.as_deref(), Some("snap-1"));
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
}
