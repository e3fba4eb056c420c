//! Commands that run already: following them, and what abx-init knows of them.

use std::sync::Arc;

use bytes::Bytes;

use super::ask::{self, lost, malformed};
use super::command::{Command, Terms, WINDOW};
use super::link::Opened;
use super::stream::{Item, Source};
use super::{Guests, Inner, Live};
use crate::engine::{EngineError, ExecIo, WindowSize};
use crate::guest::wire::{self, Entry, Failed, Follow, Following, Kind, Payload, Peek, Screen, Signal, Size};
use crate::model::session::Session;

/// Most bytes of each stream that one look at a command's output gives.
const MAX_LOOK_BYTES: u64 = 1024 * 1024;

/// Most commands that one sandbox is believed to know: abx-init runs at most 1024 at once, and keeps 256 that ended.
const MAX_ENTRIES: usize = 2048;

/// Most bytes of all that it says of them: 16 KiB for each where there are many.
const MAX_ENTRIES_BYTES: usize = 32 * 1024 * 1024;

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
        let Some(following) = self.0.following(&live, &open).await? else { return Ok(None) };
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
        self.0.entries(&*self.live(session).await?.ok_or_else(lost)?).await
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
        match self.0.answer(&live, &open).await? {
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
        let request = Signal { id: id.to_owned(), signal }.encode();
        let open = live.link.open(Kind::Signal, &request, 0).ok_or_else(lost)?;
        match self.0.answer(&live, &open).await? {
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
        let known = self.0.entries(&live).await?;
        let Some(entry) = known.into_iter().find(|entry| entry.id == id) else { return Ok(None) };
        let upto = |written: u64, from: u64| written.min(from.saturating_add(MAX_LOOK_BYTES));
        let wanted = Wanted { stdout_from: from.0, stderr_from: from.1, ..Wanted::default() };
        let most = u32::try_from(2 * MAX_LOOK_BYTES).unwrap_or(WINDOW);
        let open =
            live.link.open(Kind::Follow, &request(id, &wanted, most).encode(), most).ok_or_else(lost)?;
        let Some(at) = self.0.following(&live, &open).await? else { return Ok(None) };
        let upto = (upto(entry.stdout, at.stdout_from), upto(entry.stderr, at.stderr_from));
        let mut kept = Kept {
            from: (at.stdout_from, at.stderr_from),
            written: (entry.stdout, entry.stderr),
            dropped: entry.dropped,
            ..Kept::default()
        };
        let deadline = ask::deadline();
        while !kept.reaches(upto) || entry.ended.is_some() && !kept.ended {
            match self.0.next(&live, &open, deadline).await? {
                Some(Item::Output(source, bytes)) => kept.take(source, &bytes),
                Some(Item::Answer(Kind::Exited, _)) => kept.ended = true,
                Some(Item::Answer(..)) => {}
                None => return Err(lost()),
            }
            if kept.stdout.len() as u64 >= MAX_LOOK_BYTES || kept.stderr.len() as u64 >= MAX_LOOK_BYTES {
                break;
            }
        }
        Ok(Some(kept))
    }
}

impl Kept {
    /// Whether both streams have come so far.
    fn reaches(&self, (stdout, stderr): (u64, u64)) -> bool {
        self.from.0 + self.stdout.len() as u64 >= stdout && self.from.1 + self.stderr.len() as u64 >= stderr
    }

    fn take(&mut self, source: Source, bytes: &Bytes) {
        match source {
            Source::Stdout => self.stdout.extend_from_slice(bytes),
            Source::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }
}

impl Inner {
    /// Asks a connection for all that it knows.
    pub(super) async fn entries(&self, live: &Live) -> Result<Vec<Entry>, EngineError> {
        let open = live.link.open(Kind::List, &[], 0).ok_or_else(lost)?;
        let deadline = ask::deadline();
        let (mut known, mut bytes) = (Vec::new(), 0);
        loop {
            match self.next(live, &open, deadline).await? {
                Some(Item::Answer(Kind::Entry, payload)) => {
                    bytes += payload.len();
                    if known.len() == MAX_ENTRIES || bytes > MAX_ENTRIES_BYTES {
                        return Err(malformed(&open));
                    }
                    known.push(Entry::decode(&payload).map_err(|_| malformed(&open))?);
                }
                Some(Item::Answer(Kind::Done, _)) => return Ok(known),
                Some(_) => return Err(malformed(&open)),
                None => return Err(lost()),
            }
        }
    }

    /// Where it is followed from; none when it is not known.
    pub(super) async fn following(
        &self,
        live: &Live,
        open: &Opened,
    ) -> Result<Option<Following>, EngineError> {
        match self.answer(live, open).await? {
            (Kind::Following, payload) => Following::decode(&payload).map(Some).map_err(|_| malformed(open)),
            (Kind::Failed, payload) => refusal(open, &payload).map(|()| None),
            _ => Err(malformed(open)),
        }
    }
}

pub(super) fn request(id: &str, wanted: &Wanted, window: u32) -> Follow {
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

/// What is not known is no error here.
fn refusal(open: &Opened, payload: &[u8]) -> Result<(), EngineError> {
    let failed = Failed::decode(payload).map_err(|_| malformed(open))?;
    match failed.why {
        wire::Failed::UNKNOWN | wire::Failed::STATE => Ok(()),
        wire::Failed::LIMIT => Err(EngineError::Limit { text: super::command::line(&failed.text) }),
        _ => Err(EngineError::Failed { call: "exec", text: super::command::line(&failed.text) }),
    }
}
