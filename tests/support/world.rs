//! A daemon on a real engine, whose containers and images go when the test ends.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{busybox_image, docker, has_engine};
use super::{Daemon, Home, OwnEngine, Socket, until};

/// A home, and a daemon on it while there is one.
pub(crate) struct World {
    daemon: Option<Daemon>,
    /// How its daemons are started.
    launch: fn(&Home) -> Command,
    /// The address of an engine that is the test's own; the machine's where there is none.
    engine: Option<String>,
    pub(crate) home: Home,
}

impl World {
    /// One with a running daemon; none where there is no engine.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Home::abxd)
    }

    /// One whose daemons are started so.
    pub(crate) fn with(launch: fn(&Home) -> Command) -> Option<Self> {
        if !has_engine() {
            return None;
        }
        busybox_image();
        let home = Home::new();
        let daemon = Some(Daemon::spawn(&home, &mut launch(&home)));
        Some(Self { daemon, launch, engine: None, home })
    }

    /// One on an engine of the test's own, which takes all that is on it along.
    pub(crate) fn on(engine: &OwnEngine) -> Self {
        let home = Home::new();
        let mut world = Self { daemon: None, launch: Home::abxd, engine: None, home };
        world.move_to(engine);
        world
    }

    /// Ends the daemon and starts another, on this engine.
    pub(crate) fn move_to(&mut self, engine: &OwnEngine) {
        let config = format!("[engine]\naddress = \"{}\"\n", engine.address());
        fs::create_dir_all(self.home.root()).expect("a home");
        fs::write(self.home.root().join("config.toml"), config).expect("write");
        self.engine = Some(engine.address());
        self.restart(None);
    }

    /// The daemon.
    pub(crate) fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("a daemon runs")
    }

    /// What `docker ARGS` prints on its engine; nothing where it fails.
    fn docker(&self, args: &[&str]) -> String {
        match &self.engine {
            Some(address) => docker(&[&["-H", address], args].concat()),
            None => docker(args),
        }
    }

    /// Ends the daemon and starts another, which dies at this fault point if one is named, or does what is written
    /// behind it.
    pub(crate) fn restart(&mut self, fault: Option<&str>) {
        drop(self.daemon.take());
        // What was ended may be a program around it.
        let gone = || UnixStream::connect(self.home.socket()).is_err().then_some(());
        until("the daemon to be gone", gone);
        let mut command = (self.launch)(&self.home);
        command.env("ABX_FAULT_DEADLINE", self.deadline());
        if let Some(point) = fault {
            let action = if point.contains('=') { "" } else { "=kill" };
            command.env("ABX_FAULT", format!("{point}{action}"));
        }
        self.daemon = Some(Daemon::spawn(&self.home, &mut command));
    }

    /// The file that shortens the daemon's deadlines.
    fn deadline(&self) -> PathBuf {
        self.home.dir().join("deadline")
    }

    /// Lets no call of the engine take longer than this from now on; as long as it may, where none is given.
    pub(crate) fn shorten_deadlines(&self, most: Option<Duration>) {
        let done = match most {
            Some(most) => fs::write(self.deadline(), most.as_millis().to_string()),
            None => fs::remove_file(self.deadline()),
        };
        done.expect("written");
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Socket {
        self.daemon.as_ref().expect("a daemon runs").connect()
    }

    /// Makes a call and gives its result.
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        self.connect().call(method, params)
    }

    /// Makes a call that must fail, and gives its error.
    pub(crate) fn refuse(&self, method: &str, params: Value) -> Value {
        let answer = self.connect().request(1, method, params).line();
        assert!(answer["error"].is_object(), "{method} succeeded: {answer}");
        answer["error"].clone()
    }

    /// Starts a session on the test image.
    pub(crate) fn start(&self, name: &str) -> Value {
        self.call("session.start", json!({"name": name, "image": busybox_image()}))
    }

    /// Runs a command and gives its result.
    pub(crate) fn sh(&self, name: &str, script: &str) -> Value {
        self.call("exec.run", json!({"session": name, "cmd": ["sh", "-c", script]}))
    }

    /// One field of a session.
    pub(crate) fn field(&self, name: &str, field: &str) -> Value {
        self.call("session.get", json!({"name": name}))[field].clone()
    }

    /// Waits until a field has this value.
    pub(crate) fn until_field(&self, name: &str, field: &str, want: &str) {
        until(&format!("{field} of {name} to be {want}"), || (self.field(name, field) == want).then_some(()));
    }

    /// Containers of this home: id and state, as the engine says.
    pub(crate) fn containers(&self) -> Vec<(String, String)> {
        let label = format!("label=dev.abx.session.home={}", self.home.root().display());
        let listed =
            self.docker(&["ps", "-a", "--no-trunc", "--filter", &label, "--format", "{{.ID}} {{.State}}"]);
        listed
            .lines()
            .filter_map(|l| l.split_once(' '))
            .map(|(id, state)| (id.into(), state.into()))
            .collect()
    }

    /// Ids of the images of this home's snapshots.
    pub(crate) fn images(&self) -> Vec<String> {
        let label = format!("label=dev.abx.snapshot.home={}", self.home.root().display());
        self.docker(&["images", "-q", "--no-trunc", "--filter", &label]).lines().map(str::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if self.engine.is_some() {
            return;
        }
        for (id, _) in self.containers() {
            docker(&["rm", "-fv", &id]);
        }
        for id in self.images() {
            docker(&["rmi", "-f", &id]);
        }
    }
}
