//! Who follows a command on a stream, how far it is, and what it may get next.

use super::ring::Ring;
use super::terminal::BEHIND_BYTES;
use super::wire::{INPUT_WINDOW, Kind, MAX_DATA_BYTES, Size};

/// Input that was taken is given back as credit in pieces of at least this, in bytes: a credit for each keystroke would
/// cost as much as the keystroke.
const CREDIT_BYTES: usize = INPUT_WINDOW as usize / 4;

/// A follower.
#[derive(Debug)]
pub(super) struct Follower {
    /// Its stream.
    pub(super) stream: u32,
    /// Offsets of what it gets next, of each output.
    pub(super) at: [u64; 2],
    /// Bytes that it may still get.
    credit: u64,
    /// What it was given at first; none waits for the end alone.
    window: u64,
    /// Whether its input and its size count.
    pub(super) writes: bool,
    /// Its size, if it has said one.
    pub(super) size: Option<Size>,
    /// What it sees of a terminal.
    pub(super) view: View,
    /// Input that it may still send, in bytes.
    input: usize,
    /// Input of it that was taken and not given back yet.
    owed: usize,
    /// Whether standard error goes next.
    turn: bool,
}

/// What a follower sees of a terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The bytes as they come.
    Live,
    /// Nothing any more: it is to be painted when it takes bytes again.
    Behind,
    /// Nothing yet: a screen is being painted.
    Asked,
    /// The painted screen, of which so many bytes were sent.
    Painting(Vec<u8>, usize),
}

impl View {
    /// The screen that these bytes paint, from its beginning. A painting of nothing is done already.
    pub(super) fn painting(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Live } else { Self::Painting(bytes, 0) }
    }
}

/// What a follower gets next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// So many bytes of an output.
    Output(usize, usize),
    /// So many bytes of the painted screen.
    Screen(usize),
    /// A fresh screen has to be painted first.
    Paint,
    /// Nothing, until something changes.
    Nothing,
}

impl Follower {
    /// Follows from these offsets on.
    pub(super) fn new(stream: u32, window: u32, at: [u64; 2]) -> Self {
        Self {
            stream,
            at,
            credit: window.into(),
            window: window.into(),
            writes: true,
            size: None,
            view: View::Live,
            input: INPUT_WINDOW as usize,
            owed: 0,
            turn: false,
        }
    }

    /// Whether it wants output at all.
    pub(super) fn wants_output(&self) -> bool {
        self.window > 0
    }

    /// Lets it have more.
    pub(super) fn give(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    /// Whether it takes bytes now.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Bytes that were sent and may not have arrived.
    pub(super) fn under_way(&self) -> u64 {
        self.window.saturating_sub(self.credit)
    }

    /// Whether it has all that was written.
    pub(super) fn is_done(&self, rings: [&Ring; 2]) -> bool {
        let all = (0..2).all(|which| self.at[which] >= rings[which].end());
        !self.wants_output() || (all && self.view == View::Live)
    }

    /// What it gets next. Of two outputs that both have something, each in turn.
    pub(super) fn next(&mut self, rings: [&Ring; 2], terminal: bool) -> Next {
        if !self.wants_output() {
            return Next::Nothing;
        }
        let most = usize::try_from(self.credit).unwrap_or(usize::MAX).min(MAX_DATA_BYTES);
        match &self.view {
            View::Painting(bytes, done) if most > 0 => return Next::Screen((bytes.len() - done).min(most)),
            View::Painting(..) | View::Asked => return Next::Nothing,
            View::Behind if most > 0 => return Next::Paint,
            View::Behind => return Next::Nothing,
            View::Live => {}
        }
        let waits = |which: usize| rings[which].end().saturating_sub(self.at[which]);
        let cut = self.at[0] < rings[0].start();
        if terminal && (cut || (most == 0 && waits(0) > BEHIND_BYTES)) {
            self.view = View::Behind;
            return if most > 0 { Next::Paint } else { Next::Nothing };
        }
        let which = match (waits(0), waits(1)) {
            (0, 0) => return Next::Nothing,
            (_, 0) => 0,
            (0, _) => 1,
            _ => usize::from(self.turn),
        };
        let length = usize::try_from(waits(which)).unwrap_or(usize::MAX).min(most);
        if length == 0 { Next::Nothing } else { Next::Output(which, length) }
    }

    /// Says that it got bytes of an output.
    pub(super) fn got(&mut self, which: usize, length: usize) {
        self.at[which] += length as u64;
        self.credit -= (length as u64).min(self.credit);
        self.turn = which == 0;
    }

    /// Says that it got bytes of the painted screen.
    pub(super) fn got_screen(&mut self, length: usize) {
        self.credit -= (length as u64).min(self.credit);
        if let View::Painting(bytes, done) = &mut self.view {
            *done += length;
            if *done == bytes.len() {
                self.view = View::Live;
            }
        }
    }

    /// Counts input that it sent; none when that is more than it may.
    pub(super) fn sent(&mut self, bytes: usize) -> Option<()> {
        self.input = self.input.checked_sub(bytes)?;
        Some(())
    }

    /// Counts input of it that was taken; gives the credit that is due: little of it only if that `settles` what it sent.
    pub(super) fn taken(&mut self, bytes: usize, settles: bool) -> Option<u32> {
        self.owed += bytes;
        if self.owed < CREDIT_BYTES && !(settles && self.owed > 0) {
            return None;
        }
        let due = std::mem::take(&mut self.owed);
        self.input += due;
        u32::try_from(due).ok()
    }
}

/// The kind of frame that an output's bytes travel in.
pub(super) fn kind(which: usize) -> Kind {
    if which == 0 { Kind::Stdout } else { Kind::Stderr }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame and some.
    const CREDIT: usize = MAX_DATA_BYTES + 5000;

    /// More than a follower may be behind.
    const MORE: usize = 300_000;

    fn ring(bytes: usize) -> Ring {
        let mut ring = Ring::new(1 << 20);
        assert_eq!(ring.room(None, bytes), bytes);
        ring.wrote(bytes);
        ring
    }

    #[test]
    fn output_flows_within_credit_and_each_of_the_two_in_turn() {
        let (out, err) = (ring(200_000), ring(10));
        let mut follower = Follower::new(1, CREDIT as u32, [0, 0]);
        assert_eq!(follower.next([&out, &err], false), Next::Output(0, MAX_DATA_BYTES));
        follower.got(0, MAX_DATA_BYTES);
        assert_eq!(follower.next([&out, &err], false), Next::Output(1, 10));
        follower.got(1, 10);
        let rest = CREDIT - MAX_DATA_BYTES - 10;
        assert_eq!(follower.next([&out, &err], false), Next::Output(0, rest));
        follower.got(0, rest);
        assert_eq!(follower.next([&out, &err], false), Next::Nothing);
        assert_eq!(follower.under_way(), CREDIT as u64);
        follower.give(5);
        assert_eq!(follower.next([&out, &err], false), Next::Output(0, 5));
    }

    #[test]
    fn a_follower_of_a_terminal_that_is_too_far_behind_is_painted_when_it_takes_bytes_again() {
        let (out, err) = (ring(MORE), ring(0));
        let mut follower = Follower::new(1, 10, [0, 0]);
        follower.got(0, 10);
        assert_eq!(follower.next([&out, &err], true), Next::Nothing);
        assert_eq!(follower.view, View::Behind);
        follower.give(200_000);
        assert_eq!(follower.next([&out, &err], true), Next::Paint);
        follower.view = View::Painting(vec![0; CREDIT], 0);
        follower.at = [MORE as u64, 0];
        assert_eq!(follower.next([&out, &err], true), Next::Screen(MAX_DATA_BYTES));
        follower.got_screen(MAX_DATA_BYTES);
        assert!(!follower.is_done([&out, &err]));
        follower.got_screen(CREDIT - MAX_DATA_BYTES);
        assert!(follower.is_done([&out, &err]));
    }

    #[test]
    fn credit_for_input_comes_in_few_pieces_and_all_of_it() {
        let mut follower = Follower::new(1, 0, [0, 0]);
        assert!(follower.sent(INPUT_WINDOW as usize).is_some());
        assert!(follower.sent(1).is_none());
        let given: u32 = (0..INPUT_WINDOW / 1024).filter_map(|_| follower.taken(1024, false)).sum();
        assert_eq!(given, INPUT_WINDOW);
        assert_eq!(
            (follower.taken(5, false), follower.taken(1, true), follower.taken(0, true)),
            (None, Some(6), None)
        );
        assert!(follower.sent(INPUT_WINDOW as usize).is_some());
    }
}
