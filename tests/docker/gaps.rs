//! What a snapshot does not hold is told when a sandbox is made from it and has something else in its place.

use serde_json::json;

use crate::support::World;
use crate::support::engine::{busybox_image, docker};

/// A volume of the test's own. Gone with it.
struct Volume(String);

impl Volume {
    fn create() -> Self {
        let name = format!("abx-test-gaps-{}", std::process::id());
        docker(&["volume", "create", &name]);
        Self(name)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        docker(&["volume", "rm", "-f", &self.0]);
    }
}

#[test]
fn a_resume_from_a_snapshot_tells_of_mounts_that_are_others_by_now() {
    let volume = crate::support::engine::has_engine().then(Volume::create);
    let Some(world) = World::new() else { return };
    let name = volume.as_ref().expect("there is an engine").0.clone();
    let work = world.home.dir().join("work");
    std::fs::create_dir(&work).expect("made");
    let (mounted, place) = (format!("{name}:/data"), format!("{}:/workspace", work.display()));
    world.text(&["start", "a", "--image", &busybox_image(), "-w", &place, "-v", &mounted]);
    world.text(&["save", "a", "--snapshot", "one"]);
    let wide = world.text(&["snapshot", "list", "-o", "wide"]);
    assert!(wide.ends_with("bind /workspace, volume /data\n"), "{wide}");
    let lose_container = || {
        docker(&["rm", "-fv", world.field("a", "sandbox_id").as_str().expect("an id")]);
        world.until_field("a", "status", "saved");
    };
    lose_container();
    let resumed = world.run(&["resume", "a"]);
    let said = String::from_utf8_lossy(&resumed.stderr);
    assert!(resumed.status.success() && !said.contains("Warning"), "{said}");
    world.text(&["stop", "a", "--grace", "1"]);

    lose_container();
    docker(&["volume", "rm", &name]);
    std::fs::remove_dir_all(&work).expect("removed");
    std::fs::create_dir(&work).expect("made");
    let answer = world.call("session.resume", json!({"name": "a"}));
    let told = answer["warnings"].to_string();
    assert!(
        told.contains("bind /workspace: ") && told.contains("is another than when it was saved"),
        "{told}"
    );
    assert!(told.contains(&format!("volume /data: '{name}' was gone, and is new and empty")), "{told}");
    assert!(world.call("session.get", json!({"name": "a"})).get("warnings").is_none());
    world.text(&["stop", "a", "--grace", "1"]);

    lose_container();
    let used = world.run(&["exec", "a", "--", "true"]);
    let said = String::from_utf8_lossy(&used.stderr);
    assert!(used.status.success() && said.contains("Warning: bind /workspace: "), "{said}");
    world.text(&["delete", "a", "-y"]);
}
