//! How much the daemon holds for all clients together: answers that they have not read, and messages that have come in
//! part. Each connection has bounds of its own, which a thousand of them would multiply.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that are held for all connections together. At the limit every request is refused with kind `limit`.
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;

/// From here on nothing long is begun: of a batch no more entries are carried out, and a long message that has come in
/// part is refused. What is left serves the short ones.
pub(super) const TIGHT_BYTES: usize = MAX_HELD_BYTES / 2;

/// A message that has come in part is short up to this many bytes: a thousand of them do no harm, and one that is typed by
/// hand takes its time.
pub(super) const SHORT_BYTES: usize = 64 * 1024;

/// What is held for all clients.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    held: AtomicUsize,
}

impl Memory {
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether no request may be carried out.
    pub(super) fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= MAX_HELD_BYTES
    }

    /// Whether nothing long may be begun.
    pub(super) fn is_tight(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= TIGHT_BYTES
    }
}

/// What one place holds of it. Dropping it gives that back.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<Memory>,
    bytes: AtomicUsize,
}

impl Share {
    /// So many bytes.
    pub(super) fn new(memory: &Arc<Memory>, bytes: usize) -> Self {
        let share = Self { memory: Arc::clone(memory), bytes: AtomicUsize::new(0) };
        share.grow(bytes);
        share
    }

    /// Holds so many bytes more; gives how many it held before.
    pub(super) fn grow(&self, bytes: usize) -> usize {
        self.memory.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Holds so many bytes from now on.
    pub(super) fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            self.memory.held.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.memory.held.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// How many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing long may be begun anywhere.
    pub(super) fn is_tight(&self) -> bool {
        self.memory.is_tight()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_anywhere_counts_until_it_is_given_back() {
        let memory = Arc::new(Memory::default());
        let (one, other) = (Share::new(&memory, TIGHT_BYTES - 1), Share::new(&memory, 0));
        assert!(!memory.is_tight());
        assert_eq!(other.grow(1), 0);
        assert!(memory.is_tight() && !memory.is_full());
        other.set(TIGHT_BYTES + 1);
        assert!(memory.is_full());
        other.set(0);
        assert!(!memory.is_tight());
        drop(other);
        assert_eq!(memory.held(), one.bytes());
        drop(one);
        assert_eq!(memory.held(), 0);
    }
}
