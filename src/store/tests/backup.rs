//! Copies of the table: when they are made, which are kept, and what comes back from them.

use std::os::unix::fs::PermissionsExt;

use super::full::{Small, large};
use super::schema::{self, FORMAT, MIGRATIONS};
use super::*;

/// 2026-02-01 09:30:00 UTC.
const START: i64 = 1_769_938_200_000;

const HOUR: i64 = 60 * 60 * 1000;

/// So many hours after the start.
fn after(hours: i64) -> Timestamp {
    Timestamp(START + hours * HOUR)
}

fn with_copies(place: &Place) -> Options {
    Options { backups: Some(place.0.path().join("backups")), ..Options::default() }
}

fn open(place: &Place) -> Store {
    let opened = Store::open_with(&place.path(), with_copies(place)).expect("open");
    assert_eq!((opened.set_aside, opened.notices), (None, Vec::new()));
    opened.store
}

/// The names of the copies.
fn copies(place: &Place) -> Vec<String> {
    let Ok(entries) = fs::read_dir(place.0.path().join("backups")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

async fn restored(store: &Store) -> Option<String> {
    store.write(|tx| Ok(tx.meta(RESTORED_KEY))).await.expect("an answer")
}

#[tokio::test]
async fn a_copy_is_one_private_file_with_all_that_was_there() {
    let place = Place::new();
    let store = open(&place);
    assert_eq!(store.back_up(after(0)).expect("nothing to copy"), None);
    store.insert(session(1)).await.expect("insert");
    store.write(|tx| tx.put_snapshot(&snapshot(1, 1))).await.expect("a snapshot");
    let copy = store.back_up(after(0)).expect("copied").expect("it was due");
    let name = format!("sessions-20260201-093000-v{FORMAT}.db");
    assert_eq!(copies(&place), [name.as_str()], "nothing is beside it");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&copy), mode(copy.parent().expect("a directory"))), (0o600, 0o700));
    let other = Place::new();
    fs::copy(copy, other.path()).expect("copy");
    assert_eq!(contents(&other.open()), contents(&store));
}

#[tokio::test]
async fn changes_go_on_while_a_copy_is_made() {
    let place = Place::new();
    let store = open(&place);
    store.insert(session(0)).await.expect("insert");
    // A reader that is in the midst of the table, as whoever copies it is.
    let reader = rusqlite::Connection::open(place.path()).expect("open");
    reader.execute_batch("BEGIN; SELECT count(*) FROM sessions").expect("reads");
    let copier = {
        let store = store.clone();
        std::thread::spawn(move || store.back_up(after(0)))
    };
    for n in 1..50 {
        store.insert(session(n)).await.expect("no change waits");
    }
    copier.join().expect("no panic").expect("copied").expect("it was due");
    assert_eq!(store.count(), 50);
}

#[tokio::test]
async fn a_day_has_one_copy_and_a_week_is_kept() {
    let place = Place::new();
    let store = open(&place);
    store.insert(session(1)).await.expect("insert");
    let due = |hours| store.back_up(after(hours)).expect("no fault").is_some();
    let made: Vec<i64> = (0..24 * 9).filter(|hours| due(*hours)).collect();
    assert_eq!(made, (0..9).map(|day| day * 24).collect::<Vec<_>>());
    let kept = copies(&place);
    assert_eq!((kept.len(), &kept[0][..17]), (7, "sessions-20260203"));
    store.close().await;
    assert!(open(&place).back_up(after(24 * 8 + 23)).expect("no fault").is_none(), "a restart is no new day");
}

#[tokio::test]
async fn a_copy_that_is_damaged_or_of_another_format_is_none_of_the_day() {
    let place = Place::new();
    let store = open(&place);
    store.insert(session(1)).await.expect("insert");
    let good = store.back_up(after(0)).expect("copied").expect("it was due");
    let bytes = fs::read(&good).expect("read");
    let raised = |path: &Path| {
        let conn = rusqlite::Connection::open(path).expect("open");
        conn.execute_batch("PRAGMA user_version = 1").expect("another format");
    };
    // In the midst of the file, so that its first page is as it was.
    let torn = [&bytes[..bytes.len() / 2], &vec![0xA5; 4096], &bytes[bytes.len() / 2 + 4096..]].concat();
    let spoilt: [&dyn Fn(); 4] = [
        &|| fs::write(&good, "").expect("emptied"),
        &|| fs::write(&good, &bytes[..bytes.len() / 2]).expect("cut off"),
        &|| fs::write(&good, &torn).expect("damaged"),
        &|| raised(&good),
    ];
    for (n, spoil) in (1..).zip(spoilt) {
        spoil();
        let again = store.back_up(after(n)).expect("copied").expect("it is due again");
        fs::remove_file(again).expect("removed");
        fs::write(&good, &bytes).expect("put back");
        assert_eq!(store.back_up(after(n)).expect("no fault"), None, "a good one counts");
    }
}

#[tokio::test]
async fn copies_that_are_damaged_push_no_good_one_out() {
    let place = Place::new();
    let store = open(&place);
    store.insert(session(1)).await.expect("insert");
    store.back_up(after(0)).expect("copied").expect("it was due");
    let dir = place.0.path().join("backups");
    for day in 2..9 {
        fs::write(dir.join(format!("sessions-2026020{day}-093000-v{FORMAT}.db")), "noise").expect("written");
    }
    store.back_up(after(24 * 9)).expect("copied").expect("it was due");
    let kept = copies(&place);
    assert!(kept.iter().any(|name| name.starts_with("sessions-20260201")), "{kept:?}");
}

#[tokio::test]
async fn a_clock_that_jumps_neither_stops_the_copies_nor_drops_the_good_ones() {
    let place = Place::new();
    let store = open(&place);
    store.insert(session(1)).await.expect("insert");
    let due = |hours: i64| store.back_up(after(hours)).expect("no fault").is_some();
    // Years ahead for a week, then right again.
    assert!((0..7).all(|day| due(24 * (1_000 + day))));
    assert!(due(0));
    assert!(!due(1) && !due(23));
    assert!((1..4).all(|day| due(24 * day)), "those of the future are no reason to wait");
    let kept = copies(&place);
    let right = kept.iter().filter(|name| name.starts_with("sessions-202602")).count();
    assert_eq!((kept.len(), right), (7, 4), "{kept:?}");
}

#[tokio::test]
async fn a_migration_leaves_a_copy_of_the_format_before_it() {
    let place = Place::new();
    let mut conn = rusqlite::Connection::open(place.path()).expect("create");
    schema::migrate(&mut conn, &MIGRATIONS[..1]).expect("the first format");
    drop(conn);
    open(&place).close().await;
    let kept = copies(&place);
    assert_eq!(kept.len(), 1);
    assert!(kept[0].ends_with("-v1.db"), "{kept:?}");
    let copy = rusqlite::Connection::open(place.0.path().join("backups").join(&kept[0])).expect("open");
    assert_eq!(schema::format(&copy).expect("a format"), 1);
    open(&place).close().await;
    assert_eq!(copies(&place).len(), 1, "there was nothing to migrate");
}

#[tokio::test]
async fn a_migration_goes_on_where_no_copy_can_be_made_and_says_so() {
    let place = Place::new();
    let mut conn = rusqlite::Connection::open(place.path()).expect("create");
    schema::migrate(&mut conn, &MIGRATIONS[..1]).expect("the first format");
    drop(conn);
    fs::write(place.0.path().join("backups"), "a file in its place").expect("write");
    let opened = Store::open_with(&place.path(), with_copies(&place)).expect("open");
    assert_eq!(opened.notices.len(), 1, "{:?}", opened.notices);
    opened.store.insert(session(1)).await.expect("it works");
}

#[tokio::test]
async fn a_copy_without_space_is_given_up_and_the_others_stay() {
    let Some(small) = Small::mount() else { return };
    let place = Place::new();
    let options = Options { backups: Some(small.0.path().join("backups")), ..Options::default() };
    let store = Store::open_with(&place.path(), options).expect("open").store;
    store.insert(session(1)).await.expect("insert");
    let first = store.back_up(after(0)).expect("copied").expect("it was due");
    store.insert(large(2)).await.expect("insert");
    store.insert(large(3)).await.expect("insert");
    assert!(matches!(store.back_up(after(48)), Err(StoreError::Full { .. })));
    let left: Vec<_> = fs::read_dir(first.parent().expect("a directory")).expect("list").collect();
    assert_eq!(left.len(), 1, "nothing half made is left");
    store.insert(session(4)).await.expect("the table does not mind");
}

/// A closed table of two rows, with copies of it: whole ones with none and one of them.
async fn closed_with_copies() -> Place {
    let place = Place::new();
    let store = open(&place);
    for n in 1..3 {
        store.insert(session(n)).await.expect("insert");
        let day = i64::try_from(n).expect("small");
        store.back_up(after(24 * day)).expect("copied").expect("it was due");
    }
    store.insert(session(3)).await.expect("insert");
    store.close().await;
    place
}

#[tokio::test]
async fn the_newest_copy_that_is_whole_takes_the_place_of_a_damaged_table() {
    let place = closed_with_copies().await;
    let kept = copies(&place);
    let newest = place.0.path().join("backups").join(&kept[1]);
    fs::write(place.path(), "noise").expect("write");
    let opened = Store::open_with(&place.path(), with_copies(&place)).expect("open");
    assert_eq!(fs::read(opened.set_aside.expect("set aside")).expect("kept"), b"noise");
    assert_eq!(opened.store.count(), 2);
    assert_eq!(restored(&opened.store).await.as_ref(), Some(&kept[1]));
    opened.store.insert(session(4)).await.expect("it works");
    opened.store.close().await;

    fs::write(&newest, "noise too").expect("write");
    fs::write(place.path(), "").expect("truncate");
    let opened = Store::open_with(&place.path(), with_copies(&place)).expect("open");
    assert_eq!((opened.set_aside.is_some(), opened.store.count()), (true, 1), "it is of the copy before");
    assert_eq!(copies(&place), kept, "they stay as they are");
}

#[tokio::test]
async fn a_deleted_table_comes_back_and_an_old_copy_is_brought_to_the_format_of_now() {
    let place = closed_with_copies().await;
    fs::remove_file(place.path()).expect("remove");
    let store = open(&place);
    assert_eq!(store.count(), 2);
    store.close().await;

    let dir = place.0.path().join("backups");
    copies(&place).iter().for_each(|name| fs::remove_file(dir.join(name)).expect("remove"));
    let mut conn = rusqlite::Connection::open(dir.join("sessions-20260301-000000-v1.db")).expect("create");
    schema::migrate(&mut conn, &MIGRATIONS[..1]).expect("the first format");
    let newer = rusqlite::Connection::open(dir.join("sessions-20260302-000000-v99.db")).expect("create");
    newer.execute_batch("PRAGMA user_version = 99; CREATE TABLE future (x)").expect("a newer one");
    fs::remove_file(place.path()).expect("remove");
    let store = open(&place);
    assert_eq!(restored(&store).await.as_deref(), Some("sessions-20260301-000000-v1.db"));
    store.insert(session(1)).await.expect("it works");
}
