//! The loop of PID 1: one thread, which never blocks but to wait for whatever comes next.

mod connection;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::EventfdFlags;

use super::command::{Read, Turn};
use super::dial::Dialer;
use super::exec::Rights;
use super::link::Link;
use super::notices::Mailbox;
use super::oom::OomCount;
use super::poller::{Interest, Key, Poller, Token, Watched};
use super::processes;
use super::reap::{Reaped, Signals, reap};
use super::stop::Stop;
use super::table::Table;
use super::terminal::{Asker, News, Shown};
use super::timers::{Timer, Timers};
use super::wire::{Failed, Kind, NO_STREAM, Notice, Payload};

/// How long a command that was asked to end has for it.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// How long what was sent last is held, should its connection be lost before it has arrived: as long as a follower has to
/// come back.
const ARRIVES: Duration = Duration::from_secs(60);

/// How long a terminal may stay open after its program has ended.
const HANG_UP_AFTER: Duration = Duration::from_millis(200);

/// How often it is looked whether the kernel killed a process of a command that goes on.
const OOM_EVERY: Duration = Duration::from_secs(2);

/// All that PID 1 knows.
pub(super) struct Guest {
    pub(super) poller: Poller,
    pub(super) rights: Rights,
    pub(super) table: Table,
    pub(super) link: Option<Link>,
    /// Counts connections.
    pub(super) generation: u32,
    /// Which command each stream of the connection follows.
    pub(super) streams: HashMap<u32, Key>,
    /// Streams that wait for a screen's text.
    pub(super) peeks: HashSet<u32>,
    pub(super) oom: OomCount,
    pub(super) timers: Timers,
    pub(super) stop: Option<Stop>,
    /// Where programs of the sandbox say what they are doing.
    pub(super) mailbox: Mailbox,
    /// What is found by programs of the sandbox when they look for `abx`.
    pub(super) tools: Option<PathBuf>,
    /// Whether there is no child at all.
    pub(super) childless: bool,
    dialer: Dialer,
    signals: Signals,
    /// Written to when a screen has an answer.
    screens: Watched,
    /// Whether the connection has taken nothing for long.
    stalled: bool,
    oom_watched: bool,
    /// Commands that something changed for.
    ready: VecDeque<Key>,
}

impl Guest {
    /// Everything but a command.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn new(
        poller: Poller,
        rights: Rights,
        dialer: Dialer,
        mailbox: Mailbox,
        signals: Signals,
    ) -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut screens = Watched::new(eventfd, Token::Screens);
        poller.set(&mut screens, Interest { read: true, write: false });
        Ok(Self {
            poller,
            rights,
            table: Table::default(),
            link: None,
            generation: 0,
            streams: HashMap::new(),
            peeks: HashSet::new(),
            oom: OomCount::new(),
            timers: Timers::default(),
            stop: None,
            mailbox,
            tools: super::notify::tools(),
            childless: true,
            dialer,
            signals,
            screens,
            stalled: false,
            oom_watched: false,
            ready: VecDeque::new(),
        })
    }

    /// Serves until it was asked to end and everything has.
    ///
    /// # Errors
    /// When the system has no descriptor left at the start.
    pub(super) fn serve(mut self) -> io::Result<ExitCode> {
        let mut signals = Watched::new(self.signals.descriptor()?, Token::Signals);
        self.poller.set(&mut signals, Interest { read: true, write: false });
        loop {
            let timeout = self.timeout();
            for token in self.poller.wait(timeout) {
                self.see_to(token);
            }
            self.pass_time();
            self.take_requests();
            self.take_turns();
            self.see_to_link();
            if self.may_leave() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Lets a command have its turn: something changed.
    pub(super) fn touch(&mut self, key: Key) {
        if let Some(command) = self.table.get(key).filter(|command| !command.queued) {
            command.queued = true;
            self.ready.push_back(key);
        }
    }

    /// A descriptor for a screen to write to.
    pub(super) fn waker(&self) -> io::Result<OwnedFd> {
        self.screens.as_fd().try_clone_to_owned()
    }

    /// Says something, if there is someone to say it to.
    pub(super) fn say(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        if let Some(link) = self.link.as_mut().filter(|link| link.welcome) {
            link.say(kind, stream, payload);
        }
    }

    /// Whether all that can be sent was sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.ready.is_empty() && self.link.as_ref().is_none_or(Link::is_flushed)
    }

    /// Looks often enough for kills, while there is something to be killed.
    pub(super) fn watch_oom(&mut self) {
        if !self.oom_watched && self.oom.is_known() {
            self.oom_watched = true;
            self.timers.add(Instant::now() + OOM_EVERY, Timer::Oom);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let stalls = self.link.as_ref().and_then(Link::stalls_at).filter(|_| !self.stalled);
        let due = self.dialer.due().filter(|_| self.link.is_none());
        let next = [self.timers.next(), due, stalls].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(now))
    }

    fn see_to(&mut self, token: Token) {
        match token {
            Token::Link => {
                if let Some(link) = &mut self.link {
                    link.flush();
                    link.fill();
                }
                self.tell_the_rest();
            }
            Token::Signals => {
                while let Some(signal) = self.signals.next() {
                    self.take_signal(signal);
                }
            }
            Token::Directory => self.dialer.directory_changed(),
            Token::Notices => self.take_notices(),
            Token::Listener => {
                if let Some(socket) = self.dialer.accept() {
                    self.lose_link();
                    self.greet(socket);
                }
            }
            Token::Screens => {
                let mut count = [0; 8];
                // Only to be woken again by what comes from now on.
                let _ = rustix::io::read(&self.screens, &mut count);
                for key in self.table.keys() {
                    self.take_answers(key);
                }
            }
            Token::Output(key, which) => self.read(key, which),
            Token::Input(key) => {
                if let Some(command) = self.table.get(key) {
                    command.write(self.link.as_mut());
                }
                self.touch(key);
            }
        }
    }

    fn take_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => self.reap(),
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGPWR => self.begin_to_stop(),
            other => self.pass_on(other),
        }
    }

    /// Takes all children that have ended.
    pub(super) fn reap(&mut self) {
        loop {
            let (pid, mut exited) = match reap() {
                Reaped::Ended(pid, exited) => (pid, exited),
                Reaped::NoneYet => return,
                Reaped::NoneLeft => {
                    self.childless = true;
                    return;
                }
            };
            let killed = exited.code == 137;
            if killed {
                self.tell_kills();
            }
            let Some(key) = self.table.take_process(pid) else { continue };
            let Some(command) = self.table.get(key) else { continue };
            exited.oom = killed && self.oom.claim(command.kills_before);
            command.exited = Some(exited);
            command.drain();
            let taken = command.input.close();
            command.give_credit(&taken, self.link.as_mut());
            if command.terminal.is_some() {
                self.timers.add(Instant::now() + HANG_UP_AFTER, Timer::HangUp(key));
            }
            self.touch(key);
        }
    }

    fn tell_kills(&mut self) {
        let kills = self.oom.news();
        if kills > 0 {
            self.say(Kind::Oom, NO_STREAM, &super::wire::Oom { kills }.encode());
        }
    }

    fn read(&mut self, key: Key, which: usize) {
        let Some(command) = self.table.get(key) else { return };
        let read = command.read(which);
        let (mut news, mut look) = (None, None);
        if let Some(terminal) = command.terminal.as_mut().filter(|_| matches!(read, Read::Bytes(_))) {
            let now = Instant::now();
            (news, look) = (Some(terminal.wrote(now)), terminal.looks_at(now));
        }
        self.touch(key);
        if let Some(at) = look {
            self.timers.add(at, Timer::Look(key));
        }
        match news {
            Some(News::Now) => self.tell_active(key),
            Some(News::At(at)) => self.timers.add(at, Timer::Active(key)),
            Some(News::Known) | None => {}
        }
    }

    fn tell_active(&mut self, key: Key) {
        // One that takes nothing is told a second later.
        let hears = self.link.as_ref().is_some_and(Link::hears);
        if let Some(id) = self.table.get(key).filter(|_| hears).map(|command| command.record.id.clone()) {
            self.say(Kind::Active, NO_STREAM, id.as_bytes());
        }
    }

    pub(super) fn take_answers(&mut self, key: Key) {
        let Some(command) = self.table.get(key) else { return };
        let Some(terminal) = &mut command.terminal else { return };
        terminal.answers().into_iter().for_each(|shown| self.pass_answer(key, shown));
        self.touch(key);
    }

    /// Gives a screen's answer to who asked, if that connection is still there.
    pub(super) fn pass_answer(&mut self, key: Key, shown: Shown) {
        match shown {
            Shown::Painted(asker, bytes) if asker.generation == self.generation => {
                if let Some(command) = self.table.get(key) {
                    command.painted(asker, bytes);
                }
            }
            Shown::Peeked(asker, screen) if asker.generation == self.generation => self.show(asker, screen),
            Shown::Heard(notice) => {
                let exec = self.table.get(key).map(|command| command.record.id.clone()).unwrap_or_default();
                self.tell(Notice { exec, ..notice });
            }
            Shown::Painted(..) | Shown::Peeked(..) => {}
        }
    }

    fn show(&mut self, asker: Asker, screen: Option<super::wire::Screen>) {
        if !self.peeks.remove(&asker.stream) {
            return;
        }
        match screen {
            Some(screen) => {
                let screen = super::terminal::with_scrollback(screen, u32::MAX);
                self.say(Kind::Screen, asker.stream, &screen.encode());
            }
            None => {
                let text = "the sandbox had no room to keep this terminal's screen".to_owned();
                self.say(Kind::Failed, asker.stream, &Failed { why: Failed::LIMIT, text }.encode());
            }
        }
    }

    fn pass_time(&mut self) {
        let now = Instant::now();
        if self.link.is_none()
            && self.dialer.due().is_some_and(|due| due <= now)
            && let Some(socket) = self.dialer.call()
        {
            self.greet(socket);
        }
        while let Some((at, timer)) = self.timers.due(now) {
            self.ring(at, timer);
        }
        let stalled = self.link.as_ref().is_some_and(|link| link.is_stalled(now));
        if stalled != self.stalled {
            self.stalled = stalled;
            self.table.keys().into_iter().for_each(|key| self.touch(key));
        }
    }

    fn ring(&mut self, at: Instant, timer: Timer) {
        match timer {
            Timer::Orphan(key) => {
                let Some(command) = self.table.get(key).filter(|c| c.held_until == Some(at)) else { return };
                command.held_until = None;
                processes::signal_all(command.family(), Signal::SIGTERM);
                self.timers.add(at + TERM_GRACE, Timer::Kill(key));
                self.touch(key);
            }
            Timer::Kill(key) => {
                let Some(command) = self.table.get(key) else { return };
                processes::signal_all(command.family(), Signal::SIGKILL);
            }
            Timer::HangUp(key) => {
                if self.table.get(key).is_some_and(|command| !command.hang_up()) {
                    self.timers.add(at + HANG_UP_AFTER, Timer::HangUp(key));
                }
                self.touch(key);
            }
            Timer::Oom => {
                self.oom_watched = false;
                self.tell_kills();
                if self.table.running() > 0 {
                    self.watch_oom();
                }
            }
            Timer::Lower(key) => {
                if let Some(command) = self.table.get(key) {
                    command.lower();
                }
            }
            Timer::Look(key) => {
                if let Some(terminal) = self.table.get(key).and_then(|command| command.terminal.as_mut()) {
                    terminal.look();
                }
            }
            Timer::Active(key) => {
                let terminal = self.table.get(key).and_then(|command| command.terminal.as_mut());
                if terminal.is_some_and(|terminal| terminal.is_due(at)) {
                    self.tell_active(key);
                }
            }
            Timer::Leave => {}
        }
    }

    /// Sends what can be sent: one frame of each in turn, until the connection takes no more or there is none.
    fn take_turns(&mut self) {
        let mut waiting = VecDeque::new();
        while let Some(key) = self.ready.pop_front() {
            let Some(command) = self.table.get(key) else { continue };
            command.queued = false;
            let ended = command.finish();
            let entry = ended.then(|| command.entry());
            let more = match self.link.as_mut().filter(|link| link.welcome) {
                Some(link) => {
                    let (turn, done) = command.turn(link, self.generation);
                    if !done.is_empty() && command.holds_more() {
                        self.timers.add(Instant::now() + ARRIVES, Timer::Lower(key));
                    }
                    for stream in done {
                        self.streams.remove(&stream);
                    }
                    turn == Turn::More
                }
                None => false,
            };
            command.settle(&self.poller, self.stalled);
            if let Some(entry) = entry {
                self.table.ended(key);
                self.say(Kind::Ended, NO_STREAM, &entry.encode());
                self.take_answers(key);
            }
            if more {
                let Some(command) = self.table.get(key) else { continue };
                command.queued = true;
                let sends = self.link.as_ref().is_some_and(Link::can_send);
                if sends { &mut self.ready } else { &mut waiting }.push_back(key);
            }
        }
        self.ready = waiting;
    }
}
