//! What the engine in memory holds, and what calls do to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::archive::FakeFile;
use super::gate::Barrier;
use crate::engine::{
    Chunk, CommitSpec, CreateSpec, Disk, EngineError, ExecIo, ExecSpec, ExecState, Hint, Image, Observed,
    RunState, SandboxDefaults, WindowSize, labels,
};
use crate::model::id::SnapshotId;
use crate::model::session::{Excluded, Limits, Port};

/// The first of the host ports that the engine chooses.
const FIRST_FREE_PORT: u16 = 49_153;

#[derive(Default)]
pub(super) struct State {
    pub(super) down: bool,
    pub(super) containers: BTreeMap<String, Container>,
    pub(super) images: BTreeMap<String, StoredImage>,
    pub(super) pullable: Vec<String>,
    pub(super) failures: HashMap<&'static str, VecDeque<(Effect, EngineError)>>,
    pub(super) gates: HashMap<String, Barrier>,
    pub(super) scripts: HashMap<String, Script>,
    pub(super) execs: BTreeMap<String, Exec>,
    pub(super) sandbox_defaults: SandboxDefaults,
    pub(super) listeners: Vec<mpsc::UnboundedSender<Result<Hint, EngineError>>>,
    pub(super) calls: Vec<String>,
    pub(super) takes_guests: bool,
    pub(super) identity: Option<String>,
    /// When its volumes were made, by name.
    pub(super) volumes: BTreeMap<String, String>,
    /// The disk that it has on this machine.
    pub(super) disk: Option<Disk>,
    /// The process that every main program is; that of the test if none.
    pub(super) pid: Option<u32>,
    next: u64,
}

/// Whether a call that fails did what it was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Happens,
}

pub(super) struct Container {
    pub(super) observed: Observed,
    pub(super) excluded: Vec<Excluded>,
    /// CPU time that it has used.
    pub(super) cpu: Cpu,
    /// Bytes that it has written.
    pub(super) written: u64,
    /// By absolute path. Directories above a file need no entry.
    pub(super) files: BTreeMap<String, FakeFile>,
}

/// CPU time of a container.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cpu {
    /// Used before.
    pub(super) used: Duration,
    /// Since when it uses a whole core.
    pub(super) burns_since: Option<Instant>,
}

impl Cpu {
    pub(super) fn used(&self) -> Duration {
        self.used + self.burns_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

pub(super) struct StoredImage {
    pub(super) image: Image,
    pub(super) references: Vec<String>,
}

#[derive(Clone)]
pub(super) enum Script {
    Ends {
        stdout: Bytes,
        stderr: Bytes,
        code: i32,
    },
    Hangs,
    /// As `Hangs`, but no signal reaches it.
    Deaf,
    /// As `Hangs`, but it gets its process later.
    Slow,
    NeverStarts {
        text: Bytes,
        code: i32,
    },
}

pub(super) struct Exec {
    pub(super) sandbox: String,
    pub(super) exec_id: String,
    pub(super) state: ExecState,
    pub(super) size: Option<WindowSize>,
    pub(super) deaf: bool,
    /// Dropping it ends the output of one that hangs.
    pub(super) ends: Option<mpsc::UnboundedSender<Chunk>>,
}

impl StoredImage {
    /// Whether it has its snapshot's own tag.
    pub(super) fn is_snapshot(&self) -> bool {
        let id = self.image.labels.get(labels::SNAPSHOT_ID).map(|id| SnapshotId::new(id.as_str()));
        id.is_some_and(|id| self.references.contains(&labels::snapshot_reference(&id)))
    }
}

impl State {
    pub(super) fn fresh(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{:016x}", self.next)
    }

    pub(super) fn get(&self, id: &str) -> Result<&Observed, EngineError> {
        let found = self.containers.get(id).map(|c| &c.observed);
        found.ok_or_else(|| EngineError::NoSandbox { id: id.to_owned() })
    }

    pub(super) fn hint(&mut self, hint: Hint) {
        self.listeners.retain(|listener| listener.send(Ok(hint.clone())).is_ok());
    }

    pub(super) fn set(&mut self, id: &str, state: RunState) {
        if let Some(container) = self.containers.get_mut(id) {
            container.observed.state = state;
            if state != RunState::Exited {
                container.observed.exit_code = None;
                container.observed.finished_at_ms = None;
                container.observed.oom_killed = false;
            }
            self.hint(Hint::Sandbox(id.to_owned()));
        }
    }

    /// Ends a container's main program, and with it its commands. One that does not run stays as it is.
    pub(super) fn end(&mut self, id: &str, exit_code: i64, oom: bool) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if !matches!(container.observed.state, RunState::Running | RunState::Paused) {
            return;
        }
        container.observed.state = RunState::Exited;
        container.observed.exit_code = Some(exit_code);
        container.observed.finished_at_ms = Some(jiff::Timestamp::now().as_millisecond());
        container.observed.oom_killed = oom;
        self.end_execs(137, |exec| exec.sandbox == id);
        self.hint(Hint::Sandbox(id.to_owned()));
    }

    pub(super) fn end_execs(&mut self, code: i32, which: impl Fn(&Exec) -> bool) {
        for exec in self.execs.values_mut() {
            if matches!(exec.state, ExecState::Starting | ExecState::Running) && which(exec) {
                exec.state = ExecState::Exited(code);
                exec.ends = None;
            }
        }
    }

    pub(super) fn create(&mut self, spec: &CreateSpec) -> Result<Observed, EngineError> {
        let guest = spec.guest.clone().filter(|_| self.takes_guests);
        let labels = labels::session(&CreateSpec { guest, ..spec.clone() });
        let same = |key: &str, o: &Observed| o.labels.get(key) == labels.get(key);
        let named = self.containers.values().find(|c| c.observed.name == spec.sandbox);
        if let Some(Container { observed, .. }) = named {
            if same(labels::SESSION_ID, observed) && same(labels::SESSION_HOME, observed) {
                return Ok(observed.clone());
            }
            return Err(conflict("create", "the name is in use"));
        }
        let image_id = self.image_id(&spec.image).ok_or_else(|| no_image(&spec.image))?;
        // Those of its image shine through, as at any engine.
        let mut all = self.images.get(&image_id).map(|i| i.image.labels.clone()).unwrap_or_default();
        all.extend(labels);
        let id = self.fresh("c");
        let mut free = FIRST_FREE_PORT..;
        let ports = spec.session.spec.ports.iter();
        let ports = ports.map(|p| Port { host: p.host.or_else(|| free.next()), ..p.clone() }).collect();
        let observed = Observed {
            id: id.clone(),
            name: spec.sandbox.clone(),
            state: RunState::Created,
            exit_code: None,
            finished_at_ms: None,
            oom_killed: false,
            image_id,
            labels: all,
            ports,
            mounts: spec.session.spec.workspace.iter().chain(&spec.session.spec.mounts).cloned().collect(),
            pid: None,
            env: vec!["PATH=/bin".to_owned()],
            directory: None,
            limits: Limits::default(),
            networked: true,
        };
        self.containers.insert(
            id,
            Container {
                observed: observed.clone(),
                excluded: Vec::new(),
                cpu: Cpu::default(),
                written: 0,
                files: BTreeMap::new(),
            },
        );
        self.hint(Hint::Made(observed.id.clone()));
        Ok(observed)
    }

    pub(super) fn commit(&mut self, spec: &CommitSpec) -> Result<Image, EngineError> {
        let wanted = spec.snapshot.as_str();
        if let Some(found) = self.images.values().find(|i| has(&i.image.labels, labels::SNAPSHOT_ID, wanted))
        {
            return Ok(found.image.clone());
        }
        let sandbox = self.get(&spec.sandbox_id)?.clone();
        let base = self.images.get(&sandbox.image_id).map(|i| i.image.clone());
        let mut all = sandbox.labels;
        all.extend(labels::snapshot(spec, base.as_ref(), sandbox.finished_at_ms));
        let id = self.add_image(&labels::snapshot_reference(&spec.snapshot), all);
        let written = self.containers.get(&spec.sandbox_id).map_or(0, |container| container.written);
        let stored = self.images.get_mut(&id).ok_or_else(|| no_image(&id))?;
        stored.image.size_bytes += written;
        if let Some(base) = base {
            stored.image.size_bytes += base.size_bytes;
            stored.image.layers.splice(0..0, base.layers);
        }
        Ok(stored.image.clone())
    }

    pub(super) fn remove_snapshot(&mut self, snapshot: &SnapshotId) {
        let Some(id) = self.image_id(&labels::snapshot_reference(snapshot)) else { return };
        if self.is_used(&id)
            && let Some(image) = self.images.get_mut(&id)
        {
            image.references.clear();
        } else {
            self.images.remove(&id);
        }
    }

    pub(super) fn replace_snapshot(
        &mut self,
        snapshot: &SnapshotId,
        old: &str,
        image_id: &str,
    ) -> Result<(), EngineError> {
        if let Some(gone) = [old, image_id].into_iter().find(|id| !self.images.contains_key(*id)) {
            return Err(no_image(gone));
        }
        let reference = labels::snapshot_reference(snapshot);
        for (id, image) in &mut self.images {
            image.references.retain(|other| *other != reference);
            if id == image_id {
                image.references.push(reference.clone());
            }
        }
        Ok(())
    }

    pub(super) fn sweep_image(&mut self, image_id: &str) {
        let is_used = self.is_used(image_id);
        let Some(image) = self.images.get_mut(image_id) else { return };
        image.references.retain(|reference| !reference.starts_with(labels::PARKED_REPOSITORY));
        if !is_used && image.references.is_empty() {
            self.images.remove(image_id);
        }
    }

    fn is_used(&self, image_id: &str) -> bool {
        self.containers.values().any(|container| container.observed.image_id == image_id)
    }

    pub(super) fn add_image(&mut self, reference: &str, labels: BTreeMap<String, String>) -> String {
        let id = format!("sha256:{}", self.fresh("i"));
        for other in self.images.values_mut() {
            other.references.retain(|r| r != reference);
        }
        let image = Image { id: id.clone(), size_bytes: 1024, layers: vec![id.clone()], labels };
        self.images.insert(id.clone(), StoredImage { image, references: vec![reference.to_owned()] });
        id
    }

    pub(super) fn image_id(&self, reference: &str) -> Option<String> {
        let is = |i: &&StoredImage| i.image.id == reference || i.references.iter().any(|r| r == reference);
        self.images.values().find(is).map(|i| i.image.id.clone())
    }

    pub(super) fn image(&self, reference: &str) -> Option<Image> {
        self.images.get(&self.image_id(reference)?).map(|i| i.image.clone())
    }

    pub(super) fn exec(&mut self, sandbox: &str, spec: &ExecSpec) -> Result<ExecIo, EngineError> {
        if self.get(sandbox)?.state != RunState::Running {
            return Err(conflict("exec", "the container is not running"));
        }
        let engine_id = self.fresh("e");
        let program = spec.argv.first().map(String::as_str).unwrap_or_default();
        let nothing = Script::Ends { stdout: Bytes::new(), stderr: Bytes::new(), code: 0 };
        let script = self.scripts.get(program).cloned().unwrap_or(nothing);
        let deaf = matches!(script, Script::Deaf);
        let begins = if matches!(script, Script::Slow) { ExecState::Starting } else { ExecState::Running };
        let (state, ends, output) = match script {
            Script::Ends { stdout, stderr, code } => {
                let chunks = [Chunk::Stdout(stdout), Chunk::Stderr(stderr)];
                let full = chunks.into_iter().filter(|(Chunk::Stdout(b) | Chunk::Stderr(b))| !b.is_empty());
                (ExecState::Exited(code), None, stream::iter(full.collect::<Vec<_>>()).map(Ok).boxed())
            }
            Script::NeverStarts { text, code } => {
                let word = stream::iter([Ok(Chunk::Stdout(text))]);
                (ExecState::NotStarted(code), None, word.boxed())
            }
            Script::Hangs | Script::Deaf | Script::Slow => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let output = stream::unfold(receiver, |mut r| async { r.recv().await.map(|c| (Ok(c), r)) });
                (begins, Some(sender), output.fuse().boxed())
            }
        };
        let exec = Exec {
            sandbox: sandbox.to_owned(),
            exec_id: spec.exec_id.clone(),
            state,
            size: spec.tty,
            deaf,
            ends,
        };
        self.execs.insert(engine_id.clone(), exec);
        let input = spec.stdin.then(|| Box::pin(tokio::io::sink()) as _);
        Ok(ExecIo { engine_id, input, output })
    }
}

pub(super) fn has(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.get(key).is_some_and(|v| v == value)
}

pub(super) fn conflict(call: &'static str, text: &str) -> EngineError {
    EngineError::Conflict { call, text: text.to_owned() }
}

pub(super) fn no_image(reference: &str) -> EngineError {
    EngineError::NoImage { reference: reference.to_owned(), text: "no such image".to_owned() }
}
