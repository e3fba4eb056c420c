//! `abx rpc --stdio`: standard input and output as a connection to abxd, for programs that can only start a process.
//!
//! Bytes are carried both ways and never looked at: the socket tells the framings apart, and what state a connection has
//! (subscriptions, requests under way) belongs to the two at its ends. So one process is one connection: where that ends,
//! this ends, and says why. A second connection in the place of the first would answer nothing that the first was asked,
//! and know none of its subscriptions, without its user hearing of it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{RawStdin, end_by_broken_pipe, raw_stdout};
use crate::client::Pipe;

/// Bytes carried at once: a pipe holds as much.
const CHUNK_BYTES: usize = 64 * 1024;

/// Carries bytes until the connection ends.
///
/// # Errors
/// When no daemon answers, or it goes away before standard input has ended and everything was answered.
pub(crate) fn run(context: &Context) -> Result<u8, Failure> {
    let pipe = Arc::new(context.connector.pipe()?);
    let ended = Arc::new(AtomicBool::new(false));
    let (way, end) = (pipe.clone(), ended.clone());
    // Stays behind where the connection ends first: it may wait for input that never comes.
    thread::spawn(move || carry_input(&way, &end));
    let broken = carry_output(&pipe)?;
    let finished = ended.load(Ordering::Acquire);
    if !pipe.is_served() {
        let what = if finished { "abxd went away; answers may be missing" } else { "abxd went away" };
        let causes = broken.map(|error| error.to_string()).into_iter().collect();
        return Err(Failure::daemon(what, causes).with_hint("abx daemon status"));
    }
    if let Some(error) = broken {
        return Err(Failure::local("abxd broke off the connection", &error).with_hint("abx daemon logs"));
    }
    if !finished {
        // Its last message says why, in the framing that it is spoken to in.
        context.output.note("abx: abxd closed the connection");
    }
    Ok(0)
}

fn carry_input(pipe: &Pipe, ended: &AtomicBool) {
    let Ok(mut stdin) = RawStdin::open() else { return };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let Ok(read) = stdin.read(&mut buffer) else { return };
        if read == 0 {
            ended.store(true, Ordering::Release);
            return pipe.end_input();
        }
        // Where it cannot be sent, the other direction ends, too, and is who tells.
        if pipe.send(&buffer[..read]).is_err() {
            return;
        }
    }
}

/// Gives how the connection was broken off, if it did not just end.
fn carry_output(pipe: &Pipe) -> Result<Option<io::Error>, Failure> {
    let failed = |error| Failure::local("failed to write to standard output", &error);
    let mut stdout = raw_stdout().map_err(failed)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        wait_for_output(pipe).map_err(failed)?;
        let read = match pipe.receive(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(read) => read,
            Err(error) => return Ok(Some(error)),
        };
        if let Err(error) = stdout.write_all(&buffer[..read]) {
            if error.kind() == io::ErrorKind::BrokenPipe {
                end_by_broken_pipe();
            }
            return Err(failed(error));
        }
    }
}

/// Waits until the daemon has sent something. Where meanwhile nobody is left to read it, this process ends as one ends
/// whose reader went away: a subscription may be silent for days.
fn wait_for_output(pipe: &Pipe) -> io::Result<()> {
    let stdout = io::stdout();
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    loop {
        let mut fds =
            [PollFd::new(pipe.as_fd(), PollFlags::POLLIN), PollFd::new(stdout.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if fds[1].revents().is_some_and(|events| events.intersects(gone)) {
            end_by_broken_pipe();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if fds[0].any().unwrap_or_default() {
            return Ok(());
        }
    }
}
