//! Pulling from a registry of the test's own, with progress to the caller.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::engine::{busybox_image, docker};
use crate::support::{World, until};

/// A registry on loopback that ends with the test.
struct Registry {
    child: Child,
    port: u16,
    _files: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("temporary directory");
        // Free a moment ago; the engine speaks to registries on loopback without TLS.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{port}\n",
            files.path().display()
        );
        std::fs::write(files.path().join("config.yml"), config).expect("write");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(files.path().join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is installed");
        until("the registry to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Self { child, port, _files: files }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It ends with the test, whatever happens.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_missing_image_is_pulled_with_progress_to_the_caller_who_asked() {
    let Some(world) = World::new() else { return };
    let registry = Registry::start();
    let reference = format!("localhost:{}/abx-test:pulled", registry.port);
    docker(&["tag", &busybox_image(), &reference]);
    docker(&["push", &reference]);
    docker(&["rmi", &reference]);
    let mut socket = world.connect();
    socket.request(7, "session.start", json!({"name": "a", "image": reference, "op": "mine"}));
    let mut events = Vec::new();
    let answer = loop {
        let line = socket.line();
        if line["id"] == 7 {
            break line;
        }
        assert_eq!(
            (&line["method"], &line["params"]["data"]["op"]),
            (&json!("event"), &json!("mine")),
            "{line}"
        );
        events.push(line["params"]["data"]["text"].as_str().expect("text").to_owned());
    };
    assert_eq!(answer["result"]["status"], "running", "{answer}");
    assert!(events.first().is_some_and(|text| text.contains(&reference)), "{events:?}");
    assert!(events.len() > 1, "only the beginning was told: {events:?}");
    world.call("session.delete", json!({"name": "a"}));
    docker(&["rmi", "-f", &reference]);
}

#[test]
fn an_image_that_no_registry_has_is_named_and_nothing_is_left() {
    let Some(world) = World::new() else { return };
    let registry = Registry::start();
    let reference = format!("localhost:{}/no/such:image", registry.port);
    let refused = world.refuse("session.start", json!({"name": "a", "image": reference}));
    assert_eq!(refused["data"]["kind"], "image_not_found");
    assert!(refused.to_string().contains(&reference), "{refused}");
    assert_eq!(world.call("session.list", json!({})), json!([]));
}
