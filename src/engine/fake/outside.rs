//! What happens at the engine in memory without being asked for by a call.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::FakeEngine;
use super::world::{Container, Cpu};
use crate::engine::{CommitSpec, CreateSpec, Disk, EngineError, Hint, Image, Observed, RunState};
use crate::model::session::{Excluded, Limits};

impl FakeEngine {
    /// Gives the engine an id of its own.
    pub fn set_identity(&self, identity: &str) {
        self.lock().identity = Some(identity.to_owned());
    }

    /// Lets a container have written so much.
    pub fn set_written(&self, id: &str, bytes: u64) {
        if let Some(container) = self.lock().containers.get_mut(id) {
            container.written = bytes;
        }
    }

    /// Lets the engine have a volume that was made at this time.
    pub fn set_volume(&self, name: &str, made: &str) {
        self.lock().volumes.insert(name.to_owned(), made.to_owned());
    }

    /// Gives the engine a disk of this machine, with so much free.
    pub fn set_free(&self, bytes: u64) {
        self.lock().disk = Some(Disk { path: "/data".into(), free_bytes: bytes, total_bytes: u64::MAX });
    }

    /// What `excluded` says of a container from now on.
    pub fn set_excluded(&self, id: &str, excluded: Vec<Excluded>) {
        if let Some(container) = self.lock().containers.get_mut(id) {
            container.excluded = excluded;
        }
    }

    /// Lets containers be made with abx-init in them. That is then up to the test.
    pub fn take_guests(&self) {
        self.lock().takes_guests = true;
    }

    /// What the engine calls the process of each main program; that of the test if it says nothing.
    pub fn set_pid(&self, pid: u32) {
        self.lock().pid = Some(pid);
    }

    /// Sends a hint to all who follow.
    pub fn send_hint(&self, hint: Hint) {
        self.lock().hint(hint);
    }

    /// Ends a container's main program.
    pub fn kill_container(&self, id: &str, exit_code: i64, oom: bool) {
        let mut state = self.lock();
        if oom {
            state.hint(Hint::Oom(id.to_owned()));
        }
        state.end(id, exit_code, oom);
    }

    /// Removes a container, as someone else would.
    pub fn vanish(&self, id: &str) {
        let mut state = self.lock();
        state.end(id, 137, false);
        state.containers.remove(id);
        state.hint(Hint::Sandbox(id.to_owned()));
    }

    /// Freezes a container, as someone else would.
    pub fn pause_outside(&self, id: &str) {
        self.lock().set(id, RunState::Paused);
    }

    /// Lets the processes of a container use a whole core from now on, or none.
    pub fn burn(&self, id: &str, burns: bool) {
        if let Some(container) = self.lock().containers.get_mut(id) {
            let used = container.cpu.used();
            container.cpu = Cpu { used, burns_since: burns.then(Instant::now) };
        }
    }

    /// Makes a container for a call that was given up, past every gate.
    ///
    /// # Errors
    /// As the engine's.
    pub fn create_late(&self, spec: &CreateSpec) -> Result<Observed, EngineError> {
        self.lock().create(spec)
    }

    /// Puts so many layers below those of an image.
    pub fn deepen(&self, image_id: &str, layers: usize) {
        let mut state = self.lock();
        let below: Vec<String> = (0..layers).map(|_| state.fresh("l")).collect();
        if let Some(stored) = state.images.get_mut(image_id) {
            stored.image.layers.splice(0..0, below);
        }
    }

    /// Makes an image for a call that was given up, past every gate.
    ///
    /// # Errors
    /// As the engine's.
    pub fn commit_late(&self, spec: &CommitSpec) -> Result<Image, EngineError> {
        self.lock().commit(spec)
    }

    /// Adds a container that abx did not make; gives its id.
    pub fn add_container(&self, name: &str, state: RunState) -> String {
        self.add_labelled(name, state, BTreeMap::new())
    }

    /// Adds a container that abx did not make, with labels of its own; gives its id.
    pub fn add_labelled(&self, name: &str, state: RunState, labels: BTreeMap<String, String>) -> String {
        let mut inner = self.lock();
        let id = inner.fresh("c");
        let observed = Observed {
            id: id.clone(),
            name: name.to_owned(),
            state,
            exit_code: (state == RunState::Exited).then_some(0),
            finished_at_ms: None,
            oom_killed: false,
            image_id: "sha256:foreign".to_owned(),
            labels,
            ports: Vec::new(),
            mounts: Vec::new(),
            pid: None,
            env: Vec::new(),
            directory: None,
            limits: Limits::default(),
            networked: true,
        };
        inner.containers.insert(
            id.clone(),
            Container {
                observed,
                excluded: Vec::new(),
                cpu: Default::default(),
                written: 0,
                files: BTreeMap::new(),
            },
        );
        id
    }
}
