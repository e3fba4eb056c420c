//! Rows that this abx would not have written: none hides the others.

use super::*;
use crate::model::session::{Network, Profile};

#[tokio::test]
async fn words_of_the_future_are_read_as_the_most_careful_value() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.insert(session(2)).await.expect("insert");
    store.write(|tx| tx.put_snapshot(&snapshot(1, 1))).await.expect("put");
    store.close().await;
    place.sql(
        "UPDATE sessions SET status = 'hibernated', operation = 'teleport', reason = 'boredom', engine = 'native',
             profile = 'airtight', network = 'vpn', pids = 99999999999, exec_count = -1, revision = -4
         WHERE name = 's1';
         INSERT INTO session_ports VALUES ((SELECT id FROM sessions WHERE name = 's1'), 0, 70000, NULL, 0, 'tcp');
         INSERT INTO session_ports VALUES ((SELECT id FROM sessions WHERE name = 's1'), 1, 80, NULL, 0, 'tcp');
         UPDATE snapshots SET state = 'squashing'",
    );
    let store = place.open();
    assert_eq!(store.count(), 2);
    let row = store.session("s1").expect("there");
    assert_eq!((row.status, row.operation, row.reason), (Status::Unknown, None, None));
    assert_eq!(
        (row.engine, row.spec.profile, row.spec.network),
        (EngineKind::External, Profile::Restrictive, Network::None)
    );
    assert_eq!((row.spec.limits.pids, row.exec_count, row.revision), (Some(u32::MAX), 0, 1));
    assert_eq!(row.spec.ports.iter().map(|p| p.container).collect::<Vec<_>>(), [80]);
    assert_eq!(row.snapshot.as_deref(), Some("snap-1"), "nobody removes its image");
    store.update(&id(1), |s| s.exec_count += 1).await.expect("update");
    store.close().await;
    let conn = rusqlite::Connection::open(place.path()).expect("open");
    let kept: (String, String, String) = conn
        .query_row("SELECT engine, profile, network FROM sessions WHERE name = 's1'", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .expect("the row");
    assert_eq!(
        kept,
        ("native".into(), "airtight".into(), "vpn".into()),
        "what did not change is not rewritten"
    );
}

#[tokio::test]
async fn a_name_that_breaks_the_rules_is_shown_by_its_id_and_kept() {
    let place = Place::new();
    let store = place.open();
    for n in 1..=3 {
        store.insert(session(n)).await.expect("insert");
    }
    store.close().await;
    place.sql(
        "UPDATE sessions SET name = 'a/b' WHERE name = 's1';
         UPDATE sessions SET name = 'caf\u{e9}' WHERE name = 's2';
         UPDATE sessions SET name = 'cafe\u{301}' WHERE name = 's3'",
    );
    let store = place.open();
    assert_eq!(store.count(), 3);
    assert_eq!(store.session_by_id(&id(1)).expect("there").name.as_str(), id(1).as_str());
    assert_eq!(store.session("caf\u{e9}").expect("there").id, id(2));
    assert_eq!(store.session(id(3).as_str()).expect("the other spelling").id, id(3));
    store.update(&id(1), |s| s.status = Status::Stopped).await.expect("update");
    store.close().await;
    let conn = rusqlite::Connection::open(place.path()).expect("open");
    let names: i64 = conn
        .query_row("SELECT count(*) FROM sessions WHERE name IN ('a/b', 'cafe\u{301}')", [], |row| row.get(0))
        .expect("count");
    assert_eq!(names, 2);
}

#[tokio::test]
async fn rows_that_hang_on_nothing_are_left_out() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.write(|tx| tx.put_snapshot(&snapshot(1, 1))).await.expect("put");
    store.close().await;
    place.sql(
        "PRAGMA foreign_keys = OFF; UPDATE snapshots SET session = 'gone';
         INSERT INTO session_env VALUES ('gone', 'A', 'b')",
    );
    let store = place.open();
    assert_eq!(store.snapshot("snap-1").expect("there").session, None);
    assert_eq!(store.session("s1").expect("there").snapshots, 0);
}
