//! Commands that run already: following them, and what abx-init knows of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::command::{Command, Terms, WINDOW, lost};
use super::link::Opened;
use super::stream::{Item, Source};
use super::{Guests, Live};
use crate::engine::{EngineError, ExecIo, WindowSize};
use crate::guest::wire::{self, Entry, Failed, Follow, Following, Kind, Payload, Peek, Screen, Signal, Size};
use crate::model::session::Session;

/// Longest wait for an answer that abx-init gives at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Most bytes of each stream that one look at a command's output gives.
const MAX_LOOK_BYTES: u64 = 1024 * 1024;

/// How to follow a command.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Bytes of standard output that the follower has already.
    pub stdout_from: u64,
    /// The same of standard error.
    pub stderr_from: u64,
    /// Whether its input and its size count.
    pub writes: bool,
    /// Its size, for a terminal.
    pub size: Option<WindowSize>,
    /// Lines of scrollback to paint above the screen.
    pub scrollback: u32,
}

/// A command that is followed.
pub struct Followed {
    /// Its streams.
    pub io: ExecIo,
    /// The command.
    pub command: Command,
    /// Where its standard output begins here.
    pub stdout_from: u64,
    /// Where its standard error begins here.
    pub stderr_from: u64,
}

/// What was kept of a command's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Where each begins.
    pub from: (u64, u64),
    /// How many bytes of each the command had written by then.
    pub written: (u64, u64),
    /// Bytes that are no longer kept.
    pub dropped: u64,
    /// Whether the command has ended and this reaches its end.
    pub ended: bool,
}

impl Guests {
    /// Follows a command that was started before; none when abx-init does not know it.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run, and the engine's.
    pub async fn follow(
        &self,
        session: &Arc<Session>,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Option<Followed>, EngineError> {
        let live = self.live(session).await?.ok_or_else(lost)?;
        let request = request(id, wanted, WINDOW).encode();
        let open = live.link.open(Kind::Follow, &request, WINDOW).ok_or_else(lost)?;
        let Some(following) = following(&open).await? else { return Ok(None) };
        let terms = Terms {
            tty: following.size.is_some(),
            stdin: wanted.writes,
            from: (following.stdout_from, following.stderr_from),
            scrollback: wanted.scrollback,
        };
        let command = Command::new(self, session, &following.id);
        let io = command.streams(open, &terms);
        let (stdout_from, stderr_from) = terms.from;
        Ok(Some(Followed { io, command, stdout_from, stderr_from }))
    }

    /// What abx-init knows of commands, oldest first.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run, and the engine's.
    pub async fn entries(&self, session: &Session) -> Result<Vec<Entry>, EngineError> {
        entries(&*self.live(session).await?.ok_or_else(lost)?).await
    }

    /// What a terminal shows; none when there is no such terminal.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run, and the engine's.
    pub async fn peek(
        &self,
        session: &Session,
        id: &str,
        scrollback: u32,
    ) -> Result<Option<Screen>, EngineError> {
        let live = self.live(session).await?.ok_or_else(lost)?;
        let request = Peek { id: id.to_owned(), scrollback }.encode();
        let open = live.link.open(Kind::Peek, &request, 0).ok_or_else(lost)?;
        match answer(&open).await? {
            (Kind::Screen, payload) => Screen::decode(&payload).map(Some).map_err(|_| malformed(&open)),
            (Kind::Failed, payload) => refusal(&open, &payload).map(|()| None),
            _ => Err(malformed(&open)),
        }
    }

    /// Sends a signal to all that a command started. False when there is nothing that it could reach.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run or is frozen, and the engine's.
    pub async fn signal(&self, session: &Session, id: &str, signal: i32) -> Result<bool, EngineError> {
        self.require_thawed(session)?;
        let live = self.live(session).await?.ok_or_else(lost)?;
        let signal = u8::try_from(signal).unwrap_or_default();
        let request = Signal { id: id.to_owned(), signal, all: true }.encode();
        let open = live.link.open(Kind::Signal, &request, 0).ok_or_else(lost)?;
        match answer(&open).await? {
            (Kind::Done, _) => Ok(true),
            (Kind::Failed, _) => Ok(false),
            _ => Err(malformed(&open)),
        }
    }

    /// What is kept of a command's output from here on; none when abx-init does not know it.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run, and the engine's.
    pub async fn output(
        &self,
        session: &Session,
        id: &str,
        from: (u64, u64),
    ) -> Result<Option<Kept>, EngineError> {
        let live = self.live(session).await?.ok_or_else(lost)?;
        let known = entries(&live).await?;
        let Some(entry) = known.into_iter().find(|entry| entry.id == id) else { return Ok(None) };
        let upto = |written: u64, from: u64| written.min(from.saturating_add(MAX_LOOK_BYTES));
        let wanted = Wanted { stdout_from: from.0, stderr_from: from.1, ..Wanted::default() };
        let most = u32::try_from(2 * MAX_LOOK_BYTES).unwrap_or(WINDOW);
        let open =
            live.link.open(Kind::Follow, &request(id, &wanted, most).encode(), most).ok_or_else(lost)?;
        let Some(at) = following(&open).await? else { return Ok(None) };
        let upto = (upto(entry.stdout, at.stdout_from), upto(entry.stderr, at.stderr_from));
        let mut kept = Kept {
            from: (at.stdout_from, at.stderr_from),
            written: (entry.stdout, entry.stderr),
            dropped: entry.dropped,
            ..Kept::default()
        };
        let read = async {
            while kept.reaches() < upto || entry.ended.is_some() && !kept.ended {
                match open.next().await {
                    Some(Item::Output(source, bytes)) => kept.take(source, &bytes),
                    Some(Item::Answer(Kind::Exited, _)) => kept.ended = true,
                    Some(Item::Answer(..)) => {}
                    None => return Err(lost()),
                }
                if kept.stdout.len() as u64 >= MAX_LOOK_BYTES || kept.stderr.len() as u64 >= MAX_LOOK_BYTES {
                    break;
                }
            }
            Ok(())
        };
        timeout(ANSWER_LIMIT, read).await.map_err(|_| late())??;
        Ok(Some(kept))
    }
}

impl Kept {
    /// Where each stream has come to.
    fn reaches(&self) -> (u64, u64) {
        (self.from.0 + self.stdout.len() as u64, self.from.1 + self.stderr.len() as u64)
    }

    fn take(&mut self, source: Source, bytes: &Bytes) {
        match source {
            Source::Stdout => self.stdout.extend_from_slice(bytes),
            Source::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }
}

/// Asks a connection for all that it knows.
pub(super) async fn entries(live: &Live) -> Result<Vec<Entry>, EngineError> {
    let open = live.link.open(Kind::List, &[], 0).ok_or_else(lost)?;
    let deadline = Instant::now() + ANSWER_LIMIT;
    let mut known = Vec::new();
    loop {
        match timeout_at(deadline, open.next()).await.map_err(|_| late())? {
            Some(Item::Answer(Kind::Entry, payload)) => {
                known.push(Entry::decode(&payload).map_err(|_| malformed(&open))?);
            }
            Some(Item::Answer(Kind::Done, _)) => return Ok(known),
            Some(_) => return Err(malformed(&open)),
            None => return Err(lost()),
        }
    }
}

fn request(id: &str, wanted: &Wanted, window: u32) -> Follow {
    Follow {
        id: id.to_owned(),
        stdout_from: wanted.stdout_from,
        stderr_from: wanted.stderr_from,
        window,
        writes: wanted.writes,
        size: wanted.size.map(|size| Size { cols: size.cols, rows: size.rows }),
        scrollback: wanted.scrollback,
    }
}

/// Where it is followed from; none when it is not known.
async fn following(open: &Opened) -> Result<Option<Following>, EngineError> {
    match answer(open).await? {
        (Kind::Following, payload) => Following::decode(&payload).map(Some).map_err(|_| malformed(open)),
        (Kind::Failed, payload) => refusal(open, &payload).map(|()| None),
        _ => Err(malformed(open)),
    }
}

async fn answer(open: &Opened) -> Result<(Kind, Bytes), EngineError> {
    match timeout(ANSWER_LIMIT, open.next()).await.map_err(|_| late())? {
        Some(Item::Answer(kind, payload)) => Ok((kind, payload)),
        Some(Item::Output(..)) => Err(malformed(open)),
        None => Err(lost()),
    }
}

/// What is not known is no error here.
fn refusal(open: &Opened, payload: &[u8]) -> Result<(), EngineError> {
    let failed = Failed::decode(payload).map_err(|_| malformed(open))?;
    match failed.why {
        wire::Failed::UNKNOWN | wire::Failed::STATE => Ok(()),
        wire::Failed::LIMIT => Err(EngineError::Limit { text: super::command::line(&failed.text) }),
        _ => Err(EngineError::Failed { call: "exec", text: super::command::line(&failed.text) }),
    }
}

fn malformed(open: &Opened) -> EngineError {
    open.link().close();
    EngineError::Failed { call: "exec", text: "abx-init answered something that makes no sense".to_owned() }
}

fn late() -> EngineError {
    EngineError::Timeout { call: "exec", after: ANSWER_LIMIT }
}
