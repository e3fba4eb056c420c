//! An engine that goes away and comes back, through a relay that the test owns: the machine's engine is never touched.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::support::engine::{busybox_image, docker, engine_socket};
use crate::support::{World, until};

/// A socket that passes everything on to the engine until it is cut.
struct Relay {
    path: PathBuf,
    open: Arc<Mutex<Vec<UnixStream>>>,
    cut: Arc<AtomicBool>,
}

impl Relay {
    fn listen(path: &Path) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let open: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
        let cut = Arc::new(AtomicBool::new(false));
        let (streams, stop) = (Arc::clone(&open), Arc::clone(&cut));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let engine = UnixStream::connect(engine_socket()).expect("the engine");
                let mut streams = streams.lock().expect("no panic");
                // It may have been cut since: whatever is passed on is among those that are.
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                for (from, to) in [(&client, &engine), (&engine, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
                    thread::spawn(move || pass(&mut from, &mut to));
                }
                streams.extend([client, engine]);
            }
        });
        Self { path: path.to_owned(), open, cut }
    }

    /// The engine is gone: no socket, and every connection breaks.
    fn cut(self) {
        self.cut.store(true, Ordering::SeqCst);
        fs::remove_file(&self.path).expect("it is there");
        for stream in self.open.lock().expect("no panic").drain(..) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(from: &mut impl Read, to: &mut UnixStream) {
    let mut chunk = [0; 16 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(n) if to.write_all(&chunk[..n]).is_err() => break,
            Ok(_) => {}
        }
    }
    let _: io::Result<()> = to.shutdown(Shutdown::Write);
}

fn engine_health(world: &World) -> String {
    world.call("daemon.info", json!({}))["engines"][0]["health"].as_str().expect("a word").to_owned()
}

#[test]
fn an_engine_that_goes_away_changes_no_status_and_heals_without_a_restart() {
    let Some(mut world) = World::new() else { return };
    let socket = world.home.dir().join("engine.sock");
    let config = format!("[engine]\naddress = \"unix://{}\"\n", socket.display());
    fs::write(world.home.root().join("config.toml"), config).expect("write");
    let relay = Relay::listen(&socket);
    world.restart(None);
    for name in ["kept", "killed"] {
        world.start(name);
    }
    let killed = world.field("killed", "sandbox_id");

    relay.cut();
    until("the engine to be missed", || (engine_health(&world) == "unavailable").then_some(()));
    docker(&["kill", killed.as_str().expect("an id")]);
    for (method, params) in [
        ("session.stop", json!({"name": "kept"})),
        ("session.save", json!({"name": "kept"})),
        ("session.delete", json!({"name": "kept"})),
        ("session.start", json!({"name": "new", "image": busybox_image()})),
        ("exec.run", json!({"session": "killed", "cmd": ["true"]})),
    ] {
        let refused = world.refuse(method, params);
        assert_eq!(refused["data"]["kind"], "engine_unavailable", "{method}: {refused}");
        assert!(
            refused.to_string().contains("engine.sock"),
            "{method} does not say where it looked: {refused}"
        );
    }
    assert_eq!(world.sh("kept", "echo without it")["stdout"], "without it\n");
    assert_eq!(
        (world.field("kept", "status"), world.field("killed", "status")),
        (json!("running"), json!("running"))
    );

    let _relay = Relay::listen(&socket);
    world.until_field("killed", "status", "stopped");
    assert_eq!(world.field("killed", "reason"), "engine");
    assert_eq!(world.field("kept", "status"), "running");
    assert_eq!(world.sh("kept", "echo alive")["stdout"], "alive\n");
    until("the start that failed to be taken back", || {
        (world.call("session.list", json!({})).as_array().map(Vec::len) == Some(2)).then_some(())
    });
}

#[test]
fn a_daemon_without_an_engine_still_lists_and_says_where_it_looked() {
    let Some(mut world) = World::new() else { return };
    world.start("a");
    fs::write(
        world.home.root().join("config.toml"),
        "[engine]\naddress = \"unix:///nonexistent/engine.sock\"\n",
    )
    .expect("write");
    world.restart(None);
    assert_eq!(world.field("a", "status"), "running");
    until("the problem to be told", || {
        let info = world.call("daemon.info", json!({}));
        info["engines"][0]["problem"].as_str().filter(|p| p.contains("/nonexistent/engine.sock")).map(drop)
    });
    let refused = world.refuse("session.stop", json!({"name": "a"}));
    assert_eq!(refused["data"]["kind"], "engine_unavailable");
}
