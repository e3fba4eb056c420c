//! A disk without space: a clear answer, and work goes on once there is space again.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use super::*;

/// A row too large for what is left.
pub(super) fn large(n: usize) -> Session {
    Session { metadata: BTreeMap::from([("big".to_owned(), "x".repeat(600_000))]), ..session(n) }
}

fn pages(store: &Store, limit: &'static str) -> impl Future<Output = Result<(), StoreError>> {
    store.write(move |tx| {
        tx.raw()
            .query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))
            .expect("the pragma answers");
        Ok(())
    })
}

#[tokio::test]
async fn a_change_without_space_is_refused_and_later_ones_are_kept() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    // SQLite then finds the disk full without help from the system.
    pages(&store, "60").await.expect("limit");
    assert!(matches!(store.insert(large(2)).await, Err(StoreError::Full { .. })));
    assert_eq!(store.count(), 1);
    store.insert(session(3)).await.expect("a small one fits");
    pages(&store, "4294967294").await.expect("no limit");
    store.insert(large(2)).await.expect("there is space again");
    store.close().await;
    assert_eq!(contents(&place.open()), contents(&store));
    assert_eq!(store.count(), 3);
}

/// A small file system of its own. None where this user may not mount.
pub(super) struct Small(pub(super) TempDir);

impl Small {
    pub(super) fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        if fs::metadata(dir.path()).expect("its owner").uid() != 0 {
            return None;
        }
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(dir.path())
            .output()
            .expect("mount runs");
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        // Root inside a container often may not.
        if words.contains("permission denied") {
            return None;
        }
        assert!(done.status.success(), "{words}");
        Some(Self(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "the file system stayed mounted");
    }
}

#[tokio::test]
async fn a_real_disk_that_fills_up_and_empties_again_is_survived() {
    let Some(small) = Small::mount() else { return };
    let path = small.0.path().join("sessions.db");
    let filler = small.0.path().join("filler");
    let store = Store::open(&path).expect("open").store;
    store.insert(session(1)).await.expect("insert");
    // Fills what is left to the last byte.
    let mut full = false;
    for size in [1 << 16, 1 << 12, 1] {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&filler).expect("filler");
        while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
        full = true;
    }
    assert!(full);
    assert!(matches!(store.insert(large(2)).await, Err(StoreError::Full { .. })));
    assert!(matches!(store.insert(large(3)).await, Err(StoreError::Full { .. })));
    assert_eq!(store.count(), 1, "reads go on");
    let other = small.0.path().join("other.db");
    assert!(matches!(Store::open(&other), Err(StoreError::Full { .. })), "nor can a table be begun");
    fs::remove_file(&filler).expect("make space");
    store.insert(session(4)).await.expect("there is space again");
    let opened = Store::open(&other).expect("there is space again");
    assert_eq!((opened.set_aside, opened.store.count()), (None, 0));
    opened.store.close().await;
    store.close().await;
    let again = Store::open(&path).expect("open").store;
    assert_eq!(contents(&again), contents(&store));
    again.close().await;
}

#[tokio::test]
async fn what_cannot_be_kept_in_a_removed_file_is_not_acknowledged() {
    let place = Place::new();
    let store = place.open();
    store.insert(session(1)).await.expect("insert");
    std::fs::remove_file(place.path()).expect("remove");
    let refused = store.insert(session(2)).await.expect_err("nothing would be left of it");
    assert!(matches!(&refused, StoreError::Io { text, .. } if text.contains("removed")), "{refused}");
    assert!(store.session("s2").is_none());
}

#[tokio::test]
async fn a_disk_that_the_log_alone_fills_heals_by_itself() {
    let Some(small) = Small::mount() else { return };
    let store = Store::open(&small.0.path().join("sessions.db")).expect("open").store;
    let id = store.insert(session(1)).await.expect("insert").id.clone();
    let big = |n: usize| "x".repeat(20_000) + &n.to_string();
    let mut refused = 0;
    // One value is written over and over: the table stays small while its log grows.
    for n in 0..400 {
        let value = big(n);
        let change = move |s: &mut Session| drop(s.metadata.insert("k".to_owned(), value));
        match store.update(&id, change).await {
            Ok(_) => refused = 0,
            Err(StoreError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(refused < 3, "it stays full although the table is small");
    }
}
