//! One command, from its start until its record is dropped: what it writes, who follows it, how it ended.

mod size;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::exec::Started;
use super::follower::{Follower, Next, View, kind};
use super::input::{Input, Taken};
use super::link::Link;
use super::poller::{Interest, Key, Poller, Token, Watched};
use super::processes::Family;
use super::ring::Ring;
use super::terminal::{Asker, CROWDED_BYTES, RING_BYTES, Terminal};
use super::wire::{Entry, Exited, Kind, Payload, Run};

/// Read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// What a pipe is made to hold once its writer fills it. Not before: the system counts what all pipes of a user may
/// hold, and most commands write little.
const PIPE_BYTES: usize = 1024 * 1024;

/// Greatest window that a ring holds in full, in bytes.
const MAX_WINDOW: usize = 4 * 1024 * 1024;

/// Most bytes that the system holds of what was written to a terminal and not read yet, and some more.
const MAX_IN_TERMINAL: u64 = 128 * 1024;

/// Arguments that a record keeps, in bytes: it has to fit a frame.
const MAX_ARGV_BYTES: usize = 16 * 1024;

/// One of a command's two outputs.
#[derive(Debug)]
struct Output {
    /// None once it has ended.
    from: Option<Watched>,
    ring: Ring,
    enlarged: bool,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// What is said of it; counts and followers are filled in when it is said.
    pub(super) record: Entry,
    /// Whether it goes on without a follower.
    pub(super) detached: bool,
    /// How long it is held without its follower.
    pub(super) orphan: Duration,
    /// Who follows it.
    pub(super) followers: Vec<Follower>,
    /// What is sent to it.
    pub(super) input: Input,
    /// Its terminal.
    pub(super) terminal: Option<Terminal>,
    /// How its process ended, while its output is still being read.
    pub(super) exited: Option<Exited>,
    /// How many processes had been killed for want of memory when it began.
    pub(super) kills_before: u64,
    /// When it is given up, while nobody follows it after its connection was lost. Until then nothing is dropped.
    pub(super) held_until: Option<Instant>,
    /// Whether it waits for its turn.
    pub(super) queued: bool,
    /// Offset at which a terminal whose program has ended is read no more.
    hangs_up_at: Option<u64>,
    outputs: [Output; 2],
}

/// What came of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// Nothing ever again.
    End,
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is more to send.
    More,
    /// There is nothing to send until something changes.
    Idle,
}

impl Command {
    /// What `run` started.
    pub(super) fn new(key: Key, run: &Run, started: Started, terminal: Option<Terminal>) -> Self {
        let keep = if terminal.is_some() { RING_BYTES } else { run.keep as usize };
        let output = |which: usize, fd: Option<OwnedFd>| Output {
            from: fd.map(|fd| Watched::new(fd, Token::Output(key, which))),
            ring: Ring::new(keep),
            enlarged: terminal.is_some(),
        };
        let [out, err] = started.output;
        Self {
            record: Entry {
                id: run.id.clone(),
                terminal: run.terminal.clone(),
                argv: clipped(&run.argv),
                pid: started.pid,
                started_ms: now_ms(),
                ..Entry::default()
            },
            detached: run.detached,
            orphan: Duration::from_millis(run.orphan_ms.into()),
            followers: Vec::new(),
            input: Input::new(started.input, key),
            outputs: [output(0, out), output(1, err)],
            terminal,
            exited: None,
            kills_before: 0,
            held_until: None,
            queued: false,
            hangs_up_at: None,
        }
    }

    /// What never ran: its record alone.
    pub(super) fn failed(key: Key, run: &Run, code: i32) -> Self {
        let nothing = Started { pid: 0, output: [None, None], input: None };
        let mut command = Self::new(key, run, nothing, None);
        command.exited = Some(Exited { code, ..Exited::default() });
        command
    }

    /// Whether it has ended and all its output is here.
    pub(super) fn has_ended(&self) -> bool {
        self.record.ended.is_some()
    }

    /// What its processes are known by.
    pub(super) fn family(&self) -> Family<'_> {
        Family { id: &self.record.id, leader: self.record.pid, reaped: self.exited.is_some() }
    }

    /// Its record as it is now.
    pub(super) fn entry(&self) -> Entry {
        let [out, err] = &self.outputs;
        Entry {
            stdout: out.ring.end(),
            stderr: err.ring.end(),
            dropped: if self.terminal.is_some() { 0 } else { out.ring.start() + err.ring.start() },
            followers: u32::try_from(self.followers.len()).unwrap_or(u32::MAX),
            size: self.terminal.as_ref().map(Terminal::size),
            ..self.record.clone()
        }
    }

    /// Adds a follower, and makes sure that what may be under way to it is still here should its connection be lost.
    pub(super) fn follow(&mut self, follower: Follower, window: u32) {
        let holds = (window as usize).min(MAX_WINDOW) + READ_BYTES;
        if follower.wants_output() && self.terminal.is_none() && !self.has_ended() {
            self.outputs.iter_mut().for_each(|output| output.ring.raise(holds));
        }
        self.held_until = None;
        self.followers.push(follower);
    }

    /// Where a follower begins who has so many bytes of each output.
    pub(super) fn offsets(&self, has: [u64; 2]) -> [u64; 2] {
        let begin = |which: usize| {
            let ring = &self.outputs[which].ring;
            has[which].clamp(ring.start(), ring.end())
        };
        [begin(0), begin(1)]
    }

    /// Where a follower begins who sees only what comes.
    pub(super) fn ends(&self) -> [u64; 2] {
        [self.outputs[0].ring.end(), self.outputs[1].ring.end()]
    }

    /// The follower on a stream.
    pub(super) fn follower(&mut self, stream: u32) -> Option<&mut Follower> {
        self.followers.iter_mut().find(|follower| follower.stream == stream)
    }

    /// Asks for a fresh screen for a follower; what is written from now on waits for it.
    pub(super) fn paint(&mut self, stream: u32, generation: u32, scrollback: u32) {
        let end = self.outputs[0].ring.end();
        let Some(terminal) = &mut self.terminal else { return };
        if let Some(follower) = self.followers.iter_mut().find(|follower| follower.stream == stream) {
            follower.at[0] = end;
            follower.view = match terminal.redraw(Asker { generation, stream }, scrollback) {
                Some(bytes) => View::painting(bytes),
                None => View::Asked,
            };
        }
    }

    /// Takes the fresh screen that a follower waits for.
    pub(super) fn painted(&mut self, asker: Asker, bytes: Vec<u8>) {
        let start = self.outputs[0].ring.start();
        let Some(follower) = self.follower(asker.stream) else { return };
        if follower.view != View::Asked {
            return;
        }
        if follower.at[0] < start {
            // So much was written meanwhile that the screen no longer leads to what is here.
            self.paint(asker.stream, asker.generation, 0);
        } else {
            follower.view = View::painting(bytes);
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, which: usize) -> Read {
        let protect = self.protected(which);
        let output = &mut self.outputs[which];
        let Some(from) = &output.from else { return Read::End };
        if self.terminal.as_ref().is_some_and(|terminal| !terminal.has_room()) {
            return Read::Nothing;
        }
        let room = output.ring.room(protect, READ_BYTES);
        if room == 0 {
            return Read::Nothing;
        }
        let read = rustix::io::readv(from, &mut output.ring.space(room));
        match read {
            Ok(0) => {}
            Ok(read) => {
                let begin = output.ring.end();
                output.ring.wrote(read);
                if read >= 64 * 1024 && !output.enlarged {
                    output.enlarged = true;
                    // Not allowed is only slower.
                    let _ = rustix::pipe::fcntl_setpipe_size(from, PIPE_BYTES);
                }
                if let Some(terminal) = &mut self.terminal {
                    terminal.feed(output.ring.slices(begin, read));
                }
                return Read::Bytes(read);
            }
            Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
            // A terminal that nobody has open any more says so with an error.
            Err(_) => {}
        }
        output.from = None;
        Read::End
    }

    /// Its process has ended: takes what is in the pipes, and no more, though another process may hold them open. A
    /// terminal tells its own end.
    pub(super) fn drain(&mut self) {
        if self.terminal.is_some() {
            return;
        }
        for which in 0..2 {
            let protect = self.protected(which);
            let output = &mut self.outputs[which];
            let Some(from) = &output.from else { continue };
            let waits = rustix::io::ioctl_fionread(from).unwrap_or(0);
            let until = output.ring.end() + waits;
            if protect.is_some() {
                output.ring.make_room(usize::try_from(waits).unwrap_or(PIPE_BYTES).min(2 * PIPE_BYTES));
            }
            while self.outputs[which].ring.end() < until && matches!(self.read(which), Read::Bytes(_)) {}
            self.outputs[which].from = None;
        }
    }

    /// Stops to read a terminal that does not end though its program has, once what that wrote is here. Whether it is.
    pub(super) fn hang_up(&mut self) -> bool {
        let end = self.outputs[0].ring.end();
        let until = *self.hangs_up_at.get_or_insert(end + MAX_IN_TERMINAL);
        while self.outputs[0].ring.end() < until && matches!(self.read(0), Read::Bytes(_)) {}
        if self.outputs[0].ring.end() < until && self.terminal.as_ref().is_some_and(|t| !t.has_room()) {
            return false;
        }
        self.outputs[0].from = None;
        true
    }

    /// Ends it, once its process has ended and its output is here. Whether it has just ended.
    pub(super) fn finish(&mut self) -> bool {
        let open = self.outputs.iter().any(|output| output.from.is_some());
        let Some(exited) = self.exited.as_ref().filter(|_| !open && !self.has_ended()) else { return false };
        let [out, err] = &mut self.outputs;
        let ended = Exited { stdout: out.ring.end(), stderr: err.ring.end(), ..exited.clone() };
        self.record.ended = Some(ended);
        self.record.ended_ms = now_ms();
        self.held_until = None;
        if let Some(terminal) = &mut self.terminal {
            terminal.end();
        }
        out.ring.shrink();
        err.ring.shrink();
        true
    }

    /// Bytes of memory that its output takes.
    pub(super) fn memory(&self) -> usize {
        self.outputs.iter().map(|output| output.ring.memory()).sum()
    }

    /// Whether it holds more of its output than is to be kept.
    pub(super) fn holds_more(&self) -> bool {
        self.outputs.iter().any(|output| output.ring.is_over())
    }

    /// Drops what was held for those who followed, unless somebody does or may come back.
    pub(super) fn lower(&mut self) {
        if self.followers.is_empty() && self.held_until.is_none() {
            self.outputs.iter_mut().for_each(|output| output.ring.lower());
        }
    }

    /// Drops its output.
    pub(super) fn drop_output(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.ring.clear());
    }

    /// Writes input; gives credit for what was taken.
    pub(super) fn write(&mut self, link: Option<&mut Link>) {
        let taken = self.input.write();
        self.give_credit(&taken, link);
    }

    /// Gives credit for input that was taken.
    pub(super) fn give_credit(&mut self, taken: &[Taken], mut link: Option<&mut Link>) {
        // Whoever sends a file knows by it that nothing of it is lost with the connection.
        let settles = self.terminal.is_none() && self.input.is_empty();
        for &(stream, bytes) in taken {
            let Some(follower) = self.followers.iter_mut().find(|f| f.stream == stream) else { continue };
            if let (Some(bytes), Some(link)) = (follower.taken(bytes, settles), &mut link) {
                link.say(Kind::Credit, stream, &super::wire::Credit { bytes }.encode());
            }
        }
    }

    /// Sends each follower one frame, while the connection takes them, and the end to those who have all else. Those are
    /// returned.
    pub(super) fn turn(&mut self, link: &mut Link, generation: u32) -> (Turn, Vec<u32>) {
        let mut turn = Turn::Idle;
        let mut done = Vec::new();
        for at in 0..self.followers.len() {
            let rings = [&self.outputs[0].ring, &self.outputs[1].ring];
            let follower = &mut self.followers[at];
            if let Some(exited) = self.record.ended.as_ref().filter(|_| follower.is_done(rings)) {
                link.say(Kind::Exited, follower.stream, &exited.encode());
                done.push(follower.stream);
                continue;
            }
            match follower.next(rings, self.terminal.is_some()) {
                Next::Nothing => continue,
                Next::Paint => {
                    let stream = follower.stream;
                    self.paint(stream, generation, 0);
                }
                _ if !link.can_send() => {}
                Next::Output(which, length) => {
                    let pieces = rings[which].slices(follower.at[which], length);
                    link.send(kind(which), follower.stream, pieces);
                    follower.got(which, length);
                }
                Next::Screen(length) => {
                    if let View::Painting(bytes, sent) = &follower.view {
                        let piece = std::io::IoSlice::new(&bytes[*sent..*sent + length]);
                        link.send(Kind::Redraw, follower.stream, [piece, std::io::IoSlice::new(&[])]);
                    }
                    follower.got_screen(length);
                }
            }
            turn = Turn::More;
        }
        self.followers.retain(|follower| !done.contains(&follower.stream));
        (turn, done)
    }

    /// Waits for what can be read and written now. `stalled` is whether the connection takes nothing.
    pub(super) fn settle(&mut self, poller: &Poller, stalled: bool) {
        let crowded = !stalled && self.is_crowded();
        let room = self.terminal.as_ref().is_none_or(Terminal::has_room) && !crowded;
        for which in 0..2 {
            let protect = self.protected(which);
            let output = &mut self.outputs[which];
            if let Some(from) = &mut output.from {
                let read = room && output.ring.room(protect, 1) > 0;
                poller.set(from, Interest { read, write: false });
            }
        }
        self.input.settle(poller);
    }

    /// Whether someone who takes a terminal's bytes is about to fall behind: the connection is slower than the program.
    fn is_crowded(&self) -> bool {
        let end = self.outputs[0].ring.end();
        let late = |f: &Follower| f.view == View::Live && f.has_credit() && end > f.at[0] + CROWDED_BYTES;
        self.terminal.is_some() && self.followers.iter().any(|f| f.wants_output() && late(f))
    }

    /// From where on an output must not be written over. A terminal never waits for those who follow it.
    fn protected(&self, which: usize) -> Option<u64> {
        if self.terminal.is_some() {
            return None;
        }
        if self.held_until.is_some() {
            return Some(0);
        }
        let followers = self.followers.iter().filter(|follower| follower.wants_output());
        followers.map(|follower| follower.at[which].saturating_sub(follower.under_way())).min()
    }
}

/// Of long arguments the first are enough to know a command by.
fn clipped(argv: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut left = MAX_ARGV_BYTES;
    let mut kept = Vec::new();
    for argument in argv {
        if left == 0 {
            break;
        }
        let length = argument.len().min(left);
        kept.push(argument[..length].to_vec());
        left = left.saturating_sub(length + 4);
    }
    kept
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
