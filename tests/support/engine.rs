//! A real engine, an image to run on it, and a home whose containers and images go when the test ends.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use abx::engine::address::Settings;
use abx::engine::docker::DockerEngine;
use abx::engine::{
    Chunk, CommitSpec, CreateSpec, Engine, EngineError, ExecIo, ExecSpec, ExecState, Observed, labels,
};
use abx::model::id::{SessionId, SessionName, SnapshotId, Timestamp};
use abx::model::limits::rights;
use abx::model::session::{Profile, Session};
use futures_util::StreamExt;

const IMAGE: &str = "abx-test-busybox:1";

const PROGRAMS_IMAGE: &str = "abx-test-programs:1";

/// Copies programs, their libraries, and what they know of terminals and colours into a tree.
const COPY_PROGRAMS: &str = r#"
    root=$1; shift
    mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/usr/share" "$root/tmp" "$root/root" "$root/etc"
    ln -s usr/bin usr/lib usr/lib64 "$root"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    for program do
        file=$(readlink -f "$(command -v "$program")")
        cp "$file" "$root/usr/bin/$program"
        for library in $(ldd "$file" | grep -o '/[^ )]*' | sort -u); do
            mkdir -p "$root${library%/*}"
            cp -L "$library" "$root$library"
        done
    done
    for place in /lib/terminfo /usr/share/terminfo; do
        for entry in x/xterm-256color s/screen s/screen-256color t/tmux t/tmux-256color; do
            if [ -e "$place/$entry" ]; then
                mkdir -p "$root/usr/share/terminfo/${entry%/*}"
                cp -L "$place/$entry" "$root/usr/share/terminfo/$entry"
            fi
        done
    done
    mkdir -p "$root/usr/lib/locale"
    cp -a /usr/lib/locale/C.* "$root/usr/lib/locale"
    cp -a /usr/share/vim "$root/usr/share"
"#;

/// Programs of the image; each is a link to busybox.
const APPLETS: &str = "sh ls cat sleep stty grep kill tr head tail seq printf echo env id ps dd mkdir touch wc true \
                       false sha256sum setsid test pwd tty rm nohup yes od";

/// The engine of this machine; none, with a word about it, where there is none and nobody insists on it.
///
/// # Panics
/// When there is none although `CI` or `ABX_TEST_ENGINE` say that there must be.
#[expect(clippy::print_stderr, reason = "who runs the tests must see that some did not run")]
pub(crate) async fn engine_or_skip() -> Option<DockerEngine> {
    let engine = engine();
    match engine.about().await {
        Ok(_) => Some(engine),
        Err(error) => {
            let insists = ["CI", "ABX_TEST_ENGINE"]
                .iter()
                .any(|name| abx::paths::variable(name).is_some_and(|value| value == "1" || value == "true"));
            assert!(!insists, "these tests need an engine: {error}");
            eprintln!("skipped: no engine");
            None
        }
    }
}

/// As [`engine_or_skip`], for tests that have no runtime and no use for the engine itself.
///
/// # Panics
/// As there.
pub(crate) fn has_engine() -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(engine_or_skip()).is_some()
}

/// The socket of that engine.
///
/// # Panics
/// When it is reached in another way.
pub(crate) fn engine_socket() -> PathBuf {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let about = runtime.block_on(engine().about()).expect("an engine");
    PathBuf::from(about.address.strip_prefix("unix://").expect("the engine has a socket"))
}

fn engine() -> DockerEngine {
    DockerEngine::new(Settings { docker_host: abx::paths::variable("DOCKER_HOST"), ..Settings::default() })
}

/// Builds the image where it is not there: busybox, a user `dev` and their home. Gives its reference.
pub(crate) fn busybox_image() -> String {
    static ONCE: OnceLock<()> = OnceLock::new();
    let users = "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000:dev:/home/dev:/bin/sh\n";
    let build = |root: &Path| {
        for path in ["bin", "tmp", "etc", "root", "home/dev"] {
            std::fs::create_dir_all(root.join(path)).expect("create");
        }
        std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
        for applet in APPLETS.split_whitespace() {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).expect("link");
        }
        std::fs::write(root.join("etc/passwd"), users).expect("write");
        std::fs::write(root.join("etc/group"), "root:x:0:\ndev:x:1000:\n").expect("write");
    };
    ONCE.get_or_init(|| provide(IMAGE, &stamp(&[APPLETS, users], &["busybox"]), build));
    IMAGE.to_owned()
}

/// Builds an image where it is not there: some of this machine's own programs, and what they need. Gives its reference.
pub(crate) fn programs_image() -> String {
    static ONCE: OnceLock<()> = OnceLock::new();
    let programs =
        ["sh", "env", "mktemp", "cat", "sleep", "head", "tr", "stty", "vim", "less", "htop", "tmux"];
    let build = |root: &Path| {
        let copied =
            Command::new("sh").args(["-euc", COPY_PROGRAMS, "copy"]).arg(root).args(programs).status();
        assert!(copied.expect("sh runs").success(), "vim, less, htop and tmux are installed");
    };
    ONCE.get_or_init(|| provide(PROGRAMS_IMAGE, &stamp(&[COPY_PROGRAMS], &programs), build));
    PROGRAMS_IMAGE.to_owned()
}

/// Tells an image from one that was made of other texts, or of other builds of these programs.
fn stamp(texts: &[&str], programs: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    let path = abx::paths::variable("PATH").unwrap_or_default();
    for program in programs {
        let found = path.split(':').find_map(|dir| Path::new(dir).join(program).metadata().ok());
        found.map(|file| (file.len(), file.mtime())).hash(&mut hasher);
    }
    format!("{:x}", hasher.finish())
}

/// Makes an image of what `build` puts into a directory, unless it is there with this stamp. Many tests want it at once, each
/// a process of its own.
fn provide(name: &str, stamp: &str, build: impl FnOnce(&Path)) {
    let place = std::env::temp_dir().join(format!("{}.lock", name.replace(':', "-")));
    let lock = std::fs::File::create(&place).expect("a lock file");
    lock.lock().expect("locks");
    if docker(&["image", "inspect", "-f", "{{.Comment}}", name]) != stamp {
        let dir = tempfile::tempdir().expect("temporary directory");
        build(dir.path());
        import(dir.path(), name, stamp);
    }
}

/// Makes an image of a tree, in place of the one that had this name.
fn import(root: &Path, name: &str, stamp: &str) {
    let before = docker(&["images", "-q", "--no-trunc", name]);
    let mut tar = Command::new("tar")
        .args(["--owner=0", "--group=0", "--mode=a+rwX", "-C"])
        .arg(root)
        .args(["-cf", "-", "."])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar runs");
    let import = Command::new("docker")
        .args(["import", "-m", stamp, "-c", "CMD [\"/bin/sh\"]", "-c", "ENV PATH=/bin", "-", name])
        .stdin(tar.stdout.take().expect("piped"))
        .stdout(Stdio::null())
        .status()
        .expect("docker runs");
    assert!(tar.wait().expect("tar ends").success() && import.success(), "the test image was not made");
    if !before.is_empty() {
        docker(&["rmi", &before]);
    }
}

/// A home of one test. Dropping it removes its containers and snapshots.
pub(crate) struct TestHome {
    pub(crate) home: String,
    pub(crate) engine: DockerEngine,
}

impl TestHome {
    /// None where there is no engine.
    pub(crate) async fn new() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let engine = engine_or_skip().await?;
        busybox_image();
        let home = format!("/abx-test/{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { home, engine })
    }

    /// What to create for a session of this name, on the test image.
    pub(crate) fn spec(&self, name: &str) -> CreateSpec {
        let name = SessionName::parse(&format!("{name}-{}", self.home.replace('/', "_"))).expect("good");
        let id = SessionId::new(format!("id{}", self.home.replace('/', "_")));
        let session = session(name, id);
        CreateSpec {
            sandbox: session.sandbox.clone(),
            image: IMAGE.to_owned(),
            rights: rights(Profile::Moderate),
            home: self.home.clone(),
            guest: None,
            session,
        }
    }

    /// A running sandbox made from it.
    pub(crate) async fn run(&self, spec: &CreateSpec) -> Observed {
        let made = self.engine.create(spec).await.expect("created");
        self.engine.start(&made.id).await.expect("started");
        made
    }

    pub(crate) fn commit_spec(&self, spec: &CreateSpec, sandbox_id: &str, snapshot: &str) -> CommitSpec {
        CommitSpec {
            sandbox_id: sandbox_id.to_owned(),
            snapshot: SnapshotId::new(format!("{snapshot}{}", self.home.replace('/', "-"))),
            name: snapshot.to_owned(),
            session: spec.session.id.clone(),
            session_name: spec.session.name.to_string(),
            home: self.home.clone(),
            creator: None,
            parent: None,
            note: Some("a note".to_owned()),
            excluded: Vec::new(),
            saves: false,
            patience: std::time::Duration::from_secs(300),
        }
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        let containers =
            docker(&["ps", "-aq", "--filter", &format!("label={}={}", labels::SESSION_HOME, self.home)]);
        for id in containers.split_whitespace() {
            docker(&["rm", "-fv", id]);
        }
        let label = format!("label={}={}", labels::SNAPSHOT_HOME, self.home);
        for id in docker(&["images", "-q", "--filter", &label]).split_whitespace() {
            docker(&["rmi", "-f", id]);
        }
    }
}

/// What `docker ARGS` prints; nothing where it fails.
pub(crate) fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).stderr(Stdio::null()).output().expect("docker runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn session(name: SessionName, id: SessionId) -> Session {
    Session {
        agent: "claude".to_owned(),
        template: "base".to_owned(),
        image: Some(IMAGE.to_owned()),
        ..Session::new(id, name, Timestamp(1_700_000_000_000))
    }
}

/// A command without terminal and input.
pub(crate) fn command(argv: &[&str]) -> ExecSpec {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    ExecSpec {
        exec_id: format!("x-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        cwd: None,
        user: None,
        tty: None,
        stdin: false,
    }
}

/// Everything a command wrote, and what became of it.
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) state: ExecState,
}

/// Runs a command to its end.
pub(crate) async fn run(engine: &DockerEngine, id: &str, spec: &ExecSpec) -> Ran {
    let io = engine.exec(id, spec).await.expect("starts");
    finish(engine, io).await.expect("its output comes to an end")
}

/// Reads a command's output to its end.
pub(crate) async fn finish(engine: &DockerEngine, mut io: ExecIo) -> Result<Ran, EngineError> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(chunk) = io.output.next().await {
        match chunk? {
            Chunk::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            Chunk::Stderr(bytes) => stderr.extend_from_slice(&bytes),
        }
    }
    let mut state = engine.exec_state(&io.engine_id).await?;
    // The engine ends the stream a moment before it notes the code.
    while matches!(state, ExecState::Starting | ExecState::Running) {
        tokio::task::yield_now().await;
        state = engine.exec_state(&io.engine_id).await?;
    }
    Ok(Ran { stdout, stderr, state })
}
