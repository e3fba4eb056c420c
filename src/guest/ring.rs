//! The last bytes of an output, each at its offset since the output began.
//!
//! Bytes are read into it in place and sent from it in place. It grows as it fills, up to what is to be kept.

use std::io::{IoSlice, IoSliceMut};

/// What it begins with, in bytes: as much as a pipe holds.
const FIRST_BYTES: usize = 64 * 1024;

/// A ring of bytes.
#[derive(Debug)]
pub(super) struct Ring {
    /// The byte at offset `n` is at `n % bytes.len()`.
    bytes: Vec<u8>,
    /// What it may grow to.
    limit: usize,
    /// What it may hold when nobody follows.
    keep: usize,
    /// Bytes ever written.
    end: u64,
    /// Nothing before this is here, though there might be room for it.
    floor: u64,
}

impl Ring {
    /// Keeps the last `limit` bytes, and never less than a pipe holds.
    pub(super) fn new(limit: usize) -> Self {
        let keep = limit.max(FIRST_BYTES);
        Self { bytes: Vec::new(), limit: keep, keep, end: 0, floor: 0 }
    }

    /// Offset of the oldest byte that is here: how many were dropped.
    pub(super) fn start(&self) -> u64 {
        self.floor.max(self.end.saturating_sub(self.bytes.len() as u64))
    }

    /// Offset after the newest byte: how many were written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Lets it grow to `limit`, if that is more than before.
    pub(super) fn raise(&mut self, limit: usize) {
        self.limit = self.limit.max(limit);
    }

    /// Whether it holds more than is to be kept.
    pub(super) fn is_over(&self) -> bool {
        self.bytes.len() > self.keep
    }

    /// Drops what is beyond that which is to be kept, and lets it grow no further again.
    pub(super) fn lower(&mut self) {
        self.limit = self.keep;
        if self.bytes.len() > self.limit {
            self.resize(self.limit);
        }
    }

    /// How many bytes, up to `wanted`, may be written now; grows for them where it may. What lies from `protect` on is
    /// not written over; none protects nothing.
    pub(super) fn room(&mut self, protect: Option<u64>, wanted: usize) -> usize {
        let held = to_usize(self.end - self.start());
        if self.bytes.len() - held < wanted && self.bytes.len() < self.limit {
            let double = (self.bytes.len() * 2).max(FIRST_BYTES).max(held + wanted);
            self.resize(double.min(self.limit));
        }
        let free = match protect {
            Some(from) => self.bytes.len() - to_usize(self.end - from.clamp(self.start(), self.end)),
            None => self.bytes.len(),
        };
        free.min(wanted)
    }

    /// Makes room for `more` bytes beside all that is here, past any limit. For the rest of a pipe whose writer ended.
    pub(super) fn make_room(&mut self, more: usize) {
        let held = to_usize(self.end - self.start());
        if self.bytes.len() - held < more {
            self.resize(held + more);
        }
    }

    /// Where the next `length` bytes go, which [`Self::room`] gave.
    pub(super) fn space(&mut self, length: usize) -> [IoSliceMut<'_>; 2] {
        let size = self.bytes.len().max(1) as u64;
        let at = to_usize(self.end % size);
        let (before, after) = self.bytes.split_at_mut(at);
        let first = after.len().min(length);
        [IoSliceMut::new(&mut after[..first]), IoSliceMut::new(&mut before[..length - first])]
    }

    /// Says that `length` bytes were written there.
    pub(super) fn wrote(&mut self, length: usize) {
        self.end += length as u64;
    }

    /// The bytes from `from` on, at most `most`; they may lie in two pieces.
    pub(super) fn slices(&self, from: u64, most: usize) -> [IoSlice<'_>; 2] {
        let from = from.clamp(self.start(), self.end);
        let length = to_usize(self.end - from).min(most);
        let at = to_usize(from % self.bytes.len().max(1) as u64);
        let first = (self.bytes.len() - at).min(length);
        [IoSlice::new(&self.bytes[at..at + first]), IoSlice::new(&self.bytes[..length - first])]
    }

    /// Gives back the memory that holds nothing. For an output that has ended.
    pub(super) fn shrink(&mut self) {
        self.resize(to_usize(self.end - self.start()));
    }

    /// Drops all that is here.
    pub(super) fn clear(&mut self) {
        self.floor = self.end;
        self.bytes = Vec::new();
    }

    fn resize(&mut self, size: usize) {
        let start = self.start().max(self.end.saturating_sub(size as u64));
        let mut bytes = vec![0; size];
        let mut at = start;
        for piece in self.slices(start, usize::MAX) {
            let mut piece = &piece[..];
            while !piece.is_empty() {
                let to = to_usize(at % size as u64);
                let length = piece.len().min(size - to);
                bytes[to..to + length].copy_from_slice(&piece[..length]);
                at += length as u64;
                piece = &piece[length..];
            }
        }
        self.bytes = bytes;
        self.floor = start;
    }
}

/// Lengths within the ring fit; a longer one is as good as the longest.
fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_for_a_follower_goes_with_it_and_what_is_to_be_kept_stays() {
        let mut ring = Ring::new(FIRST_BYTES);
        ring.raise(4 * FIRST_BYTES);
        let bytes: Vec<u8> = (0..3 * FIRST_BYTES).map(|at| (at / 1000) as u8).collect();
        write(&mut ring, &bytes);
        assert_eq!(ring.start(), 0);
        ring.lower();
        assert_eq!((ring.memory(), ring.start()), (FIRST_BYTES, 2 * FIRST_BYTES as u64));
        assert!(read(&ring, 0) == bytes[2 * FIRST_BYTES..]);
        write(&mut ring, b"more");
        assert_eq!(ring.memory(), FIRST_BYTES, "it does not grow again");
    }

    fn write(ring: &mut Ring, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = ring.room(None, rest.len());
            let mut from = rest;
            for mut piece in ring.space(room) {
                let (now, later) = from.split_at(piece.len());
                piece.copy_from_slice(now);
                from = later;
            }
            ring.wrote(room);
            rest = &rest[room..];
        }
    }

    fn read(ring: &Ring, from: u64) -> Vec<u8> {
        ring.slices(from, usize::MAX).iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
    }

    #[test]
    fn it_keeps_the_last_bytes_whatever_the_pieces_they_came_in() {
        let all = pattern(1_000_000);
        for piece in [1_000, 4_096, 65_536, 99_991] {
            let mut ring = Ring::new(200_000);
            for chunk in all.chunks(piece) {
                write(&mut ring, chunk);
            }
            assert_eq!(ring.end(), 1_000_000);
            assert_eq!(ring.start(), 800_000);
            assert_eq!(read(&ring, 0), all[800_000..]);
            assert_eq!(read(&ring, 900_001), all[900_001..]);
        }
    }

    #[test]
    fn it_grows_only_as_it_fills_and_gives_back_what_it_does_not_need() {
        let mut ring = Ring::new(1 << 20);
        assert_eq!(ring.memory(), 0);
        write(&mut ring, b"little");
        assert_eq!(ring.memory(), FIRST_BYTES);
        ring.shrink();
        assert_eq!((ring.memory(), read(&ring, 0)), (6, b"little".to_vec()));
        write(&mut ring, &pattern(300_000));
        assert_eq!((ring.start(), ring.end()), (0, 300_006));
    }

    #[test]
    fn what_is_protected_is_not_written_over() {
        let mut ring = Ring::new(FIRST_BYTES);
        write(&mut ring, &pattern(FIRST_BYTES));
        assert_eq!(ring.room(Some(0), 10), 0);
        assert_eq!(ring.room(Some(7), 10), 7);
        assert_eq!(ring.room(None, 10), 10);
        ring.make_room(100);
        assert_eq!(ring.room(Some(0), 1_000), 100);
        assert_eq!(read(&ring, 0), pattern(FIRST_BYTES));
    }

    #[test]
    fn what_is_cleared_counts_as_dropped() {
        let mut ring = Ring::new(1);
        write(&mut ring, b"gone");
        ring.clear();
        assert_eq!((ring.start(), ring.end(), ring.memory()), (4, 4, 0));
        assert_eq!(read(&ring, 0), b"");
        write(&mut ring, b"new");
        assert_eq!(read(&ring, 0), b"new");
    }
}
