//! `abx doctor`: what is wrong is named with what mends it, and mended on request.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::World;
use crate::support::engine::{busybox_image, docker};

/// A container with this home's labels, and a row's that was lost. It goes with the world.
fn orphan(world: &World) -> String {
    let name = format!("abx-test-orphan-{}", std::process::id());
    let labels = [
        format!("dev.abx.session.home={}", world.home.root().display()),
        "dev.abx.session.id=019c1b2e-7d3b-7c4a-9f21-5e6d7c8b9a01".to_owned(),
        "dev.abx.session.name=lost".to_owned(),
    ];
    let mut args = vec!["create", "--name", &name];
    labels.iter().for_each(|label| args.extend(["--label", label]));
    let image = busybox_image();
    args.extend([image.as_str(), "sleep", "600"]);
    assert!(!docker(&args).is_empty(), "the container is made");
    name
}

#[test]
fn what_is_wrong_is_named_and_mended() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let table = world.home.root().join("sessions.db");
    assert_eq!(world.run(&["doctor"]).status.code(), Some(0));
    let orphan = orphan(&world);
    fs::set_permissions(&table, Permissions::from_mode(0o644)).expect("opened");
    let found = world.run(&["doctor"]);
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("fix: chmod go= {}", table.display())), "{text}");
    assert!(text.contains(&format!("fix: abx adopt lost {orphan}")), "{text}");
    for check in
        ["home", "socket", "daemon", "engine", "clock", "disk", "backups", "storage", "layers", "settings"]
    {
        assert!(text.contains(&format!("ok       {check:<10} ")), "{check}: {text}");
    }
    assert_eq!(world.run(&["doctor", "--fix"]).status.code(), Some(2), "nobody can be asked");
    assert!(
        fs::metadata(&table).expect("there").permissions().mode() & 0o077 != 0,
        "nothing is done unasked"
    );
    let mended = world.run(&["doctor", "--fix", "-y", "--json"]);
    assert_eq!(mended.status.code(), Some(0), "{}", String::from_utf8_lossy(&mended.stderr));
    let document: Value = serde_json::from_slice(&mended.stdout).expect("JSON");
    let verdicts = document["checks"].as_array().expect("checks").iter();
    assert!(verdicts.clone().all(|check| check["verdict"] != "failed"), "{document}");
    assert!(
        verdicts.clone().any(|check| check["what"] == "orphans" && check["verdict"] == "ok"),
        "{document}"
    );
    assert_eq!(fs::metadata(&table).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(world.field("lost", "sandbox"), orphan.as_str());
    assert_eq!(world.field("lost", "status"), "stopped");
}

#[test]
fn a_report_shows_no_home() {
    let Some(world) = World::new() else { return };
    let report = world.text(&["doctor", "--report"]);
    let home = world.home.dir().to_str().expect("text").to_owned();
    assert!(report.starts_with("```\nabx ") && report.contains("~/abx"), "{report}");
    assert!(!report.contains(&home), "{report}");
    let document = world.text(&["doctor", "--report", "--json"]);
    assert!(serde_json::from_str::<Value>(&document).is_ok() && !document.contains(&home), "{document}");
}
