//! Damage of every kind: the file is kept under another name, byte for byte, and a new table begun.

use std::io::{Seek, SeekFrom, Write};

use super::*;

/// A closed table with enough rows for several pages.
async fn closed() -> Place {
    let place = Place::new();
    let store = place.open();
    for n in 0..50 {
        store.insert(session(n)).await.expect("insert");
    }
    store.close().await;
    place
}

/// A table as a kill leaves it: its rows are in the log.
async fn killed() -> Place {
    let (running, place) = (Place::new(), Place::new());
    let store = running.open();
    store.insert(session(1)).await.expect("insert");
    copy_as_is(&running.path(), &place.path());
    place
}

/// Opens a damaged table and checks that each file which was there is kept as it was.
async fn is_set_aside(place: &Place) -> PathBuf {
    let read = |file: &Path| fs::read(file).ok();
    let before = ["", "-wal"].map(|suffix| read(&beside(&place.path(), suffix)));
    let opened = Store::open(&place.path()).expect("a new table is begun");
    let kept = opened.set_aside.expect("it was set aside");
    let base = PathBuf::from(kept.to_string_lossy().trim_end_matches("-wal").trim_end_matches("-journal"));
    let after = ["", "-wal"].map(|suffix| read(&beside(&base, suffix)));
    // An empty log is what looking at a file that has none makes.
    let solid = |[file, log]: [Option<Vec<u8>>; 2]| [file, log.filter(|log| !log.is_empty())];
    assert!(solid(after) == solid(before), "kept as it was");
    let name = base.file_name().expect("a name").to_string_lossy().into_owned();
    let time = name.strip_prefix("sessions.db.damaged-").expect("the name says what it is");
    assert!(time.len() >= 16 && time.starts_with("20") && time.contains('T') && time.contains('Z'), "{time}");
    assert_eq!(opened.store.count(), 0);
    opened.store.insert(session(77)).await.expect("the new one works");
    opened.store.close().await;
    assert_eq!(place.open().count(), 1);
    kept
}

#[tokio::test]
async fn a_file_that_is_no_database_is_set_aside() {
    for words in ["{\"version\": 1}", &"x".repeat(100_000), "\n"] {
        let place = Place::new();
        fs::write(place.path(), words).expect("write");
        is_set_aside(&place).await;
    }
}

#[tokio::test]
async fn a_truncated_file_is_set_aside() {
    for length in [1, 100, 4096, 5000, 20_000] {
        let place = closed().await;
        let file = fs::OpenOptions::new().write(true).open(place.path()).expect("open");
        assert!(file.metadata().expect("its length").len() > length);
        file.set_len(length).expect("truncate");
        is_set_aside(&place).await;
    }
}

#[tokio::test]
async fn an_empty_file_is_set_aside_with_its_log() {
    let place = closed().await;
    fs::write(place.path(), "").expect("truncate");
    is_set_aside(&place).await;
    let place = killed().await;
    fs::write(place.path(), "").expect("truncate");
    let kept = is_set_aside(&place).await;
    assert!(fs::metadata(beside(&kept, "-wal")).expect("kept too").len() > 0);
}

#[tokio::test]
async fn a_log_without_its_file_is_set_aside() {
    let place = killed().await;
    fs::remove_file(place.path()).expect("remove");
    let kept = is_set_aside(&place).await;
    assert!(kept.to_string_lossy().ends_with("-wal"), "what is reported is there: {kept:?}");
}

#[tokio::test]
async fn a_log_of_another_table_is_set_aside() {
    for rows in [0, 1, 30] {
        let (place, running) = (closed().await, Place::new());
        let other = running.open();
        for n in 0..rows {
            other.insert(session(1_000 + n)).await.expect("insert");
        }
        // Of a table that was just made there is none: what its first event wrote is in it.
        if rows == 0 {
            other.write(|tx| tx.set_meta("a", "b")).await.expect("a change");
        }
        fs::copy(beside(&running.path(), "-wal"), beside(&place.path(), "-wal")).expect("copy the log");
        is_set_aside(&place).await;
    }
}

#[tokio::test]
async fn an_index_that_lacks_a_row_is_damage() {
    let place = closed().await;
    place.sql(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'ON snapshots (session)', 'ON snapshots (session) WHERE 0')
         WHERE name = 'snapshots_by_session'",
    );
    place.sql("INSERT INTO snapshots (id, name, session_name, image_id, created_at, size_bytes, state) VALUES ('x', 'x', '', '', 1, 1, 'ready')");
    place.sql(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, ' WHERE 0', '') WHERE name = 'snapshots_by_session'",
    );
    is_set_aside(&place).await;
}

#[tokio::test]
async fn a_page_of_noise_is_set_aside() {
    let place = closed().await;
    let pages = fs::metadata(place.path()).expect("its length").len() / 4096;
    for page in 0..pages {
        let copy = Place::new();
        copy_as_is(&place.path(), &copy.path());
        let mut file = fs::OpenOptions::new().write(true).open(copy.path()).expect("open");
        // Of the first page only what follows the header, which has a test of its own.
        let at = if page == 0 { 100 } else { page * 4096 };
        file.seek(SeekFrom::Start(at)).expect("seek");
        file.write_all(&[0xA5; 512]).expect("write");
        drop(file);
        is_set_aside(&copy).await;
    }
}

#[tokio::test]
async fn a_database_without_our_tables_is_set_aside() {
    for sql in [
        "DROP TABLE meta",
        "ALTER TABLE sessions DROP COLUMN agent",
        "DROP TABLE snapshot_excluded; CREATE TABLE snapshot_excluded (snapshot, position, kind INTEGER, target);
         INSERT INTO snapshot_excluded VALUES ('x', 1, 2, 3)",
        "PRAGMA user_version = 0",
    ] {
        let place = closed().await;
        place.sql(sql);
        if sql.contains("snapshot_excluded") {
            place.sql(
                "INSERT INTO snapshots (id, name, session_name, image_id, created_at, size_bytes, state)
                 VALUES ('x', 'x', '', '', 1, 1, 'ready')",
            );
        }
        is_set_aside(&place).await;
    }
    let place = Place::new();
    place.sql("CREATE TABLE notes (text)");
    is_set_aside(&place).await;
}

#[tokio::test]
async fn a_second_damaged_file_does_not_replace_the_first() {
    let place = Place::new();
    let mut kept = Vec::new();
    for n in 0..3 {
        fs::write(place.path(), format!("damage {n}")).expect("write");
        let opened = Store::open(&place.path()).expect("open");
        kept.push(opened.set_aside.expect("set aside"));
        opened.store.close().await;
    }
    for (n, file) in kept.iter().enumerate() {
        assert_eq!(fs::read_to_string(file).expect("kept"), format!("damage {n}"));
    }
}

#[tokio::test]
async fn a_damaged_file_behind_a_link_is_set_aside_in_its_own_place() {
    let (place, disk) = (Place::new(), Place::new());
    fs::write(disk.path(), "noise").expect("write");
    std::os::unix::fs::symlink(disk.path(), place.path()).expect("link");
    let opened = Store::open(&place.path()).expect("open");
    let real = fs::canonicalize(disk.0.path()).expect("real");
    assert!(opened.set_aside.expect("set aside").starts_with(real));
    opened.store.close().await;
    assert!(place.path().is_symlink(), "the link stays");
    assert!(fs::metadata(disk.path()).expect("the new table").len() > 0);
}
