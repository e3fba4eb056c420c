//! Changes that share a transaction: what each sees, and what one that fails does to the others.

use std::sync::mpsc as std_mpsc;

use super::*;

/// Holds the writer inside a change until the sender is dropped, so that what is sent meanwhile becomes one batch.
async fn hold(store: &Store) -> (std_mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (release, gate) = std_mpsc::channel::<()>();
    let (inside, arrived) = oneshot::channel();
    let held = store.clone();
    let task = tokio::spawn(async move {
        held.write(move |_| {
            let _ = inside.send(());
            let _ = gate.recv();
            Ok(())
        })
        .await
    });
    arrived.await.expect("the writer is inside");
    (release, task)
}

/// Queues a change without waiting for its answer. The returned task has the change in the queue already.
async fn queue<T: Send + 'static>(
    store: &Store,
    change: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> {
    let (reply, answer) = oneshot::channel();
    let sender = store.handle.jobs.read().expect("not poisoned").clone().expect("open");
    let job: Box<dyn Job> = Box::new(Change { closure: Some(change), value: None, by: None, reply });
    sender.send(job).await.expect("the writer runs");
    async move { answer.await.expect("an answer") }
}

#[tokio::test]
async fn changes_that_queue_share_one_commit_in_their_order() {
    let place = Place::new();
    let store = place.open();
    let (release, held) = hold(&store).await;
    let mut answers = Vec::new();
    for n in 0..100 {
        answers.push(
            queue(&store, move |tx| {
                tx.insert_session(&session(n))?;
                let seen = tx.meta("order").unwrap_or_default();
                tx.set_meta("order", &format!("{seen}{n} "))?;
                Ok(tx.session(&id(n.saturating_sub(1))).is_some())
            })
            .await,
        );
    }
    drop(release);
    held.await.expect("task").expect("held change");
    for answer in answers {
        assert!(answer.await.expect("kept"), "each sees the one before it");
    }
    assert_eq!(store.commits(), 2, "the held change, and all others together");
    let order = store.write(|tx| Ok(tx.meta("order"))).await.expect("meta").expect("set");
    assert_eq!(order, (0..100).map(|n| format!("{n} ")).collect::<String>());
}

#[tokio::test]
async fn a_batch_has_a_limit() {
    let place = Place::new();
    let options = Options { batch: 10, ..Options::default() };
    let store = Store::open_with(&place.path(), options).expect("open").store;
    let (release, held) = hold(&store).await;
    let mut answers = Vec::new();
    for n in 0..25 {
        answers.push(queue(&store, move |tx| tx.insert_session(&session(n))).await);
    }
    drop(release);
    held.await.expect("task").expect("held change");
    for answer in answers {
        answer.await.expect("kept");
    }
    assert_eq!(store.commits(), 1 + 3);
}

#[tokio::test]
async fn a_change_that_fails_disturbs_no_other_of_its_batch() {
    let place = Place::new();
    let store = place.open();
    let (release, held) = hold(&store).await;
    let before = queue(&store, |tx| tx.insert_session(&session(1))).await;
    let half = queue(&store, |tx| {
        tx.insert_session(&session(2))?;
        tx.set_meta("half", "done")?;
        tx.insert_session(&session(1))
    })
    .await;
    let panics = queue(&store, |tx| -> Result<(), StoreError> {
        tx.insert_session(&session(3))?;
        panic!("on purpose")
    })
    .await;
    let after = queue(&store, |tx| {
        assert_eq!((tx.session(&id(2)), tx.session(&id(3)), tx.meta("half")), (None, None, None));
        tx.insert_session(&session(4))
    })
    .await;
    drop(release);
    held.await.expect("task").expect("held change");
    before.await.expect("kept");
    assert!(matches!(half.await, Err(StoreError::Exists { name }) if name == id(1).as_str()));
    let error = panics.await.expect_err("panicked");
    assert!(error.to_string().ends_with("a change panicked: on purpose"), "{error}");
    after.await.expect("kept");
    assert_eq!(store.commits(), 2);
    store.insert(session(5)).await.expect("the writer goes on");
    store.close().await;
    let names: Vec<_> = place.open().sessions().iter().map(|s| s.name.to_string()).collect();
    assert_eq!(names, ["s5", "s4", "s1"]);
}

#[tokio::test]
async fn changes_whose_transaction_ended_under_them_fail_and_the_rest_is_kept() {
    let place = Place::new();
    let store = place.open();
    let (release, held) = hold(&store).await;
    let before = queue(&store, |tx| tx.insert_session(&session(1))).await;
    let ends = queue(&store, |tx| {
        tx.raw().execute_batch("ROLLBACK").expect("as a full disk does");
        Ok(())
    })
    .await;
    let after = queue(&store, |tx| tx.insert_session(&session(2))).await;
    drop(release);
    held.await.expect("task").expect("it had a transaction of its own");
    assert!(matches!(before.await, Err(StoreError::Io { .. })));
    assert!(matches!(ends.await, Err(StoreError::Io { .. })));
    after.await.expect("kept");
    assert_eq!(store.session("s1"), None);
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
    assert_eq!(store.count(), 1);
}

#[tokio::test]
async fn a_commit_that_fails_keeps_and_shows_nothing_of_its_batch() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let (release, held) = hold(&store).await;
    let good = queue(&store, |tx| tx.insert_session(&session(2))).await;
    let refused = queue(&store, |tx| tx.insert_session(&session(2))).await;
    let spoils = queue(&store, |tx| {
        tx.set_meta("a", "b")?;
        // Is found out at the commit, not before.
        tx.raw()
            .execute_batch(
                "PRAGMA defer_foreign_keys = ON; INSERT INTO session_env VALUES ('nobody', 'A', 'b')",
            )
            .expect("deferred");
        Ok(())
    })
    .await;
    drop(release);
    held.await.expect("task").expect("it had a transaction of its own");
    assert!(matches!(good.await, Err(StoreError::Io { .. })));
    assert!(matches!(refused.await, Err(StoreError::Io { .. })), "what refused it was not kept either");
    assert!(matches!(spoils.await, Err(StoreError::Io { .. })));
    assert_eq!(store.count(), 1);
    assert_eq!(store.write(|tx| Ok(tx.meta("a"))).await.expect("read"), None);
    store.insert(session(2)).await.expect("the name is free");
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
}

#[tokio::test]
async fn a_failure_of_sqlite_cannot_be_swallowed() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let answer = store
        .write(|tx| {
            tx.raw().execute_batch("DROP TABLE session_env").expect("drop");
            let env = [("A".to_owned(), crate::model::session::Secret::new("b"))].into();
            let row = Session { exec_count: 9, spec: Spec { env, ..Spec::default() }, ..session(1) };
            tx.put_session(&row).expect_err("half of it was written");
            tx.insert_session(&session(2)).expect_err("nothing more is taken");
            Ok(())
        })
        .await;
    assert!(matches!(answer, Err(StoreError::Io { .. })), "{answer:?}");
    assert_eq!(store.session("s1").expect("there").exec_count, 0);
    store.insert(session(3)).await.expect("the table is whole again");
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
}

#[tokio::test]
async fn readers_go_on_while_a_transaction_is_open() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let (release, held) = hold(&store).await;
    let update = queue(&store, |tx| tx.put_session(&Session { exec_count: 1, ..session(1) })).await;
    assert_eq!(store.session("s1").expect("there").exec_count, 0);
    assert_eq!((store.sessions().len(), store.count(), store.snapshots(None).len()), (1, 1, 0));
    drop(release);
    held.await.expect("task").expect("held change");
    update.await.expect("kept");
    assert_eq!(store.session("s1").expect("there").exec_count, 1);
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_take_its_change_along() {
    let place = Place::new();
    let store = place.open();
    let (release, held) = hold(&store).await;
    drop(queue(&store, |tx| tx.insert_session(&session(1))).await);
    drop(release);
    held.await.expect("task").expect("held change");
    store.write(|_| Ok(())).await.expect("whatever was queued is done");
    assert!(store.session("s1").is_some());
}

#[tokio::test]
async fn closing_makes_what_is_queued_and_refuses_what_comes_after() {
    let place = Place::new();
    let store = place.open();
    let (release, held) = hold(&store).await;
    let queued = queue(&store, |tx| tx.insert_session(&session(1))).await;
    let (one, two) = (store.clone(), store.clone());
    let closing = tokio::spawn(async move { tokio::join!(one.close(), two.close()) });
    while store.handle.jobs.read().expect("not poisoned").is_some() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(store.insert(session(2)).await, Err(StoreError::Closed)));
    drop(release);
    held.await.expect("task").expect("held change");
    queued.await.expect("kept");
    closing.await.expect("both see the end");
    assert_eq!(place.files(), ["sessions.db"], "the log is in the database");
    assert_eq!(store.count(), 1, "reads go on");
    store.close().await;
    assert_eq!(place.open().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_starters_of_one_name_are_one() {
    let place = Place::new();
    let store = place.open();
    let starters: Vec<_> = (0..10)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                store.insert(Session { name: session(0).name, ..session(n) }).await.is_ok()
            })
        })
        .collect();
    let mut won = 0;
    for starter in starters {
        won += usize::from(starter.await.expect("task"));
    }
    assert_eq!((won, store.count()), (1, 1));
}
