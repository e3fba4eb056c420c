//! The connection to abxd: made, spoken on, and lost without the commands.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::super::link::Link;
use super::super::timers::Timer;
use super::super::wire::{Hello, Kind, NO_STREAM, Payload, VERSION};
use super::Guest;

impl Guest {
    /// Speaks on a connection that was just made.
    pub(super) fn greet(&mut self, socket: OwnedFd) {
        let mut link = Link::new(socket);
        self.generation = self.generation.wrapping_add(1);
        let hello = Hello {
            oldest: VERSION,
            newest: VERSION,
            build: super::super::start::BUILD.to_owned(),
            uid: self.rights.uid,
        };
        link.say(Kind::Hello, NO_STREAM, &hello.encode());
        link.settle(&self.poller);
        self.link = Some(link);
    }

    /// Waits for what the connection can do next, or ends it.
    pub(super) fn see_to_link(&mut self) {
        match &mut self.link {
            Some(link) if !link.is_lost() => link.settle(&self.poller),
            Some(_) => self.lose_link(),
            None => {}
        }
    }

    /// Ends the connection and nothing else: those who followed are gone, and what must not go on without them is held.
    pub(in super::super) fn lose_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        self.dialer.lost(link.welcome);
        self.streams.clear();
        self.peeks.clear();
        let now = Instant::now();
        for key in self.table.keys() {
            let Some(command) = self.table.get(key).filter(|c| !c.followers.is_empty()) else { continue };
            command.followers.clear();
            if !command.detached && !command.has_ended() {
                let until = now + command.orphan;
                command.held_until = Some(until);
                self.timers.add(until, Timer::Orphan(key));
            }
            self.touch(key);
        }
    }
}
