//! Moves bytes between the user's streams and a command in a sandbox: a thread for input, one for what must not wait
//! behind input; output is the caller's.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::cmd::session::quoted;
use super::context::Context;
use super::detach::{Keys, Splitter, Typed};
use super::failure::{Failure, chain};
use super::modes::Tracker;
use super::output::{RawStdin, end_by_broken_pipe, raw_stderr, raw_stdout};
use super::signals::{Control, End, Live, Verdict, Watch};
use super::terminal::RawMode;
use crate::client::{Frame, RawStream, Sender};
use crate::proto::errors::Kind;
use crate::proto::stream::{Exit, Open, Size};

/// Bytes of input read at once: a terminal gives less, a pipe holds as much.
const INPUT_BYTES: usize = 64 * 1024;

/// What to connect with the command.
pub(crate) struct Relay<'a> {
    stream: RawStream,
    watch: Watch,
    again: Again<'a>,
    /// Whether standard input is passed on.
    pub(crate) input: bool,
    /// The size the command's terminal was opened with, if it has one.
    pub(crate) tty: Option<Size>,
    /// Keys that leave.
    pub(crate) keys: Option<Keys>,
    /// Raw mode of the terminal, if it was entered.
    pub(crate) raw: Option<RawMode>,
}

/// How to follow the command when its connection is lost.
struct Again<'a> {
    context: &'a Context,
    open: Open,
    /// Bytes of both outputs that have come.
    seen: (u64, u64),
}

impl<'a> Relay<'a> {
    /// Connects nothing but output yet. `open` is what the stream was opened with.
    pub(crate) fn new(context: &'a Context, stream: RawStream, open: Open, watch: Watch) -> Self {
        let opened = stream.opened();
        let seen = (opened.stdout_from, opened.stderr_from);
        let again = Again { context, open, seen };
        Self { stream, watch, again, input: false, tty: None, keys: None, raw: None }
    }

    /// Runs until the command ends, the user leaves, or a signal ends this process. The terminal is as it was
    /// afterwards.
    ///
    /// # Errors
    /// When the stream breaks, an output cannot be written, or the terminal cannot be made raw.
    pub(crate) fn run(self) -> Result<End, Failure> {
        let Self { mut stream, watch, mut again, input, tty, keys, raw } = self;
        if let Some(raw) = &raw {
            raw.pass_keys().map_err(|error| not_raw(&error))?;
        }
        let verdict = Verdict::default();
        let sender = stream.sender();
        // A file of which a piece may be missing must not look whole: only keys may be lost.
        let follows = stream.opened().durable && (tty.is_some() || !input);
        sender.set_comes_back(follows);
        let (control, queue) = channel();
        let controls = sender.clone();
        thread::spawn(move || send_controls(&controls, &queue));
        watch.begin(Live { tty, verdict: verdict.clone(), sender: sender.clone(), control });
        if input {
            let (sender, verdict) = (sender.clone(), verdict.clone());
            thread::spawn(move || send_input(&sender, keys.as_ref(), &verdict));
        }
        let mut tracker = Tracker::default();
        let tracked = tty.is_some().then_some(&mut tracker);
        let result = pump(&mut stream, tracked, follows.then_some(&mut again), &verdict)
            .map_err(|failure| failure.of_request(again.open.key.as_deref()));
        let end = match (verdict.take(), result) {
            (Some(end), _) => Ok(end),
            (None, result) => result.map(End::Exit),
        };
        if tty.is_some() {
            let mut undo = tracker.undo();
            // What the user is told begins on a line of its own.
            if tracker.mid_line() {
                undo.extend_from_slice(b"\r\n");
            }
            // The terminal may be gone; then there is nothing to undo.
            let _ = raw_stdout().and_then(|mut out| out.write_all(&undo));
        }
        drop(raw);
        sender.hang_up();
        drop(watch);
        end
    }
}

fn pump(
    stream: &mut RawStream,
    mut tracker: Option<&mut Tracker>,
    mut again: Option<&mut Again<'_>>,
    verdict: &Verdict,
) -> Result<Exit, Failure> {
    let open = |error| Failure::local("failed to use the standard streams", &error);
    let mut stdout = raw_stdout().map_err(open)?;
    let mut stderr = raw_stderr().map_err(open)?;
    loop {
        let lost = match stream.next_frame() {
            Ok(Frame::Stdout(bytes)) => {
                if let Some(tracker) = &mut tracker {
                    tracker.watch(bytes);
                }
                if let Some(again) = &mut again {
                    again.seen.0 += bytes.len() as u64;
                }
                if let Err(error) = stdout.write_all(bytes) {
                    if error.kind() == io::ErrorKind::BrokenPipe && tracker.is_none() {
                        end_by_broken_pipe();
                    }
                    return Err(Failure::local("failed to write to standard output", &error));
                }
                continue;
            }
            Ok(Frame::Stderr(bytes)) => {
                if let Some(again) = &mut again {
                    again.seen.1 += bytes.len() as u64;
                }
                // Nobody who reads it, nobody to tell.
                let _ = stderr.write_all(bytes);
                continue;
            }
            Ok(Frame::Exit(exit)) => return Ok(exit),
            Ok(Frame::Error(error)) if error.kind() == Some(Kind::ShuttingDown) => {
                (Failure::from_wire(error, None), true)
            }
            Ok(Frame::Error(error)) => return Err(Failure::from_wire(error, None)),
            Err(error) => (Failure::from(error), false),
        };
        let (failure, stopped) = lost;
        match &mut again {
            Some(again) if !verdict.is_given() => again.follow(stream, failure, stopped, verdict)?,
            _ => return Err(failure),
        }
    }
}

impl Again<'_> {
    /// Follows the command on a new connection, from where this one ended, unless the user leaves before there is one.
    fn follow(
        &mut self,
        stream: &mut RawStream,
        lost: Failure,
        stopped: bool,
        verdict: &Verdict,
    ) -> Result<(), Failure> {
        let open = Open {
            follow: Some(stream.opened().exec.clone()),
            stdout_from: self.seen.0,
            stderr_from: self.seen.1,
            terminal: None,
            key: None,
            ..self.open.clone()
        };
        let Ok(opened) = self.context.open_again(&open, stopped, || !verdict.is_given()) else {
            let command = quoted(&stream.opened().exec);
            return Err(lost.with_hint(format!("abx exec logs {command}")));
        };
        let from = (opened.opened().stdout_from, opened.opened().stderr_from);
        let missing = from.0.saturating_sub(self.seen.0) + from.1.saturating_sub(self.seen.1);
        // A terminal is painted anew instead.
        if missing > 0 && self.open.tty.is_none() {
            self.context.output.note(&format!("abx: {missing} bytes of output are no longer kept"));
        }
        self.seen = from;
        stream.resume(opened);
        Ok(())
    }
}

fn send_controls(sender: &Sender, queue: &Receiver<Control>) {
    for control in queue {
        let sent = match control {
            Control::Resize(size) => sender.resize(size),
            Control::Signal(number) => sender.signal(number),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn send_input(sender: &Sender, keys: Option<&Keys>, verdict: &Verdict) {
    let mut splitter = keys.map(Splitter::new);
    let Ok(mut stdin) = RawStdin::open() else {
        let _ = sender.end_input();
        return;
    };
    let mut buffer = vec![0; INPUT_BYTES];
    loop {
        let Ok(read) = stdin.read(&mut buffer) else { return };
        if read == 0 {
            if let Some(held) = splitter.as_mut().map(Splitter::finish).filter(|h| !h.is_empty()) {
                let _ = sender.input(&held);
            }
            let _ = sender.end_input();
            return;
        }
        let (bytes, leave) = match splitter.as_mut().map(|s| s.feed(&buffer[..read])) {
            None => (None, false),
            Some(Typed::Send(bytes)) => (Some(bytes), false),
            Some(Typed::Leave(bytes)) => (Some(bytes), true),
        };
        let bytes = bytes.as_deref().unwrap_or(&buffer[..read]);
        if leave {
            // Said first: what is typed before leaving must not keep the user where the sandbox does not read.
            verdict.give(End::Detached);
        }
        let sent = if bytes.is_empty() { Ok(()) } else { sender.input(bytes) };
        if leave {
            sender.hang_up();
        }
        if leave || sent.is_err() {
            return;
        }
    }
}

/// The exit code and the last line for the user, where a stream ended by itself or by a signal.
pub(crate) fn exit_code(end: &End) -> u8 {
    match end {
        End::Exit(exit) => u8::try_from(exit.exit_code & 0xff).unwrap_or(u8::MAX),
        End::Detached => 0,
        End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
    }
}

/// Whether both ends of the user's terminal are there.
pub(crate) fn on_terminal() -> bool {
    use std::io::IsTerminal;
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Puts the terminal behind standard input into raw mode, but for the keys that end or stop this process: nothing reads
/// keys before the command runs.
///
/// # Errors
/// When it is no terminal.
pub(crate) fn raw_mode(watch: &Watch) -> Result<RawMode, Failure> {
    let raw = RawMode::enter(io::stdin()).map_err(|error| not_raw(&error))?;
    watch.guard(&raw);
    Ok(raw)
}

fn not_raw(error: &io::Error) -> Failure {
    Failure::refused(format!("failed to set the terminal to raw mode: {}", chain(error).join(": ")))
}
