//! What abxd asks for, frame by frame.

use nix::sys::signal::Signal as Posix;

use super::command::Command;
use super::exec;
use super::follower::Follower;
use super::link::Lost;
use super::poller::Key;
use super::processes::{self, Family};
use super::serve::Guest;
use super::table::MAX_RUNNING;
use super::terminal::{Asker, Terminal};
use super::wire::{
    Credit, Failed, Follow, Following, Header, Kind, MAX_NAME_BYTES, NO_STREAM, Payload, Peek, Run, Signal,
    Size, Started, VERSION, Welcome,
};

impl Guest {
    /// Does all that was asked and is here as a whole. What makes no sense ends the connection.
    pub(super) fn take_requests(&mut self) {
        while let Some(link) = self.link.as_mut().filter(|link| !link.is_lost()) {
            let done = match link.next() {
                Ok(None) => return,
                Ok(Some((header, payload))) => self.take(header, payload),
                Err(lost) => Err(lost),
            };
            if done.is_err() {
                self.lose_link();
            }
        }
    }

    fn take(&mut self, header: Header, payload: Vec<u8>) -> Result<(), Lost> {
        let Some(kind) = header.kind else { return Ok(()) };
        let stream = header.stream;
        if kind == Kind::Welcome {
            return self.agree(Welcome::decode(&payload)?);
        }
        if !self.link.as_ref().is_some_and(|link| link.welcome) || stream == NO_STREAM {
            return Err(Lost);
        }
        match kind {
            Kind::Input => self.take_input(stream, payload),
            Kind::InputEnd => self.on(stream, |command, at| {
                // A terminal is there for the next who types.
                if command.terminal.is_none() && command.followers[at].writes {
                    command.input.end();
                }
            }),
            Kind::Credit => {
                let credit = Credit::decode(&payload)?;
                self.on(stream, |command, at| command.followers[at].give(credit.bytes))
            }
            Kind::Resize => {
                let size = Size::decode(&payload)?;
                self.on(stream, |command, at| {
                    command.followers[at].size = Some(size);
                    if command.followers[at].writes {
                        command.act(at);
                    }
                })
            }
            Kind::Leave => {
                let left = self.on(stream, Command::leave);
                self.streams.remove(&stream);
                left
            }
            _ if self.streams.contains_key(&stream) || self.peeks.contains(&stream) => Err(Lost),
            Kind::Run => self.run(stream, Run::decode(&payload)?),
            Kind::Follow => self.follow(stream, &Follow::decode(&payload)?),
            Kind::Signal => self.signal(stream, &Signal::decode(&payload)?),
            Kind::List => self.list(stream),
            Kind::Peek => self.peek(stream, &Peek::decode(&payload)?),
            _ => Err(Lost),
        }
    }

    fn agree(&mut self, welcome: Welcome) -> Result<(), Lost> {
        let link = self.link.as_mut().filter(|link| !link.welcome && welcome.version == VERSION);
        link.ok_or(Lost)?.welcome = true;
        self.tell_the_rest();
        Ok(())
    }

    /// Does something for the follower on a stream. One that is gone has only not heard of it yet.
    fn on(&mut self, stream: u32, action: impl FnOnce(&mut Command, usize)) -> Result<(), Lost> {
        let Some(&key) = self.streams.get(&stream) else { return Ok(()) };
        if let Some(command) = self.table.get(key)
            && let Some(at) = command.followers.iter().position(|f| f.stream == stream)
        {
            action(command, at);
            // An end of the input may be all that was waited for.
            command.write(self.link.as_mut());
        }
        self.touch(key);
        Ok(())
    }

    /// The size of a terminal follows whoever typed last.
    fn take_input(&mut self, stream: u32, bytes: Vec<u8>) -> Result<(), Lost> {
        let mut counted = true;
        let mut swallowed = 0;
        self.on(stream, |command, at| {
            let follower = &mut command.followers[at];
            counted = follower.sent(bytes.len()).is_some();
            if !follower.writes {
                swallowed = bytes.len();
                return;
            }
            command.act(at);
            command.input.push(stream, bytes);
        })?;
        if swallowed > 0 {
            let link = self.link.as_mut();
            if let Some(command) = self.streams.get(&stream).and_then(|&key| self.table.get(key)) {
                command.give_credit(&[(stream, swallowed)], link);
            }
        }
        if counted { Ok(()) } else { Err(Lost) }
    }

    fn refuse(&mut self, stream: u32, why: u8, text: impl Into<String>) -> Result<(), Lost> {
        self.say(Kind::Failed, stream, &Failed::new(why, text.into()).encode());
        Ok(())
    }

    fn run(&mut self, stream: u32, run: Run) -> Result<(), Lost> {
        if self.table.with_id(&run.id).is_some() {
            return self.run_again(stream, &run);
        }
        if self.stop.is_some() {
            return self.refuse(stream, Failed::STOPPING, "the sandbox is being stopped");
        }
        if self.table.running() >= MAX_RUNNING {
            return self.refuse(stream, Failed::LIMIT, format!("{MAX_RUNNING} commands are running already"));
        }
        if run.id.len() > MAX_NAME_BYTES || run.terminal.len() > MAX_NAME_BYTES {
            let text =
                format!("the id of a command and the name of a terminal have at most {MAX_NAME_BYTES} bytes");
            return self.refuse(stream, Failed::LIMIT, text);
        }
        let named = self.table.find(&run.terminal);
        if named.is_some_and(|key| self.table.get(key).is_some_and(|command| !command.has_ended())) {
            let text = format!("there is a terminal {:?} already", run.terminal);
            return self.refuse(stream, Failed::STATE, text);
        }
        let (key, pid) = match self.start(&run) {
            Ok(started) => started,
            Err(failed) => return self.refuse(stream, failed.why, failed.text),
        };
        self.say(Kind::Started, stream, &Started { pid }.encode());
        if let Some(command) = self.table.get(key) {
            let mut follower = Follower::new(stream, run.window, [0, 0]);
            follower.size = run.tty;
            command.follow(follower, run.window);
            self.streams.insert(stream, key);
        }
        self.touch(key);
        Ok(())
    }

    /// Starts a command and takes it into the table.
    pub(super) fn start(&mut self, run: &Run) -> Result<(Key, u32), Failed> {
        let kills_before = self.oom.so_far();
        let started = exec::start(run, &self.rights, self.tools.as_deref())?;
        let pid = started.pid;
        self.childless = false;
        let terminal = run.tty.map(|size| Terminal::new(size, run.scrollback, self.waker()));
        let key = self.table.key();
        let mut command = Command::new(key, run, started, terminal);
        command.kills_before = kills_before;
        self.table.insert(key, command);
        self.watch_oom();
        self.touch(key);
        Ok((key, pid))
    }

    /// The same command is not started twice: whoever asks again follows it from its beginning.
    fn run_again(&mut self, stream: u32, run: &Run) -> Result<(), Lost> {
        let follow = Follow {
            id: run.id.clone(),
            window: run.window,
            writes: true,
            size: run.tty,
            scrollback: run.scrollback,
            ..Follow::default()
        };
        self.follow(stream, &follow)
    }

    fn follow(&mut self, stream: u32, follow: &Follow) -> Result<(), Lost> {
        let generation = self.generation;
        let Some(key) = self.table.find(&follow.id) else { return self.unknown(stream, &follow.id) };
        let Some(command) = self.table.get(key) else { return Err(Lost) };
        if follow.writes && !command.input.has_room() {
            return self.refuse(stream, Failed::LIMIT, "too much input waits for the command");
        }
        let is_terminal = command.terminal.is_some();
        let at = match is_terminal {
            true => command.ends(),
            false => command.offsets([follow.stdout_from, follow.stderr_from]),
        };
        let mut follower = Follower::new(stream, follow.window, at);
        follower.writes = follow.writes;
        follower.size = follow.size;
        if let Some(size) = follow.size.filter(|_| follow.writes) {
            command.resize(size);
        }
        let following = Following {
            id: command.record.id.clone(),
            stdout_from: at[0],
            stderr_from: at[1],
            size: command.terminal.as_ref().map(Terminal::size),
        };
        let paints = is_terminal && follower.wants_output();
        command.follow(follower, follow.window);
        if paints {
            command.paint(stream, generation, follow.scrollback);
        }
        self.streams.insert(stream, key);
        self.say(Kind::Following, stream, &following.encode());
        self.touch(key);
        self.take_answers(key);
        Ok(())
    }

    fn unknown(&mut self, stream: u32, id: &str) -> Result<(), Lost> {
        self.refuse(stream, Failed::UNKNOWN, format!("no command or terminal {id:?} is known"))
    }

    fn signal(&mut self, stream: u32, request: &Signal) -> Result<(), Lost> {
        let Ok(signal) = Posix::try_from(i32::from(request.signal)) else {
            return self.refuse(stream, Failed::STATE, format!("there is no signal {}", request.signal));
        };
        let command = self.table.find(&request.id).and_then(|key| self.table.get(key));
        let known = command.as_ref().map(|command| command.exited.is_some());
        // Also where the command has ended, and its record is dropped: what it left behind is still its own.
        let dropped = Family { id: &request.id, leader: 0, reaped: true };
        let family = command.as_ref().map_or(dropped, |command| command.family());
        let reached = processes::signal_all(family, signal);
        match known {
            None if !reached => return self.unknown(stream, &request.id),
            Some(true) if !reached => return self.refuse(stream, Failed::STATE, "the command has ended"),
            _ => {}
        }
        self.say(Kind::Done, stream, &[]);
        Ok(())
    }

    fn list(&mut self, stream: u32) -> Result<(), Lost> {
        for key in self.table.keys() {
            if let Some(entry) = self.table.get(key).map(|command| command.entry()) {
                self.say(Kind::Entry, stream, &entry.encode());
            }
        }
        self.say(Kind::Done, stream, &[]);
        Ok(())
    }

    fn peek(&mut self, stream: u32, peek: &Peek) -> Result<(), Lost> {
        let asker = Asker { generation: self.generation, stream };
        let Some(key) = self.table.find(&peek.id) else { return self.unknown(stream, &peek.id) };
        let Some(terminal) = self.table.get(key).and_then(|command| command.terminal.as_mut()) else {
            return self.refuse(stream, Failed::STATE, format!("{:?} is not a terminal", peek.id));
        };
        let known = terminal.peek(asker, peek.scrollback);
        self.peeks.insert(stream);
        match known {
            Some(shown) => self.pass_answer(key, shown),
            None => self.take_answers(key),
        }
        Ok(())
    }
}
