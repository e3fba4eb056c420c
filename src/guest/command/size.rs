//! Whose size a terminal has: that of the follower who acted last.

use super::super::wire::Size;
use super::Command;

impl Command {
    /// Changes the terminal's size.
    pub(in super::super) fn resize(&mut self, size: Size) {
        let ours = self.outputs[0].from.as_ref();
        if let Some(terminal) = &mut self.terminal {
            terminal.resize(ours, size);
        }
    }

    /// Gives the terminal the size of a follower that does something, if it may.
    pub(in super::super) fn act(&mut self, at: usize) {
        // Who acted last stands last.
        let follower = self.followers.remove(at);
        if let Some(size) = follower.size.filter(|_| follower.writes) {
            self.resize(size);
        }
        self.followers.push(follower);
    }

    /// Lets a follower go. The terminal gets the size of who acted before it, if none has acted since. Who saw nothing of
    /// it came to act, and what it did stays.
    pub(in super::super) fn leave(&mut self, at: usize) {
        let left = self.followers.remove(at);
        let acted_last = left.writes
            && left.wants_output()
            && !self.followers[at..].iter().any(|follower| follower.writes);
        let before = self.followers.iter().rfind(|follower| follower.writes);
        if let Some(size) = before.and_then(|follower| follower.size).filter(|_| acted_last) {
            self.resize(size);
        }
        self.lower();
    }
}
