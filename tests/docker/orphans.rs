//! What the engine finishes for a daemon that was killed, through a relay that the test owns, and what others remove.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::engine::{busybox_image, docker, engine_socket};
use crate::support::{World, until};

/// What becomes of the one call that is held back.
#[derive(Default)]
struct Held {
    reached: bool,
    released: bool,
    /// The engine's answer, which nobody waits for any more.
    answer: Option<String>,
}

/// A socket that passes everything on to the engine, but holds one call back until its caller is gone and the test
/// lets it go.
struct Relay(Arc<(Mutex<Held>, Condvar)>);

impl Relay {
    fn listen(path: &Path, call: &'static str) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let held: Arc<(Mutex<Held>, Condvar)> = Arc::default();
        let all = Arc::clone(&held);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let held = Arc::clone(&all);
                thread::spawn(move || serve(client, call, &held));
            }
        });
        Self(held)
    }

    fn reached(&self) {
        until("the call to come", || self.0.0.lock().expect("no panic").reached.then_some(()));
    }

    /// Lets the call go, and waits for the engine's answer.
    fn release(&self) -> String {
        self.0.0.lock().expect("no panic").released = true;
        self.0.1.notify_all();
        until("the engine's answer", || self.0.0.lock().expect("no panic").answer.clone())
    }
}

fn serve(mut client: UnixStream, call: &str, held: &(Mutex<Held>, Condvar)) {
    let mut engine = UnixStream::connect(engine_socket()).expect("the engine");
    let mut first = vec![0; 64 * 1024];
    let read = client.read(&mut first).unwrap_or(0);
    first.truncate(read);
    let holds = first.windows(call.len()).any(|part| part == call.as_bytes());
    if holds && !std::mem::replace(&mut held.0.lock().expect("no panic").reached, true) {
        // The caller never gets an answer: this ends when it is killed.
        client.read_to_end(&mut first).expect("the rest of the call");
        let wait = held.1.wait_while(held.0.lock().expect("no panic"), |held| !held.released);
        drop(wait.expect("no panic"));
        engine.write_all(&first).expect("passed on");
        let mut answer = vec![0; 4096];
        let read = engine.read(&mut answer).expect("an answer");
        let text = String::from_utf8_lossy(&answer[..read]).into_owned();
        held.0.lock().expect("no panic").answer = Some(text);
        return;
    }
    if engine.write_all(&first).is_err() {
        return;
    }
    let ends = [(&client, &engine), (&engine, &client)]
        .map(|(from, to)| (from.try_clone().expect("a copy"), to.try_clone().expect("a copy")));
    for (mut from, mut to) in ends {
        thread::spawn(move || {
            // Either side may go away at any time.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

/// A daemon whose engine is behind a relay that holds this call back.
fn behind_relay(call: &'static str) -> Option<(World, Relay)> {
    let mut world = World::new()?;
    let socket = world.home.dir().join("engine.sock");
    let config = format!("[engine]\naddress = \"unix://{}\"\n", socket.display());
    fs::write(world.home.root().join("config.toml"), config).expect("written");
    let relay = Relay::listen(&socket, call);
    world.restart(None);
    Some((world, relay))
}

fn kill(world: &mut World) {
    world.daemon().signal(Signal::SIGKILL);
    world.daemon().wait();
    world.restart(None);
}

#[test]
fn a_container_that_is_made_after_its_daemon_was_killed_is_removed() {
    let Some((mut world, relay)) = behind_relay("/containers/create?") else { return };
    // No other container has this name.
    let name = format!("late-{}", std::process::id());
    let mut start = world.connect();
    start.request(1, "session.start", json!({"name": name, "image": busybox_image()}));
    relay.reached();
    let id = world.field(&name, "id").as_str().expect("an id").to_owned();
    kill(&mut world);
    let none = || world.call("session.list", json!({})) == json!([]);
    until("the start to be taken back", || none().then_some(()));
    // An engine that is in the midst of it has seen that its mounts are there.
    let mount = world.home.root().join("run").join(id);
    until("its directory to go", || (!mount.exists()).then_some(()));
    fs::create_dir_all(mount).expect("made");
    let answer = relay.release();
    assert!(answer.contains("201 Created"), "{answer}");
    until("the container to go", || world.containers().is_empty().then_some(()));
    assert!(none(), "it came back as a session");
    assert_eq!(world.start(&name)["sandbox"], format!("session-{name}"));
}

#[test]
fn an_image_that_is_made_after_its_daemon_was_killed_is_removed() {
    let Some((mut world, relay)) = behind_relay("/commit?") else { return };
    world.start("a");
    let mut save = world.connect();
    save.request(1, "session.save", json!({"name": "a"}));
    relay.reached();
    kill(&mut world);
    until("the save to be taken back", || world.field("a", "operation").is_null().then_some(()));
    assert_eq!(world.field("a", "status"), "stopped");
    let answer = relay.release();
    assert!(answer.contains("201 Created"), "{answer}");
    assert_eq!(world.images().len(), 1);
    world.restart(None);
    until("the image to go", || world.images().is_empty().then_some(()));
    assert_eq!(world.call("snapshot.list", json!({})), json!([]));
    assert_eq!(world.call("session.resume", json!({"name": "a"}))["status"], "running");
}

#[test]
fn an_image_that_waited_for_a_container_goes_when_somebody_else_removes_that() {
    let Some(world) = World::new() else { return };
    world.start("a");
    let saved = world.call("session.save", json!({"name": "a"}));
    let snapshot = saved["snapshot"]["name"].clone();
    let container = world.field("a", "sandbox_id");
    docker(&["rm", "-f", container.as_str().expect("an id")]);
    world.call("session.resume", json!({"name": "a", "snapshot": snapshot}));
    world.call("snapshot.delete", json!({"snapshots": [snapshot]}));
    assert_eq!(world.images().len(), 1, "the container needs it");
    docker(&["rm", "-f", world.field("a", "sandbox_id").as_str().expect("an id")]);
    world.until_field("a", "status", "lost");
    until("the image to go", || world.images().is_empty().then_some(()));
}
