//! What runs sandboxes, in abx's own words.
//!
//! Owns the connection to an engine and nothing else: it decides no policy, does not retry on its own, and never
//! touches the store. Every call has a deadline and may safely run twice: creating what is there, stopping what is
//! stopped and removing what is gone all succeed. Sandboxes are found by label and id, never by name.

pub mod address;
pub mod docker;
pub mod error;
pub mod fake;
pub mod hijack;
mod image;
pub mod labels;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::io::AsyncWrite;

pub use self::error::EngineError;
pub use self::image::{Change, ChangeKind, CommitSpec, Image};
use crate::model::id::SnapshotId;
use crate::model::limits::Rights;
use crate::model::session::{Excluded, Limits, Mount, Port, Runtime, Session};

/// Where a sandbox finds abx-init and its socket: below `/dev`, which lies in memory, so that no snapshot holds them and
/// a read-only root does not matter.
pub const GUEST_DIR: &str = "/dev/.abx";

/// The program in [`GUEST_DIR`], and in the directory that is mounted there.
pub const GUEST_PROGRAM: &str = "abx-init";

/// The name under which programs of the sandbox call it.
pub const GUEST_TOOL: &str = "abx";

/// The socket beside it, on which abxd listens.
pub const GUEST_SOCKET: &str = "sock";

/// What a sandbox is made from.
#[derive(Debug, Clone)]
pub struct CreateSpec {
    /// The session; its id, name, agent, template, mounts, ports, limits and network are used. Its environment is not:
    /// values are given per exec.
    pub session: Session,
    /// The container's name.
    pub sandbox: String,
    /// The image, by reference or immutable id.
    pub image: String,
    /// What the profile allows.
    pub rights: Rights,
    /// The home that owns the sandbox, for its label.
    pub home: String,
    /// A directory of this machine with abx-init, which becomes the main program where it can: the label says so.
    pub guest: Option<PathBuf>,
}

/// Whether a container's processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// Ended, or being ended.
    Exited,
}

/// What the engine says of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The engine's full id.
    pub id: String,
    /// The container's name, without a leading slash.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// The main program's code, once it ended.
    pub exit_code: Option<i64>,
    /// When the main program ended, in milliseconds since 1970-01-01 UTC by the engine's clock, once it ended. Told by a
    /// look at one sandbox alone; none in a list.
    pub finished_at_ms: Option<i64>,
    /// Whether the kernel ended it for want of memory.
    pub oom_killed: bool,
    /// The image it runs on.
    pub image_id: String,
    /// The labels that abx put on it, by their full names (`dev.abx.session.id` ...).
    pub labels: std::collections::BTreeMap<String, String>,
    /// Ports as forwarded now.
    pub ports: Vec<Port>,
    /// What was mounted at its making. Told by a look at one sandbox alone; empty in a list.
    pub mounts: Vec<Mount>,
    /// The main program's process on the engine's machine, while it runs. Told by a look at one sandbox alone.
    pub pid: Option<u32>,
    /// The environment of every process in it, each `NAME=value`: the image's own, and what the engine adds. Told by a
    /// look at one sandbox alone.
    pub env: Vec<String>,
    /// The directory in which its processes start. Told by a look at one sandbox alone.
    pub directory: Option<String>,
    /// What it may use at most. Told by a look at one sandbox alone.
    pub limits: Limits,
    /// Whether it has a network beside loopback. Told by a look at one sandbox alone.
    pub networked: bool,
}

impl Observed {
    /// What runs commands in it.
    pub fn runtime(&self) -> Runtime {
        let word = self.labels.get(labels::RUNTIME).map(String::as_str);
        word.and_then(Runtime::from_word).unwrap_or(Runtime::Engine)
    }

    /// Whether its abx-init is called through the engine, which does not share our files.
    pub fn is_bridged(&self) -> bool {
        self.labels.get(labels::RUNTIME_LINK).is_some_and(|link| link == labels::BRIDGE)
    }

    /// The image's own user, where the main program is another's.
    pub fn image_user(&self) -> Option<&str> {
        self.labels.get(labels::RUNTIME_USER).map(String::as_str).filter(|user| !user.is_empty())
    }
}

/// One step of a pull, as the engine tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// The layer, or empty.
    pub layer: String,
    /// What is happening, in the engine's words.
    pub status: String,
    /// Bytes done of this layer.
    pub current_bytes: Option<u64>,
    /// Bytes of this layer.
    pub total_bytes: Option<u64>,
}

/// Takes progress; must not block.
pub type Progress = Box<dyn Fn(PullProgress) + Send + Sync>;

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// The variable that marks every process of an exec with its id. abx-init, which shares no code with this, sets the same.
pub const EXEC_MARK: &str = "ABX_EXEC_ID";

/// A command to run in a sandbox.
#[derive(Debug, Clone)]
pub struct ExecSpec {
    /// abx's own id of the exec: every process of it carries it in [`EXEC_MARK`], by which it is found again to be
    /// signalled.
    pub exec_id: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whole environment to add to the image's.
    pub env: Vec<(String, String)>,
    /// Working directory; the image's own if none.
    pub cwd: Option<String>,
    /// User; the image's own if none.
    pub user: Option<String>,
    /// On a terminal of this size, which holds before the program starts.
    pub tty: Option<WindowSize>,
    /// Whether there will be input.
    pub stdin: bool,
}

/// A piece of a command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Standard output; the only one on a terminal.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
}

/// A running command: its engine id, and its streams. Dropping it does not end the command.
pub struct ExecIo {
    /// The engine's id of the exec.
    pub engine_id: String,
    /// Its input; shutting it down ends the input alone. None when the spec said there is none.
    pub input: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// Its output, to the end. Not polling it stops the command by back-pressure.
    pub output: BoxStream<'static, Result<Chunk, EngineError>>,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecState {
    /// Its start is under way: it has no process yet.
    Starting,
    /// Still running.
    Running,
    /// Ended with this code (128+n after signal n).
    Exited(i32),
    /// Never started: the engine found no such program (127) or could not run it (126).
    NotStarted(i32),
}

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Bytes.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}

/// What is at a path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathStat {
    /// Its own name, without the directories above.
    pub name: String,
    /// What it is. A symbolic link is itself, not what it points to.
    pub kind: FileKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// When it was changed, in milliseconds since 1970-01-01 UTC.
    pub modified_at_ms: Option<i64>,
    /// Where a symbolic link leads. Docker gives the end of the whole chain, as an absolute path; others the link's text.
    pub link_target: Option<String>,
}

/// How commands run in a sandbox where nobody says otherwise, and what they find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxDefaults {
    /// User, optionally with a group, by name or id; root if none.
    pub user: Option<String>,
    /// Working directory; `/` if none.
    pub cwd: Option<String>,
    /// Nothing is written outside of its mounts.
    pub read_only_root: bool,
    /// Where it has mounts from memory, as far as they were asked for.
    pub tmpfs: Vec<String>,
}

/// A tar stream on its way out of a sandbox. Not polling it stops the engine by back-pressure.
pub type Archive = BoxStream<'static, Result<Bytes, EngineError>>;

/// A tar stream on its way into a sandbox. An error ends it without its end, and the call fails: what
/// was unpacked before stays, the last file possibly cut off.
pub type ArchiveSource = BoxStream<'static, std::io::Result<Bytes>>;

/// What the engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its address.
    pub address: String,
    /// Where that came from.
    pub source: String,
    /// Its version.
    pub version: String,
    /// The API version agreed on.
    pub api_version: String,
    /// Its clock minus ours, in milliseconds.
    pub clock_skew_ms: i64,
    /// Its own id, by which it is told from another at the same address; none where it tells none that lasts.
    pub identity: Option<String>,
    /// Whether users in its sandboxes are others outside: it runs without root, or gives them a range of their own.
    pub maps_users: bool,
}

/// A disk of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The directory that was asked about.
    pub path: PathBuf,
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Its size.
    pub total_bytes: u64,
}

/// Something may have changed; look for yourself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// This sandbox.
    Sandbox(String),
    /// A process in this sandbox was killed for want of memory.
    Oom(String),
    /// This one was made.
    Made(String),
}

/// An engine. All calls are safe to repeat; none changes an answer on a dropped future: what was sent to the engine
/// happens there.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// Tells what the engine is. Always asks it; looks for it first if it is not known, or no longer there.
    async fn about(&self) -> Result<About, EngineError>;

    /// Makes a sandbox without starting it, and gives its id. One that carries the session's id and this name already
    /// is given back instead.
    async fn create(&self, spec: &CreateSpec) -> Result<Observed, EngineError>;

    /// Starts it, if it does not run.
    async fn start(&self, id: &str) -> Result<(), EngineError>;

    /// Asks the programs in it to end and waits until they have, at most `grace`; gives what is left of that. The
    /// sandbox itself goes on.
    async fn farewell(&self, id: &str, grace: Duration) -> Result<Duration, EngineError>;

    /// TERM, `grace`, KILL. A sandbox that is gone or stopped is fine; a paused one is thawed first.
    async fn stop(&self, id: &str, grace: Duration) -> Result<(), EngineError>;

    /// Freezes it.
    async fn pause(&self, id: &str) -> Result<(), EngineError>;

    /// Thaws it.
    async fn unpause(&self, id: &str) -> Result<(), EngineError>;

    /// Removes it and its anonymous volumes, by force. One that is gone is fine.
    async fn remove(&self, id: &str) -> Result<(), EngineError>;

    /// Gives it another name.
    async fn rename(&self, id: &str, name: &str) -> Result<(), EngineError>;

    /// Looks at one sandbox; none if it is gone. `id` may be a container's name for sandboxes that abx did not make.
    async fn inspect(&self, id: &str) -> Result<Option<Observed>, EngineError>;

    /// All sandboxes with this home's label, whatever their state.
    async fn list(&self, home: &str) -> Result<Vec<Observed>, EngineError>;

    /// What of the sandbox's file system a snapshot would not hold, and the processes that run in it.
    async fn excluded(&self, id: &str) -> Result<Vec<Excluded>, EngineError>;

    /// Bytes that it has written to files of its own: what a snapshot of it takes.
    async fn written_bytes(&self, id: &str) -> Result<u64, EngineError>;

    /// The disk on which the engine keeps sandboxes and images; none where it is not this machine's.
    async fn disk(&self) -> Result<Option<Disk>, EngineError>;

    /// When a volume was made, which tells it from others of its name; none if it is not there.
    async fn volume_made(&self, name: &str) -> Result<Option<String>, EngineError>;

    /// The CPU time that its processes have used since it came up.
    async fn cpu_time(&self, id: &str) -> Result<Duration, EngineError>;

    /// Makes an image of the sandbox's files, without pausing it. If an image with the snapshot's label exists, that
    /// one is given back.
    async fn commit(&self, spec: &CommitSpec) -> Result<Image, EngineError>;

    /// An image by reference or id; none if the engine does not have it.
    async fn image(&self, reference: &str) -> Result<Option<Image>, EngineError>;

    /// All images with this home's snapshot label.
    async fn snapshot_images(&self, home: &str) -> Result<Vec<Image>, EngineError>;

    /// Removes an image that lost its snapshot and waited for a container to go, unless something else needs it. Any other
    /// image stays.
    async fn sweep_image(&self, image_id: &str) -> Result<(), EngineError>;

    /// Removes a snapshot's tag, and its image unless something else needs it. One that is gone is fine.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), EngineError>;

    /// Gives a snapshot's tag, which the image `old` has, to another image. The old one stays until it is swept. When the other
    /// is gone, nothing changes but that the old one may be swept once it loses its tag.
    async fn replace_snapshot(
        &self,
        snapshot: &SnapshotId,
        old: &str,
        image_id: &str,
    ) -> Result<(), EngineError>;

    /// What a sandbox has otherwise than the image that it runs on.
    async fn changes(&self, id: &str) -> Result<Vec<Change>, EngineError>;

    /// All files of a sandbox as a tar stream, without those of its mounts.
    async fn export(&self, id: &str) -> Result<Archive, EngineError>;

    /// Images with all of their layers, in the engine's own form of archive.
    async fn image_archive(&self, ids: &[&str]) -> Result<Archive, EngineError>;

    /// Takes images in from such an archive, under the names that it says.
    async fn load_images(&self, archive: ArchiveSource) -> Result<(), EngineError>;

    /// Pulls an image.
    async fn pull(&self, reference: &str, progress: Progress) -> Result<Image, EngineError>;

    /// Starts a command.
    async fn exec(&self, sandbox_id: &str, spec: &ExecSpec) -> Result<ExecIo, EngineError>;

    /// Sets the size of a command's terminal.
    async fn exec_resize(&self, engine_id: &str, size: WindowSize) -> Result<(), EngineError>;

    /// What became of a command.
    async fn exec_state(&self, engine_id: &str) -> Result<ExecState, EngineError>;

    /// Sends a signal to every process of an exec, found by its [`EXEC_MARK`]. `user` is the user the exec ran as.
    async fn exec_signal(
        &self,
        sandbox_id: &str,
        exec_id: &str,
        user: Option<&str>,
        signal: i32,
    ) -> Result<(), EngineError>;

    /// What the sandbox and its image say of its commands.
    async fn sandbox_defaults(&self, sandbox_id: &str) -> Result<SandboxDefaults, EngineError>;

    /// Looks at an absolute path, in whatever state the sandbox is; none if nothing is there. Links above it are
    /// followed within the sandbox.
    async fn stat_path(&self, sandbox_id: &str, path: &str) -> Result<Option<PathStat>, EngineError>;

    /// Reads what is at an absolute path, and all below it, as a tar stream. Its first entry is named as the path's last
    /// part is, `.` where that is `.`; a link is itself.
    async fn read_archive(&self, sandbox_id: &str, path: &str) -> Result<Archive, EngineError>;

    /// Unpacks a tar stream into a directory that is there. Entries replace what is in their place, but never a
    /// directory by something else nor the other way round; links are not followed out of the sandbox. Engines refuse
    /// links whose text leads out of the directory, so it is best the root.
    async fn write_archive(
        &self,
        sandbox_id: &str,
        directory: &str,
        archive: ArchiveSource,
    ) -> Result<(), EngineError>;

    /// Follows the engine's events until the connection ends.
    async fn hints(&self) -> Result<BoxStream<'static, Result<Hint, EngineError>>, EngineError>;
}
