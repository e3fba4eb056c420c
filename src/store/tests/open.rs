//! How a table is opened: made, refused, or found.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[tokio::test]
async fn a_new_table_and_its_log_are_for_this_user_alone() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let mode =
        |suffix| fs::metadata(beside(&place.path(), suffix)).expect("there").permissions().mode() & 0o777;
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    store.close().await;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o644)).expect("open it to others");
    let store = place.open();
    store.insert(session(2)).await.expect("insert");
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
}

#[tokio::test]
async fn a_newer_format_is_refused_and_no_byte_changes() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.close().await;
    let (known, newer) = (super::schema::FORMAT, super::schema::FORMAT + 1);
    place.sql(&format!("PRAGMA user_version = {newer}; CREATE TABLE future (x)"));
    let (files, bytes) = (place.files(), fs::read(place.path()).expect("read"));
    let error = Store::open(&place.path()).expect_err("refused");
    let StoreError::Newer { found, known: ours, .. } = error else { panic!("{error:?}") };
    assert_eq!((found, ours), (newer, known));
    assert_eq!(fs::read(place.path()).expect("read"), bytes);
    assert_eq!(place.files(), files, "nothing beside it either");
}

#[tokio::test]
async fn a_newer_format_in_the_log_is_refused_as_well() {
    let (running, place) = (Place::new(), Place::new());
    running.open().close().await;
    let conn = rusqlite::Connection::open(running.path()).expect("open");
    let newer = super::schema::FORMAT + 1;
    conn.pragma_update(None, "user_version", newer).expect("raise");
    copy_as_is(&running.path(), &place.path());
    let read = || ["", "-wal"].map(|suffix| fs::read(beside(&place.path(), suffix)).expect("read"));
    let bytes = read();
    assert!(!bytes[1].is_empty(), "the log has it");
    let error = Store::open(&place.path()).expect_err("refused");
    assert!(matches!(error, StoreError::Newer { found, .. } if found == newer), "{error:?}");
    assert!(read() == bytes);
}

#[tokio::test]
async fn a_negative_format_is_as_strange_as_a_newer_one() {
    let place = Place::new();
    place.open().close().await;
    place.sql("PRAGMA user_version = -1");
    assert!(matches!(Store::open(&place.path()), Err(StoreError::Newer { .. })));
}

#[tokio::test]
async fn a_lock_of_another_process_is_not_damage() {
    let place = Place::new();
    let hasty = Options { wait: Duration::ZERO, ..Options::default() };
    let store = Store::open_with(&place.path(), hasty.clone()).expect("open").store;
    let other = rusqlite::Connection::open(place.path()).expect("open");
    other.execute_batch("BEGIN IMMEDIATE").expect("lock");
    assert!(matches!(store.insert(session(1)).await, Err(StoreError::Busy { .. })));
    assert_eq!(store.count(), 0);
    other.execute_batch("COMMIT").expect("unlock");
    store.insert(session(1)).await.expect("free again");
    store.close().await;
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").expect("lock for good");
    assert!(matches!(Store::open_with(&place.path(), hasty), Err(StoreError::Busy { .. })));
    drop(other);
    assert_eq!(place.open().count(), 1);
}

#[test]
fn a_place_that_cannot_be_used_is_not_damage() {
    let place = Place::new();
    fs::create_dir(place.path()).expect("a directory in its place");
    assert!(matches!(Store::open(&place.path()), Err(StoreError::Io { .. })));
    assert!(place.path().is_dir());
    let nowhere = place.0.path().join("no/such/sessions.db");
    assert!(matches!(Store::open(&nowhere), Err(StoreError::Io { .. })));
    let link = place.0.path().join("link.db");
    std::os::unix::fs::symlink("/no/such/disk/sessions.db", &link).expect("link");
    assert!(matches!(Store::open(&link), Err(StoreError::Io { .. })));
    assert!(link.is_symlink(), "its disk may come back");
}

#[tokio::test]
async fn without_shared_memory_a_rollback_journal_serves_and_is_reported() {
    let place = Place::new();
    // This way to a file system has no shared memory.
    let options = Options { vfs: Some("unix-dotfile"), ..Options::default() };
    let opened = Store::open_with(&place.path(), options.clone()).expect("open");
    assert_eq!(opened.notices.len(), 1, "{:?}", opened.notices);
    opened.store.insert(session(1)).await.expect("insert");
    let modes = |tx: &mut Tx<'_>| {
        let ask = |sql: &str| {
            tx.raw().query_row(sql, [], |row| Ok(format!("{:?}", row.get_ref(0)?))).expect("an answer")
        };
        Ok((ask("PRAGMA journal_mode"), ask("PRAGMA synchronous")))
    };
    let (journal, synchronous) = opened.store.write(modes).await.expect("modes");
    assert!(synchronous.contains('3'), "each commit and its directory are synced: {synchronous}");
    assert!(!journal.is_empty());
    assert!(!beside(&place.path(), "-wal").exists());
    opened.store.close().await;
    let again = Store::open_with(&place.path(), options).expect("open").store;
    assert_eq!(contents(&again), contents(&opened.store));
    again.close().await;
    let moved_to_a_better_disk = place.open();
    assert_eq!(moved_to_a_better_disk.count(), 1);
}

#[tokio::test]
async fn a_table_that_moves_to_a_disk_without_shared_memory_keeps_what_is_in_its_log() {
    let (running, place) = (Place::new(), Place::new());
    let store = running.open();
    store.insert(session(1)).await.expect("insert");
    copy_as_is(&running.path(), &place.path());
    let options = Options { vfs: Some("unix-dotfile"), ..Options::default() };
    let opened = Store::open_with(&place.path(), options.clone()).expect("open");
    assert_eq!((opened.set_aside, opened.notices.len()), (None, 1));
    assert_eq!(contents(&opened.store), contents(&store));
    opened.store.insert(session(2)).await.expect("insert");
    opened.store.close().await;
    let again = Store::open_with(&place.path(), options).expect("open").store;
    assert_eq!(again.count(), 2);
    again.close().await;
    assert_eq!(place.files(), ["sessions.db"]);
}

#[tokio::test]
async fn a_newer_format_is_refused_untouched_without_shared_memory_too() {
    let (running, place) = (Place::new(), Place::new());
    running.open().close().await;
    let conn = rusqlite::Connection::open(running.path()).expect("open");
    let newer = super::schema::FORMAT + 1;
    conn.pragma_update(None, "user_version", newer).expect("raise");
    copy_as_is(&running.path(), &place.path());
    let read = || ["", "-wal"].map(|suffix| fs::read(beside(&place.path(), suffix)).expect("read"));
    let bytes = read();
    let options = Options { vfs: Some("unix-dotfile"), ..Options::default() };
    let error = Store::open_with(&place.path(), options).expect_err("refused");
    assert!(matches!(error, StoreError::Newer { found, .. } if found == newer), "{error:?}");
    assert!(read() == bytes);
}

#[tokio::test]
async fn a_change_cut_short_under_a_rollback_journal_is_undone() {
    let (running, place) = (Place::new(), Place::new());
    running.open().close().await;
    running.sql("PRAGMA journal_mode = DELETE");
    let conn = rusqlite::Connection::open(running.path()).expect("open");
    // Pages reach the file before the commit when the cache is this small.
    conn.execute_batch(
        "PRAGMA cache_size = 1; BEGIN; INSERT INTO meta VALUES ('a', hex(zeroblob(50000)));
         INSERT INTO meta VALUES ('b', hex(zeroblob(50000)))",
    )
    .expect("half a change");
    fs::copy(running.path(), place.path()).expect("copy");
    fs::copy(beside(&running.path(), "-journal"), beside(&place.path(), "-journal"))
        .expect("copy the journal");
    let store = place.open();
    assert_eq!(store.write(|tx| Ok(tx.meta("a"))).await.expect("read"), None);
    store.insert(session(1)).await.expect("insert");
}

#[tokio::test]
async fn a_left_over_of_a_start_that_was_killed_is_no_hindrance() {
    let place = Place::new();
    fs::write(beside(&place.path(), ".new"), "half a table").expect("write");
    fs::write(beside(&place.path(), ".new-journal"), "its journal").expect("write");
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    store.close().await;
    assert_eq!(place.files(), ["sessions.db"]);
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_writer() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    let mut done = store.handle.done.clone();
    drop(store);
    assert!(done.wait_for(|done| *done).await.is_ok());
    assert_eq!(place.files(), ["sessions.db"]);
}
