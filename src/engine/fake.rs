//! An engine in memory, for tests of what stands above: it can fail, wait at a gate, be away, and lose containers.

mod archive;
mod gate;
mod outside;
mod script;
mod seen;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;

pub use self::archive::FakeFile;
pub use self::gate::Gate;
use self::world::{Effect, State, conflict, has, no_image};
use super::{
    About, Archive, ArchiveSource, Change, ChangeKind, CommitSpec, CreateSpec, Disk, Engine, EngineError,
    ExecIo, ExecSpec, ExecState, Hint, Image, Observed, PathStat, Progress, PullProgress, RunState,
    SandboxDefaults, WindowSize, labels,
};
use crate::model::id::SnapshotId;
use crate::model::session::Excluded;

/// An [`Engine`] in memory. Clones share one state.
#[derive(Clone, Default)]
pub struct FakeEngine {
    state: Arc<Mutex<State>>,
}

impl FakeEngine {
    /// An engine without images and containers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image with a fresh id, which it gives back.
    pub fn add_image(&self, reference: &str) -> String {
        self.lock().add_image(reference, BTreeMap::new())
    }

    /// Lets a pull of this reference succeed.
    pub fn add_pullable(&self, reference: &str) {
        self.lock().pullable.push(reference.to_owned());
    }

    /// Removes an image by reference or id, as someone else would.
    pub fn remove_image(&self, reference: &str) {
        let mut state = self.lock();
        if let Some(id) = state.image_id(reference) {
            state.images.remove(&id);
        }
    }

    /// Lets the next call of this name fail without any effect. Several queue up.
    pub fn fail_next(&self, call: &'static str, error: EngineError) {
        self.lock().failures.entry(call).or_default().push_back((Effect::None, error));
    }

    /// Lets the next call of this name have its effect, and answer with the error all the same, as after a timeout.
    pub fn lose_answer(&self, call: &'static str, error: EngineError) {
        self.lock().failures.entry(call).or_default().push_back((Effect::Happens, error));
    }

    /// Holds back all calls of this name, before they have any effect; with what they are about behind it, as in
    /// [`FakeEngine::calls`], those alone.
    pub fn gate(&self, call: &str) -> Gate {
        let (gate, barrier) = Gate::new();
        self.lock().gates.insert(call.to_owned(), barrier);
        gate
    }

    /// Goes away or comes back. Going away ends the streams of hints.
    pub fn set_down(&self, down: bool) {
        let mut state = self.lock();
        state.down = down;
        if down {
            state.listeners.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere must not hide its own failure behind this one.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Logs the call, waits at its gate, then fails or has its effect.
    async fn call<T>(
        &self,
        call: &'static str,
        about: &str,
        effect: impl FnOnce(&mut State) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let gate = {
            let mut state = self.lock();
            let about = state.containers.get(about).map_or(about, |c| &c.observed.name);
            let line = if about.is_empty() { call.to_owned() } else { format!("{call} {about}") };
            let gate = state.gates.get(&line).or_else(|| state.gates.get(call)).cloned();
            state.calls.push(line);
            gate
        };
        if let Some(barrier) = gate {
            barrier.pass().await;
        }
        let mut state = self.lock();
        if state.down {
            return Err(EngineError::Unavailable {
                tried: vec!["fake (from a test): it is down".to_owned()],
            });
        }
        match state.failures.get_mut(call).and_then(VecDeque::pop_front) {
            None => effect(&mut state),
            Some((Effect::None, error)) => Err(error),
            Some((Effect::Happens, error)) => effect(&mut state).and(Err(error)),
        }
    }
}

#[async_trait::async_trait]
impl Engine for FakeEngine {
    async fn about(&self) -> Result<About, EngineError> {
        self.call("about", "", |state| {
            Ok(About {
                address: "fake".to_owned(),
                source: "a test".to_owned(),
                version: "0".to_owned(),
                api_version: "1.41".to_owned(),
                clock_skew_ms: 0,
                identity: state.identity.clone(),
                maps_users: false,
            })
        })
        .await
    }

    async fn create(&self, spec: &CreateSpec) -> Result<Observed, EngineError> {
        self.call("create", &spec.sandbox, |state| state.create(spec)).await
    }

    async fn start(&self, id: &str) -> Result<(), EngineError> {
        self.call("start", id, |state| match state.get(id)?.state {
            RunState::Running => Ok(()),
            RunState::Paused => Err(conflict("start", "the container is paused")),
            RunState::Created | RunState::Exited => {
                state.set(id, RunState::Running);
                Ok(())
            }
        })
        .await
    }

    async fn farewell(&self, _id: &str, grace: Duration) -> Result<Duration, EngineError> {
        Ok(grace)
    }

    async fn stop(&self, id: &str, _grace: Duration) -> Result<(), EngineError> {
        self.call("stop", id, |state| {
            if matches!(state.get(id).map(|c| c.state), Ok(RunState::Running | RunState::Paused)) {
                state.end(id, 143, false);
            }
            Ok(())
        })
        .await
    }

    async fn pause(&self, id: &str) -> Result<(), EngineError> {
        self.call("pause", id, |state| match state.get(id)?.state {
            RunState::Running => {
                state.set(id, RunState::Paused);
                Ok(())
            }
            RunState::Paused => Ok(()),
            RunState::Created | RunState::Exited => Err(conflict("pause", "the container is not running")),
        })
        .await
    }

    async fn unpause(&self, id: &str) -> Result<(), EngineError> {
        self.call("unpause", id, |state| match state.get(id)?.state {
            RunState::Paused => {
                state.set(id, RunState::Running);
                Ok(())
            }
            RunState::Running => Ok(()),
            RunState::Created | RunState::Exited => Err(conflict("unpause", "the container is not paused")),
        })
        .await
    }

    async fn remove(&self, id: &str) -> Result<(), EngineError> {
        self.call("remove", id, |state| {
            state.end(id, 137, false);
            state.containers.remove(id);
            state.hint(Hint::Sandbox(id.to_owned()));
            Ok(())
        })
        .await
    }

    async fn rename(&self, id: &str, name: &str) -> Result<(), EngineError> {
        self.call("rename", id, |state| {
            state.get(id)?;
            if state.containers.values().any(|c| c.observed.name == name && c.observed.id != id) {
                return Err(conflict("rename", "the name is in use"));
            }
            if let Some(container) = state.containers.get_mut(id) {
                name.clone_into(&mut container.observed.name);
            }
            Ok(())
        })
        .await
    }

    async fn inspect(&self, id: &str) -> Result<Option<Observed>, EngineError> {
        self.call("inspect", id, |state| {
            let found =
                state.containers.values().map(|c| &c.observed).find(|o| o.id == id || o.name == id).cloned();
            let pid = state.pid.unwrap_or_else(std::process::id);
            let runs = |o: &Observed| matches!(o.state, RunState::Running | RunState::Paused);
            Ok(found.map(|o| Observed { pid: runs(&o).then_some(pid), ..o }))
        })
        .await
    }

    async fn list(&self, home: &str) -> Result<Vec<Observed>, EngineError> {
        self.call("list", "", |state| {
            let all = state.containers.values().map(|c| &c.observed);
            let ours = all.filter(|o| has(&o.labels, labels::SESSION_HOME, home));
            Ok(ours.map(|o| Observed { finished_at_ms: None, ..o.clone() }).collect())
        })
        .await
    }

    async fn written_bytes(&self, id: &str) -> Result<u64, EngineError> {
        self.call("written_bytes", id, |state| {
            state.get(id)?;
            Ok(state.containers[id].written)
        })
        .await
    }

    async fn disk(&self) -> Result<Option<Disk>, EngineError> {
        self.call("disk", "", |state| Ok(state.disk.clone())).await
    }

    async fn volume_made(&self, name: &str) -> Result<Option<String>, EngineError> {
        self.call("volume_made", name, |state| Ok(state.volumes.get(name).cloned())).await
    }

    async fn cpu_time(&self, id: &str) -> Result<Duration, EngineError> {
        self.call("cpu_time", id, |state| {
            state.get(id)?;
            Ok(state.containers.get(id).map(|c| c.cpu.used()).unwrap_or_default())
        })
        .await
    }

    async fn excluded(&self, id: &str) -> Result<Vec<Excluded>, EngineError> {
        self.call("excluded", id, |state| {
            state.get(id)?;
            Ok(state.containers.get(id).map(|c| c.excluded.clone()).unwrap_or_default())
        })
        .await
    }

    async fn commit(&self, spec: &CommitSpec) -> Result<Image, EngineError> {
        let made = self.call("commit", &spec.sandbox_id, |state| state.commit(spec));
        let late = |_| EngineError::Timeout { call: "commit", after: spec.patience };
        tokio::time::timeout(spec.patience, made).await.map_err(late)?
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        self.call("image", reference, |state| Ok(state.image(reference))).await
    }

    async fn snapshot_images(&self, home: &str) -> Result<Vec<Image>, EngineError> {
        self.call("snapshot_images", "", |state| {
            let all = state.images.values().filter(|i| has(&i.image.labels, labels::SNAPSHOT_HOME, home));
            Ok(all.filter(|i| i.is_snapshot()).map(|i| i.image.clone()).collect())
        })
        .await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), EngineError> {
        self.call("remove_snapshot", snapshot.as_str(), |state| {
            state.remove_snapshot(snapshot);
            Ok(())
        })
        .await
    }

    async fn replace_snapshot(
        &self,
        snapshot: &SnapshotId,
        old: &str,
        image_id: &str,
    ) -> Result<(), EngineError> {
        self.call("replace_snapshot", snapshot.as_str(), |state| {
            state.replace_snapshot(snapshot, old, image_id)
        })
        .await
    }

    async fn sweep_image(&self, image_id: &str) -> Result<(), EngineError> {
        self.call("sweep_image", image_id, |state| {
            state.sweep_image(image_id);
            Ok(())
        })
        .await
    }

    async fn changes(&self, id: &str) -> Result<Vec<Change>, EngineError> {
        self.call("changes", id, |state| {
            state.get(id)?;
            let added = |path: &String| Change { kind: ChangeKind::Added, path: path.clone() };
            Ok(state.containers[id].files.keys().map(added).collect())
        })
        .await
    }

    async fn export(&self, id: &str) -> Result<Archive, EngineError> {
        self.call("export", id, |state| state.read_archive(id, "/.")).await
    }

    async fn image_archive(&self, ids: &[&str]) -> Result<Archive, EngineError> {
        self.call("image_archive", &ids.join(" "), |state| state.image_archive(ids)).await
    }

    async fn load_images(&self, mut archive: ArchiveSource) -> Result<(), EngineError> {
        let mut bytes = Vec::new();
        while let Some(next) = archive.next().await {
            bytes.extend_from_slice(&next.map_err(|error| archive::failed("load_images", &error))?);
        }
        self.call("load_images", "", |state| state.load_images(&bytes)).await
    }

    async fn pull(&self, reference: &str, progress: Progress) -> Result<Image, EngineError> {
        self.call("pull", reference, |state| {
            if !state.pullable.iter().any(|r| r == reference) {
                return Err(no_image(reference));
            }
            let (layer, status) = ("layer".to_owned(), "Downloading".to_owned());
            progress(PullProgress { layer, status, current_bytes: Some(1), total_bytes: Some(2) });
            if state.image(reference).is_none() {
                state.add_image(reference, BTreeMap::new());
            }
            state.image(reference).ok_or_else(|| no_image(reference))
        })
        .await
    }

    async fn exec(&self, sandbox_id: &str, spec: &ExecSpec) -> Result<ExecIo, EngineError> {
        self.call("exec", sandbox_id, |state| state.exec(sandbox_id, spec)).await
    }

    async fn exec_resize(&self, engine_id: &str, size: WindowSize) -> Result<(), EngineError> {
        self.call("exec_resize", engine_id, |state| {
            if let Some(exec) = state.execs.get_mut(engine_id) {
                exec.size = Some(size);
            }
            Ok(())
        })
        .await
    }

    async fn exec_state(&self, engine_id: &str) -> Result<ExecState, EngineError> {
        self.call("exec_state", engine_id, |state| {
            let exec = state.execs.get(engine_id);
            exec.map(|e| e.state.clone()).ok_or_else(|| EngineError::Failed {
                call: "exec_state",
                text: format!("no such exec: {engine_id}"),
            })
        })
        .await
    }

    async fn exec_signal(
        &self,
        sandbox_id: &str,
        exec_id: &str,
        _user: Option<&str>,
        signal: i32,
    ) -> Result<(), EngineError> {
        self.call("exec_signal", sandbox_id, |state| {
            let running = state.get(sandbox_id)?.state == RunState::Running;
            if !running {
                return Err(conflict("exec_signal", "the container is not running"));
            }
            state.end_execs(128 + signal, |e| !e.deaf && e.sandbox == sandbox_id && e.exec_id == exec_id);
            Ok(())
        })
        .await
    }

    async fn sandbox_defaults(&self, sandbox_id: &str) -> Result<SandboxDefaults, EngineError> {
        self.call("sandbox_defaults", sandbox_id, |state| {
            state.get(sandbox_id)?;
            Ok(state.sandbox_defaults.clone())
        })
        .await
    }

    async fn stat_path(&self, sandbox_id: &str, path: &str) -> Result<Option<PathStat>, EngineError> {
        self.call("stat_path", sandbox_id, |state| state.stat_path(sandbox_id, path)).await
    }

    async fn read_archive(&self, sandbox_id: &str, path: &str) -> Result<Archive, EngineError> {
        self.call("read_archive", sandbox_id, |state| state.read_archive(sandbox_id, path)).await
    }

    async fn write_archive(
        &self,
        sandbox_id: &str,
        directory: &str,
        mut archive: ArchiveSource,
    ) -> Result<(), EngineError> {
        let mut bytes = Vec::new();
        while let Some(next) = archive.next().await {
            bytes.extend_from_slice(&next.map_err(|error| archive::failed("write_archive", &error))?);
        }
        self.call("write_archive", sandbox_id, |state| state.write_archive(sandbox_id, directory, &bytes))
            .await
    }

    async fn hints(&self) -> Result<BoxStream<'static, Result<Hint, EngineError>>, EngineError> {
        self.call("hints", "", |state| {
            let (sender, receiver) = mpsc::unbounded_channel();
            state.listeners.push(sender);
            Ok(futures_util::stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|hint| (hint, receiver))
            })
            .fuse()
            .boxed())
        })
        .await
    }
}

#[cfg(test)]
mod tests;
