//! Frames: of raw streams, and of what runs in a sandbox.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guest::wire::{self, Kind, Payload};
use crate::proto::copy::CopyOpen;
use crate::proto::errors::WireError;
use crate::proto::stream::{self, Doing, Exit, FrameKind, Open, Opened, Refused, Size};

/// A stream's opening, its answer, and frames behind them: what is read is written as what is read again.
pub(super) fn stream(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, mut rest) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    json::<Open>(line);
    json::<CopyOpen>(line);
    json::<Doing>(line);
    json::<Opened>(line);
    json::<Refused>(line);
    while let Some((header, behind)) = rest.split_first_chunk() {
        let Ok((kind, length)) = stream::parse_header(*header) else { return };
        assert!(length <= stream::MAX_FRAME_BYTES, "a frame of {length} bytes");
        let (payload, behind) = behind.split_at(length.min(behind.len()));
        match kind {
            Some(FrameKind::Resize) => json::<Size>(payload),
            Some(FrameKind::Exit) => json::<Exit>(payload),
            Some(FrameKind::Error) => json::<WireError>(payload),
            _ => {}
        }
        if let Some(kind) = kind {
            assert_eq!(stream::header(kind, length), *header, "{kind:?} has two headers");
        }
        rest = behind;
    }
}

fn json<T: DeserializeOwned + Serialize>(text: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(text) else { return };
    let text = serde_json::to_string(&value).expect("what was read can be written");
    let again: T = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("as before"), text);
}

/// Frames of either side: what is read is written as what is read again.
pub(super) fn guest(mut data: &[u8]) {
    while let Some((header, rest)) = data.split_first_chunk() {
        let Ok(parsed) = wire::Header::parse(*header, wire::MAX_TO_GUEST) else { return };
        let is_short = wire::Header::parse(*header, wire::MAX_FROM_GUEST).is_ok();
        assert_eq!(is_short, parsed.length <= wire::MAX_FROM_GUEST, "the limit of {header:?}");
        let (payload, rest) = rest.split_at(parsed.length.min(rest.len()));
        if let Some(kind) = parsed.kind {
            assert_eq!(wire::header(kind, parsed.stream, parsed.length), *header, "{kind:?} has two headers");
            frame(kind, payload);
        }
        data = rest;
    }
}

fn frame(kind: Kind, payload: &[u8]) {
    match kind {
        Kind::Welcome => decoded::<wire::Welcome>(payload),
        Kind::Run => decoded::<wire::Run>(payload),
        Kind::Follow => decoded::<wire::Follow>(payload),
        Kind::Credit => decoded::<wire::Credit>(payload),
        Kind::Resize => decoded::<wire::Size>(payload),
        Kind::Signal => decoded::<wire::Signal>(payload),
        Kind::Peek => decoded::<wire::Peek>(payload),
        Kind::Hello => decoded::<wire::Hello>(payload),
        Kind::Started => decoded::<wire::Started>(payload),
        Kind::Failed => decoded::<wire::Failed>(payload),
        Kind::Following => decoded::<wire::Following>(payload),
        Kind::Exited => decoded::<wire::Exited>(payload),
        Kind::Entry | Kind::Ended => decoded::<wire::Entry>(payload),
        Kind::Screen => decoded::<wire::Screen>(payload),
        Kind::Oom => decoded::<wire::Oom>(payload),
        Kind::Notice => decoded::<wire::Notice>(payload),
        Kind::Input | Kind::Stdout | Kind::Stderr | Kind::Redraw => {}
        Kind::InputEnd | Kind::Leave | Kind::List | Kind::Done | Kind::Active => {}
    }
}

fn decoded<T: Payload + PartialEq + std::fmt::Debug>(payload: &[u8]) {
    let Ok(value) = T::decode(payload) else { return };
    assert_eq!(T::decode(&value.encode()).as_ref(), Ok(&value));
}
