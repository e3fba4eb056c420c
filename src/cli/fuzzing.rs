//! What a fuzzer gives bytes to: files of older tools, words of the command line, and what passes through to
//! a terminal.

use std::path::Path;

use jiff::Timestamp;

use super::detach::{self, Keys, Splitter, Typed};
use super::legacy::{self, Origin};
use super::modes::Tracker;
use super::start_args;
use crate::config::{parse_duration_ms, parse_size_bytes};
use crate::fuzzing::{number, pieces};
use crate::proto::sessions::ImportRow;

/// A file of an older tool: a row of it is read by the daemon as it was sent.
pub(crate) fn legacy(data: &[u8]) {
    for origin in [None, Some(Origin::Agentkernel), Some(Origin::AgentSandbox)] {
        match legacy::read(data, origin, Timestamp::UNIX_EPOCH) {
            Ok(legacy) => {
                let text = serde_json::to_string(&legacy.row).expect("a row can be sent");
                let again: ImportRow = serde_json::from_str(&text).expect("the daemon can read it");
                assert_eq!(again.row.name, legacy.row.row.name);
                assert_eq!(again.row.created_at, legacy.row.row.created_at);
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}

/// Words of the command line: what is taken is within its bounds.
pub(crate) fn flags(data: &[u8]) {
    /// The longest duration, in milliseconds, and the largest size, in bytes.
    const MOST: u64 = 9_000_000_000_000_000;
    let Ok(text) = str::from_utf8(data) else { return };
    assert!(!parse_duration_ms(text).is_ok_and(|ms| ms > MOST), "{text:?} is too long");
    assert!(!parse_size_bytes(text).is_ok_and(|bytes| bytes == 0 || bytes > MOST), "{text:?} bytes");
    assert!(
        !start_args::parse_cpus(text).is_ok_and(|cpus| !cpus.is_finite() || cpus <= 0.0),
        "{text:?} CPUs"
    );
    assert!(!start_args::parse_pair(text).is_ok_and(|(name, _)| name.is_empty()), "{text:?} has no name");
    if let Ok(port) = start_args::parse_port(text) {
        assert!(port.container > 0 && port.host != Some(0), "{text:?}");
    }
    if let Ok(mount) = start_args::parse_volume(text) {
        assert!(Path::new(&mount.target).is_absolute() && !mount.target.contains(':'), "{text:?}");
    }
    if let Ok(mount) = start_args::parse_workspace(text) {
        assert!(Path::new(&mount.source).is_absolute() && !mount.target.contains(':'), "{text:?}");
    }
    if let Ok(keys) = text.parse::<Keys>() {
        assert_eq!(keys.is_none(), text == "none");
        Splitter::new(&keys).feed(data);
    }
}

/// What is typed: nothing is made up, and without the keys that leave nothing is held for good.
pub(crate) fn detach(mut data: &[u8]) {
    let length = number(&mut data);
    let keys: Keys = detach::DEFAULT.parse().expect("the default is keys");
    let mut splitter = Splitter::new(&keys);
    let mut sent = Vec::new();
    for piece in pieces(data, length) {
        match splitter.feed(piece) {
            Typed::Send(bytes) => sent.extend(bytes),
            Typed::Leave(bytes) => {
                sent.extend(bytes);
                break;
            }
        }
    }
    sent.extend(splitter.finish());
    let mut typed = data.iter();
    assert!(sent.iter().all(|byte| typed.any(|other| other == byte)), "{sent:?} is not what was typed");
}

/// What a program sets in the user's terminal: undone alike however its output is cut, and once undone
/// nothing is left.
pub(crate) fn modes(mut data: &[u8]) {
    let length = number(&mut data);
    let (mut whole, mut in_pieces) = (Tracker::default(), Tracker::default());
    whole.watch(data);
    pieces(data, length).for_each(|piece| in_pieces.watch(piece));
    assert_eq!((in_pieces.undo(), in_pieces.mid_line()), (whole.undo(), whole.mid_line()));
    // What the output ended in the middle of is broken off.
    whole.watch(b"\x18\x1b\\");
    let undo = whole.undo();
    whole.watch(&undo);
    assert_eq!(
        String::from_utf8_lossy(&whole.undo()),
        "",
        "after {}",
        String::from_utf8_lossy(&undo).escape_debug()
    );
}
