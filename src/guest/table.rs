//! The commands that are known: those that run, and the last of those that have ended.

use std::collections::{HashMap, VecDeque};

use super::command::Command;
use super::poller::Key;

/// Commands that may run at once. Each has up to three descriptors and a ring.
pub(super) const MAX_RUNNING: usize = 1024;

/// Ended commands whose records are kept.
const MAX_ENDED: usize = 256;

/// Output of ended commands that is kept in all, in bytes.
const MAX_ENDED_BYTES: usize = 64 * 1024 * 1024;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    commands: HashMap<Key, Command>,
    by_id: HashMap<String, Key>,
    by_pid: HashMap<u32, Key>,
    /// Oldest first.
    ended: VecDeque<Key>,
    next: Key,
}

impl Table {
    /// A key for one more command.
    pub(super) fn key(&mut self) -> Key {
        self.next += 1;
        self.next
    }

    /// Adds a command.
    pub(super) fn insert(&mut self, key: Key, command: Command) {
        self.by_id.insert(command.record.id.clone(), key);
        if command.record.pid > 0 {
            self.by_pid.insert(command.record.pid, key);
        }
        self.commands.insert(key, command);
    }

    /// The command with this key.
    pub(super) fn get(&mut self, key: Key) -> Option<&mut Command> {
        self.commands.get_mut(&key)
    }

    /// The command with this id, or whose terminal has this name: the one that runs, or else the newest.
    pub(super) fn find(&self, id: &str) -> Option<Key> {
        self.by_id.get(id).copied().or_else(|| {
            let named = self.commands.iter().filter(|(_, c)| !id.is_empty() && c.record.terminal == id);
            named.max_by_key(|(key, c)| (!c.has_ended(), **key)).map(|(key, _)| *key)
        })
    }

    /// The command with this id alone.
    pub(super) fn with_id(&self, id: &str) -> Option<Key> {
        self.by_id.get(id).copied()
    }

    /// Takes the process off the command that it was: its id may be another's soon.
    pub(super) fn take_process(&mut self, pid: u32) -> Option<Key> {
        self.by_pid.remove(&pid)
    }

    /// How many have not ended.
    pub(super) fn running(&self) -> usize {
        self.commands.len() - self.ended.len()
    }

    /// Every command, in the order in which they began.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.commands.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Says that a command has ended, and drops the oldest of what is too much.
    pub(super) fn ended(&mut self, key: Key) {
        self.ended.push_back(key);
        while self.ended.len() > MAX_ENDED {
            let Some(oldest) = self.ended.iter().copied().find(|&key| self.is_left(key)) else { break };
            self.forget(oldest);
        }
        let mut bytes = 0;
        for &key in self.ended.iter().rev() {
            let Some(command) = self.commands.get_mut(&key) else { continue };
            bytes += command.memory();
            if bytes > MAX_ENDED_BYTES && command.followers.is_empty() {
                bytes -= command.memory();
                command.drop_output();
            }
        }
    }

    /// Drops the record of a command that has ended.
    pub(super) fn forget(&mut self, key: Key) {
        self.ended.retain(|&ended| ended != key);
        if let Some(command) = self.commands.remove(&key) {
            self.by_id.remove(&command.record.id);
        }
    }

    fn is_left(&self, key: Key) -> bool {
        self.commands.get(&key).is_none_or(|command| command.followers.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::wire::Run;

    fn add(table: &mut Table, id: &str, terminal: &str, ended: bool) -> Key {
        let key = table.key();
        let run = Run { id: id.to_owned(), terminal: terminal.to_owned(), ..Run::default() };
        let mut command = Command::failed(key, &run, 0);
        if ended {
            assert!(command.finish());
        }
        table.insert(key, command);
        if ended {
            table.ended(key);
        }
        key
    }

    #[test]
    fn a_name_means_the_terminal_that_runs_and_else_the_newest() {
        let mut table = Table::default();
        add(&mut table, "1", "main", true);
        let second = add(&mut table, "2", "main", true);
        assert_eq!(table.find("main"), Some(second));
        let third = add(&mut table, "3", "main", false);
        add(&mut table, "4", "main", true);
        assert_eq!(table.find("main"), Some(third));
        assert_eq!(table.find(""), None);
        assert_eq!(table.with_id("main"), None);
    }

    #[test]
    fn the_oldest_records_go_when_there_are_too_many() {
        let mut table = Table::default();
        for number in 0..MAX_ENDED + 2 {
            add(&mut table, &number.to_string(), "", true);
        }
        assert_eq!(table.find("1"), None);
        assert!(table.find("2").is_some());
        assert_eq!((table.keys().len(), table.running()), (MAX_ENDED, 0));
    }
}
