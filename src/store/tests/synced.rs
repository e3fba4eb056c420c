//! What is answered is synced: seen where SQLite writes, and shown by the loss of power at every kind of instant.

use super::noting::{self, Disk, Done};
use super::*;

fn open(place: &Place) -> Store {
    let options = Options { vfs: Some(noting::register()), ..Options::default() };
    Store::open_with(&place.path(), options).expect("open").store
}

fn holds(done: &Done, mark: &str) -> bool {
    match done {
        Done::Write(_, bytes) => bytes.windows(mark.len()).any(|part| part == mark.as_bytes()),
        Done::Cut(_) | Done::Sync => false,
    }
}

#[tokio::test]
async fn every_answer_comes_after_the_sync_of_what_it_answers() {
    let place = Place::new();
    let store = open(&place);
    for n in 0..20 {
        let before = noting::position();
        let mark = format!("the-mark-of-change-{n}");
        store.insert(Session { image: Some(mark.clone()), ..session(n) }).await.expect("insert");
        let notes = noting::since(before, place.0.path());
        assert!(notes.iter().any(|(_, done)| holds(done, &mark)), "it is written");
        assert_eq!(noting::unsynced(&notes), Vec::<&Path>::new(), "all that was written is synced");
    }
}

#[test]
fn a_commit_that_is_not_synced_would_be_seen() {
    let place = Place::new();
    let flags = rusqlite::OpenFlags::default();
    let conn = rusqlite::Connection::open_with_flags_and_vfs(place.path(), flags, noting::register());
    let conn = conn.expect("open");
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE a (x TEXT)")
        .expect("a table");
    let before = noting::position();
    conn.execute("INSERT INTO a VALUES ('lost')", []).expect("a row");
    let notes = noting::since(before, place.0.path());
    assert_eq!(noting::unsynced(&notes), [beside(&place.path(), "-wal")]);
}

/// Numbers without an order that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

#[tokio::test]
async fn a_loss_of_power_at_any_instant_keeps_all_that_was_answered_and_nothing_by_halves() {
    /// One in so many instants is looked at.
    const EVERY: usize = 8;
    let place = Place::new();
    let store = open(&place);
    store.insert(session(0)).await.expect("insert");
    let mut disk = Disk::of([place.path(), beside(&place.path(), "-wal")]);
    let begun = noting::position();
    let mut answered = Vec::new();
    for n in 1..60 {
        // Large enough for the log to be moved into the database now and then, and to begin anew.
        let long = BTreeMap::from([("long".to_owned(), "x".repeat(24 << 10))]);
        let row = Session { metadata: long, ..session(n) };
        let both = move |tx: &mut Tx<'_>| {
            tx.insert_session(&row)?;
            tx.put_snapshot(&snapshot(n, n))
        };
        store.write(both).await.expect("write");
        answered.push((noting::since(begun, place.0.path()).len(), n));
    }
    let notes = noting::since(begun, place.0.path());
    let moved = notes.iter().filter(|(path, done)| *path == place.path() && matches!(done, Done::Sync));
    assert!(moved.count() > 1, "the log was moved into the database");
    let mut dice = Dice(20_261_130);
    for (at, (path, done)) in notes.iter().enumerate() {
        disk.note(path, done);
        if dice.below(EVERY) > 0 {
            continue;
        }
        let left = Place::new();
        for (path, bytes) in disk.after_loss(|sectors| dice.below(sectors + 1)) {
            fs::write(left.0.path().join(path.file_name().expect("a name")), bytes).expect("write");
        }
        let again = left.open();
        for (_, n) in answered.iter().filter(|(position, _)| *position <= at) {
            assert!(again.session(&format!("s{n}")).is_some(), "answered change {n} is gone at {at}");
        }
        for row in again.sessions().iter().filter(|row| row.name.as_str() != "s0") {
            assert_eq!(row.snapshots, 1, "{} came without its snapshot at {at}", row.name);
        }
    }
}
