//! No verb is answered before what it did is safe from a loss of power.

use super::*;
use crate::store::Options;
use crate::store::tests::noting;

/// A driver whose table notes what it writes.
fn noted() -> World {
    let world = World::new();
    let options = Options { vfs: Some(noting::register()), ..Options::default() };
    let store = Store::open_with(&world.home.path().join("noted.db"), options).expect("a table").store;
    World { driver: drive(&world.engine, world.home.path(), store), ..world }
}

/// Makes a call, and looks at what was written for it by the time of its answer.
async fn answered<T>(world: &World, verb: &str, call: impl Future<Output = Result<T, Failure>>) {
    let before = noting::position();
    if let Err(failure) = call.await {
        panic!("{verb}: {failure}");
    }
    let notes = noting::since(before, world.home.path());
    assert!(!notes.is_empty(), "{verb} wrote nothing");
    assert_eq!(noting::unsynced(&notes), Vec::<&Path>::new(), "{verb}");
}

#[tokio::test]
async fn what_a_verb_did_is_synced_before_its_answer() {
    let world = noted();
    let driver = &world.driver;
    answered(&world, "start", world.start("a")).await;
    answered(&world, "pause", driver.pause("a")).await;
    answered(&world, "unpause", driver.unpause("a")).await;
    answered(&world, "connect", driver.connect("a")).await;
    answered(&world, "save --keep-running", world.save_running("a")).await;
    answered(&world, "stop", world.stop("a")).await;
    answered(&world, "resume", world.resume("a")).await;
    answered(&world, "save", world.save("a")).await;
    answered(&world, "rename", driver.rename("a", "b")).await;
    let params = crate::proto::sessions::UpdateParams {
        name: "b".to_owned(),
        timeout_ms: Some(3_600_000),
        ..Default::default()
    };
    answered(&world, "update", driver.update(params)).await;
    let first = driver.snapshots(Some("b")).expect("a list").last().expect("two").name.clone();
    answered(&world, "snapshot delete", driver.delete_snapshots(vec![first])).await;
    answered(&world, "delete", driver.delete("b", false)).await;
}
