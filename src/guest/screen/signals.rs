//! Finds what a program says to its user through its terminal: the bell, notifications, and whether it shows progress.
//!
//! Three kinds of terminals have escapes of their own for a notification (OSC 9 of iTerm2, OSC 99 of kitty, OSC 777 of
//! rxvt-unicode); programs send whichever they believe in.

mod kitty;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::wire::Notice;

/// Time in which so many are passed on. Others are dropped: whoever shows them could not show more anyway.
const TURN: Duration = Duration::from_secs(1);

/// Notifications in a turn.
const MAX_IN_TURN: u32 = 5;

const BELL: u8 = 0x07;

/// What one program says.
#[derive(Debug, Default)]
pub(super) struct Signals {
    found: Vec<Notice>,
    rang: bool,
    /// Whether it shows progress, and whether that was told.
    progress: bool,
    told_progress: bool,
    kitty: kitty::Chunks,
    bells: Turn,
    others: Turn,
}

/// Counts within a span of time.
#[derive(Debug, Default)]
struct Turn {
    began: Option<Instant>,
    count: u32,
}

impl Turn {
    /// Whether one more may pass.
    fn takes(&mut self, now: Instant, most: u32) -> bool {
        if self.began.is_none_or(|began| now.duration_since(began) >= TURN) {
            *self = Self { began: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= most
    }
}

impl Signals {
    /// Looks for a bell where no command is.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.rang |= text.contains(&BELL);
    }

    /// Looks at an operating system command, with its `ESC ]` and its end.
    pub(super) fn command(&mut self, command: &[u8]) {
        let Some((number, text)) = parts(command) else { return };
        let found = match number {
            b"9" => self.osc9(text),
            b"99" => self.kitty.take(text),
            b"777" => osc777(text),
            _ => None,
        };
        // More than may pass in a turn is not kept.
        if let Some(notice) = found.filter(|_| self.found.len() < MAX_IN_TURN as usize) {
            self.found.push(notice);
        }
    }

    /// Takes what was found, as far as it may pass now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Notice> {
        let mut passed = Vec::new();
        if std::mem::take(&mut self.rang) && self.bells.takes(now, 1) {
            passed.push(notice(Notice::BELL, "", ""));
        }
        for found in self.found.drain(..) {
            if self.others.takes(now, MAX_IN_TURN) {
                passed.push(found);
            }
        }
        // Its end passes always: nobody would look again, and whoever waits for it would wait for ever. There are no more of
        // them than of beginnings.
        let passes = |turn: &mut Turn| !self.progress || turn.takes(now, MAX_IN_TURN);
        if self.progress != self.told_progress && passes(&mut self.others) {
            self.told_progress = self.progress;
            let state = if self.progress { Notice::WORKING } else { Notice::NOTHING };
            passed.push(Notice { state, ..notice(Notice::PROGRESS, "", "") });
        }
        passed
    }

    /// A notification, or one of ConEmu's commands, which have a number of their own: 4 is progress.
    fn osc9(&mut self, text: &[u8]) -> Option<Notice> {
        let mut words = text.split(|b| *b == b';');
        let number = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse::<u8>().ok());
        match number {
            Some(4) => {
                let state = words.next().unwrap_or_default();
                self.progress = !matches!(state, b"" | b"0");
                None
            }
            Some(1..=12) => None,
            _ if text.is_empty() => None,
            _ => Some(notice(Notice::OSC9, "", text)),
        }
    }
}

/// The number of a command and the rest of it; none where it was broken off.
fn parts(command: &[u8]) -> Option<(&[u8], &[u8])> {
    let begun = command.strip_prefix(b"\x1b]")?;
    let text = begun.strip_suffix(b"\x07").or_else(|| begun.strip_suffix(b"\x1b\\"))?;
    let at = text.iter().position(|b| *b == b';')?;
    Some((&text[..at], &text[at + 1..]))
}

fn osc777(text: &[u8]) -> Option<Notice> {
    let text = text.strip_prefix(b"notify;")?;
    let mut words = text.splitn(2, |b| *b == b';');
    let (title, body) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    Some(notice(Notice::OSC777, title, body))
}

fn notice(source: u8, title: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Notice {
    let text = |bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(Notice::MAX_TEXT_BYTES)];
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        text.truncate(text.floor_char_boundary(Notice::MAX_TEXT_BYTES));
        text
    };
    let (title, body) = (text(title.as_ref()), text(body.as_ref()));
    Notice { exec: String::new(), source, state: Notice::WAITING, title, body }
}
