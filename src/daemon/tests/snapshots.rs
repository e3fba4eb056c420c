//! The timeline: what its rows tell, and what becomes of them.

use super::*;
use crate::model::event::By;
use crate::store;

#[tokio::test]
async fn a_snapshot_tells_who_asked_for_it_and_what_only_it_holds() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let by = By { client: "zed".to_owned(), pid: Some(7) };
    let (_, asked) = store::acting(Some(by.clone()), world.save("a")).await.expect("saves");
    assert_eq!(asked.creator, Some(by));
    assert!(asked.own_bytes.is_some_and(|own| own > 0 && own < asked.size_bytes), "{asked:?}");
    world.resume("a").await.expect("resumes");
    let (_, own) = world.save("a").await.expect("saves");
    assert_eq!(own.creator, Some(By::daemon()));
}

#[tokio::test]
async fn a_rebuilt_table_knows_of_a_snapshot_what_the_first_one_did() {
    let world = World::new();
    world.start("a").await.expect("starts");
    let by = By { client: "zed".to_owned(), pid: Some(7) };
    store::acting(Some(by), world.save("a")).await.expect("saves");
    world.resume("a").await.expect("resumes");
    world.save("a").await.expect("saves");
    let mut known = world.driver.snapshots(None).expect("a list");
    let world = world.lose_table().await;
    world.driver.compare_all(false).await.expect("compares");
    // When it was taken is told by its id, which is of the same moment.
    let mut rebuilt = world.driver.snapshots(None).expect("a list");
    for list in [&mut known, &mut rebuilt] {
        list.iter_mut().for_each(|row| Arc::make_mut(row).created_at = crate::model::id::Timestamp(0));
    }
    assert_eq!(rebuilt, known);
}
