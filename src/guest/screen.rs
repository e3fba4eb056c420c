//! A stand-in for the screen's model: answers with blank screens.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use super::wire::{self, Size};

#[derive(Debug)]
pub(crate) struct Screen {
    answers: Mutex<Vec<Answer>>,
    size: Mutex<Size>,
    bytes: Mutex<Vec<u8>>,
    wake: OwnedFd,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Painted { token: u64, bytes: Vec<u8> },
    Peeked { token: u64, screen: wire::Screen },
    Room,
}

impl Screen {
    pub(crate) fn start(size: Size, _scrollback: u32, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self { answers: Mutex::default(), size: Mutex::new(size), bytes: Mutex::default(), wake })
    }

    pub(crate) fn feed(&self, bytes: &[u8]) -> bool {
        let mut all = self.bytes.lock().expect("one thread");
        all.extend_from_slice(bytes);
        let extra = all.len().saturating_sub(65536);
        all.drain(..extra);
        true
    }

    pub(crate) fn resize(&self, size: Size) {
        *self.size.lock().expect("one thread") = size;
    }

    pub(crate) fn redraw(&self, token: u64, _scrollback: u32) {
        let mut bytes = b"\x1bc".to_vec();
        bytes.extend_from_slice(&self.bytes.lock().expect("one thread"));
        self.answer(Answer::Painted { token, bytes });
    }

    pub(crate) fn peek(&self, token: u64, _scrollback: u32) {
        let size = *self.size.lock().expect("one thread");
        let bytes = self.bytes.lock().expect("one thread").clone();
        let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
        self.answer(Answer::Peeked {
            token,
            screen: wire::Screen { lines, size, ..wire::Screen::default() },
        });
    }

    pub(crate) fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.answers.lock().expect("one thread"))
    }

    fn answer(&self, answer: Answer) {
        self.answers.lock().expect("one thread").push(answer);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
