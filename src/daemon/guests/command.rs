//! A command that abx-init runs: its start, its streams as the engine's are, signals, and its end.

mod input;
mod output;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use self::input::Input;
use self::output::Output;
use super::ask::{self, lost};
use super::link::Opened;
use super::stream::Item;
use super::{Guests, Live};
use crate::daemon::exec::TOO_LONG;
use crate::engine::{EngineError, ExecIo, ExecSpec, ExecState, Observed, WindowSize};
use crate::guest::wire::{self, Exited, Failed, Kind, MAX_TO_GUEST, Payload, Run, Size};
use crate::model::exec::code::{KILLED, NOT_EXECUTABLE, NOT_FOUND};
use crate::model::exec::signal;
use crate::model::session::Session;
use crate::model::step::is_frozen;

/// Output that may be on its way to us, in bytes: enough that a command never waits for a credit that is under way.
pub(super) const WINDOW: u32 = 1024 * 1024;

/// How long a command waits for somebody to follow it after the connection was lost, before it is ended. A daemon that
/// was killed is back by then.
const ORPHAN_LIMIT: Duration = Duration::from_secs(60);

/// Lines that terminals keep above their screen.
const SCROLLBACK: u32 = 1000;

/// How often a command is asked for whose connection breaks before it is answered.
const START_TRIES: u32 = 3;

/// Longest line from inside that is shown, in characters.
const MAX_LINE_CHARS: usize = 300;

/// How a command's streams are used.
pub(super) struct Terms {
    /// Whether it is on a terminal.
    pub(super) tty: bool,
    /// Whether it is given input.
    pub(super) stdin: bool,
    /// Where its two outputs begin.
    pub(super) from: (u64, u64),
    /// Lines of scrollback that are painted when it is followed again.
    pub(super) scrollback: u32,
}

/// What became of a start.
pub enum Started {
    /// It runs, or abx-init says why it does not.
    Here(ExecIo, Command),
    /// The engine must run it: there is no connection, or abx-init may not do what it asks.
    ByEngine {
        /// The image's own user, where the container's is another.
        user: Option<String>,
    },
}

/// Why a command was not started.
#[derive(Debug)]
pub struct NotStarted {
    /// The reason.
    pub error: EngineError,
    /// Whether abx-init was asked and did not answer: it may start it all the same.
    pub asked: bool,
}

impl From<EngineError> for NotStarted {
    fn from(error: EngineError) -> Self {
        Self { error, asked: false }
    }
}

/// A command that abx-init was asked for. Dropping it does not end it.
pub struct Command {
    guests: Guests,
    session: Arc<Session>,
    id: String,
    shared: Arc<Shared>,
}

/// What its parts know together.
#[derive(Default)]
struct Shared {
    current: Mutex<Current>,
    /// Wakes the input when the command is followed on, or has ended.
    resumed: AtomicWaker,
    end: Mutex<Option<End>>,
}

#[derive(Default)]
struct Current {
    /// The stream that it is followed on now: a new one after each loss of the connection.
    open: Weak<Opened>,
    /// Whether its input has ended.
    input_ended: bool,
}

/// How it ended.
#[derive(Debug, Clone)]
struct End {
    state: ExecState,
    signal: Option<u8>,
    oom: bool,
    /// Why it never started.
    line: Option<String>,
}

impl Guests {
    /// Starts a command, on the terminal of this name if there is one. One that is `detached` goes on without anybody
    /// who follows it.
    ///
    /// # Errors
    /// `Conflict` when the sandbox takes none in the state that it is in, `Limit`, and the engine's.
    pub async fn start(
        &self,
        session: &Arc<Session>,
        spec: &ExecSpec,
        detached: bool,
        terminal: Option<&str>,
    ) -> Result<Started, NotStarted> {
        self.require_thawed(session)?;
        let Some(live) = self.live(session).await? else {
            let seen = self.look(session).await?;
            return Ok(Started::ByEngine {
                user: seen.and_then(|seen| seen.image_user().map(str::to_owned)),
            });
        };
        let request = request(&live, spec, detached, terminal, self.0.keep).encode();
        if request.len() > MAX_TO_GUEST {
            let text = format!("a command and its environment have at most {MAX_TO_GUEST} bytes");
            return Err(EngineError::Limit { text }.into());
        }
        let user = live.sandbox.image_user().map(str::to_owned);
        let mut asked = false;
        let answer = self.ask(session, live, &request, &mut asked).await;
        let (open, refused) = answer.map_err(|error| NotStarted { error, asked })?;
        let command = Command::new(self, session, &spec.exec_id);
        let terms =
            Terms { tty: spec.tty.is_some(), stdin: spec.stdin, from: (0, 0), scrollback: SCROLLBACK };
        match refused {
            None => Ok(Started::Here(command.streams(open, &terms), command)),
            Some(failed) if failed.why == Failed::NEEDS_ENGINE => Ok(Started::ByEngine { user }),
            Some(failed) => {
                command.shared.end(not_started(failed, spec)?);
                let input = spec.stdin.then(|| Box::pin(tokio::io::sink()) as _);
                let io = ExecIo { engine_id: spec.exec_id.clone(), input, output: stream::empty().boxed() };
                Ok(Started::Here(io, command))
            }
        }
    }

    /// Asks until it is answered, on a new connection where one breaks: abx-init knows the id, and runs it once. Notes
    /// whether it was `asked` at all.
    async fn ask(
        &self,
        session: &Session,
        mut live: Arc<Live>,
        request: &[u8],
        asked: &mut bool,
    ) -> Result<(Opened, Option<Failed>), EngineError> {
        let deadline = ask::deadline();
        for _ in 0..START_TRIES {
            if let Some(open) = live.link.open(Kind::Run, request, WINDOW) {
                *asked = true;
                if let Some(refused) = self.started(&live, &open, deadline).await? {
                    return Ok((open, refused));
                }
            }
            live = self.live(session).await?.ok_or_else(lost)?;
        }
        Err(lost())
    }

    /// Whether it was refused; none when the connection broke.
    async fn started(
        &self,
        live: &Live,
        open: &Opened,
        deadline: Instant,
    ) -> Result<Option<Option<Failed>>, EngineError> {
        match self.0.next(live, open, deadline).await? {
            Some(Item::Answer(Kind::Started, payload)) => {
                if let Ok(started) = wire::Started::decode(&payload) {
                    tracing::debug!(session = %live.session, pid = started.pid, "a command runs");
                    return Ok(Some(None));
                }
            }
            // It was asked for over a connection that broke, and goes on from its beginning here.
            Some(Item::Answer(Kind::Following, payload)) if wire::Following::decode(&payload).is_ok() => {
                return Ok(Some(None));
            }
            Some(Item::Answer(Kind::Failed, payload)) => {
                if let Ok(failed) = Failed::decode(&payload) {
                    return Ok(Some(Some(failed)));
                }
            }
            Some(_) => {}
            None => return Ok(None),
        }
        open.link().refuse();
        Ok(None)
    }

    /// # Errors
    /// `Conflict` while an operation may freeze the sandbox, or has: nothing that is sent to it would be answered.
    pub(super) fn require_thawed(&self, session: &Session) -> Result<(), EngineError> {
        if self.0.store.session_by_id(&session.id).is_some_and(|row| is_frozen(&row)) {
            let text = "the sandbox is paused".to_owned();
            return Err(EngineError::Conflict { call: "exec", text });
        }
        Ok(())
    }
}

impl Command {
    pub(super) fn new(guests: &Guests, session: &Arc<Session>, id: &str) -> Self {
        let (guests, session) = (guests.clone(), Arc::clone(session));
        Self { guests, session, id: id.to_owned(), shared: Arc::default() }
    }

    /// Its streams, in the form of the engine's.
    pub(super) fn streams(&self, open: Opened, terms: &Terms) -> ExecIo {
        let open = Arc::new(open);
        self.shared.follow_on(&open);
        let keys = terms.tty.then(|| self.guests.keys(&self.session.id, &self.id));
        let input = Input::new(Arc::clone(&self.shared), keys);
        let (guests, session) = (self.guests.clone(), Arc::clone(&self.session));
        let output = Output::new(guests, session, &self.id, &self.shared, open, terms);
        ExecIo {
            engine_id: self.id.clone(),
            input: terms.stdin.then(|| Box::pin(input) as _),
            output: stream::unfold(output, |mut output| async { Some((output.next().await?, output)) })
                .boxed(),
        }
    }

    /// What became of it, as far as its output was read.
    pub fn state(&self) -> ExecState {
        self.shared.ended().map_or(ExecState::Running, |end| end.state)
    }

    /// The signal that ended it.
    pub fn ended_by(&self) -> Option<u8> {
        self.shared.ended()?.signal
    }

    /// Whether the kernel ended it for want of memory.
    pub fn is_oom(&self) -> bool {
        self.shared.ended().is_some_and(|end| end.oom)
    }

    /// Why it never started, in a line.
    pub fn refusal(&self) -> Option<String> {
        self.shared.ended()?.line
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, size: WindowSize) {
        if let Some(open) = self.shared.open() {
            open.send(Kind::Resize, &Size { cols: size.cols, rows: size.rows }.encode());
        }
    }

    /// Sends a signal to all that it started. One that has ended is fine.
    ///
    /// # Errors
    /// `Conflict` when the sandbox is frozen, and when it does not answer.
    pub async fn signal(&self, signal: i32) -> Result<(), EngineError> {
        self.guests.signal(&self.session, &self.id, signal).await.map(drop)
    }
}

impl Shared {
    fn follow_on(&self, open: &Arc<Opened>) {
        let mut current = lock(&self.current);
        current.open = Arc::downgrade(open);
        if current.input_ended {
            // The connection before may have been lost with it.
            open.send(Kind::InputEnd, &[]);
        }
        drop(current);
        self.resumed.wake();
    }

    fn open(&self) -> Option<Arc<Opened>> {
        lock(&self.current).open.upgrade()
    }

    fn end_input(&self) {
        let mut current = lock(&self.current);
        current.input_ended = true;
        if let Some(open) = current.open.upgrade() {
            open.send(Kind::InputEnd, &[]);
        }
    }

    fn end(&self, end: End) {
        lock(&self.end).get_or_insert(end);
        self.resumed.wake();
    }

    fn ended(&self) -> Option<End> {
        lock(&self.end).clone()
    }
}

impl End {
    /// What abx-init told.
    fn exited(exited: &Exited) -> Self {
        let signal = Some(exited.signal).filter(|signal| *signal > 0);
        Self { state: ExecState::Exited(exited.code), signal, oom: exited.oom, line: None }
    }

    /// It went with its sandbox.
    fn lost() -> Self {
        let signal = u8::try_from(signal::KILL).ok();
        Self { state: ExecState::Exited(KILLED), signal, oom: false, line: None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request(live: &Live, spec: &ExecSpec, detached: bool, terminal: Option<&str>, keep: u32) -> Run {
    Run {
        id: spec.exec_id.clone(),
        argv: spec.argv.iter().map(|word| word.clone().into_bytes()).collect(),
        env: environment(&live.sandbox, spec),
        cwd: Some(spec.cwd.as_ref().or(live.sandbox.directory.as_ref()).map_or("/", |dir| dir).into()),
        user: spec.user.clone().or_else(|| live.sandbox.image_user().map(str::to_owned)),
        tty: spec.tty.map(|size| Size { cols: size.cols, rows: size.rows }),
        terminal: terminal.unwrap_or_default().to_owned(),
        stdin: spec.stdin,
        detached,
        keep,
        window: WINDOW,
        orphan_ms: u32::try_from(ORPHAN_LIMIT.as_millis()).unwrap_or(u32::MAX),
        scrollback: SCROLLBACK,
    }
}

/// The image's variables, then the command's in their place; the mark by which its processes are found is abx-init's.
/// Another user than the image's has another home.
fn environment(sandbox: &Observed, spec: &ExecSpec) -> Vec<Vec<u8>> {
    let moved = spec.user.as_deref().is_some_and(|user| Some(user) != sandbox.image_user());
    let own = |name: &str| (moved && name == "HOME") || spec.env.iter().any(|(key, _)| key == name);
    let kept = sandbox.env.iter().filter(|line| !own(line.split('=').next().unwrap_or_default())).cloned();
    let added = spec.env.iter().map(|(key, value)| format!("{key}={value}"));
    kept.chain(added).map(String::into_bytes).collect()
}

/// The end of a command that never began.
///
/// # Errors
/// What is no end: `Limit`, and `Conflict` when the sandbox is ending.
fn not_started(failed: Failed, spec: &ExecSpec) -> Result<End, EngineError> {
    let text = line(&failed.text);
    let command = spec.argv.first().map(String::as_str).unwrap_or_default();
    let (code, line) = match failed.why {
        Failed::NOT_FOUND => (NOT_FOUND, format!("{command}: command not found in the sandbox")),
        // An older abx-init has no other word for it.
        Failed::NOT_EXECUTABLE if text.contains(TOO_LONG) => return Err(EngineError::Limit { text }),
        Failed::NOT_EXECUTABLE => {
            let why = "cannot be run in the sandbox: permission denied, or not a program";
            (NOT_EXECUTABLE, format!("{command}: {why}"))
        }
        Failed::NO_DIRECTORY if text.to_ascii_lowercase().contains("no such file") => {
            let dir = spec.cwd.as_deref().unwrap_or("/");
            (NOT_EXECUTABLE, format!("the working directory {dir} does not exist in the sandbox"))
        }
        Failed::NO_DIRECTORY | Failed::NO_USER => (NOT_EXECUTABLE, text),
        Failed::LIMIT => return Err(EngineError::Limit { text }),
        Failed::STOPPING => return Err(EngineError::Conflict { call: "exec", text }),
        _ => return Err(EngineError::Failed { call: "exec", text }),
    };
    Ok(End { state: ExecState::NotStarted(code), signal: None, oom: false, line: Some(line) })
}

/// Text from inside as one line that a terminal can be shown.
pub(super) fn line(text: &str) -> String {
    text.chars().take(MAX_LINE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
