//! Saves over which the engine hangs, through a relay that the test owns: the machine's engine is never touched.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::engine::engine_socket;
use crate::support::{World, until};

/// A socket that passes everything on to the engine at once, but what makes an image only when it is let go.
#[derive(Clone, Default)]
struct Relay {
    held: Arc<AtomicUsize>,
    let_go: Arc<AtomicBool>,
    /// Images that the engine has answered for.
    made: Arc<AtomicUsize>,
}

impl Relay {
    fn listen(path: &Path) -> Self {
        let (listener, engine) = (UnixListener::bind(path).expect("a socket"), engine_socket());
        let relay = Self::default();
        let this = relay.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (this, engine) = (this.clone(), engine.clone());
                thread::spawn(move || this.carry(client, &engine));
            }
        });
        relay
    }

    fn carry(&self, mut client: UnixStream, engine: &Path) {
        let mut first = vec![0; 16 * 1024];
        let length = client.read(&mut first).unwrap_or(0);
        let makes_image = first[..length].windows(8).any(|word| word == b"/commit?");
        if makes_image {
            self.held.fetch_add(1, Ordering::SeqCst);
            while !self.let_go.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let mut engine = UnixStream::connect(engine).expect("the engine");
        engine.write_all(&first[..length]).expect("the engine reads");
        let (mut from, mut to) = (client.try_clone().expect("a copy"), engine.try_clone().expect("a copy"));
        thread::spawn(move || {
            // Either side may go at any time.
            let _ = std::io::copy(&mut from, &mut to);
            // The engine does what it was asked for, whoever waits for it.
            if !makes_image {
                let _ = to.shutdown(Shutdown::Write);
            }
        });
        let _ = std::io::copy(&mut engine, &mut client);
        let _ = client.shutdown(Shutdown::Both);
        self.made.fetch_add(usize::from(makes_image), Ordering::SeqCst);
    }

    fn until_held(&self) {
        until("the image to be asked for", || (self.held.load(Ordering::SeqCst) > 0).then_some(()));
    }
}

/// A daemon whose engine makes no image yet, and a session in it.
fn world() -> Option<(World, Relay)> {
    let mut world = World::new()?;
    let socket = world.home.dir().join("engine.sock");
    let config = format!("[engine]\naddress = \"unix://{}\"\n", socket.display());
    fs::write(world.home.root().join("config.toml"), config).expect("write");
    let relay = Relay::listen(&socket);
    world.restart(None);
    world.start("a");
    Some((world, relay))
}

/// The session runs as before, and nothing is there of a snapshot.
fn as_before(world: &World) {
    until("the session to be as it was", || {
        (world.field("a", "operation").is_null() && world.field("a", "status") == "running").then_some(())
    });
    assert_eq!(world.sh("a", "echo alive")["stdout"], "alive\n", "nothing is left paused");
    assert_eq!(world.call("snapshot.list", json!({})), json!([]));
}

/// What the engine makes of the save that was given up goes, and the save can be repeated under the same name.
fn repeatable(mut world: World, relay: &Relay) {
    relay.let_go.store(true, Ordering::SeqCst);
    until("the engine to be done with it", || (relay.made.load(Ordering::SeqCst) > 0).then_some(()));
    world.restart(None);
    until("the late image to go", || world.images().is_empty().then_some(()));
    world.text(&["save", "a", "--keep-running", "--snapshot", "mine"]);
    assert_eq!(world.images().len(), 1);
}

#[test]
fn a_save_over_which_the_engine_hangs_ends_in_time_and_others_go_on_meanwhile() {
    let Some((world, relay)) = world() else { return };
    let mut save = world.connect();
    save.request(
        1,
        "session.save",
        json!({"name": "a", "snapshot": "mine", "keep_running": true, "timeout_ms": 5_000}),
    );
    relay.until_held();
    world.start("b");
    assert_eq!(world.sh("b", "echo beside it")["stdout"], "beside it\n");
    world.call("session.delete", json!({"name": "b"}));
    let refused = save.line();
    assert_eq!(refused["error"]["data"]["kind"], "engine_timeout", "{refused}");
    let hint = refused["error"]["data"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("abx save a --timeout"), "{hint}");
    as_before(&world);
    repeatable(world, &relay);
}

#[test]
fn ctrl_c_in_a_save_gives_it_up() {
    let Some((world, relay)) = world() else { return };
    let mut abx = world.abx();
    abx.args(["save", "a", "--keep-running", "--snapshot", "mine"]).stderr(Stdio::piped());
    let child = abx.spawn().expect("abx runs");
    relay.until_held();
    kill(Pid::from_raw(i32::try_from(child.id()).expect("small")), Signal::SIGINT).expect("signalled");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("The save is given up"), "{said}");
    as_before(&world);
    repeatable(world, &relay);
}
