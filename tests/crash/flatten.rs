//! The daemon is killed at every step of a flattening; the next one carries it to its end.

use serde_json::json;

use crate::support::engine::docker;
use crate::support::stack::{Stack, layer};
use crate::support::{World, until};

#[test]
fn a_flattening_that_is_cut_off_is_carried_to_its_end() {
    let layers = (1..63).map(|n| layer(&[(&format!("{n}"), "x")])).collect();
    let labels = json!({"dev.abx.snapshot.id": "0", "dev.abx.snapshot.base_layers": "1"});
    let stack = Stack::load("cut", layers, &json!({"Env": ["PATH=/bin"], "Labels": labels}));
    for point in ["flatten.before", "flatten.load", "flatten.loaded", "flatten.named", "flatten.row"] {
        let Some(mut world) = World::new() else { return };
        world.call("session.start", json!({"name": "a", "image": stack.name()}));
        // One that changed nothing would be no layer more.
        world.sh("a", "echo kept > /kept");
        world.restart(Some(point));
        // It may die before it has answered.
        world.connect().request(1, "session.save", json!({"name": "a", "snapshot": "one"})).rest();
        assert!(!world.daemon().wait().success(), "it never came to {point}");
        world.restart(None);
        until(&format!("what was cut off at {point} to be flattened"), || {
            // An image with two tags is listed twice.
            let mut images = world.images();
            images.dedup();
            let layers = "{{len .RootFS.Layers}}";
            let [image] = images.as_slice() else { return None };
            (docker(&["image", "inspect", "-f", layers, image]) == "2").then_some(())
        });
        until("the row to know it", || {
            let row = &world.call("snapshot.list", json!({}))[0]["image_id"];
            (*row == world.images()[0]).then_some(())
        });
        world.call("session.resume", json!({"name": "a", "snapshot": "one"}));
        assert_eq!(world.sh("a", "cat 1 62 kept")["stdout"], "xxkept\n", "{point}");
        world.call("session.delete", json!({"name": "a"}));
        world.restart(None);
        until("nothing to be left of it", || world.images().is_empty().then_some(()));
    }
}
