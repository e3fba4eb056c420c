//! Snapshots on the real engine: what they hold, and what is left of them once they are removed.

use std::time::Duration;

use abx::engine::{CreateSpec, Engine, EngineError, labels};
use abx::model::session::{Mount, Secret};

use super::engine::{field, home};
use crate::support::engine::{TestHome, busybox_image, command, docker, run};

#[tokio::test]
async fn a_snapshot_holds_the_files_and_the_images_own_configuration() {
    home!(home);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut spec = home.spec("snap");
    let source = dir.path().to_str().expect("text").to_owned();
    spec.session.spec.workspace =
        Some(Mount { source: source.clone(), target: "/work".to_owned(), read_only: false });
    spec.session.spec.env = [("TOKEN".to_owned(), Secret::new("hunter2"))].into();
    let id = home.run(&spec).await.id;
    run(&home.engine, &id, &command(&["sh", "-c", "echo kept > /root/file"])).await;
    let commit = home.commit_spec(&spec, &id, "s1");
    let image = home.engine.commit(&commit).await.expect("committed");
    assert_eq!(home.engine.commit(&commit).await.expect("found"), image);
    assert_eq!(home.engine.snapshot_images(&home.home).await.expect("lists"), std::slice::from_ref(&image));
    let base = busybox_image();
    for path in [".Config.Cmd", ".Config.Env", ".Config.User"] {
        assert_eq!(field(&image.id, path), field(&base, path), "{path}");
    }
    assert!(matches!(field(&image.id, ".Config.Entrypoint").as_str(), "null" | "[]"));
    assert_eq!(field(&image.id, ".Config.WorkingDir"), "\"/\"");
    // Not the engine's own record of the container, but what containers are made from.
    let config = field(&image.id, ".Config");
    assert!(!config.contains("hunter2") && !config.contains(&source), "{config}");
    assert_eq!(image.layers.len(), 2);
    let own = labels::own_bytes(&image).expect("its labels tell");
    assert!(own > 0 && own < image.size_bytes, "{own} of {}", image.size_bytes);
    let by_hand = docker(&["create", &image.id]);
    assert_eq!(home.engine.list(&home.home).await.expect("lists").len(), 1, "one run by hand is not ours");
    docker(&["rm", &by_hand]);
    home.engine.remove(&id).await.expect("removed");
    let again = home.run(&CreateSpec { image: image.id.clone(), ..spec.clone() }).await;
    assert_eq!(again.image_id, image.id);
    let ran = run(&home.engine, &again.id, &command(&["cat", "/root/file"])).await;
    assert_eq!(ran.stdout, b"kept\n");
    for (key, value) in labels::session(&spec) {
        assert_eq!(again.labels[&key], value, "a label of the snapshot shines through");
    }
}

#[tokio::test]
async fn an_images_own_entrypoint_survives_a_snapshot() {
    home!(home);
    let spec = home.spec("entry");
    let id = home.engine.create(&spec).await.expect("created").id;
    let made = docker(&[
        "commit",
        "-c",
        "ENTRYPOINT [\"/bin/echo\"]",
        "-c",
        "CMD [\"hi\"]",
        "-c",
        "WORKDIR /tmp",
        "-c",
        &format!("LABEL {}={}", labels::SNAPSHOT_HOME, home.home),
        &id,
    ]);
    home.engine.remove(&id).await.expect("removed");
    let id = home.run(&CreateSpec { image: made, ..spec.clone() }).await.id;
    let image = home.engine.commit(&home.commit_spec(&spec, &id, "s1")).await.expect("committed").id;
    assert_eq!(field(&image, ".Config.Entrypoint"), "[\"/bin/echo\"]");
    assert_eq!(field(&image, ".Config.Cmd"), "[\"hi\"]");
    assert_eq!(field(&image, ".Config.WorkingDir"), "\"/tmp\"");
}

#[tokio::test]
async fn a_removed_snapshot_goes_at_once_or_when_nothing_stands_on_it_any_more() {
    home!(home);
    let spec = home.spec("gone");
    let id = home.run(&spec).await.id;
    let first = home.commit_spec(&spec, &id, "s1");
    let image = home.engine.commit(&first).await.expect("committed").id;
    home.engine.remove(&id).await.expect("removed");
    let used = CreateSpec { image: image.clone(), ..spec.clone() };
    for stopped in [false, true] {
        let id = home.run(&used).await.id;
        if stopped {
            home.engine.stop(&id, Duration::ZERO).await.expect("stopped");
        }
        let second = home.commit_spec(&spec, &id, if stopped { "s3" } else { "s2" });
        home.engine.remove_snapshot(&first.snapshot).await.expect("removed");
        home.engine.remove_snapshot(&first.snapshot).await.expect("again");
        assert!(home.engine.snapshot_images(&home.home).await.expect("lists").is_empty());
        // What stands on it can still be saved.
        home.engine.commit(&second).await.expect("committed");
        home.engine.remove_snapshot(&second.snapshot).await.expect("removed");
        if stopped {
            home.engine.remove(&id).await.expect("removed");
        } else {
            docker(&["rm", "-f", &id]);
        }
    }
    assert_eq!(home.engine.image(&image).await.expect("looks"), None, "nothing is left behind");
}

/// Tags that wait for a container or a snapshot of this home to go.
fn parked(home: &TestHome) -> String {
    let label = format!("label={}={}", labels::SNAPSHOT_HOME, home.home);
    docker(&["images", "--filter", &label, "--format", "{{.Repository}}:{{.Tag}}", "abx-parked"])
}

#[tokio::test]
async fn an_image_that_waited_for_a_container_goes_however_that_one_went() {
    home!(home);
    let spec = home.spec("parked");
    let id = home.run(&spec).await.id;
    for outside in [false, true] {
        let commit = home.commit_spec(&spec, &id, if outside { "s2" } else { "s1" });
        let image = home.engine.commit(&commit).await.expect("committed").id;
        let mut used = CreateSpec { image: image.clone(), ..home.spec("parked-user") };
        used.session.id = abx::model::id::SessionId::new(format!("{}-{outside}", used.session.id));
        let user = home.run(&used).await.id;
        home.engine.remove_snapshot(&commit.snapshot).await.expect("removed");
        assert!(home.engine.snapshot_images(&home.home).await.expect("lists").is_empty());
        assert!(parked(&home).contains("abx-parked"), "a container needs it");
        if outside {
            docker(&["rm", "-f", &user]);
            home.engine.snapshot_images("/another/home").await.expect("lists");
            assert!(parked(&home).contains("abx-parked"), "it is not that home's");
            home.engine.snapshot_images(&home.home).await.expect("lists");
        } else {
            home.engine.remove(&user).await.expect("removed");
        }
        assert_eq!(parked(&home), "");
        assert_eq!(home.engine.image(&image).await.expect("looks"), None);
    }
}

#[tokio::test]
async fn an_image_that_waited_for_a_snapshot_on_top_goes_after_it() {
    home!(home);
    let spec = home.spec("below");
    let id = home.run(&spec).await.id;
    let below = home.commit_spec(&spec, &id, "s1");
    let image = home.engine.commit(&below).await.expect("committed").id;
    home.engine.remove(&id).await.expect("removed");
    let id = home.run(&CreateSpec { image: image.clone(), ..spec.clone() }).await.id;
    let top = home.commit_spec(&spec, &id, "s2");
    let kept = home.engine.commit(&top).await.expect("committed");
    home.engine.remove_snapshot(&below.snapshot).await.expect("removed");
    home.engine.remove(&id).await.expect("removed");
    assert_eq!(home.engine.snapshot_images(&home.home).await.expect("lists"), [kept]);
    home.engine.remove_snapshot(&top.snapshot).await.expect("removed");
    assert!(home.engine.snapshot_images(&home.home).await.expect("lists").is_empty());
    assert_eq!(parked(&home), "");
    assert_eq!(home.engine.image(&image).await.expect("looks"), None);
}

/// Loads an image of this many layers, all of them empty. Gives its reference.
fn image_of_layers(layers: usize) -> String {
    let dir = tempfile::tempdir().expect("temporary directory");
    let reference = format!("abx-test-layers:{}", std::process::id());
    // An archive without entries.
    std::fs::write(dir.path().join("layer.tar"), [0; 10 * 1024]).expect("write");
    let sum = std::process::Command::new("sha256sum").arg(dir.path().join("layer.tar")).output();
    let sum = String::from_utf8(sum.expect("sha256sum runs").stdout).expect("text");
    let digest = format!("sha256:{}", sum.split_whitespace().next().expect("a sum"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let rootfs = serde_json::json!({"type": "layers", "diff_ids": vec![digest; layers]});
    let config = serde_json::json!({"architecture": arch, "os": "linux", "config": {}, "rootfs": rootfs});
    let manifest = serde_json::json!([
        {"Config": "config.json", "RepoTags": [reference], "Layers": vec!["layer.tar"; layers]}
    ]);
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("write");
    std::fs::write(dir.path().join("manifest.json"), manifest.to_string()).expect("write");
    let archive = dir.path().join("image.tar");
    let made = std::process::Command::new("tar")
        .arg("-C")
        .arg(dir.path())
        .arg("-cf")
        .arg(&archive)
        .args(["layer.tar", "config.json", "manifest.json"])
        .status();
    assert!(made.expect("tar runs").success());
    docker(&["load", "-i", archive.to_str().expect("text")]);
    reference
}

#[tokio::test]
async fn the_last_snapshot_that_fits_can_be_used_and_the_next_is_refused_as_a_limit() {
    home!(home);
    let base = image_of_layers(119);
    let spec = CreateSpec { image: base.clone(), ..home.spec("layers") };
    let id = home.engine.create(&spec).await.expect("created").id;
    // One without a change adds no layer.
    docker(&["cp", "/etc/hostname", &format!("{id}:/file")]);
    let last = home.engine.commit(&home.commit_spec(&spec, &id, "s1")).await.expect("the last one fits");
    assert_eq!(last.layers.len(), 120);
    home.engine.remove(&id).await.expect("removed");
    let id = home.engine.create(&CreateSpec { image: last.id, ..spec.clone() }).await.expect("created").id;
    let refused = home.engine.commit(&home.commit_spec(&spec, &id, "s2")).await;
    assert!(matches!(refused, Err(EngineError::Limit { .. })), "{refused:?}");
    home.engine.remove(&id).await.expect("removed");
    docker(&["rmi", &base]);
}
