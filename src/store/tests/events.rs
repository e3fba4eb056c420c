//! What changes tell, and to whom.

use super::*;
use crate::model::event::{By, EventKind, Told};

fn kinds(store: &Store, since: u64) -> Vec<&'static str> {
    store.events(since).iter().map(|event| event.kind.as_str()).collect()
}

#[tokio::test]
async fn a_change_and_what_it_tells_are_kept_together_or_not_at_all() {
    let place = Place::new();
    let store = place.open();
    let row = store.insert(session(1)).await.expect("inserted");
    let refused: Result<(), _> = store
        .write(|tx| {
            tx.insert_session(&session(2))?;
            tx.insert_session(&session(1))
        })
        .await;
    refused.expect_err("the name is taken");
    store.update(&row.id, |s| s.status = Status::Running).await.expect("updated");
    assert_eq!(kinds(&store, 0), ["session.created", "session.status"]);
    let events = store.events(0);
    assert_eq!((events[0].seq, events[1].seq), (1, 2), "what was not kept has no number");
    let last = &events[1];
    assert_eq!((last.session.as_ref(), last.revision), (Some(&row.id), Some(2)));
    assert_eq!(last.data, r#"{"from":"starting","reason":null,"to":"running"}"#);
    store.close().await;
    let again = place.open();
    assert_eq!(again.events(0), events);
    again.write(|tx| tx.delete_session(&id(1))).await.expect("deleted");
    assert_eq!(kinds(&again, 2), ["session.deleted"]);
    assert_eq!(again.last_event(), 3);
}

#[tokio::test]
async fn several_changes_of_a_row_in_one_tell_their_sum() {
    let place = Place::new();
    let store = place.open();
    store
        .write(|tx| {
            tx.insert_session(&session(1))?;
            tx.change_session(&id(1), |s| s.status = Status::Running)?;
            tx.change_session(&id(1), |s| s.idle_ms = Some(5))
        })
        .await
        .expect("written");
    assert_eq!(kinds(&store, 0), ["session.created"]);
    assert_eq!(store.events(0)[0].revision, Some(3));
}

#[tokio::test]
async fn each_start_of_a_command_has_its_end_also_where_its_row_goes() {
    let place = Place::new();
    let store = place.open();
    let open = |n| super::execs::exec(n, 1);
    store.insert(session(1)).await.expect("inserted");
    for n in 1..=2 {
        store.write(move |tx| tx.put_exec(&open(n))).await.expect("started");
    }
    store.write(move |tx| tx.delete_exec(&open(1).id)).await.expect("taken back");
    store.write(|tx| tx.delete_session(&id(1))).await.expect("deleted");
    let events = store.events(3);
    let told: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.session.clone())).collect();
    let session = || Some(id(1));
    assert_eq!(told, [("exec.ended", session()), ("exec.ended", session()), ("session.deleted", session())]);
    assert!(events[0].data.contains("it was not started"), "{events:?}");
    assert!(events[1].data.contains("its session was deleted"), "{events:?}");
}

#[tokio::test]
async fn who_asked_is_noted_and_what_the_daemon_does_is_nobodys() {
    let place = Place::new();
    let store = place.open();
    let by = By { client: "nvim".to_owned(), pid: Some(7) };
    acting(Some(by.clone()), store.insert(session(1))).await.expect("inserted");
    store.insert(session(2)).await.expect("inserted");
    let seen: Vec<_> = store.events(0).iter().map(|event| event.by.clone()).collect();
    assert_eq!(seen, [Some(by), None]);
}

#[tokio::test]
async fn who_follows_misses_nothing_between_what_was_and_what_comes() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("inserted");
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 2..200 {
                store.insert(session(n)).await.expect("inserted");
            }
        }
    });
    while store.count() < 50 {
        tokio::task::yield_now().await;
    }
    let mut news = store.news();
    let mut seen = vec![1];
    while seen.last() != Some(&199) {
        let page = store.page(seen[seen.len() - 1], 7);
        assert!(page.events.len() <= 7 && page.missed == 0, "{page:?}");
        if page.events.is_empty() {
            news.changed().await.expect("the store is there");
        }
        seen.extend(page.events.iter().map(|event| event.seq));
    }
    assert_eq!(seen, (1..=199).collect::<Vec<_>>());
    writing.await.expect("written");
}

#[tokio::test]
async fn the_last_ten_thousand_are_kept_and_numbers_go_on() {
    let place = Place::new();
    let store = place.open();
    let note = || Told { kind: EventKind::DaemonStarted, data: Vec::new() };
    for _ in 0..3 {
        let notes = move |tx: &mut Tx<'_>| {
            (0..4000).for_each(|_| tx.note(note()));
            Ok(())
        };
        store.write(notes).await.expect("written");
    }
    store.close().await;
    let again = place.open();
    let events = again.events(0);
    assert_eq!((events.len(), events[0].seq, again.last_event()), (10_000, 2001, 12_000));
    let page = |since| {
        let Page { events, missed, last } = again.page(since, 10);
        (events.first().map(|event| event.seq), events.len(), missed, last)
    };
    assert_eq!(page(0), (Some(2001), 10, 2000, 12_000));
    assert_eq!(page(1999), (Some(2001), 10, 1, 12_000));
    assert_eq!(page(2000), (Some(2001), 10, 0, 12_000));
    assert_eq!(page(11_995), (Some(11_996), 5, 0, 12_000));
    for since in [12_000, 12_001, u64::MAX] {
        assert_eq!(page(since), (None, 0, 0, 12_000));
    }
}
