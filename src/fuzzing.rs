//! One way in for a fuzzer to each parser that meets bytes from outside, with what must hold whatever the
//! bytes are.
//!
//! No part of the product: it is there with the feature `fuzzing` alone. `fuzz/` has the fuzzer, and inputs
//! that every run of the tests gives to every parser.

mod files;
#[cfg(test)]
mod tests;
mod wires;

#[cfg(target_os = "linux")]
use crate::guest::fuzzing as screen;
use crate::{cli::fuzzing as cli, daemon::framing::fuzzing as framing};

/// A parser.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Gives it bytes.
    ///
    /// # Panics
    /// When what must hold does not.
    pub run: fn(&[u8]),
}

/// Every parser.
pub const TARGETS: &[Target] = &[
    Target { name: "config", run: files::config },
    Target { name: "detach", run: cli::detach },
    Target { name: "engine", run: files::engine },
    Target { name: "envelope", run: framing::envelope },
    Target { name: "flags", run: cli::flags },
    Target { name: "framing", run: framing::first_bytes },
    Target { name: "guest", run: wires::guest },
    Target { name: "json", run: framing::json_texts },
    Target { name: "labels", run: files::labels },
    Target { name: "legacy", run: cli::legacy },
    Target { name: "length", run: framing::lengths },
    Target { name: "modes", run: cli::modes },
    #[cfg(target_os = "linux")]
    Target { name: "screen", run: screen::model },
    #[cfg(target_os = "linux")]
    Target { name: "split", run: screen::splitter },
    Target { name: "stream", run: wires::stream },
    Target { name: "tarball", run: files::tarball },
];

/// Takes a number off the front; 0 where there is none.
pub(crate) fn number(data: &mut &[u8]) -> u8 {
    let (&first, rest) = data.split_first().unwrap_or((&0, &[]));
    *data = rest;
    first
}

/// Cuts bytes into pieces of a length of 1 to 256.
pub(crate) fn pieces(data: &[u8], length: u8) -> impl Iterator<Item = &[u8]> {
    data.chunks(usize::from(length) + 1)
}
